"""What a session knows while it goes through its stages."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tests.reference.session.domains import Domains
from tests.reference.session.hall import Hall, SquadEntry
from tests.reference.session.ledger import Vector, total
from tests.reference.session.parts import Part, active, could_stand, need, next_pods, stands
from tests.reference.session.policy import SessionStage
from tests.reference.session.seating import Seating
from tests.reference.session.turns import Turns
from tests.reference.session.values import Crew, Decision, PodState, SessionEviction, SessionPlacement
from tests.reference.session.victims import Victims


@dataclass(slots=True)
class Session:
    """A hall and what has been found out about it."""

    hall: Hall
    domains: Domains
    shares: Mapping[str, float]
    """Capacity per resource, for dominant shares."""
    to_come: tuple[SessionStage, ...] = ()
    """The stages after the present one."""
    queued: list[str] = field(default_factory=list)
    why: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Evicted pod -> reason, and the squad it was evicted for."""
    _victims: Victims | None = None

    @property
    def victims(self) -> Victims:
        """Who could be evicted; kept up to date by `changed`."""
        if self._victims is None:
            self._victims = Victims.of(self.hall)
        return self._victims

    def changed(self, entries: Iterable[SquadEntry]) -> None:
        """Note that pods of squads were evicted or moved."""
        self.victims.refresh(entries)

    def waits(self, entry: SquadEntry) -> bool:
        """Whether a squad has pods to start and enough of them to stand."""
        squad = entry.squad
        if not entry.queued or squad.leaving:
            return False
        if not any(seat.state is PodState.PENDING for seat in entry.seats):
            return False
        return stands(entry, squad.root) or could_stand(entry, squad.root)

    def in_turn(self, suits: Callable[[SquadEntry], bool], *, full_too: bool = False) -> Turns:
        """Everybody who waits and suits; with `full_too` also in queues that are full."""
        turns = Turns(self.hall, self.shares, full_too)
        for entry in self.hall.entries:
            if self.waits(entry) and suits(entry):
                turns.push(entry)
        return turns

    def distinct(
        self, suits: Callable[[SquadEntry], bool], *, full_too: bool = False
    ) -> Iterator[tuple[SquadEntry, Callable[[], None]]]:
        """Everybody in turn, without those who want the same as one that was given up by the second value."""
        turns, given_up = self.in_turn(suits, full_too=full_too), set[object]()
        while (entry := turns.pop()) is not None:
            what = self.want(entry)
            if what not in given_up:
                yield entry, partial(given_up.add, what)

    def want(self, entry: SquadEntry) -> object:
        """What the next step of a squad asks for; where one fails, another that asks for the same fails too."""
        squad = entry.squad
        if _constrained(squad.root):
            return squad.name
        counts = tuple(sorted(need(next_pods(entry)).items()))
        core = stands(entry, squad.root)
        return (
            squad.queue,
            squad.priority,
            squad.preemptible,
            core,
            active(entry, squad.root),
            counts,
            squad.may_evict,
        )

    def amounts(self, entry: SquadEntry) -> Vector:
        """What the next step of a squad charges to its queue."""
        return total((seat.quota for seat in next_pods(entry)), len(self.hall.ledger.resources))

    def seat(self, entry: SquadEntry, *, now: bool) -> bool:
        """Take the next step of a squad without anybody leaving."""
        return Seating(self.hall, self.domains, now=now).step(entry)

    def needs_no_room(self, entry: SquadEntry) -> bool:
        """Whether the next step of a squad is possible as it is; taken here unless allocation is still to come."""
        mark = self.hall.mark()
        done = self.seat(entry, now=False)
        if SessionStage.ALLOCATE in self.to_come:
            self.hall.undo(mark)
        return done

    def decision(self) -> Decision:
        """What came of it."""
        found: dict[PodState, dict[str, SessionPlacement]] = {
            state: {} for state in (PodState.BOUND, PodState.NOMINATED, PodState.MOVED)
        }
        evicted, pending = [], []
        machines = self.hall.floor.machines
        for entry in self.hall.entries:
            for seat in entry.seats:
                name = seat.pod.name
                if seat.state is seat.pod.state and seat.state is not PodState.PENDING:
                    continue
                if seat.state in found:
                    found[seat.state][name] = SessionPlacement(machines[seat.row].name, seat.devices)
                elif seat.state is PodState.EVICTED:
                    evicted.append(SessionEviction(name, entry.squad.name, *self.why.get(name, ("", ""))))
                else:
                    pending.append(name)
        return Decision(
            found[PodState.BOUND],
            found[PodState.NOMINATED],
            found[PodState.MOVED],
            tuple(evicted),
            tuple(self.queued),
            tuple(pending),
        )


def _constrained(part: Part) -> bool:
    if part.within is not None:
        return True
    return not isinstance(part, Crew) and any(_constrained(below) for below in part.parts)
