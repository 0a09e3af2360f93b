"""Defines what the cluster shows of machines and of what runs on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from fleet.snapshot.constraints import UNCONSTRAINED, PodConstraints, PodLabels, UnsupportedConstraint
from fleet.snapshot.gangs import PodSet
from fleet.snapshot.gpus import GpuFault
from model.kinds import Taint, Toleration
from model.quantity import Resources
from model.upstream.selectors import LabelSelectorRequirement

PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class NodeCondition(NamedTuple):
    """A `NodeCondition` is a condition's status (`True`, `False`, `Unknown`) and since when (epoch seconds)."""

    status: str
    since_s: float
    message: str = ""
    """As whoever found it puts it; empty for the kubelet's own."""


@dataclass(frozen=True, slots=True)
class Node:
    """A `Node` is a Kubernetes node; `allocatable` is in canonical amounts, without zeros left by old MIG profiles."""

    name: str
    uid: str
    provider_id: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    ready: bool
    unschedulable: bool
    created_at_s: float
    deleting: bool = False
    ready_changed_at_s: float = 0.0
    """When `ready` last changed."""
    conditions: Mapping[str, NodeCondition] = field(default_factory=dict)
    """Type -> condition, of those the node reports."""
    do_not_disrupt: str = ""
    """Its annotation `karpenter.sh/do-not-disrupt`: `true`, or a duration from its creation."""
    has_finalizer: bool = False
    """Whether one of ours keeps it, when somebody deletes it, until its machine is drained and gone."""
    gpu_faults: tuple[GpuFault, ...] = ()
    """What dcgm-exporter has against its GPUs; the agent reads it, the cluster does not show it."""

    @property
    def instance_id(self) -> str:
        """Returns the id of the instance behind the node: the end of its provider id; empty without one."""
        return self.provider_id.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A `GroupMember` is what a pod of a plain group says of the group; every pod says all of it."""

    group: str
    """Empty for a pod that is a gang of its own."""
    total: int
    """Pods of the complete group; 0 = not stated, then `Terms` say when it is complete."""
    shape: PodSet
    """What this pod asks for; `name` is its role."""
    queue: str
    created_at_s: float
    priority_class: str = ""
    last_checkpoint_s: float | None = None
    checkpoint_interval_s: float | None = None
    pod_priority_class: str = ""
    expected_run_s: float | None = None
    max_run_s: float | None = None
    sla_waiting_s: float | None = None
    priority_boost: int = 0
    on_node_failure: str = ""
    unread: tuple[UnsupportedConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class SubGroupPolicy:
    """A `SubGroupPolicy` makes pods with equal labels sub-groups, of which some have to be whole (Volcano)."""

    name: str
    labels: tuple[str, ...]
    """Keys of labels (`matchLabelKeys`): pods that have all of them, with equal values, are one sub-group."""
    size: int = 1
    """Pods that make a sub-group whole (`subGroupSize`)."""
    least: int = 0
    """Sub-groups that start together or not at all (`minSubGroups`)."""
    selector: tuple[LabelSelectorRequirement, ...] = ()
    """Which pods it is for (`labelSelector`); empty = all."""
    unsupported: tuple[UnsupportedConstraint, ...] = ()
    """What else it asks and is not honoured."""


@dataclass(frozen=True, slots=True)
class Terms:
    """`Terms` are what an object beside a plain group says of it (Volcano's PodGroup)."""

    namespace: str
    group: str
    together: int
    """Pods that start together or not at all (`minMember`)."""
    roles: Mapping[str, int] = field(default_factory=dict)
    """Role -> least number of its pods (`minTaskMember`)."""
    policies: tuple["SubGroupPolicy", ...] = ()
    """How its pods form sub-groups (`subGroupPolicy`)."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.group}"


@dataclass(frozen=True, slots=True)
class Pod:
    """A `Pod` names its gang's Workload in `workload` (label `muster.dev/workload`); empty for pods of no gang."""

    uid: str
    namespace: str
    name: str
    node: str
    phase: PodPhase
    requests: Resources
    workload: str = ""
    pod_set: str = ""
    gated: bool = False
    """Whether the scheduling gate `muster.dev/placement` still holds it."""
    pinned_host: str = ""
    """Value of its node selector `kubernetes.io/hostname`."""
    ready: bool = False
    deleting: bool = False
    daemon: bool = False
    """Whether a DaemonSet owns it or it is a static mirror pod; such pods never keep a node."""
    do_not_disrupt: str = ""
    """Its annotation `karpenter.sh/do-not-disrupt`: `true`, or a duration from its start; empty = it may be moved."""
    started_at_s: float = 0.0
    priority: int = 0
    """Of its own PriorityClass: among alike pods of a gang the highest starts first and leaves last."""
    deletion_cost: int = 0
    """Its annotation `controller.kubernetes.io/pod-deletion-cost`, -2^31 to 2^31: how much it would rather stay."""
    deletion_grace_s: float = 30.0
    """Its own grace period in seconds."""
    deletion_at_s: float = 0.0
    """When a deletion that is under way will have ended (`metadata.deletionTimestamp`)."""
    job_uid: str = ""
    """uid of the job whose pods are held one by one (`Hold.PODS`); empty for all others."""
    member: GroupMember | None = None
    """What it says of its plain group; None for pods of no plain group."""
    labels: PodLabels = ()
    """Its labels, for the selectors of `PodBudget`s and of other pods' constraints."""
    constraints: PodConstraints = UNCONSTRAINED
    """What it asks of pods beside it, of ports and of volumes."""
    tracked: bool = False
    """Whether its Job's controller has still to count its end (finalizer `batch.kubernetes.io/job-tracking`)."""
    shape: PodSet | None = None
    """What it asks for, as a set of one; None for pods of gangs, of plain groups and of DaemonSets."""
    controlled: bool = False
    """Whether some controller owns it, which makes another in its place."""
    owner_job: str = ""
    """uid of the job, of a kind that can be managed, that has made it."""
    owner: str = ""
    """Of an ordinary pod: kind and name of what it belongs to, a Deployment instead of its ReplicaSet; empty = nobody.
    """
    waits_since_s: float = 0.0
    """Since when kube-scheduler has found no place for it, or none where its gang has one (epoch seconds; 0 = it has
    not said so). Of a pod that was gated it is the time of its creation."""

    @property
    def held(self) -> bool:
        """Returns whether the pod waits behind the gate to be taken into the gang of its job."""
        return bool(self.job_uid) and self.gated and not self.workload and not self.deleting and self.active

    @property
    def active(self) -> bool:
        """Returns whether the pod has not ended, and so holds its resources."""
        return self.phase not in {"Succeeded", "Failed"}

    @property
    def ordinary(self) -> bool:
        """Returns whether it is of no gang, no plain group and no DaemonSet, and not held for one."""
        return self.shape is not None and not self.workload and not self.gated

    @property
    def waits(self) -> bool:
        """Returns whether it is an ordinary pod that kube-scheduler has found no place for."""
        unplaced = not self.node and self.phase == "Pending" and not self.deleting
        return bool(self.waits_since_s) and unplaced and self.ordinary

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def told_to_end(self, now_s: float, grace_s: float | None = None) -> "Pod":
        """Returns the pod as a deletion asked for now leaves it, with its own grace period at most (None: with that).

        One that is on no node, or has ended, gets no grace; an earlier end stands (API server: BeforeDelete of pods).
        """
        longest_s = self.deletion_grace_s if grace_s is None else min(grace_s, self.deletion_grace_s)
        ends_s = now_s + (longest_s if self.node and self.active else 0.0)
        if self.deleting and self.deletion_at_s <= ends_s:
            return self
        return replace(self, deleting=True, deletion_at_s=ends_s)


@dataclass(frozen=True, slots=True)
class DaemonOverhead:
    """A `DaemonOverhead` is what DaemonSet pods take on new nodes with these labels; purchases deduct it."""

    node_selector: Mapping[str, str]
    requests: Resources = field(default_factory=dict)
    name: str = ""
    """`namespace/name` of the DaemonSet."""
    tolerations: tuple[Toleration, ...] = ()
