"""Workloads as the quota engine sees them: what asks, what it was given, and the books of who holds what."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from fleet.admission.quota.declared import FlavorResource
from fleet.admission.quota.ground import NOWHERE, Ground
from fleet.admission.quota.tree import Cell, Node, QuotaTree, charge, release
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
    preempts: bool = True
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
    shape: Hashable = field(init=False, repr=False, compare=False)
    """Workloads of one queue with equal shapes get equal answers."""

    @property
    def at_s(self) -> float:
        """Its place in time among workloads of equal priority."""
        return self.created_at_s if self.queued_at_s is None else self.queued_at_s

    def __post_init__(self) -> None:
        parts = (
            self.priority,
            self.allowed_flavors,
            self.replaces,
            self.may_evict,
            self.busy,
            self.overdue,
            self.runs_s,
        )
        object.__setattr__(self, "shape", (*parts, *(_shape(pod_set) for pod_set in self.pod_sets)))


def _shape(pod_set: PodSet) -> Hashable:
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
class Given:
    """What one pod set was given: a flavor for every resource, for `count` pods."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource -> flavor."""
    amounts: Resources = field(default_factory=dict)
    """Resource -> amount for all its pods."""


@dataclass(slots=True, eq=False)
class Holder:
    """A workload that holds quota."""

    workload: Workload
    queue: Node
    given: tuple[Given, ...]
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
class Unseated:
    """A holder that keeps its quota and asks only for a place: its pods never had one, or lost a part of it."""

    holder: Holder
    lost: bool = False
    """A node under it failed: nobody is evicted to make room, and what still runs stays where it is."""


@dataclass(slots=True)
class Books:
    """Who holds what. `lift` and `put_back` bracket a what-if and restore the exact state."""

    tree: QuotaTree
    ground: Ground = NOWHERE
    holders: dict[str, Holder] = field(default_factory=dict)
    of_queue: dict[str, dict[str, Holder]] = field(default_factory=dict)

    def enter(self, holder: Holder) -> None:
        """The workload holds its quota from now on."""
        uid = holder.workload.uid
        self.holders[uid] = holder
        self.of_queue.setdefault(holder.queue.name, {})[uid] = holder
        self.put_back(holder)

    def strike(self, uid: str) -> Holder:
        """It holds nothing any more. KeyError when it held nothing."""
        holder = self.holders.pop(uid)
        del self.of_queue[holder.queue.name][uid]
        self.lift(holder)
        return holder

    def lift(self, holder: Holder) -> None:
        """Take its usage away for now."""
        holder.out = True
        release(holder.queue, holder.usage)
        self.ground.lift(holder)

    def put_back(self, holder: Holder) -> None:
        """Undo `lift`."""
        holder.out = False
        charge(holder.queue, holder.usage)
        self.ground.put(holder)

    def seat(self, holder: Holder, place: object) -> None:
        """Its pods stand there from now on."""
        self.ground.lift(holder)
        holder.place = place
        self.ground.put(holder)

    def in_queue(self, queue: str) -> Iterable[Holder]:
        """Holders charged at a queue."""
        return self.of_queue.get(queue, {}).values()


def usage_in(tree: QuotaTree, given: Sequence[Given]) -> dict[Cell, int]:
    """What was given as amounts of cells, over all pod sets."""
    usage: dict[Cell, int] = {}
    for pods in given:
        for resource, flavor in pods.flavors.items():
            cell = tree.cell(FlavorResource(flavor, resource))
            usage[cell] = usage.get(cell, 0) + pods.amounts.get(resource, 0)
    return usage
