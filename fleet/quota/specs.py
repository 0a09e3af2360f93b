"""Defines what the quota engine is told of a fleet, in Kueue's terms: cohorts, queues, policies, flavors, rules.

The specs are plain values. `fleet.quota.build_tree` makes them of the declarations of a fleet; a replay, the
conformance cases and the benchmarks make theirs by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from fleet.snapshot import PodSet
from model.kinds import Taint, Toleration
from model.labels import GPU_EQUIVALENT
from model.quantity import Resources

PODS = "pods"
"""The resource that every pod takes one of, where a queue has quota for it."""
UNLIMITED = 1 << 62
"""An amount without bound."""
EVERY_RESOURCE = "*"
"""Stands for all resources in a group that gives everything from one flavor."""


class FlavorResource(NamedTuple):
    """A `resource` of one `flavor`, the unit that quotas count (Kueue's FlavorResource)."""

    flavor: str
    resource: str


@dataclass(frozen=True, slots=True)
class CellQuota:
    """The quota of one node of the tree for one FlavorResource, in canonical amounts. `None` = no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class QuotaResourceGroup:
    """Resources that one flavor always gives together; the flavors are tried in this order."""

    resources: tuple[str, ...]
    flavors: tuple[str, ...]

    def covers(self, resource: str) -> bool:
        """Returns whether the group gives the resource."""
        return resource in self.resources or EVERY_RESOURCE in self.resources


class CandidatePolicy(StrEnum):
    """The candidates that a preemptor may evict, by their priority and age (Kueue's PreemptionPolicy)."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"


class FungibilityPolicy(StrEnum):
    """Whether a flavor that needs borrowing or preemption is taken at once, or the next one is tried first."""

    STOP = "MayStopSearch"
    NEXT = "TryNextFlavor"


@dataclass(frozen=True, slots=True)
class QueuePreemption:
    """The policies by which workloads may be evicted for one of this queue (Kueue's ClusterQueuePreemption)."""

    within_queue: CandidatePolicy = CandidatePolicy.NEVER
    reclaim: CandidatePolicy = CandidatePolicy.NEVER
    while_borrowing: CandidatePolicy = CandidatePolicy.NEVER
    """LOWER: a workload that itself borrows may evict others of lower priority elsewhere (not under fair sharing)."""
    while_borrowing_below: int | None = None
    """The highest priority that may be evicted that way; None = no bound but the preemptor's own."""
    moves: bool = False
    """Whether others may be moved where a workload has quota and no place. Kueue and Volcano know no such thing."""
    by_any_resource: bool = False
    """Whether the queue reclaims while it is within its quota of one resource that the workload asks for, and not of
    all (Volcano's plugin `capacity`)."""


@dataclass(frozen=True, slots=True)
class QueueFungibility:
    """When the next flavor of a group is tried (Kueue's FlavorFungibility)."""

    when_can_borrow: FungibilityPolicy = FungibilityPolicy.STOP
    when_can_preempt: FungibilityPolicy = FungibilityPolicy.NEXT
    prefer_preemption: bool = False
    """Less borrowing counts before less preemption when two flavors are compared."""


@dataclass(frozen=True, slots=True)
class QuotaCohortSpec:
    """A cohort shares what its children lend, and may add quota of its own."""

    name: str
    parent: str = ""
    quotas: Mapping[FlavorResource, CellQuota] = field(default_factory=dict)
    weight: float = 1.0


def with_equivalents(requests: Resources, parts: Mapping[str, int]) -> Resources:
    """Returns the requests with the GPU-equivalents that they are, where they ask for GPUs; `parts` are of a GPU."""
    total = sum(parts.get(resource, 0) * amount for resource, amount in requests.items())
    return {**requests, GPU_EQUIVALENT: total} if total else requests


@dataclass(frozen=True, slots=True)
class QuotaQueueSpec:
    """Workloads wait in a queue, a leaf of the tree: Kueue's ClusterQueue, or a Queue below a Team."""

    name: str
    cohort: str = ""
    groups: tuple[QuotaResourceGroup, ...] = ()
    quotas: Mapping[FlavorResource, CellQuota] = field(default_factory=dict)
    weight: float = 1.0
    strict: bool = False
    """StrictFIFO: nothing passes the head."""
    preemption: QueuePreemption = QueuePreemption()
    fungibility: QueueFungibility = QueueFungibility()
    through_team: bool = False
    """The queue has no quota of its own and uses its cohort's as if it were (a Queue below a Team)."""
    reclaimable: bool = True
    """Whether other queues may take back what it borrows."""
    rank: int = 0
    """Heads of queues of a higher rank are decided first."""
    equivalents: Mapping[str, int] = field(default_factory=dict)
    """Resource -> parts of a GPU, where quotas count GPU-equivalents; else empty."""
    usage_ordered: bool = False
    """The decayed usage of its local queues orders workloads before anything else does."""

    _group_of: Mapping[str, QuotaResourceGroup] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_group_of", {name: group for group in reversed(self.groups) for name in group.resources}
        )

    @property
    def declared_only(self) -> bool:
        """Returns whether a resource without any quota in the tree is unlimited; else it is refused."""
        return EVERY_RESOURCE in self._group_of

    def asked_of(self, pod_set: PodSet) -> Mapping[str, int]:
        """Returns resource -> what one pod takes of the quota: its requests, and 1 of `pods` where those count."""
        if PODS in self._group_of:
            return {**pod_set.requests, PODS: 1}
        return with_equivalents(pod_set.requests, self.equivalents) if self.equivalents else pod_set.requests

    def group_of(self, resource: str) -> QuotaResourceGroup | None:
        """Returns the group that covers a resource."""
        return self._group_of.get(resource) or self._group_of.get(EVERY_RESOURCE)


@dataclass(frozen=True, slots=True)
class QuotaFlavorSpec:
    """A flavor is a kind of capacity; this says how its nodes are labelled and tainted (Kueue's ResourceFlavor)."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    levels: tuple[str, ...] | None = None
    """Levels of its topology, on which pods that ask for it are placed; empty = it has none, None = not looked at."""
    offers: frozenset[str] | None = None
    """Every resource that some machine of it has or could have; None = not known."""
    unsold: str = ""
    """Why no machine of it can be bought at all, where that is known, in words."""


class PreemptionStrategy(StrEnum):
    """When a workload may be evicted for another cohort's, by dominant resource shares (reference 3.3)."""

    FINAL = "LessThanOrEqualToFinalShare"
    INITIAL = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """`AdmissionRules` are switches of the quota engine that hold for every queue."""

    fair: tuple[PreemptionStrategy, ...] = ()
    """Strategies of fair sharing, empty = off; the second is tried when the first frees too little."""
    upstream_defects: bool = False
    """Decide as Kueue does where we hold it to be wrong, to compare with its recorded decisions: a flavor counts by its
    worst (mode, borrowing) pair; victims are put back without asking whether the others may then still be taken; a
    search that began behind flavors tried before and found nothing is the last until something changes."""
    partial_admission: bool = True
    priority_between_queues: bool = True
    """Whether priority counts before age between heads of different queues that borrow equally."""
    preemptors_first: bool = False
    """Heads that already had others evicted for them go before all others of the cycle."""
    place_again: bool = True
    """Whether an entry whose place was taken in the same cycle is nominated again at once."""
    victims_again: bool = True
    """Whether an entry whose victims go for another is nominated again at once; else it waits for the next cycle."""
    victims_elsewhere: bool = False
    """Whether other victims are looked for where the first give enough quota, and no place."""
    lost_leave: bool = True
    """Whether a workload that lost a node and finds no other place is evicted at once."""
    fair_trees: frozenset[str] | None = None
    """Roots of the trees in which fair sharing is on; None = all."""
    guarantee_trees: frozenset[str] = frozenset()
    """Roots of the trees in which the part that a queue uses of its fair share orders heads before priority and age do;
    of its guarantee where fair sharing is off (Volcano's queues)."""
    wait_for_leaving: bool = False
    """Whether a workload waits for what leaving holders will free before anybody else is evicted for it."""
    every_flavor: bool = False
    """Whether the next flavor is tried at once where quota fits and no machine can be had."""
    count_declared_only: bool = False
    """Whether a resource without any quota in the tree is unlimited; else it is refused (Kueue's IgnoreUndeclared)."""
