"""Pools as a whole: the hash that tells drift, and what is left of their limits."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.offerings.outfits import outfitted
from fleet.offerings.reservations import Places
from fleet.snapshot import Claim, InstanceType
from fleet.snapshot.memo import remembered
from model.kinds import CapacityType, NodePool
from model.quantity import Resources

if TYPE_CHECKING:
    from fleet.offerings.offerings import Offering

HASH_VERSION = "v2"
_READ_LIVE = {"expire_after", "termination_grace_period"}
"""Of machines that stand it is the present declaration that counts, so that a change needs no new ones."""


def capacity_rank(pool: NodePool, capacity_type: CapacityType) -> int:
    """The place of a capacity type in the pool's order of preference.

    On demand right after spot shares its place, and the cheaper counts: nobody wants a machine that can be taken away
    for more money (aws/karpenter-provider-aws `pkg/providers/instance/filter`, `SpotOfferingFilter`).
    """
    order = pool.spec.capacity_types
    place = order.index(capacity_type)
    return place - 1 if order[max(0, place - 1) : place + 1] == ("spot", "on-demand") else place


@remembered(1024)
def pool_hash(pool: NodePool) -> str:
    """Hash of what a machine is born with. Requirements are left out: they are judged one by one (`drift`).

    The version prefix lets a new release change the form without every machine drifting (Karpenter
    `karpenter.sh/nodepool-hash-version`).
    """
    template = pool.spec.template.model_dump(mode="json", exclude=_READ_LIVE)
    if not template["annotations"]:
        del template["annotations"]  # a field that came later must not change the hash of pools that do not use it
    born_with = {
        "template": template,
        "placement": pool.spec.placement.model_dump(mode="json", exclude={"strategy"}),
        "sharing": pool.spec.sharing.model_dump(mode="json", exclude={"mig"}),
    }
    text = json.dumps(born_with, sort_keys=True, separators=(",", ":"))
    return f"{HASH_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@dataclass(slots=True)
class Headroom:
    """What a pool may still buy; None = no bound."""

    nodes: int | None
    usd_h: float | None
    resources: dict[str, int]
    places: Places = field(default_factory=Places)
    """What is left in capacity reservations; pools share it."""
    grouped: Counter[str] | None = None
    """Machines of its cluster placement group by zone, shared by the pools that name it; None = it has none."""

    @classmethod
    def of(
        cls,
        pool: NodePool,
        claims: Iterable[Claim],
        types: Mapping[str, InstanceType],
        places: Places | None = None,
        grouped: Counter[str] | None = None,
    ) -> "Headroom":
        """Limits less what the pool's claims take, those on their way out included: they still bill.

        Resources are counted by the capacity of the machines, before any cut (as in Karpenter).
        """
        mine = [claim for claim in claims if claim.node_pool == pool.name]
        limits = pool.spec.limits
        return cls(
            None if limits.nodes is None else limits.nodes - len(mine),
            None if limits.usd_per_hour is None else limits.usd_per_hour - sum(claim.price_usd_h for claim in mine),
            {
                name: most - sum(_capacity(pool, claim, types).get(name, 0) for claim in mine)
                for name, most in limits.resources.items()
            },
            places or Places(),
            grouped,
        )

    def most(self, offering: "Offering") -> int:
        """How many machines of this offering the limits still allow and its reservation, if any, still has."""
        left = self.reserved_left(offering)
        return self.allowed(offering) if left is None else max(0, min(left, self.allowed(offering)))

    def reserved_left(self, offering: "Offering") -> int | None:
        """How many machines the reservation of an offering still has; None where it is of none."""
        return self.places.most(offering.offer, offering.closes_s)

    def bound_to(self, offering: "Offering") -> str:
        """The zone its placement group keeps the pool in, where that is another than the offering's."""
        return next(
            (zone for zone, count in sorted((self.grouped or {}).items()) if count and zone != offering.offer.zone), ""
        )

    def allowed(self, offering: "Offering") -> int:
        """How many machines of this offering the limits and the pool's placement group still allow."""
        if self.bound_to(offering):
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

    def spend(self, offering: "Offering", count: int) -> None:
        """Account for `count` machines of this offering; a negative count gives them back."""
        self.places.take(offering.offer, count)
        if self.grouped is not None:
            self.grouped[offering.offer.zone] += count
        if self.nodes is not None:
            self.nodes -= count
        if self.usd_h is not None:
            self.usd_h -= offering.offer.price_usd_h * count
        for name in self.resources:
            self.resources[name] -= offering.offer.instance_type.capacity.get(name, 0) * count


def cluster_groups(pools: Mapping[str, NodePool], claims: Iterable[Claim]) -> dict[str, Counter[str]]:
    """Pool -> machines by zone of its cluster placement group; a pool without one is missing.

    A cluster placement group is of one zone (EC2 User Guide, "Placement groups"), and whoever is leaving still stands
    in it.
    """
    named = {name: place for name, pool in pools.items() if (place := pool.spec.placement).group}
    clusters = {place.group: Counter[str]() for place in named.values() if place.strategy == "cluster"}
    by_pool = {name: clusters[place.group] for name, place in named.items() if place.group in clusters}
    for claim in claims if by_pool else ():
        if claim.node_pool in by_pool:
            by_pool[claim.node_pool][claim.capacity_pool.zone] += 1
    return by_pool


def _capacity(pool: NodePool, claim: Claim, types: Mapping[str, InstanceType]) -> Resources:
    machine = types.get(claim.capacity_pool.instance_type)
    return outfitted(pool, machine).capacity if machine else claim.resources
