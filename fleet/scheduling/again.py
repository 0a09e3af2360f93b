"""Tells whether a pass would find what the last one found, which was nothing to do: then it need not be made.

A pass is a function of the fleet, of what is observed and of the time. Tables are compared by identity, so that asking
costs next to nothing however many gangs wait. Of the time every instant counts at which a rule changes its answer. What
changes without one (shares of recent use and of interruptions that are forgotten, work that would be lost) is looked at
once a minute: none of it makes anybody's wait longer than that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from math import inf
from operator import attrgetter, is_
from typing import Final

from fleet.mig import mixed_cuts
from fleet.nodeclaims.drift_facts import TYPE_CHECKED_AFTER_S
from fleet.offerings.reservations import closes_s
from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.scheduling.moves import stays_until_s
from fleet.scheduling.ordinary_pods import asked_again_at_s
from fleet.scheduling.prefilter import LAUNCHES_WITHIN_S, has_spent_month
from fleet.scheduling.queue_order import (
    BATCH_IDLE_S,
    BATCH_MAX_S,
    backs_off_until_s,
    ends_at_s,
    overdue_at_s,
    pending,
)
from fleet.snapshot import Claim, Gang, GangState, Snapshot
from model.cron import next_edge_s
from model.fleet import Fleet
from model.index import followed_each
from model.upstream.do_not_disrupt import lasts_s

LOOKED_AGAIN_S: Final = 60.0
"""After so long a pass is made although nothing says that it would find anything."""
_SOON: Final = frozenset({Reason.BATCHING, Reason.WAITING_FOR_PREEMPTED})
"""Reasons of gangs for which something is about to happen."""
_BY_VALUE: Final = ("busy", "set_aside", "refused", "never_expire", "shortages")
"""Fields that come anew with every snapshot, and are small."""
NOT_COMPARED: Final = frozenset(
    {
        *("now_s", "index", "instances_at_s", "reservations_at_s", "spent_usd", "local_usage"),
        *("outlook", "gpu_uses", "layouts"),
    }
)
"""Fields that a pass does not read, or of which it reads what is compared here."""
_tables = attrgetter(*(it.name for it in fields(Snapshot) if it.name not in NOT_COMPARED.union(_BY_VALUE)))
_values = attrgetter(*_BY_VALUE)
_KEY: Final = "a pass that found nothing to do"


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """`NothingToDo` is what a pass without actions has seen, and from when on its answer may be another."""

    fleet: Fleet
    tables: tuple[object, ...]
    values: tuple[object, ...]
    at_s: float
    until_s: float

    def holds(self, fleet: Fleet, snapshot: Snapshot) -> bool:
        """Returns whether a pass on this snapshot would find nothing to do either."""
        same = self.fleet is fleet and self.at_s <= snapshot.now_s < self.until_s
        return same and all(map(is_, self.tables, _tables(snapshot))) and self.values == _compared(fleet, snapshot)


def nothing_to_do(fleet: Fleet, snapshot: Snapshot) -> bool:
    """Returns whether the last pass found nothing to do, and one on this snapshot would not either."""
    known = snapshot.index.take(_KEY)
    if not isinstance(known, NothingToDo) or not known.holds(fleet, snapshot):
        return False
    snapshot.index.hand_on(_KEY, known)
    return True


def remember_nothing_to_do(fleet: Fleet, snapshot: Snapshot) -> None:
    """Notes that a pass on this snapshot found nothing to do."""
    until_s = min(snapshot.now_s + LOOKED_AGAIN_S, next_instant_s(fleet, snapshot))
    known = NothingToDo(fleet, _tables(snapshot), _compared(fleet, snapshot), snapshot.now_s, until_s)
    snapshot.index.hand_on(_KEY, known)


def _compared(fleet: Fleet, snapshot: Snapshot) -> tuple[object, ...]:
    """Returns what is compared by value: who has work under way, whose month is spent, what may be reserved."""
    spent = frozenset(name for name, team in fleet.teams.items() if has_spent_month(snapshot, team))
    read_at_s = snapshot.reservations_at_s if snapshot.reservations else 0.0
    return (*_values(snapshot), spent, read_at_s)


def next_instant_s(fleet: Fleet, snapshot: Snapshot) -> float:
    """Returns when a rule of the pass answers otherwise although nothing happens (epoch seconds); inf = never.

    Now, where something is about to happen: machines are bought together in a moment, or gangs leave for others.
    """
    now_s = snapshot.now_s
    if any(gang.reason in _SOON for gang in pending(snapshot).values()):
        return now_s
    known = (
        *_of_gangs(snapshot.index, snapshot.gangs, fleet).values(),
        *_of_claims(snapshot.index, snapshot.claims).values(),
        snapshot.shortages.values(),
        asked_again_at_s(fleet, snapshot),
        _of_reservations(fleet, snapshot),
        _of_windows(fleet, now_s),
        (told.at_s + mixed_cuts.FRESH_S for told in snapshot.gpu_holders.values()),
    )
    return min((at_s for at_s in chain.from_iterable(known) if at_s > now_s), default=inf)


@followed_each()
def _of_gangs(gang: Gang, fleet: Fleet) -> tuple[float, ...] | None:
    if gang.state is GangState.FINISHED:
        return None
    return tuple(_of_waiting(gang, fleet) if gang.state is GangState.PENDING else _of_holder(gang, fleet))


def _of_waiting(gang: Gang, fleet: Fleet) -> Iterator[float]:
    """Yields when a batch closes, a pause ends, a machine is kept no longer for it, and when it waits too long."""
    yield from (gang.created_at_s, gang.created_at_s + BATCH_IDLE_S, gang.created_at_s + BATCH_MAX_S)
    yield from (gang.requeue_at_s, gang.since_s + MOVES_WITHIN_S)
    if gang.eviction is not None:
        yield from (backs_off_until_s(gang), gang.eviction.at_s + MOVES_WITHIN_S)
    if (binding := binding_of(fleet, gang.namespace, gang.queue)) is not None:
        yield overdue_at_s(gang, binding)


def _of_holder(gang: Gang, fleet: Fleet) -> Iterator[float]:
    """Yields when a gang should have ended, may be evicted, moved or disrupted."""
    yield from (ends_at_s(gang, -inf), stays_until_s(gang))
    if gang.do_not_disrupt:
        yield gang.admitted_at_s + lasts_s(gang.do_not_disrupt)
    if (binding := binding_of(fleet, gang.namespace, gang.queue)) is not None:
        yield gang.admitted_at_s + binding.protected_run_s


@followed_each()
def _of_claims(claim: Claim) -> tuple[float, ...]:
    """Returns when a launch is forgotten, a machine is kept for nobody, and when its type or GPUs are looked at."""
    failed = (it.at_s + mixed_cuts.AGAIN_AFTER_S for it in claim.history if it.what == mixed_cuts.FAILED)
    launched_s, kept_s = claim.launched_at_s, claim.ready_at_s + MOVES_WITHIN_S
    return (launched_s + LAUNCHES_WITHIN_S, launched_s + TYPE_CHECKED_AFTER_S, kept_s, *failed)


def _of_reservations(fleet: Fleet, snapshot: Snapshot) -> Iterator[float]:
    """Yields when a pool buys no more machines of a reservation."""
    for reservation in snapshot.reservations.values():
        yield from (closes_s(pool, reservation) for pool in fleet.node_pools.values())


def _of_windows(fleet: Fleet, now_s: float) -> Iterator[float]:
    """Yields when windows open or close in which nobody is moved."""
    spec = fleet.policy.spec
    for window in (*spec.freeze_windows, *spec.allow_windows):
        yield next_edge_s(window.opening, window.duration, now_s)
