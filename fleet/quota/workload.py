"""Defines workloads as the quota engine sees them: what each asks for, what it could be given (Kueue's Assignment)."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from fleet.quota.specs import FlavorResource
from fleet.quota.tree import Cell, QuotaTree
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import UNCONSTRAINED
from fleet.snapshot.sub_groups import SubGroup
from model.quantity import Resources, format_amount

NEVER_CREATED_S = float("-inf")


@dataclass(slots=True)  # never changed but for its shape; frozen ones take three times as long to make
class Workload:
    """A gang, or a pod beyond the core of one, that asks for quota: all of it or nothing (Kueue's Workload)."""

    uid: str
    name: str
    queue: str
    priority: int
    created_at_s: float
    """Epoch seconds; NEVER_CREATED_S sorts before everything."""
    pod_sets: tuple[PodSet, ...]
    queued_at_s: float | None = None
    """Epoch seconds by which it is ordered if that is not its creation: its last eviction."""
    evicted_at_s: float = 0.0
    """Epoch seconds of the last eviction: among equals the earliest goes first."""
    local_queue: str = ""
    """The local queue whose usage it adds to, where usage orders the queue."""
    preempts: bool = True
    buys: bool = True
    """Whether machines may be bought, re-partitioned or waited for to place it."""
    may_evict: bool = True
    """False while a gate holds its preemptions back: it waits although there are victims."""
    allowed_flavors: frozenset[str] | None = None
    """Only these flavors may be given to it; None = all of its queue's."""
    replaces: str = ""
    """uid of the workload it stands in for (a scaled job's new slice): that one's usage is its own."""
    overdue: bool = False
    """Whether it has waited longer than its queue or it itself allows, so that freed capacity is reserved for it."""
    moved: bool = False
    """Whether it is overdue because it was stopped only to be moved: it comes before all others of its queue."""
    repelled: bool = False
    """Whether somebody does not want some of its pods near: then their labels decide where they may stand."""
    runs_s: float | None = None
    """Seconds it is expected to run at most; None = unknown."""
    busy: bool = False
    """Whether its last decision is still being saved: it stays at the head, and nothing new is decided."""
    non_preemptible: bool = False
    """Whether it is never evicted for others and, in return, takes no more than its queue is guaranteed."""
    nominated: bool = False
    """Whether others were evicted for it already, and it waits for them to leave."""
    choice: SubGroup | None = None
    """Which of its pods may start first; None = the counts of its pod sets are the only way."""
    bounded: Hashable = None
    """What ResourceQuotas of its namespace count of it, where there are any; equal for those they treat alike."""
    lost_work_s: float = 0.0
    """What it would lose if it were evicted now (seconds times devices); among equals the cheapest goes first."""
    _shape: Hashable = field(init=False, repr=False, compare=False, default=None)
    _token: Hashable = field(init=False, repr=False, compare=False, default=None)
    """What stands for its shape among those who wait together."""

    def sized(self, counts: Mapping[str, int]) -> "Workload":
        """Returns the workload as it starts with so many pods of each set, without those that have none."""
        pod_sets = (replace(pods, count=counts.get(pods.name, 0)) for pods in self.pod_sets)
        return replace(self, pod_sets=tuple(pods for pods in pod_sets if pods.count), choice=None)

    @property
    def at_s(self) -> float:
        """Returns the time that orders it among workloads of equal priority."""
        return self.created_at_s if self.queued_at_s is None else self.queued_at_s

    @property
    def shape(self) -> Hashable:
        """Returns a key: workloads of one queue with equal shapes get equal answers (Kueue's equivalence hash).

        Those who wait together share a token for it.
        """
        return self._own_shape() if self._token is None else self._token

    def _own_shape(self) -> Hashable:
        """Returns its shape, computed when first asked for: most workloads hold quota and are never asked."""
        if self._shape is None:
            parts = (
                self.priority,
                self.allowed_flavors,
                self.replaces,
                self.may_evict,
                self.buys,
                self.busy,
                self.non_preemptible,
                self.overdue,
                self.runs_s,
                self.choice,
                self.bounded,
            )
            pods = [_shape_of(pod_set, by_labels=self.repelled) for pod_set in self.pod_sets]
            self._shape = (*parts, *pods)
        return self._shape

    def is_like(self, other: "Workload") -> bool:
        """Returns whether another one has its queue and shape."""
        return self.shape == other.shape and self.queue == other.queue

    def share_shape(self, tokens: dict[Hashable, Hashable]) -> None:
        """Replaces its shape by the token for it among `tokens`, where those who wait together find theirs.

        A shape is a key again and again, and dear to hash. Who waits once more keeps its token.
        """
        self._token = tokens.setdefault(self._own_shape(), object())


def _shape_of(pod_set: PodSet, *, by_labels: bool) -> Hashable:
    """Returns a hashable key of everything in a pod set that a decision depends on.

    Labels of jobs differ, so they are part of it only where constraints look at them.
    """
    looked_at = by_labels or pod_set.constraints != UNCONSTRAINED
    return (
        pod_set.name,
        pod_set.count,
        tuple(sorted(pod_set.requests.items())),
        tuple(sorted(pod_set.node_selector.items())),
        pod_set.required_affinity,
        pod_set.tolerations,
        (pod_set.required_topology, pod_set.preferred_topology, pod_set.any_topology, pod_set.slices, pod_set.group),
        (pod_set.min_count, pod_set.core),
        (pod_set.namespace, pod_set.labels, pod_set.constraints) if looked_at else None,
    )


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """The flavors that one pod set holds for `count` of its pods (Kueue's PodSetAssignment in an Admission)."""

    name: str
    count: int
    flavors: Mapping[str, str]
    """Resource -> flavor."""
    amounts: Resources = field(default_factory=dict)
    """Resource -> amount for all its pods."""


def by_resource(tree: QuotaTree, usage: Mapping[Cell, int]) -> dict[str, int]:
    """Returns resource -> amount, summed over the flavors of these cells."""
    total: dict[str, int] = {}
    for cell, amount in usage.items():
        resource = tree.cells[cell].resource
        total[resource] = total.get(resource, 0) + amount
    return total


class PreemptionMode(IntEnum):
    """A `PreemptionMode` is how an amount of a flavor can be had, the best last (Kueue's preemptionMode)."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Only by preemption, and there is no candidate."""
    PREEMPT = 2
    """By preemption, of a workload of the own queue among others."""
    RECLAIM = 3
    """By preemption in other queues only."""
    FIT = 4

    @property
    def preempting(self) -> bool:
        """Returns whether it takes preemption: it neither fits nor is impossible."""
        return PreemptionMode.NO_FIT < self < PreemptionMode.FIT


class GranularMode(NamedTuple):
    """A `GranularMode` is how a flavor can be had, and how far up the tree it borrows (Kueue's granularMode)."""

    mode: PreemptionMode
    borrow: int


class FlavorRefusal(NamedTuple):
    """A `FlavorRefusal` says why a pod set cannot have a flavor now; for missing quota with cell and amounts."""

    reason: Reason
    message: str = ""
    cell: Cell = -1
    """-1 where it is not quota that is short."""
    asked: int = 0
    available: int = 0
    """What the queue could have of the cell now; for EXCEEDS_MAX_QUOTA, with everybody else idle."""
    retry_at_s: float = 0.0

    def told(self, tree: QuotaTree) -> Refusal:
        """Returns the refusal as a sentence with its numbers."""
        if self.cell < 0:
            return Refusal(self.reason, self.message, self.retry_at_s)
        resource, flavor = tree.cells[self.cell].resource, tree.cells[self.cell].flavor
        asked, most = format_amount(resource, self.asked), format_amount(resource, self.available)
        if self.reason is Reason.EXCEEDS_MAX_QUOTA:
            return Refusal(
                self.reason,
                f"asks {asked} {resource} of {flavor}, but its queue could get at most {most} "
                "with everybody else idle; raise the quota or the borrowing limit, or ask less",
            )
        return Refusal(self.reason, f"asks {asked} {resource} of {flavor}, {most} available")


@dataclass(slots=True)
class FlavorAssignment:
    """The flavor chosen for one resource of a pod set (Kueue's FlavorAssignment)."""

    flavor: str
    mode: PreemptionMode
    borrow: int
    next_index: int
    """Where the search goes on next time: the index of the last flavor tried, -1 when all were."""


@dataclass(slots=True)
class PodSetFlavors:
    """Flavors for the resources of one pod set. `choices` is None when some resource fits no flavor."""

    pod_set: PodSet
    count: int
    amounts: dict[str, int]
    """Resource -> amount for all pods."""
    choices: dict[str, FlavorAssignment] | None = None
    refusals: list[FlavorRefusal] = field(default_factory=list)
    """Why flavors were refused, in the order they were tried."""
    at_best: PreemptionMode = PreemptionMode.FIT
    """How its pods could have a place at best, whatever their resources are had by."""
    no_place: bool = False
    """Whether its pods could not be placed even if no workload had any pods running."""

    @property
    def mode(self) -> PreemptionMode:
        """Returns the worst mode of its resources."""
        if self.choices is None or self.no_place:
            return PreemptionMode.NO_FIT
        worst = self.at_best
        for choice in self.choices.values():
            worst = min(worst, choice.mode)
        return worst

    def asks(self) -> set[str]:
        """Returns resources that the pod set asks for."""
        return {name for name, amount in self.amounts.items() if amount}

    @property
    def flavors(self) -> frozenset[str]:
        """Returns the names of the flavors chosen."""
        return frozenset(choice.flavor for choice in (self.choices or {}).values())


@dataclass(slots=True)
class WorkloadAssignment:
    """Flavors, and a place where machines count, for all pod sets of a workload (Kueue's Assignment)."""

    pod_sets: list[PodSetFlavors]
    usage: dict[Cell, int]
    place: object = None
    """Where the pods would stand, as the placement backend knows it."""
    _given: tuple[PodSetAssignment, ...] | None = field(init=False, repr=False, compare=False, default=None)

    @property
    def mode(self) -> PreemptionMode:
        """Returns the worst mode of its pod sets."""
        pod_sets = self.pod_sets
        if len(pod_sets) == 1:
            return pod_sets[0].mode
        return min((pods.mode for pods in pod_sets), default=PreemptionMode.NO_FIT)

    @property
    def borrow(self) -> int:
        """Returns the height of the tree up to which something is borrowed; 0 = nothing is."""
        return max((c.borrow for p in self.pod_sets for c in (p.choices or {}).values()), default=0)

    @property
    def given(self) -> tuple[PodSetAssignment, ...]:
        """Returns what each pod set of the workload would hold, once all have their flavors: they keep them."""
        if self._given is None:
            self._given = tuple(
                PodSetAssignment(
                    pods.pod_set.name,
                    pods.count,
                    {resource: choice.flavor for resource, choice in (pods.choices or {}).items()},
                    {resource: pods.amounts[resource] for resource in pods.choices or {}},
                )
                for pods in self.pod_sets
            )
        return self._given

    def contested(self, tree: QuotaTree) -> frozenset[Cell]:
        """Returns the cells that the workload can only have by preemption."""
        return frozenset(
            tree.cell(FlavorResource(choice.flavor, resource))
            for pods in self.pod_sets
            for resource, choice in (pods.choices or {}).items()
            if choice.mode is not PreemptionMode.FIT
        )

    def indexes(self) -> list[dict[str, int]]:
        """Returns for each pod set: resource -> index of the last flavor tried, -1 when all were."""
        return [{name: choice.next_index for name, choice in (pods.choices or {}).items()} for pods in self.pod_sets]

    @property
    def no_fit_reason(self) -> Reason | None:
        """Returns the reason most likely to pass among those against the first pod set that does not fit."""
        for pods in self.pod_sets:
            if pods.mode is PreemptionMode.NO_FIT:
                reasons = {refusal.reason for refusal in pods.refusals}
                return next((reason for reason in _LEAST_FINAL_FIRST if reason in reasons), None)
        return None

    def untried(self) -> bool:
        """Returns whether the search has flavors left to try for some resource."""
        return any(index != -1 for indexes in self.indexes() for index in indexes.values())


_LEAST_FINAL_FIRST = (
    Reason.TOPOLOGY,
    Reason.WAITING_FOR_QUOTA,
    Reason.EXCEEDS_MAX_QUOTA,
    Reason.NO_MATCHING_FLAVOR,
)
