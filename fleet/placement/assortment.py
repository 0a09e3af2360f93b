"""What could be bought for pods of one sort in a zone, in the order in which it is tried; worked out once a pass.

Limits, shortages and what is left of reservations change from gang to gang and are asked when a lot is chosen; which
machines hold the pods, and what they cost, is not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fleet.offerings.offerings import Offering, Offerings
from fleet.offerings.reservations import preference
from fleet.placement.bought import slot_of
from fleet.snapshot import InstanceOffer
from fleet.snapshot.affinity import admits
from model.kinds import NodePool
from model.pools import capacity_rank

if TYPE_CHECKING:
    from fleet.placement.provision import Need

DIGITS = 9
"""Costs that differ by less are equal: rounding must not decide, but the tiny prices of reserved machines may."""


class Choice(NamedTuple):
    """An offering, and how well it suits."""

    offering: Offering
    fits: int
    """Pods that one machine holds."""
    capacity_rank: int
    pool_rank: int
    usd_h: float
    """Expected cost of one machine."""
    last: tuple[object, ...]
    """Ends every tie."""

    def rank(self, missing: int, count: int) -> tuple[object, ...]:
        """The place of `count` such machines for `missing` pods: what holds all of them before what does not."""
        short = -(-missing // self.fits) - count
        return (self.capacity_rank, self.pool_rank, short, round(count * self.usd_h, DIGITS), self.last)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Choices for so many pods."""

    open: tuple[Choice, ...]
    """Best first, by what holds all pods."""
    reserved: tuple[Choice, ...]
    """Of reservations, which may have too few left."""
    inflexible: frozenset[str]
    """Pools whose `minValues` leave nothing of them."""


@dataclass(frozen=True, slots=True)
class Assortment:
    """All offerings of a need's pools in a zone that its pods may stand on."""

    pools: tuple[tuple[NodePool, tuple[Choice, ...]], ...]
    seen: int
    """Offerings that pods select and tolerate."""
    too_short: frozenset[str]
    """Capacity blocks that end before the pods would."""
    _ranked: dict[tuple[int, bool], Ranking] = field(default_factory=dict)

    @classmethod
    def of(
        cls, need: "Need", zone: str, offerings: Offerings, expected_usd_h: Callable[[InstanceOffer], float]
    ) -> "Assortment":
        """The assortment for one need."""
        found, too_short, seen = [], set(), 0
        for pool in need.pools:
            able = list(_able(need, pool, zone, offerings)) if pool.spec.replicas is None else []
            too_short |= {str(offering.offer.pool_key) for offering in able if offering.closes_s <= need.until_s}
            lasting = [offering for offering in able if offering.closes_s > need.until_s]
            seen += len(lasting)
            choices = (_choice(need, offering, expected_usd_h) for offering in lasting)
            found.append((pool, tuple(it for it in choices if it.fits)))
        return cls(tuple(found), seen, frozenset(too_short))

    def ranking(self, missing: int, *, whole: bool) -> Ranking:
        """What to try for `missing` pods; `whole`: all of them on one machine."""
        if (missing, whole) not in self._ranked:
            self._ranked[missing, whole] = self._rank(missing, missing if whole else 1)
        return self._ranked[missing, whole]

    def _rank(self, missing: int, least: int) -> Ranking:
        usable: list[Choice] = []
        inflexible: set[str] = set()
        for pool, choices in self.pools:
            roomy = [it for it in choices if it.fits >= least]
            if Offerings.flexible(pool, [it.offering for it in roomy]):
                usable += roomy
            else:
                inflexible.add(pool.name)
        ranked = sorted(usable, key=lambda it: it.rank(missing, -(-missing // it.fits)))
        return Ranking(
            tuple(it for it in ranked if it.offering.offer.reservation is None),
            tuple(it for it in ranked if it.offering.offer.reservation is not None),
            frozenset(inflexible),
        )


def _able(need: "Need", pool: NodePool, zone: str, offerings: Offerings) -> Iterator[Offering]:
    for offering in offerings.of(pool):
        if offering.offer.zone == zone and admits(need.pod_set, need.tolerations, offering.labels, offering.taints):
            yield offering


def _choice(need: "Need", offering: Offering, expected_usd_h: Callable[[InstanceOffer], float]) -> Choice:
    offer = offering.offer
    return Choice(
        offering,
        slot_of(offering, "probe").room_for(need.pod_set.requests),
        capacity_rank(offering.pool, offer.capacity_type),
        need.rank(offering.pool),
        expected_usd_h(offer),
        (preference(offer), offering.key),
    )
