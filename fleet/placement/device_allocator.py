"""Allocates devices of machines to pods that claim them as kube-scheduler will: the first that match.

The allocator goes through the requests of a pod in their order, and through the devices of a machine in the order in
which they are published, and comes back to try the next where a later request finds none. It stops after a number of
steps, and then there is no place. Source: `k8s.io/dynamic-resource-allocation/structured` (1.36).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import repeat
from typing import Final

from fleet.snapshot import Gang, GangState, Node, Pod, PodSet, Snapshot
from fleet.snapshot.affinity import tolerates
from fleet.snapshot.devices import (
    NO_DEVICES,
    AllocatedDevice,
    ClusterDevices,
    CounterSet,
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceId,
    MachineDevices,
    MatchAttribute,
    Parts,
    RequestedDevices,
)
from fleet.snapshot.lookups import claims_by_node, machines_held
from fleet.snapshot.seats import seats_of
from model.index import Index, derived
from model.kinds import Toleration

_STEPS_MOST: Final = 20_000
"""Devices that are looked at for one pod on one machine."""


class _Exhausted(Exception):
    """More steps than are allowed."""


@dataclass(slots=True)
class DevicesInUse:
    """`DevicesInUse` are what of a machine's devices somebody has."""

    machine: MachineDevices
    taken: set[DeviceId] = field(default_factory=set)
    shared: dict[DeviceId, tuple[Parts, ...]] = field(default_factory=dict)
    """What is taken of devices that several claims have parts of."""
    counted: dict[tuple[CounterSet, str], int] = field(default_factory=dict)

    def take(self, device: Device, parts: Parts | None = None) -> None:
        """Takes a device, or parts of one that claims share."""
        if parts is None:
            self.taken.add(device.id)
        else:
            self.shared[device.id] = (*self.shared.get(device.id, ()), parts)
        if len(self.shared.get(device.id, ())) <= 1:
            self._count(device, 1)

    def give_back(self, device: Device) -> None:
        """Gives back a device, or of one that claims share what was taken last."""
        others = self.shared.pop(device.id, ())[:-1]
        self.taken.discard(device.id)
        if others:
            self.shared[device.id] = others
        else:
            self._count(device, -1)

    def _count(self, device: Device, sign: int) -> None:
        for counters, amounts in device.consumes.items():
            for name, amount in amounts.items():
                self.counted[counters, name] = self.counted.get((counters, name), 0) + sign * amount

    def take_known(self, allocated: Iterable[AllocatedDevice]) -> None:
        """Takes what an allocation names, as far as it is of this machine."""
        for it in allocated:
            if (device := self.machine.by_id.get(it.id)) is not None and it.id not in self.taken:
                self.take(device, it.parts)

    def allows(self, device: Device, parts: Parts | None = None) -> bool:
        """Whether a device, or parts of it, and the counters that it takes from, are free."""
        if device.id in self.taken:
            return False
        if others := self.shared.get(device.id, ()):
            return parts is not None and _together(device, (*others, parts))
        for counters, amounts in device.consumes.items():
            there = self.machine.counters.get(counters, {})
            for name, amount in amounts.items():
                if self.counted.get((counters, name), 0) + amount > there.get(name, 0):
                    return False
        return True

    def copy(self) -> "DevicesInUse":
        """Returns what may be taken from without this one."""
        return DevicesInUse(self.machine, set(self.taken), dict(self.shared), dict(self.counted))


def _together(device: Device, taken: Sequence[Parts]) -> bool:
    """Whether a device has so much."""
    return all(
        sum((it.get(name, Fraction(0)) for it in taken), Fraction(0)) <= capacity.value
        for name, capacity in (device.parts or {}).items()
    )


