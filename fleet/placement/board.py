"""The board: every slot pods can be put on, with what is free, as do/undo state for what-ifs."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

from fleet.placement.shelf import Price, free_of_charge
from fleet.placement.view import ANYBODY, Rooms, View
from model.kinds import Taint
from model.quantity import Resources

PODS = "pods"
_VIEWS = 32
"""Classes of pods that a board keeps a view for; the one asked for first goes."""

Moment = tuple[int, int]
"""How much of its changes somebody has seen: epoch and position."""


@dataclass(slots=True, eq=False)
class Slot:
    """A machine that can take pods: a node, a claimed machine not yet joined, or one that might be bought or re-cut.

    `node` is empty until the machine has joined, `claim` for nodes nobody claimed. `free`, `node` and `only_for` only
    change through `Board`.
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
    changed: object = None
    """The last change that stands, compared by identity: while it is the same, so is everything else."""

    @property
    def empty(self) -> bool:
        """Whether it is known that nothing stands on it that keeps its machine."""
        return self.pods_when_empty is not None and self.free.get(PODS, 0) == self.pods_when_empty

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


@dataclass(slots=True, eq=False)  # never changed; frozen ones take three times as long to make, and there are many
class _Taken:
    slot: Slot
    requests: Resources
    count: int
    before: object
    """What the slot was last changed by until then."""


State = tuple[object, int]
"""The last change that stands, compared by identity, and how many there were that cannot be undone."""


@dataclass(slots=True)
class Board:
    """All slots by name. `mark`/`undo` bracket a what-if and restore the exact state.

    A slot that is on several boards is changed through one of them only.
    """

    slots: dict[str, Slot] = field(default_factory=dict)
    _log: list[_Taken | Slot] = field(default_factory=list)
    _touched: list[Slot] = field(default_factory=list)
    _unlogged: int = 0
    """Changes that `undo` knows nothing of."""
    _epoch: int = 0
    _rooms: dict[Hashable, Rooms] = field(default_factory=dict)

    def view(
        self,
        kind: Hashable,
        requests: Resources,
        accepts: Callable[[Slot], bool] = lambda _slot: True,
        priced: Callable[[Resources], Price] = lambda _requests: free_of_charge,
    ) -> View:
        """Rooms for pods with `requests` on the slots that suit them, kept between calls.

        `kind` must differ for pods that suit different slots: it stands for what `accepts` looks at. What is `priced`
        is so by the same rule as long as the board lives.
        """
        key = (kind, tuple(sorted(requests.items())))
        rooms = self._rooms.get(key)
        if rooms is None:
            if len(self._rooms) >= _VIEWS:
                del self._rooms[next(iter(self._rooms))]
            rooms = self._rooms[key] = Rooms(requests, accepts, priced(requests))
        return View(self, rooms)

    def touched(self, since: Moment) -> list[Slot] | None:
        """Slots that came, went or changed since, perhaps more than once; None when that is not known any more."""
        epoch, position = since
        return self._touched[position:] if epoch == self._epoch else None

    def now(self) -> Moment:
        """The present end of the changes."""
        return self._epoch, len(self._touched)

    def _touch(self, slot: Slot) -> None:
        self._touched.append(slot)
        if len(self._touched) > 4 * len(self.slots) + 4096:
            self._touched = []
            self._epoch += 1

    def add(self, slot: Slot) -> None:
        """Put a further slot on the board (undoable); its name must be new."""
        if slot.name in self.slots:
            raise ValueError(f"slot {slot.name} is on the board already")
        self.slots[slot.name] = slot
        self._log.append(slot)
        self._touch(slot)

    def take(self, slot: Slot, requests: Resources, count: int) -> None:
        """Put `count` pods on a slot. A negative count takes pods off."""
        _change(slot, requests, count)
        slot.changed = taken = _Taken(slot, requests, count, slot.changed)
        self._log.append(taken)
        self._touch(slot)

    def rename(self, slot: Slot, name: str) -> None:
        """Give a slot that stays on the board a name of its own, so that the next what-if may use the old one."""
        self._unlogged += 1
        del self.slots[slot.name]
        slot.name, slot.changed = name, object()
        self.slots[name] = slot
        self._touch(slot)

    def share(self, slot: Slot) -> None:
        """Let everybody use a slot that was for one gang; whoever is put there waits for its machine."""
        self._unlogged += 1
        slot.only_for, slot.node = ANYBODY, ""
        slot.changed = object()
        self._touch(slot)

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

    @property
    def state(self) -> "State":
        """Equal to an earlier one only if everything stands as it did then: a what-if in between was undone."""
        return (self._log[-1] if self._log else None), self._unlogged

    def undo(self, mark: int) -> None:
        """Back to the state at `mark`."""
        while len(self._log) > mark:
            entry = self._log.pop()
            if isinstance(entry, Slot):
                del self.slots[entry.name]
                self._touch(entry)
            else:
                _change(entry.slot, entry.requests, -entry.count)
                entry.slot.changed = entry.before
                self._touch(entry.slot)


def _change(slot: Slot, requests: Resources, count: int) -> None:
    free = slot.free
    free[PODS] = free.get(PODS, 0) - count
    for resource, amount in requests.items():
        if amount:
            free[resource] = free.get(resource, 0) - amount * count


def by_name(slots: Iterable[Slot]) -> list[Slot]:
    """Slots in the order that ends every tie."""
    return sorted(slots, key=lambda slot: slot.name)
