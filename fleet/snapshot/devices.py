"""Defines devices that pods claim (Dynamic Resource Allocation): what nodes publish, what is claimed and allocated.

The names are those of `resource.k8s.io/v1`. Attributes and capacities go by their full names (`gpu.nvidia.com/type`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, NamedTuple

from model.index import Index, derived
from model.kinds import Taint, Toleration
from model.mig.geometry import device_resource
from model.quantity import Resources

GPU_DRIVER: Final = "gpu.nvidia.com"
GPU_CLASS: Final = "gpu.nvidia.com"
MIG_CLASS: Final = "mig.nvidia.com"
CHANNEL_DRIVER: Final = "compute-domain.nvidia.com"
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
"""Of channels between nodes: who has one shares memory over NVLink with the others of its ComputeDomain."""
TYPE: Final = f"{GPU_DRIVER}/type"
PROFILE: Final = f"{GPU_DRIVER}/profile"


class DeviceVersion(str):
    """A `DeviceVersion` is an attribute that is a version (`9.0.0`), compared part by part."""

    __slots__ = ()


AttributeValue = str | int | bool | DeviceVersion
DeviceId = tuple[str, str, str]
"""Driver, pool and name: what an allocation says."""
CounterSet = tuple[str, str, str]
"""Driver, pool and name of a set of counters that partitions of one device share."""


Parts = Mapping[str, Fraction]
"""Capacity by its full name -> how much of it."""


class ConsumableCapacity(NamedTuple):
    """A `ConsumableCapacity` is how much there is of a capacity, and what amounts of it claims may take."""

    value: Fraction
    default: Fraction | None = None
    """What is taken where nothing is asked; None = all of it."""
    values: tuple[Fraction, ...] = ()
    """What may be taken, in order; empty = any amount within the range."""
    least: Fraction = Fraction(0)
    most: Fraction | None = None
    step: Fraction = Fraction(0)
    """From the least on; 0 = none."""

    def taken(self, asked: Fraction | None) -> Fraction | None:
        """Returns what who asks for so much takes, rounded up to what may be taken; None where that is too much.

        Source: `structured/internal/incubating/consumable_capacity.go` (1.36).
        """
        if asked is None:
            found: Fraction | None = self.value if self.default is None else self.default
        elif self.values:
            found = next((it for it in self.values if it >= asked), None)
        else:
            found = self._within_range(asked)
        return found if found is not None and found <= self.value else None

    def _within_range(self, asked: Fraction) -> Fraction | None:
        found = max(asked, self.least)
        if self.step:
            found = self.least - (self.least - found) // self.step * self.step
        return found if self.most is None or found <= self.most else None


@dataclass(frozen=True, slots=True)
class Device:
    """A `Device` is one that a ResourceSlice lists, whole or a partition."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    """In the units in which quantities count: bytes, pieces."""
    consumes: Mapping[CounterSet, Mapping[str, int]] = field(default_factory=dict)
    """What of which counters is taken while it is allocated (partitionable devices)."""
    taints: tuple[Taint, ...] = ()
    """What keeps claims from it that do not tolerate it: `NoSchedule` and `NoExecute`, as its driver says."""
    parts: Mapping[str, ConsumableCapacity] | None = None
    """What claims take parts of where several may have it at once; None = one has all of it."""
    ruled: tuple[Taint, ...] = ()
    """Taints that rules give it (`DeviceTaintRule`): it is well, and counts among what its machine has."""

    @property
    def id(self) -> DeviceId:
        """Returns what an allocation calls it."""
        return self.driver, self.pool, self.name

    @property
    def repels(self) -> tuple[Taint, ...]:
        """Returns every taint that a claim has to tolerate."""
        return (*self.taints, *self.ruled)

    @property
    def resource(self) -> str:
        """Returns the resource that quotas and bills count it as; empty for devices that are no GPUs."""
        if self.driver != GPU_DRIVER:
            return ""
        return device_resource(str(self.attributes.get(TYPE, "")), str(self.attributes.get(PROFILE, "")))

    def taken_by(self, asked: Iterable[tuple[str, Fraction]]) -> Parts | None:
        """Returns what of which capacities a claim takes that asks for so much; of a whole device nothing.

        None where it has no such capacity, or not so much.
        """
        wanted = {full_name(self.driver, name): amount for name, amount in asked}
        if self.parts is None:
            return None if any(amount > self.capacity.get(name, -1) for name, amount in wanted.items()) else {}
        found = {name: it.taken(wanted.get(name)) for name, it in self.parts.items()}
        known = {name: amount for name, amount in found.items() if amount is not None}
        return known if len(known) == len(found) and wanted.keys() <= known.keys() else None


class DeviceTaintRule(NamedTuple):
    """A `DeviceTaintRule` is a taint that an administrator gives to devices (`resource.k8s.io/v1beta2`)."""

    name: str
    taint: Taint | None
    """None = it repels nobody: it selects nothing, or is told for information."""
    driver: str | None = None
    """Of the devices; None = any, as of pool and device."""
    pool: str | None = None
    device: str | None = None

    def selects(self, device: Device) -> bool:
        """Returns whether it is about a device. One that is to come has no pool yet: its name is the node's."""
        wanted = ((self.driver, device.driver), (self.pool, device.pool), (self.device, device.name))
        return all(said is None or said == has for said, has in wanted)


