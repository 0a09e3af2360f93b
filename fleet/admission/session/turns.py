"""Whose turn it is: the tree of queues walked from the top, the best squad of the best queue first."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fleet.admission.session.hall import Entry, Hall
from fleet.admission.session.ledger import Ledger, Vector, add, total
from fleet.admission.session.parts import Loss, Where, active, has_surplus, next_loss, next_pods, stands
from fleet.admission.session.policy import Rank

Key = tuple[float, ...]


def gang_key(hall: Hall, entry: Entry, shares: Mapping[str, float]) -> Key:
    """What sorts the squads of one queue, first to be served smallest; `shares` are capacities for dominant shares."""
    found: list[float] = []
    for rank in hall.policy.ranks:
        if rank is Rank.PRIORITY:
            found.append(-entry.squad.priority)
        elif rank is Rank.UNREADY:
            found.append(_readiness(entry))
        else:
            found.append(dominant(hall, entry, shares))
    return (*found, entry.squad.created)


def _readiness(entry: Entry) -> float:
    """0 below the minimum, 1 just at it, 2 above."""
    if not stands(entry, entry.squad.root):
        return 0.0
    return 2.0 if has_surplus(entry) else 1.0 if active(entry, entry.squad.root) else 0.0


def dominant(hall: Hall, entry: Entry, shares: Mapping[str, float], extra: Vector | None = None) -> float:
    """The dominant share of what a squad holds, with `extra` on top."""
    held = tuple(entry.held) if extra is None else add(tuple(entry.held), extra)
    named = zip(hall.ledger.resources, held, strict=True)
    return max((amount / shares[name] for name, amount in named if shares.get(name)), default=0.0)


@dataclass(slots=True)
class Turns:
    """Squads that wait, by queue, each queue in its order."""

    hall: Hall
    shares: Mapping[str, float]
    full_too: bool = False
    """Whether queues that may be given nothing from idle machines take turns as well."""
    waiting: dict[str, list[tuple[Key, str, Entry]]] = field(default_factory=dict)
    _needs: dict[str, Vector] = field(default_factory=dict)

    def push(self, entry: Entry) -> None:
        """Let a squad wait; one whose queue is not known never gets a turn."""
        queue = entry.squad.queue
        if queue in self.hall.ledger.parents:
            insort(
                self.waiting.setdefault(queue, []), (gang_key(self.hall, entry, self.shares), entry.squad.name, entry)
            )

    def pop(self) -> Entry | None:
        """The squad whose turn it is."""
        takes_turns = self.hall.ledger.takes_turns
        queues = {name for name, squads in self.waiting.items() if squads and (self.full_too or takes_turns(name))}
        if not queues:
            return None
        leaf = walk(self.hall.ledger, queues, self._key, first=True)
        entry = self.waiting[leaf].pop(0)[2]
        self._needs.pop(leaf, None)
        return entry

    def _key(self, queue: str, leaf: str) -> Key:
        amounts = self._needs.get(leaf)
        if amounts is None:
            entry = self.waiting[leaf][0][2]
            amounts = total((seat.quota for seat in next_pods(entry)), len(self.hall.ledger.resources))
            self._needs[leaf] = amounts
        return self.hall.ledger.turn(queue, amounts)


def walk(ledger: Ledger, leaves: Iterable[str], key: Callable[[str, str], Key], *, first: bool) -> str:
    """The leaf reached by taking the first (or last) child at every level, judged with its own best leaf."""
    best = {leaf: leaf for leaf in leaves}
    level = {leaf: _depth(ledger, leaf) for leaf in best}
    while level:
        deepest = max(level.values())
        parents: dict[str, list[str]] = {}
        for name in [name for name, depth in level.items() if depth == deepest]:
            parents.setdefault(ledger.parents.get(name, ""), []).append(name)
            del level[name]
        for parent, children in parents.items():
            children.sort()
            if len(children) == 1:
                chosen = children[0]
            else:
                choose = min if first else max
                chosen = choose(children, key=lambda child: (key(child, best[child]), child))
            if deepest == 0:
                return best[chosen]
            best[parent] = best[chosen]
            level[parent] = deepest - 1
    raise ValueError("no leaves to choose from")


def _depth(ledger: Ledger, queue: str) -> int:
    depth = 0
    while queue := ledger.parents.get(queue, ""):
        depth += 1
    return depth


@dataclass(slots=True)
class Victims:
    """Squads that could be made to leave, by queue: lowest priority, surplus, least lost work, newest."""

    hall: Hall
    candidates: dict[str, list[tuple[Key, str, Entry]]] = field(default_factory=dict)
    _keys: dict[str, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, hall: Hall) -> "Victims":
        """All squads that may ever be evicted and run now."""
        found = cls(hall)
        for entry in hall.entries:
            queue = found.candidates.setdefault(entry.squad.queue, [])
            if found._could_go(entry):
                found._keys[entry.squad.name] = key = _victim_key(entry)
                queue.append((key, entry.squad.name, entry))
        for queue in found.candidates.values():
            queue.sort(key=lambda candidate: candidate[:2])
        return found

    def _could_go(self, entry: Entry) -> bool:
        return entry.squad.preemptible and next_loss(entry, keep_core=self.hall.policy.keep_cores) is not None

    def refresh(self, entries: Iterable[Entry]) -> None:
        """Note that squads have changed."""
        for entry in entries:
            name, queue = entry.squad.name, self.candidates.setdefault(entry.squad.queue, [])
            if (old := self._keys.pop(name, None)) is not None:
                del queue[bisect_left(queue, (old, name))]
            if self._could_go(entry):
                self._keys[name] = key = _victim_key(entry)
                insort(queue, (key, name, entry))

    def losses(
        self,
        queues: Iterable[str],
        suits: Callable[[Entry], bool],
        accepts: Callable[[Loss], bool] | None = None,
        where: Where | None = None,
        tier: Callable[[str], int] | None = None,
        keeps_core: Callable[[Entry], bool] | None = None,
    ) -> "Losses":
        """An ordered stream of what can be taken from these queues; a squad of which a loss is not accepted is out.

        With `where`, only losses that contain such a pod. Queues of a higher `tier` come first. What `keeps_core` loses
        nothing but surplus.
        """
        given = {name: self.candidates[name] for name in queues if self.candidates.get(name)}
        return Losses(self.hall, given, suits, accepts, where, tier, keeps_core)


def _victim_key(entry: Entry) -> Key:
    squad = entry.squad
    return (squad.priority, 0.0 if has_surplus(entry) else 1.0, squad.lost_work, -squad.created)


class Losses:
    """Losses one by one. Each has to be evicted before the next is asked for, because it changes what comes next."""

    def __init__(
        self,
        hall: Hall,
        lists: Mapping[str, list[tuple[Key, str, Entry]]],
        suits: Callable[[Entry], bool],
        accepts: Callable[[Loss], bool] | None,
        where: Where | None,
        tier: Callable[[str], int] | None,
        keeps_core: Callable[[Entry], bool] | None,
    ) -> None:
        self._hall, self._lists, self._suits, self._accepts, self._where = hall, lists, suits, accepts, where
        self._tier, self._keeps_core = tier, keeps_core
        self._at = dict.fromkeys(lists, 0)
        self._again: dict[str, list[tuple[Key, str, Entry]]] = {name: [] for name in lists}
        self._next: dict[str, Loss | None] = {}
        self._last: Entry | None = None

    def pull(self) -> Loss | None:
        """The next loss that is accepted; None when there are no more."""
        while (loss := self._pull()) is not None:
            if self._accepts is None or self._accepts(loss):
                self._last = loss.entry
                return loss
        return None

    def _pull(self) -> Loss | None:
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

    def _peek(self, queue: str) -> Loss | None:
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

    def _head(self, queue: str) -> Entry | None:
        at, again, given = self._at[queue], self._again[queue], self._lists[queue]
        if again and (at >= len(given) or again[0] < given[at]):
            return again[0][2]
        return given[at][2] if at < len(given) else None

    def _drop(self, queue: str, entry: Entry) -> None:
        if self._again[queue] and self._again[queue][0][2] is entry:
            self._again[queue].pop(0)
        else:
            self._at[queue] += 1
