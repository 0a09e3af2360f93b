"""Whose turn it is: the tree of queues walked from the top, the best squad of the best queue first."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.reference.session.hall import Hall, SquadEntry
from tests.reference.session.ledger import SessionLedger, Vector, add, total
from tests.reference.session.parts import active, has_surplus, next_pods, stands
from tests.reference.session.policy import Rank

Key = tuple[float, ...]


def gang_key(hall: Hall, entry: SquadEntry, shares: Mapping[str, float]) -> Key:
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


def _readiness(entry: SquadEntry) -> float:
    """0 below the minimum, 1 just at it, 2 above."""
    if not stands(entry, entry.squad.root):
        return 0.0
    return 2.0 if has_surplus(entry) else 1.0 if active(entry, entry.squad.root) else 0.0


def dominant(hall: Hall, entry: SquadEntry, shares: Mapping[str, float], extra: Vector | None = None) -> float:
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
    waiting: dict[str, list[tuple[Key, str, SquadEntry]]] = field(default_factory=dict)
    _needs: dict[str, Vector] = field(default_factory=dict)

    def push(self, entry: SquadEntry) -> None:
        """Let a squad wait; one whose queue is not known never gets a turn."""
        queue = entry.squad.queue
        if queue in self.hall.ledger.parents:
            insort(
                self.waiting.setdefault(queue, []), (gang_key(self.hall, entry, self.shares), entry.squad.name, entry)
            )

    def pop(self) -> SquadEntry | None:
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


def walk(ledger: SessionLedger, leaves: Iterable[str], key: Callable[[str, str], Key], *, first: bool) -> str:
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


def _depth(ledger: SessionLedger, queue: str) -> int:
    depth = 0
    while queue := ledger.parents.get(queue, ""):
        depth += 1
    return depth
