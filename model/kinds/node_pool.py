"""`NodePool`: which machines may be bought, how they are shared and how they are given back."""

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds.base import Amounts, Bool, Deletion, Duration, Kind, Name, NodeCount, RequirementTerm, Spec, Tags, Usd
from model.kinds.node_template import NodeTemplate
from model.labels import GPU_RESOURCE, SHARED_GPU_RESOURCE, CapacityType

DisruptionReason = Literal["Empty", "Underutilized", "Drifted", "Expired", "Rebalanced"]
ConditionStatus = Literal["True", "False", "Unknown"]
DEFAULT_THRESHOLD = 2


ReservationKind = Literal["default", "capacity-block"]
"""An On-Demand Capacity Reservation, or a Capacity Block for ML with a start and an end."""
MatchCriteria = Literal["open", "targeted"]


class ReservationTerm(Spec):
    """Capacity reservations by what they are. All given conditions hold at once; at least one is needed."""

    id: Annotated[str, Field(pattern=r"^(cr-[0-9a-z]+)?$")] = ""
    """A reservation id such as `cr-0abc`; it stands alone, as there is only one of that name."""
    tags: Tags = Field(default_factory=dict)
    """Tags it must carry; the value `*` stands for any."""
    owner: Annotated[str, Field(pattern=r"^([0-9]{12})?$")] = ""
    """The account that owns it, where others share theirs with this one."""
    type: ReservationKind | None = None
    """`default` (an On-Demand Capacity Reservation) or `capacity-block`."""
    match: MatchCriteria | None = None
    """`open` or `targeted`: which launches EC2 lets into it unasked."""

    @model_validator(mode="after")
    def _says_which(self) -> Self:
        others = bool(self.tags or self.owner or self.type or self.match)
        if bool(self.id) == others:
            raise ValueError("give either id, or at least one of tags, owner, type and match")
        return self


class Reservations(Spec):
    """Which capacity reservations a pool with capacity type `reserved` may use."""

    select: Annotated[tuple[ReservationTerm, ...], Field(max_length=30)] = ()
    """Any one of the terms must hold; empty = those tagged `muster.dev/cluster: <cluster>`."""
    leave_before: Duration = 600.0
    """How long before EC2 begins to terminate the machines of a capacity block (30 minutes before its end) their work
    starts to leave: half of it is for finding and starting replacements, half for the work to stop."""


class GpuSelector(Spec):
    """GPUs a machine must carry. All given conditions hold at once."""

    models: tuple[str, ...] = ()
    """Model names as in the label `karpenter.k8s.aws/instance-gpu-name` (`h100`, `a100`, `l4`); empty = any."""
    min_count: Annotated[int, Strict(), Field(ge=1, le=128)] | None = None
    """Fewest GPUs on one machine."""
    max_count: Annotated[int, Strict(), Field(ge=1, le=128)] | None = None
    """Most GPUs on one machine."""
    min_memory_mib: Annotated[int, Strict()] | None = Field(default=None, ge=1, le=16 * 1024**2, alias="minMemoryMiB")
    """Memory of one GPU in MiB."""


class LayoutRollout(Spec):
    """How machines with work on them take over another layout: drained as budgets let, cut, and used again."""

    budget: NodeCount | Annotated[str, Field(pattern=r"^(100|[0-9]{1,2})%$")] = "10%"
    """How many machines are cut at once: a count, or a percentage of the pool's machines, rounded up."""
    deadline: Duration = 86400.0
    """How long after the declaration work may wait for its next checkpoint; then it leaves when it is its turn."""
    order: Literal["leastLostWork"] = "leastLostWork"
    """Machines whose work would lose least go first."""
    failures: Annotated[int, Strict(), Field(ge=1, le=3)] = 3
    """After so many machines that could not be cut all go back to the last layout that was good."""


