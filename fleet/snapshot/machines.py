"""Defines what can be bought and what was: instance types, offers, launch requests and outcomes, instances, notices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Literal, NamedTuple, Protocol

from fleet.markets import NO_SOURCE, CapacityPool, PriceSource
from model import labels
from model.kinds import NEVER, CapacityType, MatchCriteria, NodeTemplate, ReservationKind, Taint
from model.quantity import Resources

_PLAIN = NodeTemplate()
_MAKERS = (labels.INSTANCE_GPU_MANUFACTURER, labels.INSTANCE_ACCELERATOR_MANUFACTURER)


class ImageKind(NamedTuple):
    """An `ImageKind` is what an image has to suit; machines of one kind take the same image."""

    arch: str = "amd64"
    accelerator: str = ""
    """Who made the GPUs or accelerators: `nvidia`, `aws`, ...; empty = there are none."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """An `InstanceType` is one machine model of the cloud, with what the kubelet would report on it.

    `allocatable` = `capacity` - kube-reserved - eviction threshold by the documented formulas, in canonical amounts
    (`model.quantity.Resources`), with whole GPUs as `nvidia.com/gpu`. `labels` are those that hold for every machine of
    the type (`node.kubernetes.io/instance-type`, `karpenter.k8s.aws/instance-*`, `kubernetes.io/arch|os`). Amounts hold
    for a pool that sets no image, disks or kubelet options; `Catalog.profiles` computes the others.
    """

    name: str
    capacity: Resources
    allocatable: Resources
    labels: Mapping[str, str]
    gpu_name: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    fabric_interfaces: int = 0
    """Number of interfaces for networking past the kernel (EFA on EC2); attached where a pool asks for them."""
    fabric_resource: str = ""
    """Name of the resource by which nodes offer these interfaces."""
    nvlink_machines: int = 0
    """How many machines of it NVLink joins at most (18 make an NVL72), which are sold together; 0 = each by itself."""

    @property
    def image_kind(self) -> ImageKind:
        """Returns what the image of such a machine has to suit: its processor, and the maker of its accelerators."""
        said = next((self.labels[key] for key in _MAKERS if key in self.labels), "")
        accelerator = said or ("nvidia" if self.allocatable.get(labels.GPU_RESOURCE) else "")
        return ImageKind(self.labels.get(labels.ARCH, "amd64"), accelerator)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A `Reservation` is machines that the account, or one that shares with it, has reserved in a zone.

    `available` is how many of `total` no machine occupied when it was read. `terminates_s` is when the cloud begins to
    terminate its machines (epoch seconds): inf where they run on as on-demand ones when it ends, at `ends_s`.
    """

    id: str
    instance_type: str
    zone: str
    total: int
    available: int
    kind: ReservationKind = "default"
    match: MatchCriteria = "targeted"
    state: str = "active"
    """The cloud's word for its state; machines can only be launched into an `active` one."""
    owner: str = ""
    """Id of the account that owns it."""
    terminates_s: float = inf
    ends_s: float = inf
    """When no machine is in it any more (epoch seconds); inf = no end is set."""
    interruptible: bool = False
    """Whether its owner may take machines back at short notice."""
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Returns whether machines can be launched into it."""
        return self.state == "active"

    def joined_by_nvlink(self, machine: InstanceType) -> bool:
        """Returns whether its machines are one NVLink domain: it is a capacity block of one rack of such a type."""
        return self.kind == "capacity-block" and 0 < self.total <= machine.nvlink_machines

    @property
    def ends_machines(self) -> bool:
        """Returns whether its machines end with it, as those of a capacity block; those of others run on."""
        return self.terminates_s < inf


@dataclass(frozen=True, slots=True)
class InstanceOffer:
    """An `InstanceOffer` is one way to buy a machine: type, zone, capacity type, and price in USD an hour.

    The price is what the purchase adds to the bill: next to nothing for a machine that is reserved anyway.
    """

    instance_type: InstanceType
    zone: str
    capacity_type: CapacityType
    price_usd_h: float
    reservation: Reservation | None = None
    list_usd_h: float | None = None
    """USD an hour charged to the machine's users, where that is not its price."""
    priced: PriceSource = field(default=NO_SOURCE, repr=False, compare=False)
    """Where the price comes from."""

    @property
    def pool_key(self) -> CapacityPool:
        """Returns the capacity pool that this offer draws from."""
        reserved = self.reservation.id if self.reservation else ""
        return CapacityPool(self.capacity_type, self.instance_type.name, self.zone, reserved)

    @property
    def charged_usd_h(self) -> float:
        """Returns the price (USD an hour) that the machine's users are charged."""
        return self.price_usd_h if self.list_usd_h is None else self.list_usd_h


