"""What can be bought, in the words of the solvers: each offering a kind by its name, and what limits them."""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.offerings.offerings import Offering, Offerings
from fleet.optimize.inputs import MACHINES
from fleet.optimize.purchase import Limit, MachineKind
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.snapshot.affinity import admits
from model import labels
from model.kinds import NodePool
from model.pools import capacity_rank
from model.quantity import CPU, Resources

_MICRO = 1_000_000
_PRICE = "micro-USD an hour"
"""The price as limits count it: what machines are chosen by may be more."""


class Tier(NamedTuple):
    """What `place_gang` decides by the order of preference, whatever is cheaper."""

    weight: int
    """Of the pool."""
    rank: int
    """Of the capacity type in the pool's order."""


@dataclass(slots=True)
class OfferingCatalog:
    """The offerings that come into question."""

    supply: BuyableCapacity
    kinds: dict[str, MachineKind] = field(default_factory=dict)
    offerings: dict[str, Offering] = field(default_factory=dict)
    _known: dict[Hashable, frozenset[str]] = field(default_factory=dict)

    def kinds_like(self, need: Need, wanted: Sequence[Offering], zones: frozenset[str] | None) -> frozenset[str]:
        """Names of the kinds that pods of a need may stand on, of the tiers of the offerings `wanted`.

        In these zones, None = in any. Where a pool's `minValues` leave too little choice, only what is wanted.
        """
        asked = (
            need.kind,
            frozenset((offering.pool.name, tier_of(offering), offering.offer.zone) for offering in wanted),
            zones,
        )
        if asked not in self._known:
            found = [it for pool in need.pools for it in self._like(need, pool, wanted, zones)]
            enough = Offerings.flexible(wanted[0].pool, found)
            self._known[asked] = frozenset(self.name(offering) for offering in (found if enough else wanted))
        return self._known[asked]

    def _like(
        self, need: Need, pool: NodePool, wanted: Sequence[Offering], zones: frozenset[str] | None
    ) -> Iterator[Offering]:
        """Offerings of a pool that may be bought instead. What has a placement is neither left nor joined."""
        if pool.spec.replicas is not None:
            return
        own = {it.offer.zone for it in wanted if it.pool.name == pool.name}
        if _placed(pool) or any(_placed(it.pool) for it in wanted):
            zones = frozenset(own)
        tiers = {tier_of(offering) for offering in wanted}
        for offering in self.supply.offerings.of(pool):
            here = zones is None or offering.offer.zone in zones
            if here and tier_of(offering) in tiers and self._to_be_had(offering, need):
                yield offering

    def kinds_in(
        self, need: Need, zones: Container[str], capacity_types: Mapping[str, Container[str]]
    ) -> frozenset[str]:
        """Names of the kinds that pods of a need may stand on in these zones, of capacity types by pool."""
        found: list[Offering] = []
        for pool in need.pools:
            if pool.spec.replicas is None and pool.name in capacity_types:
                able = [
                    offering
                    for offering in self.supply.offerings.of(pool)
                    if offering.offer.zone in zones
                    and offering.offer.capacity_type in capacity_types[pool.name]
                    and self._to_be_had(offering, need)
                ]
                found += able if Offerings.flexible(pool, able) else []
        return frozenset(self.name(offering) for offering in found)

    def _to_be_had(self, offering: Offering, need: Need) -> bool:
        """Whether a machine of an offering may be bought for pods of a need, limits aside."""
        return (
            offering.offer.pool_key not in self.supply.shortages
            and offering.closes_s > need.until_s
            and not self.supply.headroom[offering.pool.name].bound_to(offering)
            and admits(need.pod_set, need.tolerations, offering.labels, offering.taints)
        )

    def name(self, offering: Offering) -> str:
        """The name of its kind."""
        name = "/".join(map(str, offering.key))
        if name not in self.kinds:
            room = {resource: max(0, amount) for resource, amount in offering.allocatable.items()}
            limited = self.supply.headroom[offering.pool.name].resources
            capacity = offering.offer.instance_type.capacity
            room |= {_limited(resource): capacity.get(resource, 0) for resource in limited}
            room[_PRICE] = round(_MICRO * offering.offer.price_usd_h)
            self.kinds[name] = MachineKind(name, self.supply.expected_usd_h(offering.offer), room)
            self.offerings[name] = offering
        return name

    def premium(self, kind: MachineKind) -> float:
        """The part of its price that a kind is expected to cost beside it."""
        return self.supply.premiums.get(self.offerings[kind.name].offer.pool_key, 0.0)

    def resources(self, asked: Iterable[str], pools: Iterable[str]) -> tuple[str, ...]:
        """What pods ask for, in the order that sorts them in Karpenter's, and what the limits of these pools count."""
        return (*sorted(set(asked), key=lambda name: (_FIRST.get(name, 2), name)), *self._limited(pools))

    def limits_of(self, pools: Iterable[str], spent: Sequence[PlannedNodeClaims] = ()) -> Iterator[Limit]:
        """What these pools may still buy, with what was `spent` of it already."""
        for pool in pools:
            mine = [lot for lot in spent if lot.offering.pool.name == pool]
            kinds = frozenset(name for name, offering in self.offerings.items() if offering.pool.name == pool)
            left = self.supply.headroom[pool]
            if left.nodes is not None:
                most = left.nodes + sum(lot.count for lot in mine)
                yield Limit(f"machines of {pool}", MACHINES, max(0, most), kinds)
            if left.usd_h is not None:
                usd_h = sum(lot.count * lot.offering.offer.price_usd_h for lot in mine)
                most_usd_h = max(0.0, left.usd_h + usd_h)
                yield Limit(f"price of {pool}", _PRICE, int(_MICRO * most_usd_h + 1e-3), kinds)
            for resource, amount in left.resources.items():
                most = amount + sum(lot.count * _capacity(lot.offering).get(resource, 0) for lot in mine)
                yield Limit(f"{resource} of {pool}", _limited(resource), max(0, most), kinds)
        yield from self._reserved(spent)

    def _reserved(self, spent: Sequence[PlannedNodeClaims]) -> Iterator[Limit]:
        """What the reservations still have."""
        by_reservation: dict[str, list[str]] = {}
        for name, offering in self.offerings.items():
            if offering.offer.reservation is not None:
                by_reservation.setdefault(offering.offer.reservation.id, []).append(name)
        for reservation, kinds in sorted(by_reservation.items()):
            of_it = [lot for lot in spent if lot.offering.offer.pool_key.reservation == reservation]
            left = max(
                self.supply.headroom[self.offerings[it].pool.name].reserved_left(self.offerings[it]) or 0
                for it in kinds
            )
            most = left + sum(lot.count for lot in of_it)
            yield Limit(f"reservation {reservation}", MACHINES, max(0, most), frozenset(kinds))

    def _limited(self, pools: Iterable[str]) -> list[str]:
        """The resources as the limits of these pools count them."""
        found = [self.supply.headroom[pool] for pool in pools]
        counted = {_limited(name) for left in found for name in left.resources}
        return sorted(counted | {_PRICE for left in found if left.usd_h is not None})


_FIRST = {CPU: 0, "memory": 1}


def tier_of(offering: Offering) -> Tier:
    """The tier of an offering."""
    return Tier(offering.pool.spec.weight, capacity_rank(offering.pool, offering.offer.capacity_type))


def model_of(offering: Offering) -> str:
    """The GPU model of its machine; empty = it has none."""
    return offering.labels.get(labels.INSTANCE_GPU_NAME, "")


def _placed(pool: NodePool) -> bool:
    """Whether its machines stand close together, or talk over a fabric of their own."""
    return bool(pool.spec.placement.group) or pool.spec.placement.fabric


def _limited(resource: str) -> str:
    """The resource as limits count it: the machine's capacity, before any cut and without overhead."""
    return f"capacity of {resource}"


def _capacity(offering: Offering) -> Resources:
    return offering.offer.instance_type.capacity
