"""The cluster state is the nodes that pods can be put on and what is free on them; what-ifs change and undo it.

It is what `state.Cluster` is to Karpenter and the snapshot of `NodeInfo`s to kube-scheduler. How many pods of a class
fit where is counted beside it (`fleet.placement.free_capacity`), from what it says has changed.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from fleet.offerings.offerings import Offering
from fleet.placement.neighbours import Neighbours, PodLike
from fleet.snapshot import PodSet
from fleet.snapshot.devices import MachineDevices
from model.kinds import Taint
from model.quantity import Resources

PODS = "pods"
ANYBODY: frozenset[str] = frozenset()
"""The owners of a slot that every gang may use."""

ChangePosition = tuple[int, int]
"""How much of the changes of a state somebody has seen: epoch and position."""
StateVersion = tuple[object, int]
"""The last change that stands, compared by identity, and how many there were that cannot be undone."""


@dataclass(slots=True, eq=False)
class NodeSlot:
    """A machine that can take pods: a node, a claimed machine not yet joined, or one that might be bought or re-cut.

    `node` is empty until the machine has joined, `claim` for nodes nobody claimed. `free`, `node` and `only_for` only
    change through `ClusterState`.
    """

    name: str
    node: str
    claim: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    pool: str = ""
    only_for: frozenset[str] = ANYBODY
    """uids of the gangs that alone may use it; none = anybody."""
    pods_when_empty: int | None = None
    """Room for pods while nothing stands on it that keeps its machine; None = something does, or it does not matter."""
    closes_s: float = inf
    """From when on nothing starts there, and what is there leaves: its capacity block ends (epoch seconds)."""
    leaving: bool = False
    """Whether its machine is to be replaced some day (it has drifted): work goes there where nothing else stands."""
    devices: MachineDevices | None = None
    """Those that pods will be able to claim there, where it has not joined."""
    changed: object = None
    """The last change that stands, compared by identity: while it is the same, so is everything else."""
    offering: Offering | None = None
    """What it would be bought as: of one offering all machines suit the same pods; None = it is there already."""

    @property
    def empty(self) -> bool:
        """Whether it is known that nothing stands on it that keeps its machine."""
        return self.pods_when_empty is not None and self.free.get(PODS, 0) == self.pods_when_empty

    def room_for(self, requests: Resources) -> int:
        """How many pods with these requests still fit."""
        return room_in(self.free, requests)


def room_in(free: Resources, requests: Resources) -> int:
    """How many pods with these requests fit into what is free."""
    room = free.get(PODS, 0)
    for resource, amount in requests.items():
        if amount and (fits := free.get(resource, 0) // amount) < room:
            room = fits
            if room <= 0:
                return 0
    return max(0, room)


def lacks(free: Resources, asked: Iterable[tuple[str, int]]) -> bool:
    """Whether some amount that is asked for is not there."""
    for name, amount in asked:  # noqa: SIM110  a generator takes twice as long, and every machine is asked
        if free.get(name, 0) < amount:
            return True
    return False


def planned_slot(offering: Offering, name: str, *only_for: str, room: Resources | None = None) -> NodeSlot:
    """A new machine of an offering as a slot, part of no state yet; `only_for` names the gangs it is kept for.

    `room`: what of it may be filled; None = all of it.
    """
    free, pool, owners = dict(offering.allocatable if room is None else room), offering.pool.name, frozenset(only_for)
    return NodeSlot(
        *(name, "", name, offering.labels, offering.taints, free, pool, owners),
        closes_s=offering.closes_s,
        devices=offering.devices,
        offering=offering,
    )


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class NodeAssignment:
    """An assignment puts `count` pods of a pod set on one slot."""

    pod_set: str
    slot: NodeSlot
    count: int


@dataclass(slots=True, eq=False)  # never changed; frozen ones take three times as long to make, and there are many
class _PodsPut:
    """This change put `count` pods with these requests on a slot."""

    slot: NodeSlot
    requests: Resources
    count: int
    before: object
    """What the slot was last changed by until then."""
    pods: PodLike | None = None
    """Whose pods these are; None = of nobody that constraints look at."""


@dataclass(slots=True)
class ClusterState:
    """The state holds all slots by name; `mark` and `undo` bracket a what-if and restore it exactly.

    A slot that is part of several states is changed through one of them only.
    """

    slots: dict[str, NodeSlot] = field(default_factory=dict)
    neighbours: Neighbours = field(default_factory=Neighbours, repr=False)
    """Which pods stand where, for those who ask it."""
    indexes: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """What `fleet.placement.free_capacity` has counted, by class of pods; it alone reads and writes this."""
    _log: list[_PodsPut | NodeSlot] = field(default_factory=list)
    """Changes that `undo` takes back: pods put on a slot, and slots added."""
    _touched: list[NodeSlot] = field(default_factory=list)
    _looked: int = 0
    """Positions that somebody has asked for so far: what is touched twice after that is told of once."""
    _unlogged: int = 0
    """Changes that `undo` knows nothing of."""
    _epoch: int = 0

    def __post_init__(self) -> None:
        self.neighbours.watch(self.slots)

    def touched(self, since: ChangePosition) -> list[NodeSlot] | None:
        """Slots that came, went or changed since a position, perhaps more than once; None when it is too long ago."""
        epoch, position = since
        return self._touched[position:] if epoch == self._epoch else None

    def now(self) -> ChangePosition:
        """The position after the last change, for `touched`."""
        self._looked = len(self._touched)
        return self._epoch, self._looked

    def _touch(self, slot: NodeSlot) -> None:
        touched = self._touched
        if len(touched) > self._looked and touched[-1] is slot:
            return
        touched.append(slot)
        if len(touched) > 4 * len(self.slots) + 4096:
            self._touched, self._looked = [], 0
            self._epoch += 1

    def add(self, slot: NodeSlot) -> None:
        """Adds a further slot (undoable); ValueError when its name is taken."""
        if slot.name in self.slots:
            raise ValueError(f"slot {slot.name} is there already")
        self.slots[slot.name] = slot
        self.neighbours.note_slot(slot, 1)
        self._log.append(slot)
        self._touch(slot)

    def take(self, slot: NodeSlot, requests: Resources, count: int, pods: PodLike | None = None) -> None:
        """Puts `count` pods on a slot (undoable). A negative count takes pods off. `pods` says whose they are."""
        _change(slot, requests, count)
        slot.changed = taken = _PodsPut(slot, requests, count, slot.changed, pods)
        if pods is not None:
            self.neighbours.put(pods, slot, count)
        self._log.append(taken)
        self._touch(slot)

    def place(self, slot: NodeSlot, pod_set: PodSet, count: int) -> None:
        """Puts `count` pods of a set on a slot (undoable). A negative count takes pods off."""
        self.take(slot, pod_set.requests, count, pod_set)

    def rename(self, slot: NodeSlot, name: str) -> None:
        """Gives a slot that stays for good a name of its own, so that the next what-if may use the old one."""
        self._unlogged += 1
        del self.slots[slot.name]
        slot.name, slot.changed = name, object()
        self.slots[name] = slot
        self._touch(slot)

    def share(self, slot: NodeSlot, gangs: frozenset[str] = ANYBODY) -> None:
        """Lets these gangs, or everybody, use a slot that was for one; whoever is put there waits for its machine."""
        self._unlogged += 1
        slot.only_for, slot.node = gangs, ""
        slot.changed = object()
        self._touch(slot)

    def close(self, name: str) -> int:
        """Lets a slot, if it is there, take no further pod (undoable); returns how many more it could have taken."""
        slot = self.slots.get(name)
        room = max(0, slot.free.get(PODS, 0)) if slot is not None else 0
        if slot is not None and room:
            self.take(slot, {}, room)
        return room

    def exchange(self, name: str, slot: NodeSlot | None) -> None:
        """Puts a slot in the place of the one with this name, if any, or removes that; `settle` has to come next."""
        if (before := self.slots.get(name)) is not None:
            self._touch(before)
        if slot is None:
            del self.slots[name]
        else:
            self.slots[name] = slot
            self._touch(slot)

    def settle(self) -> None:
        """Makes what stands now the beginning, which `undo` never goes behind."""
        for entry in self._log:
            if not isinstance(entry, NodeSlot):
                entry.slot.changed = object()  # not the change: each would keep all before it
        self._log, self._unlogged = [], 0

    def mark(self) -> int:
        """A mark of the present state, for `undo`."""
        return len(self._log)

    @property
    def version(self) -> StateVersion:
        """The version of the state: it equals an earlier one only if everything stands as it did then."""
        return (self._log[-1] if self._log else None), self._unlogged

    def undo(self, mark: int) -> None:
        """Restores the state at `mark`."""
        while len(self._log) > mark:
            entry = self._log.pop()
            if isinstance(entry, NodeSlot):
                del self.slots[entry.name]
                self.neighbours.note_slot(entry, -1)
                self._touch(entry)
            else:
                _change(entry.slot, entry.requests, -entry.count)
                entry.slot.changed = entry.before
                if entry.pods is not None:
                    self.neighbours.put(entry.pods, entry.slot, -entry.count)
                self._touch(entry.slot)

    def revert(self) -> None:
        """Restores what stood at the beginning; slots added since then are good for nothing afterwards.

        Nor are its neighbours, who are not told.
        """
        added = {id(it): it for it in self._log if isinstance(it, NodeSlot)}
        for slot in added.values():
            del self.slots[slot.name]
            self._touch(slot)
        for entry in reversed(self._log):
            if not isinstance(entry, NodeSlot) and id(entry.slot) not in added:
                _change(entry.slot, entry.requests, -entry.count)
                entry.slot.changed = entry.before
                self._touch(entry.slot)
        self._log.clear()


def _change(slot: NodeSlot, requests: Resources, count: int) -> None:
    free = slot.free
    free[PODS] = free.get(PODS, 0) - count
    for resource, amount in requests.items():
        if amount:
            free[resource] = free.get(resource, 0) - amount * count
