"""Queues that say what they deserve, flat or as a tree: Volcano's `capacity` rules."""

from collections.abc import Mapping, Sequence

from tests.reference.session.floor import PODS
from tests.reference.session.ledger import Claim, Vector, named, plain
from tests.reference.session.values import Squad
from tests.reference.session.weighted import LedgerRules, ShareQueue
from tests.reference.shares.capacity import (
    Bounds,
    CapacityQueue,
    bounds,
    claims,
    exceeds,
    fits,
    keeps_guarantee,
    share,
    undeserved,
)

ROOT = "root"

Held = dict[str, dict[str, float]]


class DeservingLedger:
    """With `tree`, queues stand below `root`, only leaves take work, and limits hold at every level.

    With `levels` above 0, what a queue deserves is also looked at for that many queues above it, the root left out: one
    of them being owed something is enough to claim, and all of those that lose have to hold more than they deserve.
    """

    def __init__(
        self,
        queues: Sequence[ShareQueue],
        resources: Sequence[str],
        rules: LedgerRules,
        *,
        tree: bool = False,
        levels: int = 0,
    ) -> None:
        self.resources, self.rules, self.levels = tuple(resources), rules, levels if tree else 0
        self.queues = {queue.name: queue for queue in queues}
        self.parents = {queue.name: self._parent_of(queue) if tree else "" for queue in queues}
        self.inner = {parent for parent in self.parents.values() if parent}
        self.used: Held = {name: {} for name in self.queues}
        self._reserved: Held = {name: {} for name in self.queues}
        self.bounds: Mapping[str, Bounds] = {}
        self._sound = True

    def _parent_of(self, queue: ShareQueue) -> str:
        if queue.name == ROOT:
            return ""
        return queue.parent if queue.parent in self.queues else ROOT if ROOT in self.queues else ""

    def path(self, queue: str) -> list[str]:
        """The queue and all above it."""
        found = []
        while queue:
            found.append(queue)
            queue = self.parents[queue]
        return found

    def ancestors(self, queue: str) -> list[str]:
        """Those above it that `levels` reaches, the nearest first."""
        return self.path(queue)[1 : self.levels + 1]

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """Every resource for itself."""
        return plain(self.resources, requests)

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Work out the bounds. Work in a queue that has queues below makes the whole tree unsound: nothing starts."""
        everything = dict(zip(self.resources, total, strict=True))
        declared = {
            name: CapacityQueue(self.parents[name], queue.deserved, queue.guarantee, queue.capability)
            for name, queue in self.queues.items()
        }
        self.bounds = bounds({} if self.inner else everything, declared)
        self._sound = not any(queue in self.inner for queue in wanted)
        for queue, amounts in reserved.items():
            self._add(self._reserved, queue, amounts, 1)

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Note it at every level."""
        self._add(self.used, squad.queue, amounts, count)

    def _add(self, where: Held, queue: str, amounts: Vector, count: int) -> None:
        for name in self.path(queue) if queue in self.queues else ():
            held = where[name]
            for resource, amount in zip(self.resources, amounts, strict=True):
                if amount:
                    held[resource] = held.get(resource, 0.0) + amount * count

    def takes_turns(self, queue: str) -> bool:
        """Every leaf does."""
        return self._sound and queue not in self.inner

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Within the most a queue may have, at every level."""
        if not self.rules.limits_start:
            return True
        if not self._sound or not self.queues[squad.queue].open or squad.queue in self.inner:
            return False
        more = named(self.resources, amounts)
        return all(fits(self.used[name], more, self.bounds[name].most) for name in self.path(squad.queue))

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """Some resource asked for is still deserved, by the queue or an ancestor, and none is beyond the most."""
        if not self.rules.limits_claim:
            return True
        if not self._sound or not self.queues[squad.queue].open:
            return False
        more, queue = named(self.resources, amounts), squad.queue
        if not fits(self.used[queue], more, self.bounds[queue].most):
            return False
        owed = (queue, *(name for name in self.ancestors(queue) if name != ROOT))
        return any(claims(self.used[name], more, self.bounds[name].deserved) for name in owed)

    def may_queue(self, squad: Squad) -> bool:
        """The floor of the squad, with what is held and owed, is within the most, at every level."""
        if not self.rules.limits_gate:
            return True
        if not self._sound or not self.queues[squad.queue].open or squad.queue in self.inner:
            return False
        more = {name: float(amount) for name, amount in squad.floor.items()}
        for name in self.path(squad.queue):
            owed = self._reserved[name]
            held = {key: amount + owed.get(key, 0.0) for key, amount in self.used[name].items()}
            held.update({key: amount for key, amount in owed.items() if key not in held})
            if not fits(held, more, self.bounds[name].most):
                return False
        self._add(self._reserved, squad.queue, self.vector(more), 1)
        return True

    def grace_s(self, queue: str, claimant: str) -> float:
        """None."""
        return 0.0

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Whether the queue can lose at all."""
        return self.queues[queue].reclaimable

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """Judged by what everybody holds now."""
        now = {name: dict(held) for name, held in self.used.items()}
        wanted = named(self.resources, amounts)
        return lambda: _DeservingTab(self, squad.queue, wanted, now)

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """Priority, then the part of what it deserves that it holds."""
        if not self.rules.orders:
            return ()
        due = self.bounds[queue].deserved
        return (-self.queues[queue].priority, share(self.used[queue], due), not due)

    def nearness(self, one: str, other: str) -> int:
        """How many queues the ways from the top to both have in common."""
        return len(set(self.path(one)[1:]) & set(self.path(other)[1:]))


