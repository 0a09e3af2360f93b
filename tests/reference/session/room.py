"""Stages that make room: by moving, by taking back from other queues, by preempting within one, by ending the stale."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from tests.reference.session.floor import WHOLE
from tests.reference.session.hall import Seat, SquadEntry
from tests.reference.session.ledger import Vector
from tests.reference.session.parts import SquadLoss, Where, next_pods, stands
from tests.reference.session.policy import SessionStage
from tests.reference.session.search import Search
from tests.reference.session.state import Session
from tests.reference.session.turns import dominant
from tests.reference.session.values import PodState
from tests.reference.session.victims import Losses

Way = Callable[[Callable[[SquadEntry], bool]], Losses]
"""A stream of losses in some order; what keeps its core is still to be said."""
Verdict = Callable[[Sequence[SquadLoss]], bool]

MOST_MACHINES = 32
"""How many machines are looked at one by one, the fullest first."""


def consolidate(session: Session) -> None:
    """Make room by giving others another place, so that nobody is evicted.

    While somebody waits who may reclaim, that is only done for those who may: others would soon be made to leave again.
    """
    ledger = session.hall.ledger
    due = [entry for entry in session.hall.entries if entry.squad.queue in ledger.parents and session.waits(entry)]
    someone_due = SessionStage.RECLAIM in session.to_come and any(
        ledger.may_claim(entry.squad, session.amounts(entry)) for entry in due
    )
    for entry, give_up in session.distinct(lambda entry: entry.squad.preemptible):
        if not _fits_in_sum(session, entry) or (
            someone_due and not ledger.may_claim(entry.squad, session.amounts(entry))
        ):
            give_up()
            continue
        losses = session.victims.losses(session.victims.candidates, _everybody_but(entry))
        most = session.hall.policy.most_moves
        search = Search(session.hall, session.domains, entry, losses, lambda _: True, all_return=True, most=most)
        if search.run() is None:
            give_up()
        else:
            session.changed(loss.entry for loss in search.pulled)


def _everybody_but(entry: SquadEntry) -> Callable[[SquadEntry], bool]:
    return lambda candidate: candidate is not entry


def _fits_in_sum(session: Session, entry: SquadEntry) -> bool:
    """Whether there is enough room in all machines together; if not, moving cannot help."""
    floor, wanted = session.hall.floor, next_pods(entry)
    needs = np.sum([seat.kind.row for seat in wanted], axis=0)
    free = np.maximum(floor.future, 0).sum(axis=0)
    free[floor.gpu] = needs[floor.gpu] = 0
    parts = sum(floor.units(seat.kind.gpu, 0) * seat.kind.gpu.devices for seat in wanted if seat.kind.gpu is not None)
    gpus = sum(int(seat.kind.row[floor.gpu]) for seat in wanted) + parts / WHOLE
    return bool((free >= needs).all()) and gpus <= floor.gpus_in_sum()


def reclaim(session: Session) -> None:
    """Take back for queues that are entitled to more, from queues that hold more than they are due."""
    ledger, policy = session.hall.ledger, session.hall.policy
    for entry, give_up in session.distinct(partial(_may_evict, surplus=policy.surplus_evicts)):
        squad, amounts = entry.squad, session.amounts(entry)
        if not ledger.may_claim(squad, amounts) or session.needs_no_room(entry):
            continue
        queues = [
            name
            for name in session.victims.candidates
            if name != squad.queue and name in ledger.parents and ledger.worth_trying(squad, amounts, name)
        ]
        possible = bool(queues) and session.victims.could_do(queues, entry)
        if not possible or not _reclaim(session, entry, amounts, queues):
            give_up()


def _reclaim(session: Session, entry: SquadEntry, amounts: Vector, queues: list[str]) -> bool:
    """At first every victim has to be in order when it is considered, then only all of them in the end."""
    claim = session.hall.ledger.claim(entry.squad, amounts)
    near = partial(session.hall.ledger.nearness, entry.squad.queue)

    def asking(where: Where | None, keeps_core: Callable[[SquadEntry], bool]) -> Losses:
        asked = claim()

        def accepts(loss: SquadLoss) -> bool:
            return asked.offer(loss.entry.squad.queue, loss.amounts)

        return session.victims.losses(queues, lambda _: True, accepts, where, near, keeps_core)

    def taking(where: Where | None, keeps_core: Callable[[SquadEntry], bool]) -> Losses:
        return session.victims.losses(queues, lambda _: True, None, where, near, keeps_core)

    def ways() -> Iterator[Way]:
        for where in _wheres(session, entry):
            yield partial(asking, where)
            yield partial(taking, where)

    def justified(losses: Sequence[SquadLoss]) -> bool:
        tab = claim()
        return all(tab.offer(loss.entry.squad.queue, loss.amounts) for loss in losses) and tab.closes()

    return _make_room(session, entry, "reclaim", ways, justified)


def preempt(session: Session) -> None:
    """Let a gang of a higher priority take the place of others in its own queue."""
    policy = session.hall.policy
    if not policy.preempts:
        return
    for entry, give_up in session.distinct(partial(_may_evict, surplus=policy.surplus_evicts), full_too=True):
        if session.needs_no_room(entry):
            continue
        possible = session.victims.could_do([entry.squad.queue], entry)
        if not possible or not _make_room(session, entry, "preempt", partial(_own, session, entry), lambda _: True):
            give_up()


def _own(session: Session, entry: SquadEntry) -> Iterator[Way]:
    """Where room could be made among the work of the squad's own queue."""
    suits, accepts, queues = _preemptible_by(session, entry), _lower_pods(entry), [entry.squad.queue]
    for where in _wheres(session, entry):
        yield partial(session.victims.losses, queues, suits, accepts, where, None)