@dataclass(slots=True)
class DeviceAllocator:
    """A `DeviceAllocator` allocates devices of machines; it knows which devices selectors select."""

    _selected: dict[tuple[str, tuple[object, ...]], bool | None] = field(default_factory=dict)
    """Selector and what of a device it reads -> whether it selects it; None = that cannot be said."""
    _selectors: dict[str, object] = field(default_factory=dict)
    _matching: dict[
        tuple[int, tuple[str, ...], tuple[Toleration, ...], tuple[tuple[str, Fraction], ...], int],
        tuple[MachineDevices, Sequence[Device] | None],
    ] = field(default_factory=dict)
    _fits: dict[tuple[int, tuple[DeviceClaim, ...], int], tuple[MachineDevices, int]] = field(default_factory=dict)

    def pods_on(self, machine: MachineDevices, claims: tuple[DeviceClaim, ...], most: int) -> int:
        """Returns how many pods with these claims an empty machine holds, of `most`."""
        key = id(machine), claims, most
        if key not in self._fits:
            use, count = DevicesInUse(machine), 0
            while count < most and self.allocate(use, claims):
                count += 1
            self._fits[key] = machine, count
        return self._fits[key][1]

    def by_amounts(self, machine: MachineDevices, claims: tuple[DeviceClaim, ...]) -> bool:
        """Returns whether pods with these claims find theirs on a machine wherever its amounts suffice.

        That is so where each request is met by all devices that count as its resource, which share nothing and are not
        shared.
        """
        if machine.counters or machine.shares or any(claim.constraints for claim in claims):
            return False
        asks = [request.asks for claim in claims for request in claim.requests]
        return all(
            len(ways) == 1
            and not ways[0].capacity
            and list(self.matching(machine, ways[0]) or ()) == _counted_as(machine, ways[0].resource)
            for ways in asks
        )

    def unmet(self, machines: Iterable[MachineDevices], claims: tuple[DeviceClaim, ...]) -> str:
        """Returns the first request that no machine meets, all of it free, in words; empty where one meets all."""
        there = list(machines)
        for claim in claims:
            for request in claim.requests:
                if not any(self._could(machine, ask) for machine in there for ask in request.asks):
                    asked = " or ".join(
                        f"{'all' if ask.every else ask.count} of {ask.device_class}" for ask in request.asks
                    )
                    selected = next((f", selected by {ask.selectors[-1]}" for ask in request.asks if ask.selectors), "")
                    kept = _kept_by_rules(there, request.asks)
                    words = f"no machine has what request {request.name} of claim {claim.name} asks"
                    return f"{words}: {asked}{selected}{kept}"
        if any(self.pods_on(machine, claims, 1) for machine in there):
            return ""
        names = ", ".join(claim.name for claim in claims)
        return f"no machine has devices for all requests of a pod together (claims {names})"

    def _could(self, machine: MachineDevices, ask: DeviceAsk) -> bool:
        devices = self.matching(machine, ask) or ()
        return len(devices) >= max(1, ask.count) or any(it.parts is not None for it in devices)

    def allocate(self, use: DevicesInUse, claims: Sequence[DeviceClaim]) -> bool:
        """Takes devices for one pod, or nothing where there are not enough."""
        wanted = [(claim, request) for claim in claims for request in claim.requests]
        try:
            return _Search(self, use, wanted).meet(0)
        except _Exhausted:
            return False

    def matching(self, machine: MachineDevices, ask: DeviceAsk) -> Sequence[Device] | None:
        """Returns the devices that meet a request, and whose taints it tolerates, in order.

        None where a selector fails: then nothing is allocated. Of all that are asked for none are there where one has a
        taint that is not tolerated or less of a capacity than is asked, or where they are more or fewer than were
        counted.
        """
        key = id(machine), ask.selectors, ask.tolerations, ask.capacity, ask.count if ask.every else -1
        if key not in self._matching:
            verdicts = [(device, self._meets(device, ask.selectors)) for device in machine.devices]
            failed = any(verdict is None for _, verdict in verdicts)
            meeting = [device for device, verdict in verdicts if verdict]
            borne = [
                it for it in meeting if tolerates(it.repels, ask.tolerations) and it.taken_by(ask.capacity) is not None
            ]
            if ask.every and not len(meeting) == len(borne) == (ask.count or len(meeting)):
                borne = []
            found = None if failed else borne
            self._matching[key] = machine, found  # the machine is kept, so that its identity is not taken over
        return self._matching[key][1]

    def _meets(self, device: Device, selectors: Iterable[str]) -> bool | None:
        for text in selectors:
            if (verdict := self._selects(text, device)) is not True:
                return verdict
        return True

    def _selects(self, text: str, device: Device) -> bool | None:
        from fleet.policy.device_selectors import DeviceSelector  # the library takes a fifth of a second to import

        selector = self._selectors.get(text)
        if not isinstance(selector, DeviceSelector):
            selector = self._selectors[text] = DeviceSelector(text)
        key = text, selector.reads(device)
        if key not in self._selected:
            held, trouble = selector.selects(device)
            self._selected[key] = None if trouble else held
        return self._selected[key]