class _DeservingTab:
    def __init__(self, ledger: DeservingLedger, queue: str, wanted: Mapping[str, float], now: Held) -> None:
        self._ledger, self._queue, self._wanted, self._now = ledger, queue, wanted, now
        self._left: Held = {name: dict(held) for name, held in now.items()}
        self._lost: set[str] = set()

    def offer(self, queue: str, loss: Vector) -> bool:
        """The loss helps, no guarantee breaks, and at every level looked at the queue holds more than it deserves."""
        given = named(self._ledger.resources, loss)
        if self._ledger.rules.limits_loss and not self._may_lose(queue, given):
            return False
        self._lost |= {resource for name in self._looked_at(queue) for resource in self._due(name) if resource in given}
        for name in self._ledger.path(queue):
            for resource, amount in given.items():
                self._left[name][resource] = self._left[name].get(resource, 0.0) - amount
        return True

    def _may_lose(self, queue: str, given: Mapping[str, float]) -> bool:
        bound = self._ledger.bounds[queue]
        if not any(name in self._wanted for name in given if name != PODS):
            return False
        if not keeps_guarantee(self._left[queue], given, bound.guarantee):
            return False
        mine, theirs = self._ledger.ancestors(self._queue), self._ledger.ancestors(queue)
        if undeserved(given, bound.deserved):
            related = (set(mine) & set(theirs)) - {ROOT}
            if related and undeserved(self._wanted, self._ledger.bounds[self._queue].deserved):
                return False
        elif not exceeds(self._left[queue], bound.deserved, given):
            return False
        for level, name in enumerate(theirs):
            if name == ROOT or (level < len(mine) and mine[level] == name):
                continue
            due = self._ledger.bounds[name].deserved
            if not undeserved(given, due) and not exceeds(self._left[name], due, given):
                return False
        return True

    def closes(self) -> bool:
        """Every loss was judged by itself; in the end the claimant stays within what it (or one above it) deserves.

        This is asked for what it takes from those who deserve it. If it could go beyond, they could take it back in the
        same way, and so for ever.
        """
        if not self._ledger.rules.limits_loss or not self._lost:
            return True
        return any(self._owed(name) for name in self._looked_at(self._queue))

    def _owed(self, queue: str) -> bool:
        due = self._due(queue)
        asked = {name: amount for name, amount in self._wanted.items() if name in self._lost and name in due}
        return bool(asked) and fits(self._now[queue], asked, due)

    def _looked_at(self, queue: str) -> list[str]:
        return [queue, *(name for name in self._ledger.ancestors(queue) if name != ROOT)]

    def _due(self, queue: str) -> Mapping[str, float]:
        return {name: amount for name, amount in self._ledger.bounds[queue].deserved.items() if amount}
