"""Every offer of a gang's flavors with what is against it now, and what is free on the machines that stand."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fleet.explain.machine_tiles import MachineTile, machine_tiles
from fleet.explain.offers import sharing_of
from fleet.mig.layouts import gpu_part
from fleet.offerings.offerings import Offering
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.candidate_offerings import pods_on_one
from fleet.placement.flavor_nodes import need_of_flavors, nodes_of_flavor, serves
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import Need
from fleet.reasons import Reason
from fleet.scheduling.never_fits import against_labels, flavors_of_queue, lacking_resource
from fleet.snapshot import Gang, Snapshot
from model.fleet import Fleet

ROWS_MOST: Final = 60
"""Offers that are told one by one; of the others the number."""
OF_MACHINES: Final = frozenset({Reason.NO_OFFER, Reason.POOL_LIMIT, Reason.NO_CAPACITY, Reason.TOPOLOGY})
"""What the last pass says of a gang for which it found no place."""


class TriedOutcome(StrEnum):
    """What is against an offer, the nearest miss first."""

    OPEN = "Open"
    """Nothing."""
    SHORT = "Short"
    """The cloud had none when it was last asked."""
    USED_UP = "UsedUp"
    """Too few are left in its reservation."""
    LIMIT = "Limit"
    """The pool's limits do not allow so many."""
    ENDS = "Ends"
    """Its capacity block ends before the pods would."""
    RESOURCE = "Resource"
    """One machine has too little of a resource for one pod."""
    SELECTOR = "Selector"
    """The pods select another label."""
    TAINT = "Taint"
    FIXED = "Fixed"
    """The pool has `replicas`: nothing is bought on demand."""
    NOT_SERVING = "NotServing"
    """The pool is for ordinary pods."""


_ORDER: Final = tuple(TriedOutcome)


@dataclass(frozen=True, slots=True)
class TriedOffer:
    """One way to buy machines for the pods of a set, and what is against it."""

    pod_set: str
    flavor: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    sharing: str
    outcome: TriedOutcome
    detail: str
    machines: int
    """For all pods that standing machines have no room for; 0 where one does not hold a pod."""
    total_usd_h: float
    retry_at_s: float = 0.0

    @property
    def words(self) -> str:
        """Returns what it is, in words."""
        return (
            f"{self.machines} x {self.instance_type} {self.capacity_type} in {self.zone}, {self.total_usd_h:.2f} USD/h"
        )


@dataclass(frozen=True, slots=True)
class TriedMachines:
    """All that was looked at for a gang: machines that stand, and offers."""

    standing: int
    """Machines that stand, of the whole fleet."""
    asked_pods: int
    free_pods: int
    """Pods of the set that asks most for which there is room on standing machines of its flavors now, by their GPUs.

    0 where that were all of them, and the last pass found no place: something else is missing there.
    """
    offers: tuple[TriedOffer, ...]
    """The nearest miss first, then by price."""
    counts: Mapping[str, int]
    """Outcome -> offers."""

    @property
    def open(self) -> Sequence[TriedOffer]:
        """Returns the offers that nothing is against, cheapest first."""
        return [it for it in self.offers if it.outcome is TriedOutcome.OPEN]


