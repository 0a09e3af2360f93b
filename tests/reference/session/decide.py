"""The decision: the stages of the policy in turn, on one hall."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.reference.session.domains import Domains
from tests.reference.session.hall import Hall, SquadEntry
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.parts import next_pods
from tests.reference.session.policy import Policy, SessionStage
from tests.reference.session.room import consolidate, end_stale, preempt, reclaim
from tests.reference.session.state import Session
from tests.reference.session.turns import Turns
from tests.reference.session.values import Decision, SessionMachine, SessionTopology, Squad


def decide(
    machines: Sequence[SessionMachine],
    squads: Sequence[Squad],
    ledger: SessionLedger,
    policy: Policy,
    topologies: Iterable[SessionTopology] = (),
) -> Decision:
    """What to start, move and evict. The ledger knows the queues and holds nothing yet; the session charges it."""
    hall = Hall(machines, squads, ledger, policy, topologies)
    floor = hall.floor
    shares = {name: float(floor.capacity[:, column].sum()) for name, column in floor.columns.items()}
    session = Session(hall, Domains(floor, hall.topologies), shares)
    for place, stage in enumerate(policy.stages):
        session.to_come = policy.stages[place + 1 :]
        STAGES[stage](session)
    return session.decision()


def enqueue(session: Session) -> None:
    """Let squads through the gates of their queues."""
    turns = Turns(session.hall, session.shares)
    for entry in session.hall.entries:
        if not entry.queued:
            turns.push(entry)
    while (first := turns.pop()) is not None:
        if session.hall.ledger.may_queue(first.squad):
            first.queued = True
            session.queued.append(first.squad.name)


def allocate(session: Session) -> None:
    """Start what fits, gang by gang and then pod by pod, always for the queue whose turn it is."""
    _fill(session, lambda entry: not session.hall.policy.backfill_only or _asks(entry))


def backfill(session: Session) -> None:
    """Start pods that ask for nothing."""
    _fill(session, lambda entry: not _asks(entry))


def _asks(entry: SquadEntry) -> bool:
    return any(seat.kind.asks for seat in next_pods(entry))


def _fill(session: Session, suits: Callable[[SquadEntry], bool]) -> None:
    turns, failed = session.in_turn(suits), set[object]()
    while (entry := turns.pop()) is not None:
        want = session.want(entry)
        if want in failed:
            continue
        if not (session.seat(entry, now=True) or session.seat(entry, now=False)):
            failed.add(want)
        elif next_pods(entry) and suits(entry):
            turns.push(entry)


STAGES: Mapping[SessionStage, Callable[[Session], None]] = {
    SessionStage.ENQUEUE: enqueue,
    SessionStage.ALLOCATE: allocate,
    SessionStage.BACKFILL: backfill,
    SessionStage.CONSOLIDATE: consolidate,
    SessionStage.RECLAIM: reclaim,
    SessionStage.PREEMPT: preempt,
    SessionStage.STALE: end_stale,
}
