"""Queues with weights: Volcano's `proportion` rules, each of which can be switched on by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.quota.volcano import TOLERANCE, Amounts, WeightedQueue, ceilings, deserved
from tests.reference.session.ledger import Claim, Vector, add, named, plain
from tests.reference.session.values import Squad


@dataclass(frozen=True, slots=True)
class ShareQueue:
    """A queue as declared, for the ledgers that follow Volcano."""

    name: str
    parent: str = ""
    weight: int = 1
    priority: int = 0
    open: bool = True
    reclaimable: bool = True
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Place in a tree of dominant shares, with `weights` of the same length."""
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerRules:
    """Which rules of a ledger hold."""

    orders: bool = True
    limits_start: bool = True
    limits_turn: bool = False
    """Whether a queue that has all it deserves is passed over."""
    limits_claim: bool = True
    limits_loss: bool = True
    limits_gate: bool = True


class WeightedLedger:
    """What a queue deserves comes from water filling over the queues that have work."""

    def __init__(self, queues: Sequence[ShareQueue], resources: Sequence[str], rules: LedgerRules) -> None:
        self.resources, self.rules = tuple(resources), rules
        self.queues = {queue.name: queue for queue in queues}
        self.parents = dict.fromkeys(self.queues, "")
        self._zero: Vector = (0.0,) * len(self.resources)
        self._used: dict[str, Vector] = dict.fromkeys(self.queues, self._zero)
        self._reserved: dict[str, Vector] = dict.fromkeys(self.queues, self._zero)
        self._deserved: dict[str, dict[str, float]] = {}
        self._most: dict[str, dict[str, float]] = {}

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """Every resource for itself."""
        return plain(self.resources, requests)

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Fill."""
        everything = dict(zip(self.resources, total, strict=True))
        working = {
            name: WeightedQueue(queue.weight, named(self.resources, wanted[name]), queue.capability, queue.guarantee)
            for name, queue in self.queues.items()
            if name in wanted
        }
        self._deserved = deserved(everything, working)
        self._most = ceilings(everything, working)
        self._reserved.update({name: amounts for name, amounts in reserved.items() if name in self.queues})

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Note it."""
        if squad.queue in self._used:
            self._used[squad.queue] = add(self._used[squad.queue], amounts, count)

    def takes_turns(self, queue: str) -> bool:
        """Whether something it deserves is missing."""
        if not self.rules.limits_turn:
            return True
        due, used = self._deserved[queue], named(self.resources, self._used[queue])
        return not all(amount <= used.get(name, 0.0) + TOLERANCE for name, amount in due.items())

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Within what the queue deserves, in the resources asked for."""
        return not self.rules.limits_start or self._within(squad.queue, amounts)

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """The same as for starting, and work must be missing."""
        return not self.rules.limits_claim or self._within(squad.queue, amounts)

    def _within(self, queue: str, amounts: Vector) -> bool:
        if not self.queues[queue].open:
            return False
        due, used = self._deserved[queue], self._used[queue]
        return all(
            have + more <= due.get(name, 0.0) + TOLERANCE
            for name, have, more in zip(self.resources, used, amounts, strict=True)
            if more
        )

    def may_queue(self, squad: Squad) -> bool:
        """The floor of the squad, with what is held and owed, is within the most the queue can ever have."""
        if not self.rules.limits_gate or not squad.floor:
            return not self.rules.limits_gate or self.queues[squad.queue].open
        if not self.queues[squad.queue].open:
            return False
        more = self.vector(squad.floor)
        held = add(self._used[squad.queue], self._reserved[squad.queue])
        most = self._most.get(squad.queue, {})
        endless = float("inf")
        fits = all(
            have + extra <= most.get(name, endless) + TOLERANCE
            for name, have, extra in zip(self.resources, held, more, strict=True)
            if extra
        )
        if fits:
            self._reserved[squad.queue] = add(self._reserved[squad.queue], more)
        return fits

    def grace_s(self, queue: str, claimant: str) -> float:
        """None."""
        return 0.0

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Whether the queue can lose at all."""
        return self.queues[queue].reclaimable

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """Judged by what everybody holds now."""
        now = dict(self._used)
        return lambda: _WeightedTab(self, dict(now))

    def exceeds(self, queue: str, held: Vector) -> bool:
        """Whether so much is more than the queue deserves, in any resource."""
        due = self._deserved.get(queue, {})
        return any(have > due.get(name, 0.0) + TOLERANCE for name, have in zip(self.resources, held, strict=True))

    def nearness(self, one: str, other: str) -> int:
        """All the same: the order of victims is that of the queues."""
        return 0

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """Priority, then the part of what it deserves that it holds."""
        if not self.rules.orders:
            return ()
        due = self._deserved.get(queue, {})
        used = zip(self.resources, self._used[queue], strict=True)
        return (-self.queues[queue].priority, max((_part(have, due.get(name, 0.0)) for name, have in used), default=0))


def _part(held: float, due: float) -> float:
    return held / due if due else float(held > 0)


class _WeightedTab:
    def __init__(self, ledger: WeightedLedger, left: dict[str, Vector]) -> None:
        self._ledger, self._left = ledger, left

    def offer(self, queue: str, loss: Vector) -> bool:
        """A queue may lose while it holds more than it deserves."""
        if self._ledger.rules.limits_loss and not self._ledger.exceeds(queue, self._left[queue]):
            return False
        self._left[queue] = add(self._left[queue], loss, -1)
        return True

    def closes(self) -> bool:
        """Every loss was judged by itself."""
        return True