@dataclass(slots=True)
class _Search:
    """The search for the devices of one pod on one machine."""

    allocator: DeviceAllocator
    use: DevicesInUse
    wanted: Sequence[tuple[DeviceClaim, RequestedDevices]]
    picked: list[tuple[DeviceClaim, str, Device]] = field(default_factory=list)
    steps: int = _STEPS_MOST

    def meet(self, at: int) -> bool:
        """Meets the requests from one on; otherwise everything is as before."""
        if at == len(self.wanted):
            return True
        for ask in self.wanted[at][1].asks:
            devices = self.allocator.matching(self.use.machine, ask)
            wanted = len(devices or ()) if ask.every else ask.count
            if devices is not None and wanted and self._pick(at, ask, devices, 0, wanted):
                return True
        return False

    def _pick(self, at: int, ask: DeviceAsk, devices: Sequence[Device], start: int, missing: int) -> bool:
        """Takes the devices that are missing of those from `start` on, and those of the requests that follow."""
        if not missing:
            return self.meet(at + 1)
        claim, use = self.wanted[at][0], self.use
        for n in range(start, len(devices) if use.machine.shares else len(devices) - missing + 1):
            self._step()
            device = devices[n]
            parts = device.taken_by(ask.capacity) if device.parts is not None else None
            if not use.allows(device, parts):
                continue
            if not all(self._agrees(it, claim, ask, device) for it in claim.constraints):
                continue
            use.take(device, parts)
            self.picked.append((claim, ask.name, device))
            again = parts is not None and not ask.every  # a request may have several parts of one device
            if self._pick(at, ask, devices, n if again else n + 1, missing - 1):
                return True
            self.picked.pop()
            use.give_back(device)
        return False

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            while self.picked:
                self.use.give_back(self.picked.pop()[2])
            raise _Exhausted

    def _agrees(self, rule: MatchAttribute, claim: DeviceClaim, ask: DeviceAsk, device: Device) -> bool:
        """Whether a device goes with those picked before it for the same claim, by the value of an attribute."""
        if not _is_about(rule, ask.name):
            return True
        value = device.attributes.get(rule.attribute)
        if value is None:
            return False
        others = (it for of, name, it in self.picked if of is claim and _is_about(rule, name))
        return all((other.attributes.get(rule.attribute) == value) is not rule.distinct for other in others)


def _kept_by_rules(machines: Iterable[MachineDevices], asks: Iterable[DeviceAsk]) -> str:
    """Returns the taints that rules give devices of these machines, and that no way to meet a request tolerates."""
    given = {taint for machine in machines for device in machine.devices for taint in device.ruled}
    kept = sorted({it.key for it in given if not any(tolerates((it,), ask.tolerations) for ask in asks)})
    return f"; a DeviceTaintRule gives {', '.join(kept)} to devices" if kept else ""


def _counted_as(machine: MachineDevices, resource: str) -> list[Device]:
    return [device for device in machine.devices if device.resource == resource != ""]


def _is_about(rule: MatchAttribute, request: str) -> bool:
    return not rule.requests or request in rule.requests or request.partition("/")[0] in rule.requests


Holders = Callable[[str], Iterable[tuple[PodSet | None, tuple[AllocatedDevice, ...]]]]
"""Node -> what is allocated there, and to pods of which set; None = of none that stands anywhere."""


@dataclass(frozen=True, slots=True)
class DevicesThere:
    """`DevicesThere` are the devices of all nodes, who has them, and the allocator that knows them."""

    known: ClusterDevices = NO_DEVICES
    allocated: Holders = lambda _node: ()
    index: Index = field(default_factory=Index)
    """Where the allocator is kept."""

    @property
    def allocator(self) -> DeviceAllocator:
        """Returns the allocator that knows these devices."""
        return device_allocator(self.index, self.known)


@derived()
def device_allocator(_index: Index, _devices: ClusterDevices) -> DeviceAllocator:
    """Returns the allocator that is kept as long as the devices are the same."""
    return DeviceAllocator()


