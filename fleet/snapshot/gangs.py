"""Defines gangs: what a job asks for, and what has been decided for it so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from fleet.snapshot.constraints import (
    UNCONSTRAINED,
    EphemeralClaim,
    PodConstraints,
    PodLabels,
    UnsupportedConstraint,
)
from fleet.snapshot.failures import DecisionFailure, WriteRefusal
from fleet.snapshot.limit_ranges import PodAmounts
from fleet.snapshot.sub_groups import SubGroup
from model.changed import changed
from model.kinds import RequirementTerm, Toleration
from model.quantity import Resources


@dataclass(frozen=True, slots=True)
class Slice:
    """A `Slice` splits a pod set into groups of `size`, each inside one domain of the node label `level` (Kueue)."""

    level: str
    size: int


class ClaimRef(NamedTuple):
    """A `ClaimRef` is an entry of a template's `spec.resourceClaims`."""

    path: str
    name: str
    template: str
    """Name of the ResourceClaimTemplate; empty where it names a claim."""
    claim: str = ""
    """Name of a ResourceClaim, which other pods may name as well."""

    @property
    def kind(self) -> str:
        """Returns the kind of what it names."""
        return "ResourceClaim" if self.claim else "ResourceClaimTemplate"


@dataclass(frozen=True, slots=True)
class PodSet:
    """A `PodSet` is `count` equal pods of a gang. `requests` is for one pod."""

    name: str
    count: int
    requests: Resources
    node_selector: Mapping[str, str] = field(default_factory=dict)
    required_affinity: tuple[tuple[RequirementTerm, ...], ...] = ()
    """Required node affinity: any one of the terms must hold, each a conjunction; empty = no constraint."""
    tolerations: tuple[Toleration, ...] = ()
    namespace: str = ""
    """Of its pods."""
    labels: PodLabels = ()
    """Labels of its pods, which selectors of constraints look at."""
    constraints: PodConstraints = UNCONSTRAINED
    runtime_class: str = ""
    """RuntimeClass of its pods; what that adds is added when the gang is made."""
    unsupported: tuple[UnsupportedConstraint, ...] = ()
    """What its template asks and is not honoured: with any, the gang is refused."""
    forbidden: tuple[str, ...] = ()
    """Why the API server would refuse its pods, in Kubernetes' words: with any, the gang waits."""
    amounts: PodAmounts | None = field(default=None, compare=False, repr=False)
    """What its template says of amounts; None where its pods are admitted, and of a stored gang."""
    resource_claims: tuple[ClaimRef, ...] = field(default=(), compare=False, repr=False)
    """What its template claims, until the templates of claims are joined (`constraints.devices`); stored nowhere."""
    required_topology: str = ""
    """Node label whose value all pods of the set must share (`muster.dev/podset-required-topology`)."""
    preferred_topology: str = ""
    """Node label whose value the pods should share; the next coarser level is tried before they are spread."""
    any_topology: bool = False
    """Whether places are chosen on the topology without any wish where (Kueue's `unconstrained`)."""
    slices: tuple[Slice, ...] = ()
    """Groups within the set, coarse to fine; each size divides the one before."""
    group: str = ""
    """Pod sets of one group (a leader and its workers) get the same flavors and the same domain."""
    min_count: int | None = None
    """Fewest pods it may be admitted with (partial admission); None = all of them. The count is final at admission."""
    core: int | None = None
    """Pods that start together or not at all; None = all. The others, elastic, join and leave one by one."""
    part_of: str = ""
    """Pod set of the job that it is one pod of, which asks for the claim that all of them share; empty = of none."""

    @property
    def wishes(self) -> bool:
        """Returns whether the set asks more of topology than one domain for all of its pods."""
        return bool(self.preferred_topology or self.any_topology or self.slices or self.group)

    def with_most(self, most: int) -> "PodSet":
        """Returns the set with no more pods than that; one whose pods stand in slices stays whole."""
        if most >= self.count or any(each.size > 1 for each in self.slices):
            return self
        return replace(self, count=most, min_count=self.min_count and min(self.min_count, most))


@dataclass(frozen=True, slots=True)
class JobRef:
    """A `JobRef` names the object that owns a gang's pods."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


class JobResult(StrEnum):
    """A `JobResult` says how a job has ended."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


POD: Final = "Pod"
"""Kind, in `v1`, of references to a pod that is a gang of its own, or to the first of several of no gang."""
STATEFUL_SET: Final = "StatefulSet"
"""Kind, in `apps/v1`, of jobs whose pods are numbered."""
ANY_NUMBER: Final = 1 << 31
"""Stands for an unlimited number of restarts."""
LABEL_VALUE_MAX: Final = 63


