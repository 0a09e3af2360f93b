"""Queues with quotas, over-quota weights and fair shares at every level of a tree: KAI-Scheduler's rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.reference.session.floor import GPU
from tests.reference.session.ledger import Claim, Vector
from tests.reference.session.values import Squad
from tests.reference.shares.division import UNLIMITED, Claimant, divide
from tests.reference.shares.reclaim import (
    QueueStanding,
    at_most,
    can_reclaim,
    fits_quota,
    may_lose,
    stays_below,
    worth_trying,
)

RESOURCES = ("cpu", "memory", GPU)
NOTHING_DUE = 1_000.0
"""How much worse it is to hold what one has no share of than to hold all of one's share."""

_MIG = re.compile(r"nvidia\.com/mig-(?:\d+c\.)?(\d+)g\.")

Standings = dict[str, QueueStanding]


@dataclass(frozen=True, slots=True)
class FairQueue:
    """A queue as declared; amounts as `UNLIMITED` or in canonical units, by resource."""

    name: str
    parent: str = ""
    quota: Mapping[str, float] = field(default_factory=dict)
    limit: Mapping[str, float] = field(default_factory=dict)
    weight: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    """Decayed past use as a fraction of the cluster."""
    priority: int = 100
    """Orders surplus, not quota."""
    reclaim_min_runtime_s: float | None = None
    """How long work runs before other queues may break it; None = as the queue above says."""
    preempt_min_runtime_s: float | None = None
    """The same for work of its own."""


class FairLedger:
    """The ledger of a session with such queues. What a queue does not name of quota or limit is unlimited.

    `usage_weight` is how much past use counts against surplus; `multiplier` (at least 1) is how much less saturated a
    reclaimer above its fair share has to stay than those it takes from.
    """

    resources = RESOURCES

    def __init__(self, queues: Sequence[FairQueue], *, usage_weight: float = 1.0, multiplier: float = 1.0) -> None:
        names = {queue.name for queue in queues}
        self.queues = {queue.name: queue for queue in queues}
        self.parents = {queue.name: queue.parent if queue.parent in names else "" for queue in queues}
        self._age = {queue.name: place for place, queue in enumerate(queues)}
        self._usage_weight, self.multiplier = usage_weight, multiplier
        self._total = dict.fromkeys(RESOURCES, 0.0)
        self._paths = {name: self._path_of(name) for name in self.queues}
        self.standings: dict[str, Standings] = {
            queue.name: {
                name: QueueStanding(quota=queue.quota.get(name, UNLIMITED), limit=queue.limit.get(name, UNLIMITED))
                for name in RESOURCES
            }
            for queue in queues
        }
        self._chains = {
            name: tuple(tuple(self.standings[queue].values()) for queue in path) for name, path in self._paths.items()
        }

    def _path_of(self, queue: str) -> tuple[str, ...]:
        """The queue and all above it."""
        path = []
        while queue:
            path.append(queue)
            queue = self.parents[queue]
        return tuple(path)

    def vector(self, requests: Mapping[str, float]) -> Vector:
        """CPU, memory and GPUs; a MIG instance counts for its compute slices."""
        gpus = requests.get(GPU, 0.0) + sum(amount * _slices(name) for name, amount in requests.items())
        return (float(requests.get("cpu", 0.0)), float(requests.get("memory", 0.0)), float(gpus))

    def open(self, total: Vector, wanted: Mapping[str, Vector], reserved: Mapping[str, Vector]) -> None:
        """Divide everything there is, from the top of the tree down."""
        self._total = dict(zip(RESOURCES, total, strict=True))
        asked = {name: [0.0] * len(RESOURCES) for name in self.queues}
        for queue, amounts in wanted.items():
            for name in self._paths.get(queue, ()):
                for place, amount in enumerate(amounts):
                    asked[name][place] += amount
        for place, resource in enumerate(RESOURCES):
            self._divide("", self._total[resource], resource, {name: asked[name][place] for name in asked})

    def _divide(self, parent: str, total: float, resource: str, asked: Mapping[str, float]) -> None:
        names = [name for name in self.queues if self.parents[name] == parent]
        claimants = {}
        for name in names:
            queue, standing = self.queues[name], self.standings[name][resource]
            claimants[name] = Claimant(
                standing.quota,
                asked[name],
                queue.weight.get(resource, 1.0),
                standing.limit,
                queue.priority,
                queue.usage.get(resource, 0.0),
                self._age[name],
            )
        for name, share in divide(total, claimants, self._usage_weight).items():
            self.standings[name][resource].fair = share
            self._divide(name, share, resource, asked)

    def charge(self, squad: Squad, amounts: Vector, count: int) -> None:
        """Note it at every level; what may not be preempted also counts against quota."""
        firmly = not squad.preemptible
        for chain in self._chains.get(squad.queue, ()):
            for standing, amount in zip(chain, amounts, strict=True):
                if amount:
                    standing.used += amount * count
                    if firmly:
                        standing.used_firmly += amount * count

    def takes_turns(self, queue: str) -> bool:
        """Idle machines are for everybody: only limits hold work back."""
        return True

    def may_start(self, squad: Squad, amounts: Vector) -> bool:
        """Within the limit at every level, and within quota for what may not be preempted."""
        for chain in self._chains.get(squad.queue, ()):
            for standing, amount in zip(chain, amounts, strict=True):
                if not amount:
                    continue
                if not at_most(standing.used + amount, standing.limit):
                    return False
                if not squad.preemptible and not at_most(standing.used_firmly + amount, standing.quota):
                    return False
        return True

    def may_claim(self, squad: Squad, amounts: Vector) -> bool:
        """Within the fair share of the queue."""
        required = dict(zip(RESOURCES, amounts, strict=True))
        return can_reclaim(self.standings[squad.queue], required, preemptible=squad.preemptible)

    def may_queue(self, squad: Squad) -> bool:
        """There is no gate."""
        return True

    def grace_s(self, queue: str, claimant: str) -> float:
        """What the nearest queue says, from the queue up; towards another queue, from where their ways part."""
        if queue == claimant:
            given = (self.queues[name].preempt_min_runtime_s for name in self._paths[queue])
        else:
            parting = self.siblings(claimant, queue)[1]
            path = self._paths[queue]
            given = (self.queues[name].reclaim_min_runtime_s for name in path[path.index(parting) :])
        return next((seconds for seconds in given if seconds is not None), 0.0)

    def worth_trying(self, squad: Squad, amounts: Vector, queue: str) -> bool:
        """Whether the queue holds more than it is due, where the two queues' ways part."""
        mine, theirs = self.siblings(squad.queue, queue)
        required = dict(zip(RESOURCES, amounts, strict=True))
        return worth_trying(self.standings[mine], required, self.standings[theirs])

    def claim(self, squad: Squad, amounts: Vector) -> Claim:
        """Judged by what everybody holds now."""
        now = {name: {key: one.copy() for key, one in standings.items()} for name, standings in self.standings.items()}
        required = dict(zip(RESOURCES, amounts, strict=True))
        return lambda: _FairTab(self, now, squad, required)

    def siblings(self, one: str, other: str) -> tuple[str, str]:
        """The two queues where the ways from the top to these two part; the deepest common ones if they do not."""
        pair = (one, other)
        for pair in zip(reversed(self._paths[one]), reversed(self._paths[other]), strict=False):
            if pair[0] != pair[1]:
                break
        return pair

    def nearness(self, one: str, other: str) -> int:
        """All the same: the order of victims is that of the queues."""
        return 0

    def turn(self, queue: str, amounts: Vector | None, relief: Vector | None = None) -> tuple[float, ...]:
        """Below fair share first, then within quota, then by priority, then the smaller dominant share."""
        standings = self.standings[queue]
        extra = dict(zip(RESOURCES, amounts or (0.0, 0.0, 0.0), strict=True))
        less = dict(zip(RESOURCES, relief or (0.0, 0.0, 0.0), strict=True))
        above = all(one.fair != UNLIMITED and one.fair < one.used for one in standings.values())
        undue = any(one.allocatable == 0 and one.used + extra[name] > 0 for name, one in standings.items())
        return (
            above,
            not fits_quota(standings, extra),
            -self.queues[queue].priority,
            undue,
            max(self._part(name, one, extra[name] - less[name]) for name, one in standings.items()),
            max(self._part(name, one, 0.0) for name, one in standings.items()),
            *(_endless(standings[name].allocatable) for name in reversed(RESOURCES)),
            self._age[queue],
        )

    def _part(self, resource: str, standing: QueueStanding, more: float) -> float:
        held, due = standing.used + more, standing.allocatable
        if due == UNLIMITED:
            due = self._total[resource]
        return held / due if due else held * NOTHING_DUE

    def path(self, queue: str) -> tuple[str, ...]:
        """The queue and all above it."""
        return self._paths[queue]


