"""Counts what pools may still buy: machines, money, resources, reserved machines, the zone of a placement group."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.mig.records import stopped_words
from fleet.offerings.allocatable import profiled
from fleet.offerings.offerings import Offering
from fleet.offerings.reservations import ReservationCapacity
from fleet.snapshot import CapacityPool, Catalog, Claim, Instance, Snapshot
from fleet.snapshot.lookups import claims_by_pool_whatever_runs, unclaimed
from model import labels
from model.fleet import Fleet
from model.index import Index, derived
from model.kinds import NodePool
from model.quantity import Resources


def headroom_of_pools(fleet: Fleet, snapshot: Snapshot) -> dict[str, "PoolHeadroom"]:
    """Returns pool -> what it may still buy, in order of name.

    Pools that share reservations or a placement group share these counters.
    """
    reserved = ReservationCapacity.of(snapshot)
    groups = _placement_groups(fleet.node_pools, snapshot.claims.values())
    return {
        name: PoolHeadroom.of(snapshot, pool, reserved, groups.get(name))
        for name, pool in sorted(fleet.node_pools.items())
    }


@dataclass(slots=True)
class PoolHeadroom:
    """A `PoolHeadroom` is what a pool may still buy under its limits (Karpenter NodePool limits); None = no bound."""

    nodes: int | None
    usd_h: float | None
    """What its machines may still cost, in USD an hour."""
    resources: dict[str, int]
    reserved: ReservationCapacity = field(default_factory=ReservationCapacity)
    """Machines left in capacity reservations; one object for all pools."""
    grouped: Counter[str] | None = None
    """Machines of its cluster placement group by zone, shared by the pools that name it; None = it has none."""
    stopped: str = ""
    """Why nothing is bought at all, whatever limits say: machines of the pool could not be cut lately."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        pool: NodePool,
        reserved: ReservationCapacity | None = None,
        grouped: Counter[str] | None = None,
    ) -> "PoolHeadroom":
        """Returns the pool's limits less what its machines take, including those that are leaving: they still bill.

        Machines that no claim answers for (yet, or any more) bill too. Resources are counted by the capacity of the
        machines, before any MIG layout (as in Karpenter).
        """
        limits, claims = pool.spec.limits, claims_by_pool_whatever_runs(snapshot).get(pool.name, ())
        strays = _strays(snapshot).get(pool.name, ())

        def mine() -> Iterator[_CountedMachine]:
            yield from (_CountedMachine(it.capacity_pool.instance_type, it.price_usd_h, it.resources) for it in claims)
            yield from strays

        return cls(
            None if limits.nodes is None else limits.nodes - len(claims) - len(strays),
            None if limits.usd_per_hour is None else limits.usd_per_hour - sum(it.price_usd_h for it in mine()),
            {
                name: most - sum(_capacity(snapshot, pool, it).get(name, 0) for it in mine())
                for name, most in limits.resources.items()
            },
            reserved or ReservationCapacity(),
            grouped,
            stopped_words(snapshot.layout_records.get(pool.name)),
        )

    def most(self, offering: Offering) -> int:
        """Returns how many machines of an offering may be bought: by the limits and by its reservation, if any."""
        left = self.reserved_left(offering)
        return self.allowed(offering) if left is None else max(0, min(left, self.allowed(offering)))

    def reserved_left(self, offering: Offering) -> int | None:
        """Returns how many machines the reservation of an offering still has; None for one without a reservation."""
        return self.reserved.most(offering.offer, offering.closes_s)

    def bound_to(self, offering: Offering) -> str:
        """Returns the zone that the pool's placement group is bound to, if the offering is in another; else empty."""
        if not self.grouped:
            return ""
        zone = offering.offer.zone
        return next((its for its, count in sorted(self.grouped.items()) if count and its != zone), "")

    def allowed(self, offering: Offering) -> int:
        """Returns how many machines of an offering the limits and the placement group allow, reservations aside."""
        if self.stopped or self.bound_to(offering):
            return 0
        bounds = [] if self.nodes is None else [self.nodes]
        if self.usd_h is not None and offering.offer.price_usd_h > 0:
            bounds.append(int((self.usd_h + 1e-9) // offering.offer.price_usd_h))
        bounds += [
            left // each
            for name, left in self.resources.items()
            if (each := offering.offer.instance_type.capacity.get(name, 0))
        ]
        return max(0, min(bounds, default=1 << 30))

    def spend(self, offering: Offering, count: int) -> None:
        """Deducts `count` machines of an offering from all counters; a negative count gives them back."""
        self.reserved.take(offering.offer, count)
        if self.grouped is not None:
            self.grouped[offering.offer.zone] += count
        if self.nodes is not None:
            self.nodes -= count
        if self.usd_h is not None:
            self.usd_h -= offering.offer.price_usd_h * count
        for name in self.resources:
            self.resources[name] -= offering.offer.instance_type.capacity.get(name, 0) * count


def _placement_groups(pools: Mapping[str, NodePool], claims: Iterable[Claim]) -> dict[str, Counter[str]]:
    """Returns pool -> zone -> machines of its cluster placement group; pools without one are missing.

    A cluster placement group is of one zone (EC2 User Guide, "Placement groups"), and a machine that is leaving still
    stands in it.
    """
    named = {name: place for name, pool in pools.items() if (place := pool.spec.placement).group}
    clusters: dict[str, Counter[str]] = {it.group: Counter() for it in named.values() if it.strategy == "cluster"}
    by_pool = {name: clusters[place.group] for name, place in named.items() if place.group in clusters}
    for claim in claims if by_pool else ():
        if claim.node_pool in by_pool:
            by_pool[claim.node_pool][claim.capacity_pool.zone] += 1
    return by_pool


class _CountedMachine(NamedTuple):
    """A machine as limits see it. `resources` count where its type is no longer known."""

    instance_type: str
    price_usd_h: float
    resources: Resources


def _strays(snapshot: Snapshot) -> Mapping[str, Sequence[_CountedMachine]]:
    """Returns pool -> its machines that no claim answers for, at today's price; 0 where nobody sells them any more."""
    return _strays_of(snapshot.index, unclaimed(snapshot), snapshot.catalog)


@derived()
def _strays_of(
    _index: Index, instances: Sequence[Instance], catalog: Catalog
) -> Mapping[str, Sequence[_CountedMachine]]:
    found: dict[str, list[_CountedMachine]] = {}
    prices = {offer.pool_key: offer.price_usd_h for offer in catalog.offers} if instances else {}
    for it in instances:
        where = CapacityPool(it.capacity_type, it.instance_type, it.zone)
        machine = _CountedMachine(it.instance_type, prices.get(where, 0.0), {})
        found.setdefault(it.tags.get(labels.NODE_POOL, ""), []).append(machine)
    return found


def _capacity(snapshot: Snapshot, pool: NodePool, counted: _CountedMachine) -> Resources:
    """Returns the capacity of a machine; the claim's own resources where the type is no longer known."""
    machine = snapshot.catalog.types.get(counted.instance_type)
    return profiled(snapshot.index, snapshot.catalog.profiles, pool, machine).capacity if machine else counted.resources
