"""Holds what is observed as immutable values: one `Snapshot` is all that a decider sees of cluster and cloud."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fleet.catalog import Catalog, Reservation
from fleet.markets import CapacityPool
from fleet.snapshot.claims import FOR_PODS, Claim, ClaimState, CutOrder, FormerCut, Launch, MachineEvent, NodeDisruption
from fleet.snapshot.devices import NO_DEVICES, ClusterDevices
from fleet.snapshot.failures import LAYOUTS, DecisionFailure, PublishedLayouts, WriteRefusal
from fleet.snapshot.gangs import (
    ANY_NUMBER,
    LIVE_FIELDS,
    STATEFUL_SET,
    Check,
    CheckState,
    Eviction,
    Gang,
    GangState,
    Hold,
    IdleGpus,
    Job,
    JobRef,
    JobResult,
    Numbering,
    Pin,
    PodSet,
    Slice,
)
from fleet.snapshot.gpus import NO_USES, GpuHolders, MeasuredUse
from fleet.snapshot.limit_ranges import LimitRange, LimitRangeItem
from fleet.snapshot.machines import (
    NOT_READ,
    Instance,
    InterruptionHistory,
    LaunchConfiguration,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    LaunchRequest,
    Measured,
    MeasuredKind,
    Notice,
    NoticeKind,
    Reach,
    RegistrationOutcome,
    Resolutions,
    Resolved,
)
from fleet.snapshot.nodes import DaemonOverhead, GroupMember, Node, NodeCondition, Pod, SubGroupPolicy, Terms
from fleet.snapshot.ordinary_pods import PodVerdict, WaitingPods, pod_classes, pods_that_wait
from fleet.snapshot.outlook import NOTHING, CutFailure, LayoutRecord, OfferingKey, Outlook, Proposal, RolloutProgress
from fleet.snapshot.surroundings import (
    NO_QUOTAS,
    HardFence,
    Namespace,
    NamespaceQuota,
    NamespaceQuotas,
    PodBudget,
    PodPriority,
    QuotaScope,
    RuntimeClass,
)
from fleet.snapshot.volumes import NO_VOLUMES, Volumes
from model.index import Index
from model.quantity import Resources

_NOBODY: Mapping[str, tuple[str, str]] = MappingProxyType({})
"""One for all snapshots: what is kept by its identity stays good."""
_NO_RECORDS: Mapping[str, LayoutRecord] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is observed at one instant. Nobody changes its mappings: what is different comes as another mapping.

    Look-ups made of a mapping may therefore be kept by its identity in `index`.
    """

    now_s: float
    cluster: str = "default"
    nodes: Mapping[str, Node] = field(default_factory=dict)
    foreign_use: Mapping[str, Resources] = field(default_factory=dict)
    """Node -> what active pods that belong to no gang take on it."""
    gang_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """`namespace/workload` -> its pods that still exist."""
    job_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Job uid -> its pods that still exist, of jobs whose pods are held one by one; taken into the gang or not."""
    node_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Node -> active pods on it that no DaemonSet owns."""
    daemon_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Node -> active pods on it that a DaemonSet owns."""
    repelling_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Node -> active pods on it with required anti-affinity, which keeps others away."""
    ordinary_pods: Mapping[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Node -> active pods on it that belong to no gang and that no DaemonSet owns."""
    waiting_pods: Mapping[str, Pod] = field(default_factory=dict)
    """`namespace/name` -> pod of no gang that kube-scheduler has found no place for."""
    pod_verdicts: Mapping[str, PodVerdict] = field(default_factory=dict)
    """uid -> what the last pass found for a waiting pod; in the agent's memory only."""
    jobs: Mapping[str, Job] = field(default_factory=dict)
    """Job uid -> job."""
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    """Job uid -> gang."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    instances: Mapping[str, Instance] = field(default_factory=dict)
    bought: frozenset[str] = frozenset()
    """Ids of machines that this agent has bought since it started, whatever became of their claims."""
    instances_at_s: float = 0.0
    """When `instances` was last read in full; what was launched later may be missing from it."""
    catalog: Catalog = field(default_factory=Catalog)
    measured: Measured = field(default_factory=dict)
    """Smallest allocatable seen lately, by instance type and template, where a machine was seen."""
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    """Id -> capacity reservation, in whatever state, that this account may launch into."""
    reservations_at_s: float = 0.0
    """When `reservations` was last read in full; 0 = never, so that nothing is known of any."""
    resolved: Resolutions = NOT_READ
    """What images, subnets and security groups that pools name stand for in the cloud."""
    strays: Mapping[str, tuple[str, str]] = field(default_factory=lambda: _NOBODY)
    """Claim -> reason and words of its drift from the provider's side, as told by the agent: for commands, which do not
    ask the cloud themselves."""
    shortages: Mapping[CapacityPool, float] = field(default_factory=dict)
    """Capacity pool -> instant until which it is not tried again."""
    registrations: Mapping[str, Sequence[RegistrationOutcome]] = field(default_factory=dict)
    """Pool -> how its last launches ended (`fleet.nodeclaims.repair`)."""
    interruptions: Mapping[CapacityPool, InterruptionHistory] = field(default_factory=dict)
    """Capacity pool -> what is remembered of machines it has taken back (`fleet.offerings.interruption_rate`)."""
    daemon_overheads: tuple[DaemonOverhead, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Namespace -> its labels."""
    pod_priorities: Mapping[str, int] = field(default_factory=dict)
    """PriorityClass of the cluster -> its value; that of pods which name none is under the empty name."""
    meek_pod_priorities: frozenset[str] = frozenset()
    """Names of the cluster's PriorityClasses whose pods preempt nobody."""
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=dict)
    gpu_uses: Mapping[str, tuple[MeasuredUse, ...]] = field(default_factory=lambda: NO_USES)
    """`namespace/pod` -> what it used of each GPU or slice, by dcgm-exporter; empty where none is asked."""
    gpu_holders: Mapping[str, GpuHolders] = field(default_factory=dict)
    """Node -> which pods hold which of its GPUs, by dcgm-exporter."""
    volumes: Volumes = NO_VOLUMES
    devices: ClusterDevices = NO_DEVICES
    """What pods claim: those of nodes are in their `allocatable`, those that pods have in their `requests`, too."""
    pod_budgets: Mapping[str, PodBudget] = field(default_factory=dict)
    """`namespace/name` -> PodDisruptionBudget."""
    hard_fences: Mapping[str, HardFence] | None = None
    """Namespace -> the ResourceQuota that fences it; None = whoever looks does not write them."""
    namespace_quotas: NamespaceQuotas = NO_QUOTAS
    """The ResourceQuotas, ours among them, by which the API server judges pods that are still to be created."""
    spent_usd: Mapping[str, float] = field(default_factory=dict)
    """Team -> spent this calendar month."""
    local_usage: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """`namespace/queue` -> resource -> what its gangs used lately, decayed; canonical."""
    outlook: Outlook = NOTHING
    """Proposals of consolidation after the last pass."""
    rollout: RolloutProgress | None = None
    """What is remembered of the roll-out pool by pool."""
    layout_records: Mapping[str, LayoutRecord] = field(default_factory=lambda: _NO_RECORDS)
    """Pool -> what is remembered of its layouts."""
    busy: frozenset[str] = frozenset()
    """Subjects (`gang/<uid>`, `claim/<name>`, `node/<name>`) with an action under way; decided again afterwards."""
    refused: Mapping[str, WriteRefusal] = field(default_factory=dict)
    """Subject (gang, MIG layouts) -> why the API keeps refusing what it needs to start."""
    layouts: PublishedLayouts | None = None
    """The MIG configuration in the cluster; None = whoever looks does not write it."""
    set_aside: frozenset[str] = frozenset()
    """Subjects on which the running decider failed lately (`fleet.fence`); left alone for a while."""
    never_expire: frozenset[str] = frozenset()
    """Claims whose age counts for nothing: a plan does not follow the machines that it buys to their own expiry."""
    index: Index = field(default_factory=Index, repr=False, compare=False)
    """Derived views; the snapshots of one engine share it, so that views of unchanged inputs are kept."""