TaintRules = tuple[DeviceTaintRule, ...]


def full_name(driver: str, name: str) -> str:
    """Returns the full name of an attribute or capacity: without a domain it is of the driver's."""
    return name if "/" in name else f"{driver}/{name}"


CHANNEL: Final = Device(
    CHANNEL_DRIVER, "", "channel-0", {f"{CHANNEL_DRIVER}/type": "channel", f"{CHANNEL_DRIVER}/id": 0}
)
"""The one channel of a machine that pods can claim; the driver has others for what it runs itself."""


@dataclass(frozen=True)
class MachineDevices:
    """`MachineDevices` are those of one machine, in the order in which kube-scheduler tries them."""

    devices: tuple[Device, ...]
    counters: Mapping[CounterSet, Mapping[str, int]] = field(default_factory=dict)
    """What its partitions share."""

    @cached_property
    def by_id(self) -> Mapping[DeviceId, Device]:
        """Returns the devices by what allocations call them."""
        return {device.id: device for device in self.devices}

    @cached_property
    def shares(self) -> bool:
        """Returns whether claims may have parts of some of them."""
        return any(device.parts is not None for device in self.devices)

    @cached_property
    def amounts(self) -> Resources:
        """Returns resource -> how many of its devices there are; of partitions that share counters an upper bound."""
        return _counted(device for device in self.devices if not device.taints)

    @cached_property
    def tainted(self) -> Resources:
        """Returns resource -> how many more there are for claims that tolerate their taints."""
        return _counted(device for device in self.devices if device.taints)


@derived(1024)
def to_come_under_rules(_index: Index, machine: MachineDevices, rules: TaintRules) -> MachineDevices:
    """Returns a machine that is to come under rules: the same for the same, by which allocators know it."""
    return under_rules(machine, rules)


def under_rules(machine: MachineDevices, rules: TaintRules) -> MachineDevices:
    """Returns a machine whose devices have the taints of all rules that select them."""
    given = [tuple([rule.taint for rule in rules if rule.taint and rule.selects(it)]) for it in machine.devices]
    if not any(given):
        return machine
    return replace(machine, devices=tuple(map(_ruled, machine.devices, given)))


def _ruled(device: Device, ruled: tuple[Taint, ...]) -> Device:
    return replace(device, ruled=ruled)


_MEMORY: Final = f"{GPU_DRIVER}/memory"
_REPORTED: Final = Fraction(15, 16)
"""How much of the memory of a GPU that a type names its driver reports at least: of a T4 15,360 of 16,384 MiB."""


@derived(1024)
def shared_devices(_index: Index, machine: MachineDevices, shares: str | int | None) -> MachineDevices:
    """Returns a machine that is to come whose devices so many claims may have, or as many as `memory` allows.

    Or `unlimited`, any number; None = one. Source: the driver's `consumable_shares.go`.
    """
    if shares is None:
        return machine
    return replace(machine, devices=tuple(_shared(it, shares) for it in machine.devices))


def _shared(device: Device, shares: str | int) -> Device:
    if device.driver != GPU_DRIVER:
        return device
    memory, unit = Fraction(device.capacity[_MEMORY]), Fraction(1024**2)
    if device.attributes[TYPE] == "gpu":
        memory = memory * _REPORTED // unit * unit
    if shares == "memory":
        return replace(device, parts={_MEMORY: ConsumableCapacity(memory, memory, (), unit, memory, unit)})
    parts = {_MEMORY: ConsumableCapacity(memory, Fraction(0), (), Fraction(0), memory, unit)}
    if isinstance(shares, int):
        one, every = Fraction(1), Fraction(shares)
        parts[f"{GPU_DRIVER}/shares"] = ConsumableCapacity(every, one, (), one, every, one)
    return replace(device, parts=parts)