def allocated_on(snapshot: Snapshot, node: str) -> Iterator[tuple[PodSet | None, tuple[AllocatedDevice, ...]]]:
    """Yields what is allocated on a node, and to pods of which set; those of no gang have none.

    What was allocated to a pod that is gone is free as soon as its claim is.
    """
    there = {pod.key for table in (snapshot.node_pods, snapshot.daemon_pods) for pod in table.get(node, ())}
    sets = _claiming_sets(snapshot.index, snapshot.gang_pods, snapshot.gangs)
    found: dict[object, tuple[PodSet | None, list[AllocatedDevice]]] = {}
    for each in snapshot.devices.allocated.get(node, ()):
        holder = sets.get((each.pod, each.claim)) or sets.get((each.pod, ""))
        if holder is not None or not each.pod or each.pod in there:
            whose = each.pod if holder is None or holder.count > 1 else id(holder)
            found.setdefault(whose, (holder, []))[1].extend(each.devices)
    yield from ((holder, tuple(devices)) for holder, devices in found.values())


@derived(1)
def _claiming_sets(
    _index: Index, gang_pods: Mapping[str, tuple[Pod, ...]], gangs: Mapping[str, Gang]
) -> Mapping[tuple[str, str], PodSet]:
    """Returns which set claims devices that a pod has, of gangs that hold their places.

    By `namespace/name` of the pod, and of the claim where pods share it: then it is not the pod's set, perhaps.
    """
    found: dict[tuple[str, str], PodSet] = {}
    for gang in gangs.values():
        sets = {pods.name: pods for pods in gang.pod_sets if pods.constraints.devices}
        if sets and gang.holds_capacity:
            theirs = gang_pods.get(f"{gang.namespace}/{gang.workload}", ())
            shared = [(it.shared, pods) for pods in sets.values() for it in pods.constraints.devices if it.shared]
            found |= {(pod.key, ""): sets[pod.pod_set] for pod in theirs if pod.pod_set in sets}
            found |= {(pod.key, f"{gang.namespace}/{name}"): pods for pod in theirs for name, pods in shared}
    return found


# -- places whose devices a rule has tainted since --------------------------------------------------------------------


def tainted_devices(snapshot: Snapshot, gang: Gang, node: Node) -> str:
    """Returns that rules keep from a gang, on a node, devices that its pods have not been given yet; empty if not so.

    Who has its devices keeps them under `NoSchedule`. Of several gangs there the first admitted come first, then the
    oldest: not all need let go of their places.
    """
    machine = snapshot.devices.machines.get(node.name, _NO_DEVICES)
    ruled = {taint.key for device in machine.devices for taint in device.ruled}
    claims = list(_to_be_met(snapshot, gang, node)) if ruled else []
    used = [it.devices for it in snapshot.devices.allocated.get(node.name, ())]
    if _all_met(machine, used, claims) or not _all_met(_without_rules(machine), used, claims):
        return ""
    return f"has devices that its pods claim, and a DeviceTaintRule gives {', '.join(sorted(ruled))} to them"


_NO_DEVICES: Final = MachineDevices(())


def _without_rules(machine: MachineDevices) -> MachineDevices:
    return replace(machine, devices=tuple(replace(device, ruled=()) for device in machine.devices))


def _to_be_met(snapshot: Snapshot, gang: Gang, node: Node) -> Iterator[tuple[DeviceClaim, ...]]:
    """Yields the claims of each pod on a node that has no devices yet: of gangs before this one, then of its own."""
    claim = claims_by_node(snapshot).get(node.name)
    place = claim.name if claim is not None else node.name
    given = Counter(id(holder) for holder, _ in allocated_on(snapshot, node.name))
    here = [it for it in machines_held(snapshot).get(place, ()) if _turn(it) < _turn(gang)]
    for each in (*sorted(here, key=_turn), gang):
        seats = Counter[str]()
        for pin in seats_of(snapshot, each):
            seats[pin.pod_set] += pin.count if place in {pin.claim, pin.node} else 0
        for pods in each.pod_sets:
            yield from repeat(pods.constraints.devices, max(0, seats[pods.name] - given[id(pods)]))


def _turn(gang: Gang) -> tuple[bool, float, str]:
    return gang.state is not GangState.ADMITTED, gang.admitted_at_s or gang.created_at_s, gang.uid


def _all_met(
    machine: MachineDevices, used: Iterable[Iterable[AllocatedDevice]], claims: Iterable[tuple[DeviceClaim, ...]]
) -> bool:
    """Returns whether pods with these claims find their devices on a machine of which some are in use."""
    use, allocator = DevicesInUse(machine), DeviceAllocator()
    for devices in used:
        use.take_known(devices)
    return all(allocator.allocate(use, each) for each in claims)