class MigSharing(Spec):
    """GPUs cut by MIG. Machines are born with the first layout; idle ones may be re-cut to another."""

    layouts: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Names of `MigLayout`s, the one machines are born with first."""
    rollout: LayoutRollout | None = None
    """How machines with work on them take over another layout; unset = they keep theirs until they are idle."""
    recut_idle_gpus: bool = False
    """Cut idle GPUs of a machine beside the work on its others, where dcgm-exporter tells which GPUs are idle."""


class ReplicaSharing(Spec):
    """Each GPU offered `replicas` times (time-slicing or MPS)."""

    replicas: Annotated[int, Strict(), Field(ge=2, le=48)]
    """How often each GPU is offered."""
    rename_by_default: Bool = False
    """Whether replicas are offered as `nvidia.com/gpu.shared`, so that nobody gets a part of a GPU who asks for one."""
    fail_requests_greater_than_one: Bool | None = None
    """Whether a pod gets one replica at most: two need not be of two GPUs, nor are they more time. Unset = under MPS,
    where the device plugin insists on it."""


class DraSharing(Spec):
    """GPUs offered as devices that pods claim (Dynamic Resource Allocation), by NVIDIA's DRA driver."""

    dynamic_mig: Bool = False
    """Whether the driver cuts GPUs when slices are claimed (its gate `DynamicMIG`); no MigLayout goes with it."""
    consumable_shares: Literal["unlimited", "memory"] | Annotated[int, Strict(), Field(ge=1, le=1024)] | None = None
    """How many claims may have one device at once, as the driver's `--consumable-shares` says on these machines: so
    many, as many as ask for no more `memory` than it has, or `unlimited`. Unset = one."""


class Sharing(Spec):
    """How the GPUs of a pool are divided and offered. Nothing set: whole GPUs, by the device plugin."""

    mig: MigSharing | None = None
    """Cut by MIG: memory and compute are isolated."""
    time_slicing: ReplicaSharing | None = None
    """Shared in turns: nothing is isolated."""
    mps: ReplicaSharing | None = None
    """Shared at once through CUDA MPS."""
    dra: DraSharing | None = None
    """Offered by the DRA driver to pods that claim devices; unset = by the device plugin to pods that name resources.
    """

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(way is not None for way in (self.mig, self.time_slicing, self.mps)) > 1:
            raise ValueError("choose one of mig, timeSlicing and mps")
        if self.dra is not None and self.by_replicas is not None:
            raise ValueError("dra: timeSlicing and mps are the device plugin's; a device is claimed by one pod")
        if self.dynamic_mig and self.mig is not None:
            raise ValueError("dra: dynamicMig cuts GPUs as they are claimed; leave mig out")
        if self.mps is not None and self.mps.fail_requests_greater_than_one is False:
            raise ValueError("mps: failRequestsGreaterThanOne cannot be false: the device plugin sets it for MPS")
        return self

    @property
    def by_replicas(self) -> ReplicaSharing | None:
        """How GPUs are shared by replicas; None where they are not."""
        return self.time_slicing or self.mps

    @property
    def replicas(self) -> int:
        """How often each GPU appears in a node's allocatable."""
        return self.by_replicas.replicas if self.by_replicas else 1

    @property
    def resource(self) -> str:
        """The name under which GPUs that are not cut, or their replicas, are offered."""
        renamed = self.by_replicas is not None and self.by_replicas.rename_by_default
        return SHARED_GPU_RESOURCE if renamed else GPU_RESOURCE

    @property
    def dynamic_mig(self) -> bool:
        """Whether the DRA driver cuts GPUs when slices are claimed."""
        return self.dra is not None and self.dra.dynamic_mig

    @property
    def one_each(self) -> bool:
        """Whether the device plugin refuses pods that ask for more than one replica."""
        return self.mps is not None or bool(self.time_slicing and self.time_slicing.fail_requests_greater_than_one)


class Limits(Spec):
    """Upper bounds of what the whole pool may hold at once; unset = no bound."""

    resources: Amounts = Field(default_factory=dict)
    """Sum of the resources of all nodes."""
    nodes: NodeCount | None = None
    """Number of nodes."""
    usd_per_hour: Usd | None = None
    """Sum of the hourly prices of all nodes."""


class PlacementSpec(Spec):
    """Where machines stand relative to each other."""

    group: str = ""
    """Name of an existing EC2 placement group."""
    strategy: Literal["cluster", "partition", "spread"] = "cluster"
    """What kind of group it is: all machines of a `cluster` group stand in one zone, that of the first."""
    fabric: Bool | Literal["Requested"] = Field(default=False, alias="efa")
    """Attach every EFA interface the type has: to all machines, and types without EFA are not bought; or, with
    `Requested`, to machines that are bought for pods which ask for `vpc.amazonaws.com/efa`."""
    topology: Name | None = None
    """The `Topology` whose levels the nodes of this pool carry as labels."""