__all__ = [
    "ANY_NUMBER",
    "FOR_PODS",
    "LAYOUTS",
    "LIVE_FIELDS",
    "NOT_READ",
    "NO_QUOTAS",
    "STATEFUL_SET",
    "CapacityPool",
    "Catalog",
    "Check",
    "CheckState",
    "Claim",
    "ClaimState",
    "CutFailure",
    "CutOrder",
    "DaemonOverhead",
    "DecisionFailure",
    "Eviction",
    "FormerCut",
    "Gang",
    "GangState",
    "GroupMember",
    "HardFence",
    "Hold",
    "IdleGpus",
    "Instance",
    "InterruptionHistory",
    "Job",
    "JobRef",
    "JobResult",
    "Launch",
    "LaunchConfiguration",
    "LaunchError",
    "LaunchFailure",
    "LaunchOutcome",
    "LaunchRequest",
    "LayoutRecord",
    "LimitRange",
    "LimitRangeItem",
    "MachineEvent",
    "Measured",
    "MeasuredKind",
    "Namespace",
    "NamespaceQuota",
    "NamespaceQuotas",
    "Node",
    "NodeCondition",
    "NodeDisruption",
    "Notice",
    "NoticeKind",
    "Numbering",
    "OfferingKey",
    "Outlook",
    "Pin",
    "Pod",
    "PodBudget",
    "PodPriority",
    "PodSet",
    "PodVerdict",
    "Proposal",
    "PublishedLayouts",
    "QuotaScope",
    "Reach",
    "RegistrationOutcome",
    "Reservation",
    "Resolutions",
    "Resolved",
    "RolloutProgress",
    "RuntimeClass",
    "Slice",
    "Snapshot",
    "SubGroupPolicy",
    "Terms",
    "Volumes",
    "WaitingPods",
    "WriteRefusal",
    "pod_classes",
    "pods_that_wait",
]
