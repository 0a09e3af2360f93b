"""The state of a session: squads with their pods on the floor, and the ledger, all changed and undone together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.reference.session.floor import GPU, PODS, WHOLE, Floor, PodKind
from tests.reference.session.ledger import SessionLedger, Vector, add, total
from tests.reference.session.policy import Policy
from tests.reference.session.values import (
    ACTIVE,
    Crew,
    PodState,
    SessionMachine,
    SessionPod,
    SessionTopology,
    Squad,
    crews_of,
)


@dataclass(slots=True, eq=False)
class CrewSeats:
    """The seats of one crew, in the order they start, and how many of them are active."""

    seats: list["Seat"] = field(default_factory=list)
    active: int = 0


@dataclass(slots=True, eq=False)
class Seat:
    """One pod during a session."""

    pod: SessionPod
    kind: PodKind
    entry: "SquadEntry"
    crew: CrewSeats
    quota: Vector
    priority: int
    state: PodState
    row: int
    """The machine it is on or goes to; -1 = none, or one that nobody knows."""
    devices: tuple[str, ...]

    @property
    def active(self) -> bool:
        """Whether it counts for its gang."""
        return self.state in ACTIVE


@dataclass(slots=True, eq=False)
class SquadEntry:
    """One squad during a session."""

    squad: Squad
    seats: list[Seat] = field(default_factory=list)
    of_crew: dict[int, CrewSeats] = field(default_factory=dict)
    """By `id` of the crew."""
    held: list[float] = field(default_factory=list)
    queued: bool = True

    def crew(self, crew: Crew) -> list[Seat]:
        """The seats of a crew."""
        return self.of_crew[id(crew)].seats


@dataclass(frozen=True, slots=True)
class _Change:
    seats: Sequence[Seat]
    before: tuple[tuple[PodState, int, tuple[str, ...]], ...]
    row: int
    signs: tuple[int, int]
    devices: tuple[str, ...]
    charge: int


class Hall:
    """Everything a session may change; `mark` and `undo` bracket a what-if."""

    def __init__(
        self,
        machines: Sequence[SessionMachine],
        squads: Sequence[Squad],
        ledger: SessionLedger,
        policy: Policy,
        topologies: Iterable[SessionTopology] = (),
    ) -> None:
        self.policy, self.ledger = policy, ledger
        self.topologies = {topology.name: topology for topology in topologies}
        crews = {squad.name: list(crews_of(squad.root)) for squad in squads}
        self.floor = Floor(machines, (pod for found in crews.values() for crew in found for pod in crew.pods))
        self.log: list[_Change] = []
        self._quotas: dict[int, Vector] = {}
        self.entries = [
            self._enter(squad, crews[squad.name]) for squad in sorted(squads, key=lambda s: (s.created, s.name))
        ]
        self._open()
        self.everywhere = np.ones(len(self.floor.machines), dtype=bool)
        self.has_neighbours = any(seat.kind.neighbours for entry in self.entries for seat in entry.seats)

    def _open(self) -> None:
        """Tell the ledger what there is and what is wanted."""
        size = len(self.ledger.resources)
        wanted: dict[str, Vector] = {}
        reserved: dict[str, Vector] = {}
        for entry in self.entries:
            queue = entry.squad.queue
            asked = (seat.quota for seat in entry.seats if seat.active or seat.state is PodState.PENDING)
            wanted[queue] = add(wanted.get(queue, (0.0,) * size), total(asked, size))
            if entry.queued:
                owed = _owed(tuple(entry.held), self.ledger.vector(entry.squad.floor))
                reserved[queue] = add(reserved.get(queue, (0.0,) * size), owed)
        capacity = self.floor.capacity.sum(axis=0)
        everything = {name: float(capacity[column]) for name, column in self.floor.columns.items()}
        self.ledger.open(self.ledger.vector(everything), wanted, reserved)

    def _enter(self, squad: Squad, crews: list[Crew]) -> SquadEntry:
        entry = SquadEntry(squad, held=[0.0] * len(self.ledger.resources), queued=squad.queued)
        for crew in crews:
            entry.of_crew[id(crew)] = found = CrewSeats()
            found.seats += [self._seat(entry, found, pod) for pod in crew.pods]
            found.seats.sort(key=lambda seat: (-seat.priority, seat.pod.order))
            entry.seats += found.seats
        return entry

    def _seat(self, entry: SquadEntry, crew: CrewSeats, pod: SessionPod) -> Seat:
        kind = self.floor.kind(pod)
        row = self.floor.index.get(pod.node, -1)
        priority = entry.squad.priority if pod.priority is None else pod.priority
        seat = Seat(pod, kind, entry, crew, self._quota(kind), priority, pod.state, row, pod.devices)
        signs = _HOLDS.get(pod.state)
        if signs is not None and row >= 0:
            if kind.gpu is not None and len(pod.devices) != kind.gpu.devices:
                seat.devices = self.floor.devices_for(kind.gpu, row, now=bool(signs[0]))
            self.floor.shift(kind, row, 1, signs, seat.devices)
        if seat.active:
            crew.active += 1
            self.charge(seat, 1)
        return seat

    def _quota(self, kind: PodKind) -> Vector:
        quota = self._quotas.get(kind.index)
        if quota is None:
            requests: dict[str, float] = {**kind.template.requests, PODS: 1}
            requests[GPU] = requests.get(GPU, 0) + self._gpu_parts(kind)
            quota = self._quotas[kind.index] = self.ledger.vector(requests)
        return quota

    def _gpu_parts(self, kind: PodKind) -> float:
        """What a share of GPUs counts for; GPU memory as if on the smallest GPU there is."""
        if kind.gpu is None:
            return 0.0
        sizes = [machine.gpu_memory_mib for machine in self.floor.machines if machine.gpu_memory_mib]
        if kind.gpu.millionths or not sizes:
            return kind.gpu.millionths * kind.gpu.devices / WHOLE
        return kind.gpu.memory_mib / min(sizes) * kind.gpu.devices

    def charge(self, seat: Seat, count: int) -> None:
        """Note what a seat's squad and queue hold, without touching the floor."""
        self.ledger.charge(seat.entry.squad, seat.quota, count)
        held = seat.entry.held
        for place, amount in enumerate(seat.quota):
            held[place] += amount * count

    # -- changes, all undoable ------------------------------------------------------------------------------------

    def place(self, seats: Sequence[Seat], row: int, *, now: bool, devices: tuple[str, ...] = ()) -> None:
        """Put equal seats of one crew on a machine: bound on idle room, else nominated; one that was evicted moves."""
        moved = seats[0].state is PodState.EVICTED
        state = PodState.MOVED if moved else PodState.BOUND if now else PodState.NOMINATED
        self._change(seats, state, row, (-1 if now else 0, -1), devices, 1)

    def evict(self, seat: Seat) -> None:
        """Let a running pod go; its room is free in future."""
        self._change([seat], PodState.EVICTED, seat.row, (0, 1), seat.devices, -1)

    def keep(self, seat: Seat) -> bool:
        """Take an eviction back, if the room is still there."""
        if seat.row >= 0 and not self._can_return(seat):
            return False
        self._change([seat], PodState.RUNNING, seat.row, (0, -1), seat.devices, 1)
        return True

    def _can_return(self, seat: Seat) -> bool:
        free, kind = self.floor.future[seat.row], seat.kind
        if (free[kind.columns] < kind.needs).any():
            return False
        if kind.gpu is None:
            return True
        units, parts = self.floor.units(kind.gpu, seat.row), self.floor.parts[seat.row]
        used = [parts[device][1] if device in parts else 0 for device in seat.devices]
        fresh = sum(1 for taken in used if not taken)
        return fresh <= free[self.floor.gpu] and all(taken + units <= WHOLE for taken in used)

    def _change(
        self,
        seats: Sequence[Seat],
        state: PodState,
        row: int,
        signs: tuple[int, int],
        devices: tuple[str, ...],
        charge: int,
    ) -> None:
        before = tuple((seat.state, seat.row, seat.devices) for seat in seats)
        self.log.append(_Change(seats, before, row, signs, devices, charge))
        if row >= 0:
            self.floor.shift(seats[0].kind, row, len(seats), signs, devices)
        self.charge(seats[0], charge * len(seats))
        seats[0].crew.active += charge * len(seats)
        for seat in seats:
            seat.state, seat.row, seat.devices = state, row, devices

    def charged_since(self, mark: int) -> Vector:
        """What all squads together were charged since then."""
        size = len(self.ledger.resources)
        found: Vector = (0.0,) * size
        for change in self.log[mark:]:
            found = add(found, change.seats[0].quota, change.charge * len(change.seats))
        return found

    def still_allowed(self, entry: SquadEntry, amounts: Vector) -> bool:
        """Whether a squad that was just charged so much might still start, as things are now."""
        self.ledger.charge(entry.squad, amounts, -1)
        allowed = self.ledger.may_start(entry.squad, amounts)
        self.ledger.charge(entry.squad, amounts, 1)
        return allowed

    def mark(self) -> int:
        """The present state, for `undo`."""
        return len(self.log)

    def undo(self, mark: int) -> None:
        """Back to the state at `mark`."""
        while len(self.log) > mark:
            change = self.log.pop()
            first = change.seats[0]
            if change.row >= 0:
                signs = (-change.signs[0], -change.signs[1])
                self.floor.shift(first.kind, change.row, len(change.seats), signs, change.devices)
            self.charge(first, -change.charge * len(change.seats))
            first.crew.active -= change.charge * len(change.seats)
            for seat, before in zip(change.seats, change.before, strict=True):
                seat.state, seat.row, seat.devices = before


_HOLDS = {
    PodState.RUNNING: (-1, -1),
    PodState.BOUND: (-1, -1),
    PodState.NOMINATED: (0, -1),
    PodState.TERMINATING: (-1, 0),
    PodState.STUCK: (-1, -1),
}
"""What a pod takes of (idle, future) room in each state it can come with."""


def _owed(held: Vector, floor: Vector) -> Vector:
    if any(least and have < least for have, least in zip(held, floor, strict=True)):
        return tuple(max(0.0, least - have) for have, least in zip(held, floor, strict=True))
    return tuple(least - have for have, least in zip(held, floor, strict=True))
