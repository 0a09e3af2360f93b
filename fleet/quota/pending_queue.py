"""Holds the waiting workloads of a queue: which one is next, and which are set aside until something changes.

Kueue `pkg/cache/queue` (reference 2.2, 2.8). A workload that cannot run is set aside as inadmissible with all others of
its shape, and new ones of that shape with it, until something changes in the tree; then all are looked at again.

Workloads of one shape wait in a row of their own, and only the head of a row competes with the heads of the others: a
whole shape is set aside, and taken up again, in one step however many wait in it. Where usage orders the queue, the
rows of each local queue are apart, because the order among local queues changes with every admission.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace

from fleet.quota.workload import Workload

Key = tuple[object, ...]


def order_key(workload: Workload) -> Key:
    """Orders workloads: first those that others were evicted for, then by priority, age, uid."""
    return (not workload.nominated, -workload.priority, workload.at_s, workload.uid)


@dataclass(slots=True)
class RequeueCounter:
    """A `RequeueCounter` counts requests to look again at everything set aside in one tree; its queues share it."""

    count: int = 0


QueuePosition = tuple[Key, int]
"""A position in the queue: the key, and a number that ends every tie of two entries of one workload."""
_Row = deque[tuple[QueuePosition, Workload]]
"""Workloads of one shape in order. Nearly all come at the end of it and leave at its beginning: no heap is as quick."""


@dataclass(slots=True)
class PendingQueue:
    """A `PendingQueue` holds the waiting workloads of one queue; at most one is popped and not yet put back."""

    strict: bool = False
    usage: Callable[[Workload], float] | None = None
    """Decayed usage of a workload's local queue, where that comes first in the order: only what others already were
    evicted for goes before, so that it gets what they left."""
    requeues: RequeueCounter = field(default_factory=RequeueCounter)
    sticky: str = ""
    """uid of the workload others were evicted for: it stays at the head while they leave. Not under StrictFIFO."""
    _rows: dict[tuple[str, Hashable], _Row] = field(default_factory=dict)
    """(local queue, shape) -> those that wait; an entry that is not in `_waiting` has left."""
    _heads: dict[str, list[tuple[QueuePosition, Hashable]]] = field(default_factory=dict)
    """Local queue -> heap of its rows by their head: for each row that is not set aside an entry no later than its
    head. Where usage does not count there is one, without a name."""
    _listed: set[int] = field(default_factory=set)
    """Numbers of the positions in `_heads`, so that none is there twice."""
    _pushed: int = 0
    _overdue: bool = False
    """Whether an overdue workload was ever pushed."""
    _nominated: bool = False
    """Whether a workload that others were evicted for was ever pushed."""
    _waiting: dict[str, Workload] = field(default_factory=dict)
    """uid -> workload in a row; an entry of a row that is not here has left."""
    _inadmissible: dict[str, Workload] = field(default_factory=dict)
    """uid -> workload that was set aside by itself."""
    _inadmissible_shapes: set[Hashable] = field(default_factory=set)
    """Shapes set aside: their rows have no entry in `_heads`, or one that is dropped when it is met."""
    _taken_up: int = field(init=False)
    """Value of the `requeues` counter when workloads set aside were last put back."""
    _popped_at: int = field(init=False)
    """Value of the `requeues` counter at the last pop."""

    def __post_init__(self) -> None:
        self._taken_up = self._popped_at = self.requeues.count

    def push(self, workload: Workload) -> None:
        """Adds a workload that waits."""
        self._waiting[workload.uid] = workload
        self._pushed += 1
        self._overdue |= workload.overdue
        self._nominated |= workload.nominated
        position, shape = (order_key(workload), self._pushed), workload.shape
        local = workload.local_queue if self.usage else ""
        row = self._rows.get((local, shape))
        if row is None:
            row = self._rows[local, shape] = deque()
            self._heads.setdefault(local, [])
        _enter(row, (position, workload))
        if row[0][0] is position and shape not in self._inadmissible_shapes:
            self._list(local, position, shape)

    def forget(self, uid: str) -> None:
        """Removes a workload that waits no longer."""
        self._waiting.pop(uid, None)
        self._inadmissible.pop(uid, None)
        if self.sticky == uid:
            self.sticky = ""

    def pop(self) -> Workload | None:
        """Takes out the next workload to look at; None when all are set aside."""
        self._put_all_back()
        self._popped_at = self.requeues.count
        if self.usage is not None:
            return self._pop_by_usage(self.usage)
        if (held := self._waiting.pop(self.sticky, None)) is not None:
            return held
        return self._take("") if self._peek("") is not None else None

    def pop_nominated(self) -> Workload | None:
        """Takes out the next workload to look at if others were evicted for it already; None if they were not."""
        if not self._nominated:
            return None
        self._put_all_back()
        heads = (self._peek(local) for local in self._heads)
        return self.pop() if any(head is not None and head.nominated for head in heads) else None

    def _pop_by_usage(self, usage: Callable[[Workload], float]) -> Workload | None:
        heads = [(head, local) for local in self._heads if (head := self._peek(local)) is not None]
        held = self._waiting.get(self.sticky)
        if held is not None and held.shape not in self._inadmissible_shapes:
            heads.append((held, ""))
        if not heads:
            return None
        best, local = min(heads, key=lambda head: self._key(head[0], usage))
        return self._waiting.pop(best.uid) if best is held else self._take(local)

    def _key(self, workload: Workload, usage: Callable[[Workload], float]) -> Key:
        return (not workload.nominated, usage(workload), workload.uid != self.sticky, *order_key(workload))

    def _peek(self, local: str) -> Workload | None:
        """Returns the next workload of a local queue whose shape is not set aside; None if there is none."""
        heads = self._heads.get(local)
        while heads:
            position, shape = heads[0]
            aside = self._inadmissible_shapes and shape in self._inadmissible_shapes
            first = None if aside else self._first(self._rows[local, shape])
            if first is not None and first[0] is position:
                return first[1]
            self._unlist(local)
            if first is not None:
                self._list(local, first[0], shape)
        return None

    def _take(self, local: str) -> Workload:
        """Takes the workload that `_peek` has just found out of the queue."""
        heads = self._heads[local]
        position, shape = heads[0]
        row = self._rows[local, shape]
        _, workload = row.popleft()
        del self._waiting[workload.uid]
        self._listed.discard(position[1])
        following = self._first(row)
        if following is None or following[0][1] in self._listed:
            heappop(heads)
        else:
            self._listed.add(following[0][1])
            heapreplace(heads, (following[0], shape))
        return workload

    def _list(self, local: str, position: QueuePosition, shape: Hashable) -> None:
        """Enters the head of a row into the heap of its local queue."""
        if position[1] not in self._listed:
            self._listed.add(position[1])
            heappush(self._heads[local], (position, shape))

    def _unlist(self, local: str) -> Hashable:
        """Removes the first row from the heap of a local queue, and returns the row's shape."""
        position, shape = heappop(self._heads[local])
        self._listed.discard(position[1])
        return shape

    def _first(self, row: _Row) -> tuple[QueuePosition, Workload] | None:
        """Returns the head of a row; entries before it that have left are dropped."""
        while row and self._waiting.get(row[0][1].uid) is not row[0][1]:
            row.popleft()
        return row[0] if row else None

    def pop_overdue(self) -> list[Workload]:
        """Takes out all workloads that are being moved, and the first other overdue one.

        The latter with StrictFIFO only if it is the head.
        """
        if not self._overdue:
            return []
        waiting = list(self.active())
        found = [workload for workload in waiting if workload.moved]
        others = [workload for workload in waiting if not workload.moved]
        found += [workload for workload in others[: 1 if self.strict else None] if workload.overdue][:1]
        return [self._waiting.pop(workload.uid) for workload in found]

    def put_back(self, workload: Workload, *, again: bool) -> None:
        """Puts a popped workload back: to be looked at `again`, or set aside until that is requested."""
        if again or self._requeued:
            self.push(workload)
        else:
            self._inadmissible[workload.uid] = workload

    def set_aside(self, shape: Hashable) -> None:
        """Sets all workloads of this shape aside until another look at the tree is requested."""
        if not self._requeued:
            self._inadmissible_shapes.add(shape)

    @property
    def _requeued(self) -> bool:
        """Returns whether another look at everything was requested since the last pop."""
        return self._popped_at != self.requeues.count

    def _put_all_back(self) -> None:
        """Puts everything set aside back, if that was requested since it was last done."""
        if self._taken_up == self.requeues.count:
            return
        self._taken_up = self.requeues.count
        hopeless, self._inadmissible_shapes = self._inadmissible_shapes, set()
        for local in self._heads if hopeless else ():
            for shape in hopeless:
                if (first := self._first(self._rows.get((local, shape), deque()))) is not None:
                    self._list(local, first[0], shape)
        for workload in self._inadmissible.values():
            self.push(workload)
        self._inadmissible.clear()

    def _set_shapes_aside(self) -> None:
        self._put_all_back()
        for uid in [uid for uid, workload in self._waiting.items() if workload.shape in self._inadmissible_shapes]:
            self._inadmissible[uid] = self._waiting.pop(uid)

    def active(self) -> list[Workload]:
        """Returns the workloads that are not set aside, in order."""
        self._set_shapes_aside()
        return self._ordered(self._waiting.values())

    def in_order(self) -> list[Workload]:
        """Returns all workloads in order, those set aside among them."""
        return self._ordered((*self._waiting.values(), *self._inadmissible.values()))

    def _ordered(self, workloads: Iterable[Workload]) -> list[Workload]:
        usage = self.usage
        if usage is None:
            return sorted(workloads, key=lambda w: (w.uid != self.sticky, *order_key(w)))
        return sorted(workloads, key=lambda w: self._key(w, usage))

    def __len__(self) -> int:
        return len(self._waiting) + len(self._inadmissible)


def _enter(row: _Row, entry: tuple[QueuePosition, Workload]) -> None:
    """Enters a workload into its row."""
    if not row or entry > row[-1]:
        row.append(entry)
    elif entry < row[0]:
        row.appendleft(entry)
    else:
        insort(row, entry)
