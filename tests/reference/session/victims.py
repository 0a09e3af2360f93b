"""Who could be made to leave, in which order, and what that would free."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.reference.session.floor import Counts
from tests.reference.session.hall import Hall, Seat, SquadEntry
from tests.reference.session.parts import SquadLoss, Where, has_surplus, next_loss, next_pods
from tests.reference.session.turns import Key, walk
from tests.reference.session.values import PodState


@dataclass(slots=True)
class Victims:
    """Squads that could be made to leave, by queue: lowest priority, surplus, least lost work, newest."""

    hall: Hall
    candidates: dict[str, list[tuple[Key, str, SquadEntry]]] = field(default_factory=dict)
    _keys: dict[str, Key] = field(default_factory=dict)
    _freed: dict[str, Counts] = field(default_factory=dict)
    """What would be free, per machine and resource, if all candidates of a queue left; more where GPUs are shared."""
    _given: dict[str, list[tuple[int, Counts]]] = field(default_factory=dict)

    @classmethod
    def of(cls, hall: Hall) -> "Victims":
        """All squads that may ever be evicted and run now."""
        found = cls(hall)
        for entry in hall.entries:
            queue = found.candidates.setdefault(entry.squad.queue, [])
            if found._could_go(entry):
                found._keys[entry.squad.name] = key = _victim_key(entry)
                queue.append((key, entry.squad.name, entry))
                found._free(entry, 1)
        for queue in found.candidates.values():
            queue.sort(key=lambda candidate: candidate[:2])
        return found

    def _could_go(self, entry: SquadEntry) -> bool:
        return entry.squad.preemptible and next_loss(entry, keep_core=self.hall.policy.keep_cores) is not None

    def refresh(self, entries: Iterable[SquadEntry]) -> None:
        """Note that squads have changed."""
        for entry in entries:
            name, queue = entry.squad.name, self.candidates.setdefault(entry.squad.queue, [])
            if (old := self._keys.pop(name, None)) is not None:
                del queue[bisect_left(queue, (old, name))]
                self._free(entry, -1)
            if self._could_go(entry):
                self._keys[name] = key = _victim_key(entry)
                insort(queue, (key, name, entry))
                self._free(entry, 1)

    def _free(self, entry: SquadEntry, sign: int) -> None:
        """Add what a candidate would free; take away what was added for it before."""
        queue, name = entry.squad.queue, entry.squad.name
        freed = self._freed.get(queue)
        if freed is None:
            freed = self._freed[queue] = np.zeros_like(self.hall.floor.future)
        if sign > 0:
            self._given[name] = [
                (seat.row, self._of(seat)) for seat in entry.seats if seat.state is PodState.RUNNING and seat.row >= 0
            ]
        for row, amounts in self._given[name]:
            freed[row] += amounts if sign > 0 else -amounts

    def _of(self, seat: Seat) -> Counts:
        kind = seat.kind
        if kind.gpu is None:
            return kind.row
        whole = kind.row.copy()
        whole[self.hall.floor.gpu] += kind.gpu.devices
        return whole

    def could_do(self, queues: Iterable[str], entry: SquadEntry) -> bool:
        """Whether there would be room for the next step of a squad of equal pods if all candidates left; a bound."""
        kinds = {seat.kind.index: seat.kind for seat in entry.seats if seat.state is PodState.PENDING}
        kind = next(iter(kinds.values()))
        if len(kinds) > 1 or kind.gpu is not None:
            return True
        floor = self.hall.floor
        free = floor.future + sum(self._freed[name] for name in queues if name in self._freed)
        return int(floor.slots_in(free, kind).sum()) >= len(next_pods(entry))

    def losses(
        self,
        queues: Iterable[str],
        suits: Callable[[SquadEntry], bool],
        accepts: Callable[[SquadLoss], bool] | None = None,
        where: Where | None = None,
        tier: Callable[[str], int] | None = None,
        keeps_core: Callable[[SquadEntry], bool] | None = None,
    ) -> "Losses":
        """An ordered stream of what can be taken from these queues; a squad of which a loss is not accepted is out.

        With `where`, only losses that contain such a pod. Queues of a higher `tier` come first. What `keeps_core` loses
        nothing but surplus.
        """
        given = {name: self.candidates[name] for name in queues if self.candidates.get(name)}
        return Losses(self.hall, given, suits, accepts, where, tier, keeps_core)


def _victim_key(entry: SquadEntry) -> Key:
    squad = entry.squad
    return (squad.priority, 0.0 if has_surplus(entry) else 1.0, squad.lost_work, -squad.created)


class Losses:
    """Losses one by one. Each has to be evicted before the next is asked for, because it changes what comes next."""

    def __init__(
        self,
        hall: Hall,
        lists: Mapping[str, list[tuple[Key, str, SquadEntry]]],
        suits: Callable[[SquadEntry], bool],
        accepts: Callable[[SquadLoss], bool] | None,
        where: Where | None,
        tier: Callable[[str], int] | None,
        keeps_core: Callable[[SquadEntry], bool] | None,
    ) -> None:
        self._hall, self._lists, self._suits, self._accepts, self._where = hall, lists, suits, accepts, where
        self._tier, self._keeps_core = tier, keeps_core
        self._at = dict.fromkeys(lists, 0)
        self._again: dict[str, list[tuple[Key, str, SquadEntry]]] = {name: [] for name in lists}
        self._next: dict[str, SquadLoss | None] = {}
        self._last: SquadEntry | None = None

    def pull(self) -> SquadLoss | None:
        """The next loss that is accepted; None when there are no more."""
        while (loss := self._pull()) is not None:
            if self._accepts is None or self._accepts(loss):
                self._last = loss.entry
                return loss
        return None

    def _pull(self) -> SquadLoss | None:
        if self._last is not None and len(self._last.seats) > 1:
            squad = self._last.squad
            insort(self._again[squad.queue], (_victim_key(self._last), squad.name, self._last))
            self._next.pop(squad.queue, None)
        self._last = None
        open_queues = [name for name in self._lists if self._peek(name) is not None]
        if not open_queues:
            return None
        if self._tier is not None:
            nearest = max(self._tier(name) for name in open_queues)
            open_queues = [name for name in open_queues if self._tier(name) == nearest]
        queue = open_queues[0]
        if len(open_queues) > 1:
            queue = walk(self._hall.ledger, open_queues, self._key, first=False)
        loss = self._next.pop(queue)
        if loss is not None:
            self._drop(queue, loss.entry)
        return loss

    def _key(self, queue: str, leaf: str) -> Key:
        loss = self._peek(leaf)
        return self._hall.ledger.turn(queue, None, loss.amounts if loss else None)

    def _peek(self, queue: str) -> SquadLoss | None:
        if queue in self._next:
            return self._next[queue]
        found = None
        while found is None and (entry := self._head(queue)) is not None:
            if self._suits(entry):
                keep_core = self._hall.policy.keep_cores or (self._keeps_core is not None and self._keeps_core(entry))
                found = next_loss(entry, keep_core=keep_core, where=self._where)
            if found is None:
                self._drop(queue, entry)
        self._next[queue] = found
        return found

    def _head(self, queue: str) -> SquadEntry | None:
        at, again, given = self._at[queue], self._again[queue], self._lists[queue]
        if again and (at >= len(given) or again[0] < given[at]):
            return again[0][2]
        return given[at][2] if at < len(given) else None

    def _drop(self, queue: str, entry: SquadEntry) -> None:
        if self._again[queue] and self._again[queue][0][2] is entry:
            self._again[queue].pop(0)
        else:
            self._at[queue] += 1
