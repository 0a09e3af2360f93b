"""Defines what is bought: launch requests and outcomes, instances, notices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Literal, NamedTuple

from fleet.catalog import ImageKind
from fleet.markets import CapacityPool
from model.kinds import NEVER, CapacityType, NodeTemplate, ReservationKind, Taint
from model.quantity import Resources

_PLAIN = NodeTemplate.unsaid()


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