def _slices(resource: str) -> int:
    """Compute slices of a MIG instance; 0 for any other resource."""
    match = _MIG.match(resource)
    return int(match.group(1)) if match else 0


def _endless(amount: float) -> float:
    return float("inf") if amount == UNLIMITED else amount


class _FairTab:
    """What is left to the queues as losses are noted."""

    def __init__(
        self, ledger: FairLedger, now: Mapping[str, Standings], squad: Squad, required: Mapping[str, float]
    ) -> None:
        self._ledger, self._now, self._squad, self._required = ledger, now, squad, required
        self._left: dict[str, dict[str, float]] = {}
        self._involved: dict[str, set[str]] = {}

    def offer(self, queue: str, loss: Vector) -> bool:
        """See `may_lose`, where the ways of the two queues part."""
        mine, theirs = self._ledger.siblings(self._squad.queue, queue)
        if not may_lose(self._now[mine], self._required, self._now[theirs], self._left_to(theirs)):
            return False
        touched = {name for name, amount in zip(RESOURCES, loss, strict=True) if amount > 0}
        for name in self._ledger.path(queue):
            left = self._left_to(name)
            for resource, amount in zip(RESOURCES, loss, strict=True):
                left[resource] -= amount
            self._involved.setdefault(name, set()).update(touched)
        return True

    def _left_to(self, queue: str) -> dict[str, float]:
        if queue not in self._left:
            self._left[queue] = {name: one.used for name, one in self._now[queue].items()}
        return self._left[queue]

    def closes(self) -> bool:
        """At every level the reclaimer stays below those it took from, and its firm work within quota."""
        wanted = {name for name, amount in self._required.items() if amount > 0}
        for queue in self._ledger.path(self._squad.queue):
            standings = self._now[queue]
            held = self._left.get(queue) or {name: one.used for name, one in standings.items()}
            after = {name: held[name] + self._required[name] for name in held}
            for sibling in sorted(self._left):
                if sibling == queue or self._ledger.parents[sibling] != self._ledger.parents[queue]:
                    continue
                involved = frozenset(wanted | self._involved.get(sibling, set()))
                if not stays_below(
                    standings, after, self._now[sibling], self._left[sibling], involved, self._ledger.multiplier
                ):
                    return False
            if not self._squad.preemptible and not all(
                at_most(one.used_firmly + self._required[name], one.quota) for name, one in standings.items()
            ):
                return False
        return True