class Hold(StrEnum):
    """A `Hold` says what keeps the pods of a job back until its gang is admitted."""

    SWITCH = "Switch"
    """The job itself is suspended and has no pods; pods made once it starts carry the gang's marks."""
    PODS = "Pods"
    """Each pod waits behind a scheduling gate, and gets the gang's marks when it is released."""


def workload_name(job: JobRef) -> str:
    """Returns `<kind>-<name>-<start of the uid>`, short enough to be a label value on the pods."""
    kind, uid = job.kind.lower(), job.uid[:5]
    room = LABEL_VALUE_MAX - len(kind) - len(uid) - 2
    return f"{kind}-{job.name[:room].rstrip('.-')}-{uid}"


@dataclass(frozen=True, slots=True)
class Numbering:
    """A `Numbering` says how the pods of a StatefulSet are numbered and made anew."""

    first: int = 0
    """The lowest number (`spec.ordinals.start`)."""
    one_by_one: bool = True
    """Whether a pod is made only when those before it are ready (`OrderedReady`)."""
    revision: str = ""
    """Label `controller-revision-hash` of pods of the present template; empty while its controller has not said it."""
    claims: tuple[EphemeralClaim, ...] = ()
    """What `volumeClaimTemplates` make for each pod; the claim of a template is called `<template>-<pod>`."""
    going: int = 0
    """Pods of the gang with numbers that it asks for no longer, which have not ended (`numbered_pods`)."""


@dataclass(frozen=True, slots=True)
class Job:
    """A `Job` is work of any kind as observed. `queue` is empty when it does not name one."""

    ref: JobRef
    resource_version: str
    queue: str
    priority_class: str
    suspended: bool
    pod_sets: tuple[PodSet, ...]
    created_at_s: float
    result: JobResult | None = None
    finished_at_s: float = 0.0
    ready_pods: int = 0
    active_pods: int = 0
    deleting: bool = False
    last_checkpoint_s: float | None = None
    """When it last wrote a checkpoint (epoch seconds): annotation `muster.dev/last-checkpoint-time`, or Volcano's."""
    checkpoint_interval_s: float | None = None
    """Seconds between its checkpoints: annotation `muster.dev/checkpoint-interval`."""
    do_not_disrupt: str = ""
    """Annotation `muster.dev/do-not-disrupt`, or Karpenter's: not disrupted voluntarily, or so long from admission."""
    pod_priority_class: str = ""
    """PriorityClass of the cluster: that of the first pod set whose pods name one."""
    expected_run_s: float | None = None
    """Annotation `muster.dev/expected-run-time`."""
    max_run_s: float | None = None
    """Annotation `muster.dev/max-run-time` or label `kueue.x-k8s.io/max-exec-time-seconds`."""
    sla_waiting_s: float | None = None
    """Annotation `muster.dev/sla-waiting-time` or `sla-waiting-time` (Volcano)."""
    priority_boost: int = 0
    """Annotation `muster.dev/priority-boost` or `kueue.x-k8s.io/priority-boost`."""
    remaining: Mapping[str, int] = field(default_factory=dict)
    """Pod set -> pods it still needs until the end, where these are fewer than it runs at once."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Pod set -> pods that may be lost now and are made again while the others go on; none where not stated."""
    on_node_failure: str = ""
    """Annotation `muster.dev/on-node-failure`: `Replace`, `Evict`, or empty for what the queue says."""
    unread: tuple[UnsupportedConstraint, ...] = ()
    """What of this cannot be read and counts as not said: a limit of "2 hours" is none."""
    hold: Hold = Hold.SWITCH
    owner_uid: str = ""
    """uid of the job that made this one and is managed in its place; empty for a job managed by itself."""
    shaped_below: bool = False
    """Whether its pod sets are taken from the job that it makes (`fleet.snapshot.works`)."""
    choice: SubGroup | None = None
    """Which of its pods may be its core; None = the cores of its pod sets are the only one."""
    may_be_queued: bool = False
    """Whether it names no queue, and its namespace may say what becomes of it (`fleet.quota.without_queue`)."""
    waits_for_queue: bool = False
    """Whether it names no queue, and its namespace holds such jobs."""
    numbering: Numbering | None = None
    """Of the pods of a StatefulSet; None for all others."""
    labels: PodLabels = field(default=(), compare=False, repr=False)
    """Its own; its pods need not have them."""

    @property
    def managed(self) -> bool:
        """Returns whether it is held until a gang of it is admitted."""
        return bool(self.queue) or self.waits_for_queue


