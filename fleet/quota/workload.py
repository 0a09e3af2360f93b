"""Workloads as the quota engine sees them: what asks, what it was given, and the books of who holds what."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from fleet.quota.declared import FlavorResource
from fleet.quota.ground import NO_PLACEMENT, PlacementBackend
from fleet.quota.tree import Cell, QuotaNode, QuotaTree, charge, release
from fleet.snapshot import PodSet
from model.quantity import Resources

NEVER_CREATED_S = float("-inf")


@dataclass(frozen=True, slots=True)
class Workload:
    """A gang that asks for quota, all of it or nothing."""

    uid: str
    name: str
    queue: str
    priority: int
    created_at_s: float
    """NEVER_CREATED_S sorts before everything."""
    pod_sets: tuple[PodSet, ...]
    queued_at_s: float | None = None
    """Where it stands in its queue's order of time, when that is not its creation: the time of an eviction."""
    evicted_at_s: float = 0.0
    """Last time it was evicted: among equals the one that waits longest since goes first."""
    local_queue: str = ""
    """Whose use it counts as, where the queue is ordered by that."""
    preempts: bool = True
    buys: bool = True
    """Whether a machine may be bought, cut anew or waited for so that it has a place."""
    may_evict: bool = True
    """False while a gate holds its preemptions back: it waits although there are victims."""
    allowed_flavors: frozenset[str] | None = None
    """Only these flavors may be given to it; None = all of its queue's."""
    replaces: str = ""
    """uid of the workload it stands in for (a scaled job's new slice): that one's usage is its own."""
    overdue: bool = False
    """It has waited longer than its queue or it itself says it should: what becomes free is reserved for it."""
    runs_s: float | None = None
    """How long it says it will run; None = it does not say."""
    busy: bool = False
    """What was decided for it last is still being written: it keeps its turn, and nothing new is decided."""
    nominated: bool = False
    """It already had others evicted for it and waits for them to leave."""
    lost_work_s: float = 0.0
    """What it would lose if it were evicted now (seconds times devices); among equals the cheapest goes first."""
    _shape: Hashable = field(init=False, repr=False, compare=False, default=None)

    @property
    def at_s(self) -> float:
        """Its place in time among workloads of equal priority."""
        return self.created_at_s if self.queued_at_s is None else self.queued_at_s

    @property
    def shape(self) -> Hashable:
        """Workloads of one queue with equal shapes get equal answers.

        Worked out when first asked for: of the many that hold quota nobody asks.
        """
        if self._shape is None:
            parts = (
                self.priority,
                self.allowed_flavors,
                self.replaces,
                self.may_evict,
                self.buys,
                self.busy,
                self.overdue,
                self.runs_s,
            )
            object.__setattr__(self, "_shape", (*parts, *(_shape_of(pod_set) for pod_set in self.pod_sets)))
        return self._shape


def _shape_of(pod_set: PodSet) -> Hashable:
    """Everything of a pod set that a decision depends on, hashable."""
    return (
        pod_set.name,
        pod_set.count,
        tuple(sorted(pod_set.requests.items())),
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.required_affinity,
        pod_set.tolerations,
        (pod_set.required_topology, pod_set.preferred_topology, pod_set.any_topology, pod_set.slices, pod_set.group),
        (pod_set.min_count, pod_set.core),
    )


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """What one pod set was given: a flavor for every resource, for `count` pods."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource -> flavor."""
    amounts: Resources = field(default_factory=dict)
    """Resource -> amount for all its pods."""


@dataclass(slots=True, eq=False)
class AdmittedWorkload:
    """A workload that holds quota."""

    workload: Workload
    queue: QuotaNode
    given: tuple[PodSetAssignment, ...]
    usage: Mapping[Cell, int]
    reserved_at_s: float
    ends_at_s: float = inf
    """When it says it will have ended (epoch seconds); inf = it does not say."""
    leaving: bool = False
    """Evicted already, but not gone."""
    place: object = None
    """Where its pods stand, as the ground knows it."""
    protected: bool = False
    """It may not be chosen as a victim now."""
    unsettled: bool = False
    """What was decided for it last is still being written: who wants it to go waits until that is done."""
    out: bool = False
    """Lifted off the books for the moment."""

    def uses_any(self, cells: Iterable[Cell]) -> bool:
        """Whether it takes something of one of the cells."""
        usage = self.usage
        return any(cell in usage for cell in cells)


@dataclass(frozen=True, slots=True)
class SecondPassWorkload:
    """A holder that keeps its quota and asks only for a place: its pods never had one, or lost a part of it."""

    holder: AdmittedWorkload
    lost: bool = False
    """A node under it failed: nobody is evicted to make room, and what still runs stays where it is."""