class InterruptionHistory(NamedTuple):
    """An `InterruptionHistory` remembers the interruptions of a capacity pool (`fleet.offerings.interruption_rate`)."""

    weight: float
    """How many interruptions they count as at `at_s`, older ones less."""
    at_s: float
    """When the last interruption was (epoch seconds)."""


class RegistrationOutcome(NamedTuple):
    """A `RegistrationOutcome` tells of one launch whether its machine joined."""

    at_s: float
    """When it did, or was given up (epoch seconds)."""
    claim: str
    pool_hash: str
    """Hash of the template that it was launched with."""
    registered: bool


class NodeProfiles(Protocol):
    """`NodeProfiles` compute what image, disks and kubelet of a template leave of an instance type.

    Pure: the same type and template give the same answer.
    """

    def of(self, template: NodeTemplate) -> Callable[[InstanceType], InstanceType]:
        """Returns what gives a type the amounts that nodes of the template have; itself where these are the same."""
        ...


class ListedProfiles:
    """`ListedProfiles` are of a catalogue whose amounts hold for every template."""

    def of(self, _template: NodeTemplate) -> Callable[[InstanceType], InstanceType]:
        """Returns what leaves every type as it is."""
        return lambda machine: machine


@dataclass(frozen=True, slots=True)
class Catalog:
    """A `Catalog` is all types and offers of a region. `priced_at_s` is the age of its oldest price (epoch seconds)."""

    region: str = ""
    types: Mapping[str, InstanceType] = field(default_factory=dict)
    offers: tuple[InstanceOffer, ...] = ()
    """Sorted by (instance type, zone, capacity type)."""
    priced_at_s: float = 0.0
    price_source: str = ""
    profiles: NodeProfiles = field(default=ListedProfiles(), repr=False, compare=False)
    tagging_permission: str = "permission to tag machines"
    """What the agent must be granted to write tags on a machine, as the cloud calls it."""
    zones: frozenset[str] = frozenset()
    """Every zone of the region that sells anything, also where this cluster may not buy; empty = those of offers."""
    price_region: str = ""
    """The region whose on-demand prices these are: another one where none are known of this; empty = not said."""


MeasuredKind = tuple[str, str]
"""Instance type, and hash of the template of the node pool."""
Measured = Mapping[MeasuredKind, Resources]
"""Smallest allocatable that machines of a kind have lately had, without devices."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A `LaunchRequest` asks for `count` equal machines, all or nothing, from one capacity pool.

    `token` makes the call idempotent; `tags` are set on every instance, and garbage collection finds instances by them.
    `template` is what the pool says; its labels, taints and tags are among those given here.
    """

    token: str
    count: int
    pool: CapacityPool
    node_pool: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tags: Mapping[str, str]
    template: NodeTemplate = _PLAIN
    arch: str = "amd64"
    """Processor architecture of machine and image."""
    accelerator: str = ""
    """Maker of its GPUs or accelerators: `nvidia`, `aws`, ...; empty = it has none."""
    placement_group: str = ""
    fabric_interfaces: int = 0
    reservation_kind: ReservationKind | None = None
    """Kind of the capacity reservation it is launched into; None = into none."""
    interruptible: bool = False
    """Whether the owner of that reservation may take the machines back."""
    closed: bool = False
    """Whether the machines must not enter an open capacity reservation that the pool has not selected."""

    @property
    def image_kind(self) -> ImageKind:
        """Returns what the image has to suit: the processor, and the maker of the accelerators."""
        return ImageKind(self.arch, self.accelerator)


class LaunchError(StrEnum):
    """A `LaunchError` says why machines did not come, by what to do about it."""

    SHORTAGE = "Shortage"
    """No capacity in this pool now: remember it and try another."""
    QUOTA = "Quota"
    """An account limit (vCPU, spot instances, fleets): the whole capacity type of this family is out for a while."""
    MISCONFIGURED = "Misconfigured"
    """The request can never work as it is (unknown image, no subnet in the zone, forbidden, unsupported)."""
    THROTTLED = "Throttled"
    """Too many calls: the same request later."""
    UNKNOWN = "Unknown"
    """Not known whether anything was launched: ask again with the same token."""


