"""Putting the next step of a squad on machines, all of it or nothing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tests.reference.session.domains import Domains, UnknownLevel
from tests.reference.session.floor import Counts, Mask, PodKind
from tests.reference.session.hall import Hall, Seat, SquadEntry
from tests.reference.session.neighbours import near
from tests.reference.session.parts import Part, active, by_growth, need, next_pods, stands
from tests.reference.session.values import Crew, CrewGroup, PodState, crews_of


@dataclass(slots=True)
class Seating:
    """How to put pods down: on idle room or on room that will be free, and which pods are meant."""

    hall: Hall
    domains: Domains
    now: bool
    meant: PodState = PodState.PENDING
    """Pods waiting to start, or evicted ones that look for another place."""
    before: Counts | None = None
    """`future` before anybody was made to leave; machines where the least had to be freed come first."""

    def step(self, entry: SquadEntry) -> bool:
        """The whole core if the squad does not stand yet, else one pod (or one optional part) more; False = nothing."""
        root, everywhere = entry.squad.root, self.hall.everywhere
        mark = self.hall.mark()
        try:
            if stands(entry, root):
                done = self._inside(entry, root, everywhere, lambda mask: self._grow(entry, root, mask))
            else:
                done = self._assemble(entry, root, everywhere)
        except UnknownLevel:
            done = False
        if not done:
            self.hall.undo(mark)
        return done and self.hall.mark() > mark

    # -- the tree -------------------------------------------------------------------------------------------------

    def _assemble(self, entry: SquadEntry, part: Part, allowed: Mask) -> bool:
        """Bring a part to its minimum."""
        if isinstance(part, Crew):
            return self._inside(entry, part, allowed, lambda mask: self._fill(entry, part, mask))
        return self._inside(entry, part, allowed, lambda mask: self._assemble_parts(entry, part, mask))

    def _inside(self, entry: SquadEntry, part: Part, allowed: Mask, body: Callable[[Mask], bool]) -> bool:
        """Try `body` in each set of machines the constraint of the part allows."""
        if part.within is None:
            return body(allowed)
        seats = [seat for crew in crews_of(part) for seat in entry.crew(crew)]
        pinned = [seat.row for seat in seats if seat.active and seat.row >= 0]
        room, count = self._rough_room(entry, part, seats)
        for mask in self.domains.masks(part.within, allowed, pinned, room, count):
            mark = self.hall.mark()
            if body(mask):
                return True
            self.hall.undo(mark)
        return False

    def _rough_room(self, entry: SquadEntry, part: Part, seats: list[Seat]) -> tuple[Counts, int]:
        """Room per machine for the pods to come and how many they are at least; a bound, not a plan."""
        wanted = [seat for seat in next_pods(entry, self.meant) if seat in seats] or [
            seat for seat in seats if seat.state is self.meant
        ]
        counts = need(wanted)
        kinds = {seat.kind.index: seat.kind for seat in wanted}
        if not kinds:
            return np.ones(len(self.hall.floor.machines), dtype=np.int64), 0
        if len(kinds) == 1:
            kind = next(iter(kinds.values()))
            room = self.hall.floor.slots(kind, now=self.now)
            return room, 1 if kind.single else counts[kind.index]
        rooms = [self.hall.floor.slots(kind, now=self.now) for kind in kinds.values()]
        return np.sum(rooms, axis=0), 1

    def _assemble_parts(self, entry: SquadEntry, group: CrewGroup, allowed: Mask) -> bool:
        wanted = group.at_least - sum(1 for part in group.parts if stands(entry, part))
        for part in sorted(group.parts, key=lambda below: not active(entry, below)):
            if wanted <= 0:
                break
            if not stands(entry, part):
                mark = self.hall.mark()
                if self._assemble(entry, part, allowed):
                    wanted -= 1
                else:
                    self.hall.undo(mark)
        if wanted > 0:
            return False
        while active(entry, group) < group.pods_at_least:
            if not self._grow(entry, group, allowed):
                return False
        return True

    def _grow(self, entry: SquadEntry, group: CrewGroup, allowed: Mask) -> bool:
        """One step more: a pod, or an optional part that does not stand yet."""
        for part in by_growth(entry, group):
            if not any(seat.state is self.meant for crew in crews_of(part) for seat in entry.crew(crew)):
                continue
            mark = self.hall.mark()
            if self._grow_part(entry, part, allowed):
                return True
            self.hall.undo(mark)
        return False

    def _grow_part(self, entry: SquadEntry, part: Part, allowed: Mask) -> bool:
        if not stands(entry, part):
            return self._assemble(entry, part, allowed)
        if isinstance(part, CrewGroup):
            return self._inside(entry, part, allowed, lambda mask: self._grow(entry, part, mask))
        return self._inside(entry, part, allowed, lambda mask: self._put_any(entry.crew(part), 1, mask) == 1)

    # -- pods on machines -----------------------------------------------------------------------------------------

    def _fill(self, entry: SquadEntry, crew: Crew, allowed: Mask) -> bool:
        missing = crew.at_least - active(entry, crew)
        return missing <= 0 or self._put_any(entry.crew(crew), missing, allowed) == missing

    def _put_any(self, seats: Iterable[Seat], count: int, allowed: Mask) -> int:
        """Put up to `count` of the seats that are meant; a kind that finds no room is passed over."""
        runs: dict[int, list[Seat]] = {}
        for seat in seats:
            if seat.state is self.meant:
                runs.setdefault(seat.kind.index, []).append(seat)
        done = 0
        for run in runs.values():
            done += self._put(run[0].kind, run[: count - done], allowed)
            if done == count:
                break
        return done

    def _put(self, kind: PodKind, seats: list[Seat], allowed: Mask) -> int:
        if kind.single:
            return sum(1 for seat in seats if self._put_one(kind, seat, allowed))
        ledger, first = self.hall.ledger, seats[0]
        count = _most(
            len(seats), lambda n: ledger.may_start(first.entry.squad, tuple(amount * n for amount in first.quota))
        )
        if self.hall.has_neighbours:
            allowed = allowed & near(self.hall, kind, now=self.now)
        room = np.where(allowed, self.hall.floor.slots(kind, now=self.now), 0)
        rows = np.flatnonzero(room)
        if not rows.size or not count:
            return 0
        done = 0
        for row in self._ordered(kind, rows, room, count):
            taken = min(count - done, int(room[row]))
            self.hall.place(seats[done : done + taken], int(row), now=self.now)
            done += taken
            if done == count:
                break
        return done

    def _put_one(self, kind: PodKind, seat: Seat, allowed: Mask) -> bool:
        if not self.hall.ledger.may_start(seat.entry.squad, seat.quota):
            return False
        room = self.hall.floor.slots(kind, now=self.now)
        mask = allowed & (room > 0)
        if self.hall.has_neighbours:
            mask &= near(self.hall, kind, now=self.now)
        rows = np.flatnonzero(mask)
        if not rows.size:
            return False
        row = int(self._ordered(kind, rows, room, 1)[0])
        devices: tuple[str, ...] = ()
        if kind.gpu is not None:
            row, devices = self._shared_first(kind, self._ordered(kind, rows, room, len(rows)))
        self.hall.place([seat], row, now=self.now, devices=devices)
        return True

    def _shared_first(self, kind: PodKind, rows: Iterable[int]) -> tuple[int, tuple[str, ...]]:
        """The first machine where the part goes onto GPUs that are shared already, else the first one."""
        gpu, floor, best = kind.gpu, self.hall.floor, None
        for row in rows:
            devices = floor.devices_for(gpu, int(row), now=self.now, spread=self.hall.policy.spread_gpus) if gpu else ()
            if best is None:
                best = int(row), devices
            if all(device in floor.parts[int(row)] for device in devices):
                return int(row), devices
        if best is None:
            raise ValueError("no machine to choose from")
        return best

    def _ordered(self, kind: PodKind, rows: Counts, room: Counts, count: int) -> Counts:
        """Machines in the order they are filled; only as many as `count` pods need."""
        key = self.hall.floor.packing(kind)[rows]
        if self.before is None:
            if count == 1:
                return rows[[int(key.argmin())]]
            return rows[np.argsort(key, kind="stable")]
        missing = np.maximum(kind.row - self.before[rows], 0)
        freed = missing[:, self.hall.floor.gpu] * 1_000_000 + missing.sum(axis=1) // max(1, int(kind.row.sum()))
        return rows[np.lexsort((key, freed))]


def _most(count: int, allowed: Callable[[int], bool]) -> int:
    """The largest n up to `count` that is allowed, for a rule that once broken stays broken."""
    if allowed(count):
        return count
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low
