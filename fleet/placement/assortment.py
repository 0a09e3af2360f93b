"""What could be bought for pods of one sort in a zone, in the order in which it is tried; worked out once a pass.

Limits, shortages and what is left of reservations change from gang to gang and are asked when a lot is chosen; which
machines hold the pods, and what they cost, is not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fleet.offerings.pools import capacity_rank
from fleet.offerings.reservations import preference
from fleet.offerings.shapes import Shape, Shapes
from fleet.placement.bought import slot_of
from fleet.snapshot import Offer
from fleet.snapshot.affinity import admits
from model.kinds import NodePool

if TYPE_CHECKING:
    from fleet.placement.provision import Need

DIGITS = 9
"""Costs that differ by less are equal: rounding must not decide, but the tiny prices of reserved machines may."""


class Choice(NamedTuple):
    """A shape, and how well it suits."""

    shape: Shape
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
    """All shapes of a need's pools in a zone that its pods may stand on."""

    pools: tuple[tuple[NodePool, tuple[Choice, ...]], ...]
    seen: int
    """Shapes that pods select and tolerate."""
    too_short: frozenset[str]
    """Capacity blocks that end before the pods would."""
    _ranked: dict[tuple[int, bool], Ranking] = field(default_factory=dict)

    @classmethod
    def of(cls, need: "Need", zone: str, shapes: Shapes, expected_usd_h: Callable[[Offer], float]) -> "Assortment":
        """The assortment for one need."""
        found, too_short, seen = [], set(), 0
        for pool in need.pools:
            able = list(_able(need, pool, zone, shapes)) if pool.spec.replicas is None else []
            too_short |= {str(shape.offer.pool_key) for shape in able if shape.closes_s <= need.until_s}
            lasting = [shape for shape in able if shape.closes_s > need.until_s]
            seen += len(lasting)
            choices = (_choice(need, shape, expected_usd_h) for shape in lasting)
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
            if Shapes.flexible(pool, [it.shape for it in roomy]):
                usable += roomy
            else:
                inflexible.add(pool.name)
        ranked = sorted(usable, key=lambda it: it.rank(missing, -(-missing // it.fits)))
        return Ranking(
            tuple(it for it in ranked if it.shape.offer.reservation is None),
            tuple(it for it in ranked if it.shape.offer.reservation is not None),
            frozenset(inflexible),
        )


def _able(need: "Need", pool: NodePool, zone: str, shapes: Shapes) -> Iterator[Shape]:
    for shape in shapes.of(pool):
        if shape.offer.zone == zone and admits(need.pod_set, need.tolerations, shape.labels, shape.taints):
            yield shape


def _choice(need: "Need", shape: Shape, expected_usd_h: Callable[[Offer], float]) -> Choice:
    offer = shape.offer
    return Choice(
        shape,
        slot_of(shape, "probe").room_for(need.pod_set.requests),
        capacity_rank(shape.pool, offer.capacity_type),
        need.rank(shape.pool),
        expected_usd_h(offer),
        (preference(offer), shape.key),
    )
