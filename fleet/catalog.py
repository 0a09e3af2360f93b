"""Defines what can be bought: instance types, offers, reservations. Fleets are checked against it without the rest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

from fleet.markets import NO_SOURCE, CapacityPool, PriceSource
from model import labels
from model.kinds import CapacityType, MatchCriteria, NodeTemplate, ReservationKind
from model.quantity import Resources

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
    attach_limits: Mapping[str, int] = field(default_factory=dict)
    """CSI driver -> most volumes that it is taken to attach to a machine which has not joined and said so itself."""

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