class Budget(Spec):
    """How many nodes may be disrupted at once. Without `schedule` always; with it, in the windows it opens (UTC)."""

    nodes: NodeCount | Annotated[str, Field(pattern=r"^(100|[0-9]{1,2})%$")] = "10%"
    """A count, or a percentage of the pool's nodes, rounded up."""
    reasons: tuple[DisruptionReason, ...] = ()
    """Empty = all reasons."""
    schedule: str = ""
    """Cron (five fields, UTC) at which the window opens."""
    duration: Duration | None = None
    """How long the window stays open."""

    @model_validator(mode="after")
    def _window(self) -> Self:
        if bool(self.schedule) != (self.duration is not None):
            raise ValueError("schedule and duration go together")
        return self


class Return(Spec):
    """The way back to the capacity type a pool prefers."""

    after: Duration = 3600.0
    """How long a machine of another capacity type stays at least before it is replaced, or given back for less."""


Served = Literal["Gangs", "Pods"]


class DisruptionSpec(Spec):
    """When nodes are given back or replaced."""

    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = "WhenEmptyOrUnderutilized"
    """Whether only empty nodes are given back, or also nodes whose work fits elsewhere for less: always, or where the
    saving is in proportion to the disruption. Empty is in a pool for gangs alone also a node whose ordinary pods fit
    elsewhere for less."""
    consolidation_threshold: Annotated[int, Strict(), Field(ge=1, le=100)] | None = None
    """With `Balanced`: a move that saves a share of what the pool costs may disturb at most this many times that share
    of what runs there; unset = 2."""
    spot_to_spot: Bool = False
    """Whether a spot machine may give way to a cheaper spot machine, where 15 cheaper types or more would do."""
    consolidate_after: Duration = 60.0
    """Quiet time since the last pod came or went before a node counts as idle."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget.unsaid(),)
    """All that apply hold at once; unset = one budget of `10%`."""
    on_rebalance: Literal["Ignore", "Replace"] = "Ignore"
    """What EC2's advice to move off a spot machine leads to: nothing, or the machine is replaced first, then left."""
    return_to_preferred: Return | None = None
    """Whether machines bought of a later capacity type give way to an earlier one once that can be had again and pays
    for the interruption; unset = they stay."""

    @model_validator(mode="after")
    def _threshold(self) -> Self:
        if self.consolidation_threshold is not None and self.consolidation_policy != "Balanced":
            raise ValueError("consolidationThreshold goes with consolidationPolicy: Balanced")
        return self

    @property
    def threshold(self) -> int | None:
        """How many times its share of the savings a move may disturb; None = it is not asked."""
        if self.consolidation_policy != "Balanced":
            return None
        return DEFAULT_THRESHOLD if self.consolidation_threshold is None else self.consolidation_threshold


class Repair(Spec):
    """A condition of nodes that, held for too long, has the machine replaced."""

    condition: Annotated[str, Field(min_length=1)]
    """Type of the condition, such as `Ready`, `AcceleratedHardwareReady` of the EKS node monitoring agent, or one that
    Muster reads off dcgm-exporter: `GpuFailed` (no reset mends it), `GpuNeedsReset`."""
    statuses: Annotated[tuple[ConditionStatus, ...], Field(min_length=1)] = ("False",)
    """What it must not be."""
    after: Duration
    """How long that is borne."""

    @model_validator(mode="after")
    def _tells_illness(self) -> Self:
        if self.condition == "Ready" and "True" in self.statuses:
            raise ValueError("statuses: a node is well while it is Ready; of Ready choose from False and Unknown")
        return self


GPU_FAILED: Final = "GpuFailed"
"""Condition that Muster reads off dcgm-exporter: a GPU of the node has a fault that no reset mends."""
GPU_NEEDS_RESET: Final = "GpuNeedsReset"
"""The same: a GPU of the node does not work, or not rightly, until it is reset."""

