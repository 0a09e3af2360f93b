"""The board: every slot pods can be put on, with what is free, as do/undo state for what-ifs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from model.kinds import Taint
from model.quantity import Resources

PODS = "pods"


@dataclass(slots=True)
class Slot:
    """A machine that can take pods: a node, a claimed machine not yet joined, or one that might be bought or re-cut.

    `node` is empty until the machine has joined, `claim` for nodes nobody claimed. `free` only changes through `Board`.
    """

    name: str
    node: str
    claim: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    free: dict[str, int]
    pool: str = ""
    only_for: str = ""
    """uid of the one gang that may use it; empty = anybody."""

    def room_for(self, requests: Resources) -> int:
        """How many pods with these requests still fit."""
        free = self.free
        room = free.get(PODS, 0)
        for resource, amount in requests.items():
            if room <= 0:
                return 0
            if amount and (fits := free.get(resource, 0) // amount) < room:
                room = fits
        return max(0, room)


@dataclass(frozen=True, slots=True)
class _Taken:
    slot: Slot
    requests: Resources
    count: int


@dataclass(slots=True)
class Board:
    """All slots by name. `mark`/`undo` bracket a what-if and restore the exact state."""

    slots: dict[str, Slot] = field(default_factory=dict)
    _log: list[_Taken | Slot] = field(default_factory=list)

    def add(self, slot: Slot) -> None:
        """Put a further slot on the board (undoable); its name must be new."""
        if slot.name in self.slots:
            raise ValueError(f"slot {slot.name} is on the board already")
        self.slots[slot.name] = slot
        self._log.append(slot)

    def take(self, slot: Slot, requests: Resources, count: int) -> None:
        """Put `count` pods on a slot. A negative count takes pods off."""
        _change(slot, requests, count)
        self._log.append(_Taken(slot, requests, count))

    def rename(self, slot: Slot, name: str) -> None:
        """Give a slot that stays on the board a name of its own, so that the next what-if may use the old one."""
        del self.slots[slot.name]
        slot.name = name
        self.slots[name] = slot

    def close(self, name: str) -> int:
        """Let a slot, if it is there, take no further pod (undoable); how many more it could have taken."""
        slot = self.slots.get(name)
        room = max(0, slot.free.get(PODS, 0)) if slot is not None else 0
        if slot is not None and room:
            self.take(slot, {}, room)
        return room

    def mark(self) -> int:
        """The present state, for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Back to the state at `mark`."""
        while len(self._log) > mark:
            entry = self._log.pop()
            if isinstance(entry, Slot):
                del self.slots[entry.name]
            else:
                _change(entry.slot, entry.requests, -entry.count)


def _change(slot: Slot, requests: Resources, count: int) -> None:
    free = slot.free
    free[PODS] = free.get(PODS, 0) - count
    for resource, amount in requests.items():
        if amount:
            free[resource] = free.get(resource, 0) - amount * count


def by_name(slots: Iterable[Slot]) -> list[Slot]:
    """Slots in the order that ends every tie."""
    return sorted(slots, key=lambda slot: slot.name)