def tried_machines(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> TriedMachines:
    """Returns every offer of the flavors of a gang's queue; nothing for a queue that is not declared."""
    capacity = build_capacity(fleet, snapshot, may_buy=False)
    flavors = flavors_of_queue(fleet, snapshot, gang)
    tiles = machine_tiles(fleet, snapshot)
    largest = max(gang.pod_sets, key=lambda pods: (sum(gpu_part(pods.requests).values()), pods.name), default=None)
    wanted = gpu_part(largest.requests) if largest is not None else {}
    free = _free_pods(wanted, [it for it in tiles if it.state == "Ready" and _serves(fleet, flavors, snapshot, it)])
    if largest is not None and free >= largest.count and gang.reason in OF_MACHINES:
        free = 0
    missing = {pods.name: pods.count - (free if pods is largest else 0) for pods in gang.pod_sets}
    ordered = sorted(dict.fromkeys(_tried(fleet, capacity, gang, flavors, missing)), key=_nearest_first)
    counts = Counter(it.outcome for it in ordered)
    return TriedMachines(
        len(tiles),
        largest.count if largest is not None else 0,
        free,
        tuple(ordered[:ROWS_MOST]),
        {str(outcome): counts[outcome] for outcome in _ORDER if counts[outcome]},
    )


def _serves(fleet: Fleet, flavors: Sequence[str], snapshot: Snapshot, tile: MachineTile) -> bool:
    node = snapshot.nodes.get(tile.node)
    known = filter(None, (nodes_of_flavor(fleet, name) for name in flavors))
    return any(it.stands_for(node.labels if node is not None else {}, tile.pool) for it in known)


def _free_pods(wanted: Mapping[str, int], tiles: Iterable[MachineTile]) -> int:
    free = ({it.resource: it.total - it.used for it in tile.devices} for tile in tiles)
    return sum(min((has.get(name, 0) // each for name, each in wanted.items()), default=0) for has in free)


def _nearest_first(it: TriedOffer) -> tuple[object, ...]:
    names = it.pod_set, it.pool, it.instance_type, it.zone, it.capacity_type, it.sharing, it.detail
    return _ORDER.index(it.outcome), round(it.total_usd_h, 6), *names


def _tried(
    fleet: Fleet, capacity: BuyableCapacity, gang: Gang, flavors: Sequence[str], missing: Mapping[str, int]
) -> Iterator[TriedOffer]:
    for pods in gang.pod_sets:
        for flavor in flavors if missing[pods.name] > 0 else ():
            need = need_of_flavors(fleet, pods, (flavor,))
            for pool in need.pools:
                for offering in capacity.offerings.of(pool):
                    yield _row(need, flavor, offering, capacity, missing[pods.name])


def _row(need: Need, flavor: str, offering: Offering, capacity: BuyableCapacity, missing: int) -> TriedOffer:
    offer, pods = offering.offer, need.pod_set
    each = pods_on_one(capacity.offerings.index, offering, pods)
    machines = -(-missing // each) if each else 0
    outcome, detail, retry_s = _against(need, offering, capacity, machines)
    return TriedOffer(
        pods.name,
        flavor,
        offering.pool.name,
        offer.instance_type.name,
        offer.zone,
        offer.capacity_type,
        sharing_of(offering),
        outcome,
        detail,
        machines,
        machines * offer.price_usd_h,
        retry_s,
    )


def _against(
    need: Need, offering: Offering, capacity: BuyableCapacity, machines: int
) -> tuple[TriedOutcome, str, float]:
    """Returns what is against an offer, by the predicates of a purchase: what can never be before what passes."""
    pool, headroom = offering.pool, capacity.headroom[offering.pool.name]
    words = against_labels(need, offering.labels, offering.taints)
    allowed, left = headroom.allowed(offering), headroom.reserved_left(offering)
    until_s = capacity.shortages.get(offering.offer.pool_key)
    unmet = None if machines else capacity.unmet_claims(need)
    lacking = unmet.message if unmet else "" if machines else lacking_resource(need.pod_set, offering.allocatable)
    against: Sequence[tuple[bool, TriedOutcome, str, float]] = (
        (not serves(pool, need), TriedOutcome.NOT_SERVING, f"{pool.name} does not serve gangs", 0.0),
        (pool.spec.replicas is not None, TriedOutcome.FIXED, f"{pool.name} has replicas", 0.0),
        (words.startswith("taint"), TriedOutcome.TAINT, words, 0.0),
        (bool(words), TriedOutcome.SELECTOR, words, 0.0),
        (not machines, TriedOutcome.RESOURCE, lacking, 0.0),
        (offering.closes_s <= need.until_s, TriedOutcome.ENDS, "its capacity block ends before", 0.0),
        (allowed < machines, TriedOutcome.LIMIT, f"{pool.name} may have {allowed} of {machines} machines more", 0.0),
        (left is not None and left <= 0, TriedOutcome.USED_UP, "its reservation is used up", 0.0),
        (until_s is not None, TriedOutcome.SHORT, "the cloud is short of it", until_s or 0.0),
    )
    return next((found for holds, *found in against if holds), (TriedOutcome.OPEN, "", 0.0))  # type: ignore[return-value]