REPAIRS = (
    Repair.known(condition="Ready", statuses=("False", "Unknown"), after=300.0),
    Repair.known(condition="AcceleratedHardwareReady", after=600.0),
    Repair.known(condition=GPU_FAILED, statuses=("True",), after=60.0),
    Repair.known(condition=GPU_NEEDS_RESET, statuses=("True",), after=600.0),
    *(
        Repair.known(condition=condition, after=1800.0)
        for condition in ("StorageReady", "NetworkingReady", "KernelReady", "ContainerRuntimeReady")
    ),
    *(Repair.known(condition=it, statuses=("True",), after=1800.0) for it in ("KernelDeadlock", "ReadonlyFilesystem")),
)
"""The conditions of the EKS node monitoring agent, the lasting ones of node-problem-detector, and what Muster reads off
dcgm-exporter; silence itself sooner than Karpenter (30 min), whole gangs wait."""


class NodePoolSpec(Spec):
    """Instance requirements (all of them hold at once), bounds, sharing, template and disruption."""

    instance_types: tuple[str, ...] = ()
    """EC2 instance types; empty = any that meets the other conditions."""
    instance_families: tuple[str, ...] = ()
    """EC2 instance families such as `p5`, `g6e`; empty = any."""
    zones: tuple[str, ...] = ()
    """Availability zones; empty = any that has a subnet."""
    capacity_types: tuple[CapacityType, ...] = ("on-demand",)
    """In order of preference: the first that can be had is bought; on-demand right after spot also if cheaper."""
    reservations: Reservations = Reservations.unsaid()
    """Which capacity reservations machines of capacity type `reserved` come from."""
    gpu: GpuSelector | None = None
    """GPUs a machine must carry; unset = with or without."""
    requirements: Annotated[tuple[RequirementTerm, ...], Field(max_length=100)] = ()
    """Further conditions on the labels of a machine."""
    limits: Limits = Limits.unsaid()
    """Upper bounds of what the whole pool may hold at once; unset = no bound."""
    weight: Annotated[int, Strict(), Field(ge=0, le=100)] = 0
    """Pools of a flavor are tried heaviest first; those of equal weight compete by expected cost."""
    sharing: Sharing = Sharing.unsaid()
    """How GPUs are divided; nothing set = whole GPUs."""
    placement: PlacementSpec = PlacementSpec.unsaid()
    """Where machines stand relative to each other."""
    template: NodeTemplate = NodeTemplate.unsaid()
    """What every machine is born with."""
    disruption: DisruptionSpec = DisruptionSpec.unsaid()
    """When nodes are given back or replaced."""
    repair: tuple[Repair, ...] = REPAIRS
    """When a machine that is not well is replaced, whatever budgets say; the first complaint that is overdue counts."""
    serves: Annotated[tuple[Served, ...], Field(min_length=1, max_length=2)] = ("Gangs",)
    """For whom machines are bought: `Gangs`, which hold quota, `Pods` that belong to no gang (Deployments, notebooks),
    or both. Where kube-scheduler puts pods does not depend on it: taints say that, and a machine that comes for a gang
    has one until the gang's pods are there."""
    replicas: NodeCount | None = None
    """A fixed pool: this many machines, always, whatever the queues hold."""
    deletion: Deletion = "Delete"
    """Whether taking this declaration away is enough. Confirm: a revision that does is refused, unless an earlier one
    said `Delete`, or its commit has the trailer `Muster-Confirm-Deletion: nodepool/<name>`."""

    @property
    def prefers_none(self) -> bool:
        """Whether there is only one capacity type to choose."""
        return len(set(self.capacity_types)) < 2

    @model_validator(mode="after")
    def _fixed_pool(self) -> Self:
        if self.replicas is not None and self.weight:
            raise ValueError("a pool with replicas has no weight: it is not bought from on demand")
        if self.disruption.return_to_preferred is not None and (self.replicas is not None or self.prefers_none):
            raise ValueError("returnToPreferred wants a pool that buys on demand, of two capacity types or more")
        return self

    @model_validator(mode="after")
    def _reserved(self) -> Self:
        if self.reservations.select and "reserved" not in self.capacity_types:
            raise ValueError("reservations are only used where capacityTypes has reserved")
        return self


class NodePool(Kind):
    """A kind of machine that may be bought."""

    plural: ClassVar[str] = "nodepools"

    kind: Literal["NodePool"] = "NodePool"
    spec: NodePoolSpec