def _counted(devices: Iterable[Device]) -> Resources:
    found = Counter(device.resource for device in devices)
    return {resource: count for resource, count in sorted(found.items()) if resource}


class AllocatedDevice(NamedTuple):
    """An `AllocatedDevice` is a device that a claim was given, or what it was given of one."""

    id: DeviceId
    parts: Parts | None = None
    """None = all of it."""


class DeviceAllocation(NamedTuple):
    """A `DeviceAllocation` is what a ResourceClaim was given."""

    claim: str
    """`namespace/name`."""
    pod: str
    """`namespace/name` of the first pod it is reserved for, or was made for; empty = nobody's."""
    devices: tuple[AllocatedDevice, ...]


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """A `DeviceAsk` is one way to meet a request: so many devices of a class."""

    name: str
    """Of the request, or `request/subrequest` of an alternative."""
    device_class: str
    selectors: tuple[str, ...] = ()
    """CEL; those of the class first. All of them hold."""
    count: int = 1
    resource: str = ""
    """What quotas count each of them as."""
    tolerations: tuple[Toleration, ...] = ()
    """Of taints of devices."""
    every: bool = False
    """Whether it asks for all of a machine (`allocationMode: All`): `count` is how many that are; 0 = not known yet."""
    capacity: tuple[tuple[str, Fraction], ...] = ()
    """How much of which capacities of each of them (`capacity.requests`)."""


class RequestedDevices(NamedTuple):
    """`RequestedDevices` are a request of a claim: one way to meet it (`exactly`), or several, the first to be had."""

    name: str
    asks: tuple[DeviceAsk, ...]


class MatchAttribute(NamedTuple):
    """A `MatchAttribute` wants all devices of some requests to have one value of an attribute, or each another."""

    attribute: str
    """Its full name."""
    requests: tuple[str, ...] = ()
    """Names of requests, or `request/subrequest`; empty = all of the claim."""
    distinct: bool = False
    """Whether no two may have the same value (`distinctAttribute`)."""


class DeviceClaim(NamedTuple):
    """A `DeviceClaim` is what a pod claims: a ResourceClaimTemplate, or a shared claim, with its classes filled in."""

    name: str
    """Within the pod."""
    requests: tuple[RequestedDevices, ...]
    constraints: tuple[MatchAttribute, ...] = ()
    shared: str = ""
    """Name of the ResourceClaim that it shares with others; empty = it is made for the pod alone."""

    @property
    def amounts(self) -> Resources:
        """Returns what quotas count it as: of alternatives the greatest amount of each resource."""
        return _summed(self.requests)

    @property
    def undecided(self) -> Resources:
        """Returns what of its amounts may not be what it takes of a machine.

        Of alternatives of several resources it gets one, and where it asks for capacities it may get part of a device.
        """
        return _summed(it for it in self.requests if len({ask.resource for ask in it.asks}) > 1 or _asks_parts(it))

    @property
    def joins(self) -> bool:
        """Returns whether it claims a channel of a ComputeDomain, so that its pods have to be of one NVLink domain."""
        return any(ask.device_class == CHANNEL_CLASS for request in self.requests for ask in request.asks)


def _asks_parts(request: RequestedDevices) -> bool:
    return any(ask.capacity for ask in request.asks)


def _summed(requests: Iterable[RequestedDevices]) -> Resources:
    total: Counter[str] = Counter()
    for request in requests:
        most: dict[str, int] = {}
        for ask in request.asks:
            most[ask.resource] = max(ask.count, most.get(ask.resource, 0))
        total.update(most)
    return {resource: amount for resource, amount in sorted(total.items()) if resource and amount}


@dataclass(frozen=True, slots=True)
class ClusterDevices:
    """`ClusterDevices` are all that a snapshot knows of devices. Nobody changes its mappings."""

    machines: Mapping[str, MachineDevices] = field(default_factory=dict)
    """Node -> what its ResourceSlices list."""
    allocated: Mapping[str, tuple[DeviceAllocation, ...]] = field(default_factory=dict)
    """Node -> what is allocated there."""
    rules: TaintRules = ()
    """By name; those that repel nobody are left out. Machines that are to come have their devices under them, too."""


NO_DEVICES: Final = ClusterDevices()