def _preemptible_by(session: Session, entry: SquadEntry) -> Callable[[SquadEntry], bool]:
    policy, shares = session.hall.policy, session.shares
    mine = dominant(session.hall, entry, shares, session.amounts(entry)) if policy.smaller_share_only else 0.0

    def suits(candidate: SquadEntry) -> bool:
        if candidate is entry:
            return False
        if policy.lower_priority_only and candidate.squad.priority >= entry.squad.priority:
            return False
        return not policy.smaller_share_only or dominant(session.hall, candidate, shares) > mine

    return suits


def _lower_pods(entry: SquadEntry) -> Callable[[SquadLoss], bool]:
    """No pod leaves for one of no higher priority of its own, nor for one that asks for nothing if it asks itself."""
    wanted = next_pods(entry)
    highest = max((seat.priority for seat in wanted), default=0)
    asks = any(seat.kind.asks for seat in wanted)

    def accepts(loss: SquadLoss) -> bool:
        return all(
            (seat.pod.priority is None or seat.pod.priority < highest) and (asks or not seat.kind.asks)
            for seat in loss.seats
        )

    return accepts


def _wheres(session: Session, entry: SquadEntry) -> Iterator[Where | None]:
    """Where victims are looked for: anywhere at first; then, for a single pod, machine by machine.

    The second way finds what the order of victims alone does not: surplus of which only the pods on one machine help.
    """
    yield None
    wanted = next_pods(entry)
    if len(wanted) != 1:
        return
    floor, kind = session.hall.floor, wanted[0].kind
    rows = np.flatnonzero(floor.admits(kind) & (floor.capacity[:, kind.columns] >= kind.needs).all(axis=1))
    for row in rows[np.argsort(floor.packing(kind)[rows], kind="stable")][:MOST_MACHINES]:
        yield partial(_is_on, int(row))


def _is_on(row: int, seat: Seat) -> bool:
    return seat.row == row


def end_stale(session: Session) -> None:
    """Evict all that is left of gangs that have been below their minimum for too long."""
    for entry in session.hall.entries:
        running = [seat for seat in entry.seats if seat.state is PodState.RUNNING]
        if entry.squad.stale and running and not stands(entry, entry.squad.root):
            for seat in running:
                session.hall.evict(seat)
                session.why[seat.pod.name] = ("stale", "")
            session.changed([entry])


def _may_evict(entry: SquadEntry, *, surplus: bool) -> bool:
    if not entry.squad.may_evict or (not surplus and stands(entry, entry.squad.root)):
        return False
    return all(seat.pod.may_evict for seat in next_pods(entry))


def _in_grace(session: Session, entry: SquadEntry, candidate: SquadEntry) -> bool:
    """Whether a candidate has not run for so long yet that it may be broken for the entry."""
    ran_for_s, grace_s = candidate.squad.ran_for_s, session.hall.ledger.grace_s
    return ran_for_s is not None and ran_for_s < grace_s(candidate.squad.queue, entry.squad.queue)


def _make_room(
    session: Session, entry: SquadEntry, reason: str, ways: Callable[[], Iterator[Way]], justified: Verdict
) -> bool:
    """The first way that makes room; but before a gang with surplus breaks, one that spares all cores."""
    mark, in_grace = session.hall.mark(), partial(_in_grace, session, entry)
    found = _first(session, entry, ways, in_grace, justified)
    if found is not None and _breaks_surplus(found[0]):
        session.hall.undo(mark)
        gentler = _first(session, entry, ways, lambda _: True, justified, below=_cost(found[0]))
        found = gentler or _first(session, entry, ways, in_grace, justified)
    if found is None:
        return False
    gone, pulled = found
    for loss in gone:
        for seat in loss.seats:
            session.why[seat.pod.name] = (reason, entry.squad.name)
    session.changed(loss.entry for loss in pulled)
    return True


def _first(
    session: Session,
    entry: SquadEntry,
    ways: Callable[[], Iterator[Way]],
    keeps_core: Callable[[SquadEntry], bool],
    justified: Verdict,
    below: Vector | None = None,
) -> tuple[Sequence[SquadLoss], Sequence[SquadLoss]] | None:
    """What is lost the first way that makes room, for less than `below`, and all that was considered."""
    mark = session.hall.mark()
    for way in ways():
        search = Search(session.hall, session.domains, entry, way(keeps_core), justified)
        gone = search.run()
        if gone is not None and (below is None or _cost(gone) < below):
            return gone, search.pulled
        session.hall.undo(mark)
    return None


def _breaks_surplus(gone: Sequence[SquadLoss]) -> bool:
    """Whether some squad lost its surplus first and then all the rest."""
    squads = Counter(loss.entry.squad.name for loss in gone)
    return any(squads[loss.entry.squad.name] > 1 and not stands(loss.entry, loss.entry.squad.root) for loss in gone)


def _cost(gone: Sequence[SquadLoss]) -> Vector:
    """GPUs, then pods."""
    seats = [seat for loss in gone for seat in loss.seats]
    return (sum(seat.kind.gpus for seat in seats), float(len(seats)))
