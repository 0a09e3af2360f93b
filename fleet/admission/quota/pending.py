"""Workloads that wait in one queue: which is next, and which are not worth another look for now.

Kueue `pkg/cache/queue` (reference 2.2, 2.8). A workload that cannot run is set aside with all others of its shape, and
new ones of that shape with it, until something changes in the tree; then all are looked at again.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from fleet.admission.quota.workload import Workload

Key = tuple[object, ...]


def order_key(workload: Workload) -> Key:
    """Who has had others evicted for it, higher priority, older, uid."""
    return (not workload.nominated, -workload.priority, workload.at_s, workload.uid)


@dataclass(slots=True)
class Pending:
    """The waiting workloads of one queue. At most one is popped and not yet back at any time."""

    strict: bool = False
    usage: Callable[[Workload], float] | None = None
    """Decayed usage of a workload's local queue, where that comes first in the order."""
    sticky: str = ""
    """uid of the workload others were evicted for: it stays at the head while they leave. Not under StrictFIFO."""
    _heap: list[tuple[Key, int, Workload]] = field(default_factory=list)
    _pushed: int = 0
    _overdue: bool = False
    """One that has waited too long was put in."""
    _waiting: dict[str, Workload] = field(default_factory=dict)
    """In the heap, by uid; what is in the heap and not here has left."""
    _aside: dict[str, Workload] = field(default_factory=dict)
    _hopeless: set[Hashable] = field(default_factory=set)
    """Shapes set aside."""
    _retried: bool = False
    """Those set aside were taken up again since the last pop."""

    def push(self, workload: Workload) -> None:
        """A workload waits from now on."""
        self._waiting[workload.uid] = workload
        self._pushed += 1
        self._overdue |= workload.overdue
        heappush(self._heap, (order_key(workload), self._pushed, workload))

    def forget(self, uid: str) -> None:
        """It waits no longer."""
        self._waiting.pop(uid, None)
        self._aside.pop(uid, None)
        if self.sticky == uid:
            self.sticky = ""

    def pop(self) -> Workload | None:
        """The next one to look at; None when all are set aside."""
        self._retried = False
        if self.usage is not None:
            return self._pop_by_usage(self.usage)
        if (held := self._waiting.pop(self.sticky, None)) is not None:
            return held
        while self._heap:
            _, _, workload = heappop(self._heap)
            if self._waiting.get(workload.uid) is not workload:
                continue
            del self._waiting[workload.uid]
            if workload.shape not in self._hopeless:
                return workload
            self._aside[workload.uid] = workload
        return None

    def _pop_by_usage(self, usage: Callable[[Workload], float]) -> Workload | None:
        self._set_shapes_aside()
        if not self._waiting:
            return None
        best = min(self._waiting.values(), key=lambda w: (usage(w), w.uid != self.sticky, order_key(w)))
        return self._waiting.pop(best.uid)

    def pop_overdue(self) -> Workload | None:
        """The first that has waited too long; where nothing passes the head, only the head itself."""
        for workload in self.active() if self._overdue else ():
            if workload.overdue:
                return self._waiting.pop(workload.uid)
            if self.strict:
                break
        return None

    def put_back(self, workload: Workload, *, again: bool) -> None:
        """Return what was popped: to be looked at `again`, or to be set aside until the next retry."""
        if again or self._retried:
            self.push(workload)
        else:
            self._aside[workload.uid] = workload

    def give_up_on(self, shape: Hashable) -> None:
        """Set everything of this shape aside until the next retry."""
        if not self._retried:
            self._hopeless.add(shape)

    def retry(self) -> bool:
        """Look at everything again; whether there was anything."""
        self._retried = True
        self._hopeless.clear()
        had = bool(self._aside)
        for workload in self._aside.values():
            self.push(workload)
        self._aside.clear()
        return had

    def _set_shapes_aside(self) -> None:
        for uid in [uid for uid, workload in self._waiting.items() if workload.shape in self._hopeless]:
            self._aside[uid] = self._waiting.pop(uid)

    def active(self) -> list[Workload]:
        """Those that will be looked at, in order."""
        self._set_shapes_aside()
        return self._ordered(self._waiting.values())

    def aside(self) -> list[Workload]:
        """Those set aside, in order."""
        self._set_shapes_aside()
        return self._ordered(self._aside.values())

    def in_order(self) -> list[Workload]:
        """All, in the order in which they would be looked at: positions in the queue."""
        return self._ordered((*self._waiting.values(), *self._aside.values()))

    def _ordered(self, workloads: Iterable[Workload]) -> list[Workload]:
        usage = self.usage
        return sorted(
            workloads,
            key=lambda w: (usage(w) if usage else 0.0, w.uid != self.sticky, *order_key(w)),
        )

    def __len__(self) -> int:
        return len(self._waiting) + len(self._aside)