class GangState(StrEnum):
    """The state of a gang. It runs when it is ADMITTED and all of its pods are ready."""

    PENDING = "Pending"
    RESERVED = "QuotaReserved"
    """It holds quota and places; machines are being bought or re-partitioned for it."""
    ADMITTED = "Admitted"
    EVICTING = "Evicting"
    """It was told to stop and holds quota and places until its last pod is gone."""
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True, order=True)
class Pin:
    """A `Pin` puts `count` pods of a pod set on one node, or on the machine of `claim` until it has joined.

    A gang starts when every pin names a node. One that has lost a machine since may have pins without.
    """

    pod_set: str
    node: str
    claim: str
    count: int


@dataclass(frozen=True, slots=True)
class IdleGpus:
    """`IdleGpus` are GPUs and slices that a gang holds and does nothing with, by dcgm-exporter."""

    since_s: float
    """Since when all of them have done nothing (epoch seconds, whole)."""
    idle: int
    of: int
    """How many it holds."""
    after_s: float
    """How long its queue bears it before it is said."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """An `Eviction` says why a gang leaves, and since when."""

    reason: str
    message: str
    at_s: float
    room_for: str = ""
    """uid of the gang that starts where it stood, if it leaves only to make room, and is to come back elsewhere."""
    admitted_at_s: float = 0.0
    """When the run that it ends had begun; 0 = it had not started."""


class CheckState(StrEnum):
    """A `CheckState` is the answer of an admission check, as the check's controller has written it (Kueue)."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    """Not now: the gang gives its quota and places back, and the check is asked again later."""
    REJECTED = "Rejected"
    """Never: the gang is deactivated."""


@dataclass(frozen=True, slots=True)
class Check:
    """A `Check` is the answer of one admission check with its message."""

    state: CheckState
    message: str = ""
    requeue_after_s: float = 0.0
    """With RETRY: seconds to wait before it is tried again; 0 = not stated."""


LIVE_FIELDS: Final = (
    *("last_checkpoint_s", "checkpoint_interval_s", "do_not_disrupt", "expected_run_s", "max_run_s"),
    *("sla_waiting_s", "priority_boost", "remaining", "choice", "labels"),
)
"""Fields of a `Gang` that are copied from its job whenever that is observed, and not stored in the Workload."""
_live_facts: Final = attrgetter(*LIVE_FIELDS)