class Reach(StrEnum):
    """A `Reach` says what else is short besides the machines of a failed launch."""

    NOTHING = "Nothing"
    """The failure tells nothing about capacity: asked too fast, not allowed, no answer."""
    POOL = "Pool"
    """The capacity pool it tried."""
    CAPACITY_TYPE = "CapacityType"
    """The account cannot have this capacity type at all."""
    SUBNET = "Subnet"
    """The subnet has no address left."""
    RESERVATION = "Reservation"


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """A `LaunchFailure` is one failure of a launch; `code` is the cloud's own, for people."""

    error: LaunchError
    code: str
    message: str
    reach: Reach = Reach.POOL


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """A `LaunchOutcome` lists the instances and failures of a launch; fewer instances than asked is a shortfall."""

    instances: tuple[str, ...] = ()
    failures: tuple[LaunchFailure, ...] = ()


InstanceState = Literal["pending", "running", "shutting-down", "terminated", "stopping", "stopped"]


@dataclass(frozen=True, slots=True)
class Instance:
    """An `Instance` is a machine that carries this cluster's tag, or the tag that asks this cluster to adopt it."""

    id: str
    instance_type: str
    zone: str
    capacity_type: CapacityType
    state: InstanceState
    launched_at_s: float
    tags: Mapping[str, str]
    private_dns: str = ""
    reservation: str = ""
    """Id of the capacity reservation it runs in."""
    image: str = ""
    """Id of the image it was made from; empty where the cloud does not say, as the next two."""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    """Ids, sorted, of the security groups of its primary network interface."""
    placement_group: str = ""
    """Name of the placement group it stands in."""
    provider_id: str = ""
    """What the node that it becomes has as `spec.providerID`."""
    managed_by: str = ""
    """What else in the cloud replaces it or gives it back, in words; empty where nothing does."""
    ended_at_s: float = 0.0
    """When it stopped to bill, as far as the cloud says so (epoch seconds); 0 = it runs, or is not said."""

    @property
    def gone(self) -> bool:
        """Returns whether the instance no longer runs or is billed."""
        return self.state in {"shutting-down", "terminated"}

    @property
    def ending(self) -> bool:
        """Returns whether it is being terminated and still stands: its place, and its part of a quota, are not free."""
        return self.state == "shutting-down"


class NoticeKind(StrEnum):
    """A `NoticeKind` is what an interruption message says (Karpenter `pkg/controllers/interruption/messages`)."""

    SPOT_INTERRUPTED = "spot_interrupted"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    SCHEDULED_CHANGE = "scheduled_change"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    INSTANCE_STATUS = "instance_status"
    """The cloud's check of the instance has failed for a while (polled, not a message)."""
    SYSTEM_STATUS = "system_status"
    EVENT_STATUS = "event_status"
    """The cloud has announced an event (reboot, retirement) for the instance."""
    NO_OP = "no_op"


@dataclass(frozen=True, slots=True)
class Notice:
    """A `Notice` is one interruption message: which instances, what happens to them, when it was written (epoch s)."""

    id: str
    kind: NoticeKind
    instance_ids: tuple[str, ...]
    at_s: float
    due_s: float = NEVER
    """When it happens (epoch seconds), by the message or by what the cloud does after one of its kind."""
    source: str = "the cloud"
    """Who sent it, in words."""


@dataclass(frozen=True, slots=True)
class LaunchConfiguration:
    """A `LaunchConfiguration` asks the cloud which images and subnets the names in a template stand for."""

    pool_hash: str
    """Hash of the template, by which the answer is kept."""
    template: NodeTemplate
    kinds: tuple[ImageKind, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A `Resolved` is the cloud's answer to a `LaunchConfiguration`; what does not exist or is unknown is missing."""

    images: Mapping[ImageKind, str] = field(default_factory=dict)
    """Kind -> id of the image that a machine gets now."""
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Id of every subnet selected -> ids, sorted, of the security groups that a machine in it gets; empty = unknown."""
    newest_release: str = ""
    """Of a template that has changes of images proposed, the newest version that its alias could name; empty = unknown.
    """


@dataclass(frozen=True, slots=True)
class Resolutions:
    """`Resolutions` are the cloud's answers of one reading; machines launched after it began are not judged by them."""

    at_s: float = -inf
    """When the reading began (epoch seconds)."""
    found: Mapping[str, Resolved] = field(default_factory=dict)
    """Pool hash -> answer."""


NOT_READ = Resolutions()