def eviction_order(holder: AdmittedWorkload) -> tuple[int, float, float, str]:
    """The order in which holders of one queue would have to go: low priority, little work lost, newest, uid."""
    workload = holder.workload
    return (workload.priority, workload.lost_work_s, -holder.reserved_at_s, workload.uid)


@dataclass(slots=True)
class QuotaLedger:
    """Who holds what. `lift` and `put_back` bracket a what-if and restore the exact state."""

    tree: QuotaTree
    ground: PlacementBackend = NO_PLACEMENT
    holders: dict[str, AdmittedWorkload] = field(default_factory=dict)
    leaving: dict[str, AdmittedWorkload] = field(default_factory=dict)
    """Those who were told to leave and still hold what they hold, by uid."""
    parted: bool = False
    """Whether they count as gone for the moment; see `part`."""
    _of_queue: dict[str, dict[str, AdmittedWorkload]] = field(default_factory=dict)
    _staying: dict[str, list[AdmittedWorkload]] = field(default_factory=dict)
    """Queue -> those who are not leaving, by `eviction_order`: made when first asked for, kept in order from then on,
    because sorting them for each search costs more than the search."""

    def enter(self, holder: AdmittedWorkload) -> None:
        """The workload holds its quota from now on; its rank does not change any more."""
        uid, queue = holder.workload.uid, holder.queue.name
        self.holders[uid] = holder
        self._of_queue.setdefault(queue, {})[uid] = holder
        if holder.leaving:
            self.leaving[uid] = holder
        elif queue in self._staying:
            insort(self._staying[queue], holder, key=eviction_order)
        self.put_back(holder)

    def strike(self, uid: str) -> AdmittedWorkload:
        """It holds nothing any more. KeyError when it held nothing."""
        holder = self.holders.pop(uid)
        del self._of_queue[holder.queue.name][uid]
        if self.leaving.pop(uid, None) is None:
            self._stays_no_more(holder)
        if not holder.out:
            self.lift(holder)
        return holder

    def evict(self, holder: AdmittedWorkload) -> None:
        """It is told to leave."""
        holder.leaving = True
        self.leaving[holder.workload.uid] = holder
        self._stays_no_more(holder)
        if self.parted and not holder.out:
            self.lift(holder)

    def part(self, *, parted: bool) -> None:
        """Let those who are leaving count as gone from now on, or as there again.

        What-ifs that take their leaving for granted come in long rows: this way nobody is lifted for each of them.
        """
        if parted is self.parted:
            return
        self.parted = parted
        move = self.lift if parted else self.put_back
        for holder in self.leaving.values():
            move(holder)

    @property
    def leave_later(self) -> bool:
        """Whether anybody is leaving who does not count as gone for the moment."""
        return bool(self.leaving) and not self.parted

    def _stays_no_more(self, holder: AdmittedWorkload) -> None:
        line = self._staying.get(holder.queue.name)
        if line is not None:
            del line[bisect_left(line, eviction_order(holder), key=eviction_order)]

    def lift(self, holder: AdmittedWorkload) -> None:
        """Take its usage away for now."""
        holder.out = True
        release(holder.queue, holder.usage)
        self.ground.lift(holder)

    def put_back(self, holder: AdmittedWorkload) -> None:
        """Undo `lift`."""
        holder.out = False
        charge(holder.queue, holder.usage)
        self.ground.put(holder)

    def seat(self, holder: AdmittedWorkload, place: object) -> None:
        """Its pods stand there from now on."""
        self.ground.lift(holder)
        holder.place = place
        self.ground.put(holder)

    def staying(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Holders charged at a queue that are not leaving, by rank."""
        if queue not in self._staying:
            everybody = self._of_queue.get(queue, {}).values()
            self._staying[queue] = sorted((holder for holder in everybody if not holder.leaving), key=eviction_order)
        return self._staying[queue]

    def leaving_of(self, queue: str) -> Sequence[AdmittedWorkload]:
        """Holders charged at a queue that are leaving, by rank."""
        return sorted((holder for holder in self.leaving.values() if holder.queue.name == queue), key=eviction_order)


def usage_in(tree: QuotaTree, given: Sequence[PodSetAssignment]) -> dict[Cell, int]:
    """What was given as amounts of cells, over all pod sets."""
    usage: dict[Cell, int] = {}
    for pods in given:
        for resource, flavor in pods.flavors.items():
            cell = tree.cell(FlavorResource(flavor, resource))
            usage[cell] = usage.get(cell, 0) + pods.amounts.get(resource, 0)
    return usage


def by_resource(tree: QuotaTree, usage: Mapping[Cell, int]) -> dict[str, int]:
    """Amounts of cells as amounts of resources, over all flavors."""
    total: dict[str, int] = {}
    for cell, amount in usage.items():
        resource = tree.cells[cell].resource
        total[resource] = total.get(resource, 0) + amount
    return total