@dataclass(frozen=True, slots=True)
class Gang:
    """A `Gang` is one all-or-nothing unit of work: the Workload object, joined with what is observed of its job.

    Identity is the uid of the job, which is known before the Workload object exists. Amounts charged to quota are
    `requests * count` of each pod set in the flavor that `flavors` names for it.
    """

    uid: str
    """uid of the job."""
    namespace: str
    workload: str
    """Name of the Workload object."""
    job: JobRef
    queue: str
    priority_class: str
    priority: int
    """Priority of its class when the Workload was made; decisions use `effective_priority`."""
    pod_sets: tuple[PodSet, ...]
    created_at_s: float
    state: GangState = GangState.PENDING
    reason: str = "Queued"
    message: str = ""
    since_s: float = 0.0
    """When the present state was entered."""
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Pod set -> its flavors, one for each group of resources of its queue; set from QuotaReserved on."""
    pins: tuple[Pin, ...] = ()
    leaving: tuple[Pin, ...] = ()
    """Those of `pins` whose pods, beyond the core, were told to leave; removed once the pods are gone."""
    recuts: Mapping[str, str] = field(default_factory=dict)
    """Claim -> name of the MIG configuration that it is getting for this gang."""
    quota_reserved_at_s: float = 0.0
    admitted_at_s: float = 0.0
    pods_ready: bool = False
    not_ready_since_s: float = 0.0
    """Since when pods that were all ready no longer are (epoch seconds); 0 = they are, or never were."""
    replacing_since_s: float = 0.0
    """Since when lost pods are getting other places (epoch seconds), until all are ready there; 0 = none are."""
    eviction: Eviction | None = None
    evictions: int = 0
    requeue_at_s: float = 0.0
    """End of its back-off (epoch seconds); it is not considered before."""
    preempts: bool = True
    """Whether it may evict others; False if its pods' PriorityClass preempts nobody."""
    active: bool = True
    """Whether it is considered at all (`spec.active`): its user or a limit of its own may deactivate it."""
    timeouts: int = 0
    """How often it was evicted because its pods were not ready in time."""
    ran_before_s: float = 0.0
    """Seconds that its earlier runs were admitted, summed up."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """Admission check -> its answer since the gang was last considered; controllers write them into the Workload."""
    idle: IdleGpus | None = None
    """GPUs that it has held idle for longer than its queue bears, by its condition."""
    refused: WriteRefusal | None = None
    """Which write about it the API keeps refusing, as its condition says; the agent's brain alone writes it."""
    failure: DecisionFailure | None = None
    """Why nothing can be decided about it at present, as its condition says; the agent's brain alone writes it."""
    last_checkpoint_s: float | None = None
    checkpoint_interval_s: float | None = None
    do_not_disrupt: str = ""
    """`true` or a duration from its admission, in which nobody stops it voluntarily; empty = not protected."""
    expected_run_s: float | None = None
    """Seconds its user expects it to run."""
    max_run_s: float | None = None
    """Seconds it may run, all its runs summed up."""
    sla_waiting_s: float | None = None
    """Seconds it may wait until capacity is reserved for it (Volcano's `sla-waiting-time`)."""
    priority_boost: int = 0
    deletion_cost: int = 0
    """Of ordinary pods: how much each would rather stay, see `Pod`."""
    workload_uid: str = ""
    """uid of the Workload object; empty until that is made."""
    remaining: Mapping[str, int] = field(default_factory=dict)
    """Pod set -> pods its job still needs, where these are fewer than it asked for at first."""
    choice: SubGroup | None = None
    """Which of its pods may be its core; once admitted, the cores of its pod sets are those chosen."""
    labels: PodLabels = field(default=(), compare=False, repr=False)

    @property
    def reclaimable(self) -> Mapping[str, int]:
        """Returns pod set -> pods it holds quota for and no longer needs: they succeeded, and are not replaced."""
        if not self.remaining:
            return self.remaining
        spare = ((each.name, each.count - self.remaining.get(each.name, each.count)) for each in self.pod_sets)
        return {name: pods for name, pods in spare if pods > 0}

    @property
    def needed(self) -> tuple["PodSet", ...]:
        """Returns its pod sets without what it would not start again: pods that succeeded (Kueue `reclaimablePods`)."""
        if not self.remaining:
            return self.pod_sets
        return tuple(each.with_most(self.remaining.get(each.name, each.count)) for each in self.pod_sets)

    @property
    def effective_priority(self) -> int:
        """Returns the priority that the gang is ordered and preempted by: that of its class, with its boost."""
        return self.priority + self.priority_boost

    @property
    def ordinary(self) -> bool:
        """Returns whether these are pods of no gang, seen as one by those who move work (`tenants`)."""
        return self.job.kind == POD and not self.workload

    @property
    def name(self) -> str:
        """Returns `namespace/job name`, what people call it."""
        return f"{self.namespace}/{self.job.name}"

    @property
    def holds_capacity(self) -> bool:
        """Returns whether quota and places are charged to the gang."""
        return self.state not in (GangState.PENDING, GangState.FINISHED)

    def ran_s(self, now_s: float) -> float:
        """Returns how long (s) the gang has been admitted, over all its runs."""
        return self.ran_before_s + (now_s - self.admitted_at_s if self.state is GangState.ADMITTED else 0.0)

    def joined(self, job: Job | None) -> "Gang":
        """Returns the gang with what only its job knows at this moment (`LIVE_FIELDS`)."""
        if job is None or (live := _live_facts(job)) == _live_facts(self):
            return self
        return replace(self, **dict(zip(LIVE_FIELDS, live, strict=True)))

    def afresh(self) -> "Gang":
        """Returns a copy whose run time and time-outs count from zero."""
        return replace(self, ran_before_s=0.0, timeouts=0)

    def pod_set(self, name: str) -> PodSet:
        """Returns the pod set of that name; one without requests where it has none (`strange_pins`)."""
        return next((pods for pods in self.pod_sets if pods.name == name), None) or PodSet(name, 0, {})

    @property
    def strange_pins(self) -> Sequence[str]:
        """Returns the pod sets that its pins name and that it has not: somebody has edited its Workload."""
        return sorted({pin.pod_set for pin in self.pins} - {pods.name for pods in self.pod_sets})

    def moved(self, state: GangState, reason: str, message: str, now_s: float, **changes: object) -> "Gang":
        """Returns a copy in another state; `since_s` moves only when the state does."""
        since = self.since_s if state is self.state else now_s
        return changed(self, state=state, reason=reason, message=message, since_s=since, **changes)
