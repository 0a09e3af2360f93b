"""The tree of a squad: what stands, what starts next, what can be given up first."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.reference.session.hall import Seat, SquadEntry
from tests.reference.session.ledger import Vector, total
from tests.reference.session.values import Crew, CrewGroup, PodState, crews_of

Part = Crew | CrewGroup
Where = Callable[[Seat], bool]
"""Which pods it would help to evict."""


@dataclass(frozen=True, slots=True)
class SquadLoss:
    """Pods that leave together: one of the surplus, a whole part that is not needed, or the whole gang."""

    entry: SquadEntry
    seats: tuple[Seat, ...]

    @property
    def amounts(self) -> Vector:
        """What the queue gets back."""
        return total((seat.quota for seat in self.seats), len(self.seats[0].quota))


def active(entry: SquadEntry, part: Part) -> int:
    """Pods that count."""
    if isinstance(part, Crew):
        return entry.of_crew[id(part)].active
    count = 0
    for below in part.parts:
        count += active(entry, below)
    return count


def stands(entry: SquadEntry, part: Part) -> bool:
    """Whether a part has its minimum."""
    if isinstance(part, Crew):
        return active(entry, part) >= part.at_least
    standing = 0
    for below in part.parts:
        standing += stands(entry, below)
    return standing >= part.at_least and (not part.pods_at_least or active(entry, part) >= part.pods_at_least)


def could_stand(entry: SquadEntry, part: Part) -> bool:
    """Whether a part has enough pods, running or waiting, to reach its minimum at all."""
    if isinstance(part, Crew):
        return _alive(entry, part) >= part.at_least
    able = sum(1 for below in part.parts if could_stand(entry, below))
    return able >= part.at_least and sum(_alive(entry, crew) for crew in crews_of(part)) >= part.pods_at_least


def _alive(entry: SquadEntry, crew: Crew) -> int:
    return sum(1 for seat in entry.crew(crew) if seat.active or seat.state is PodState.PENDING)


def fullness(entry: SquadEntry, part: Part) -> float:
    """How much a part has of its minimum; what grows and shrinks evenly is kept level in it."""
    if isinstance(part, Crew):
        return active(entry, part) / max(1, part.at_least)
    return sum(1 for below in part.parts if stands(entry, below)) / max(1, part.at_least)


def by_growth(entry: SquadEntry, group: CrewGroup) -> list[Part]:
    """Parts of a group, the emptiest first."""
    places = sorted(range(len(group.parts)), key=lambda place: (fullness(entry, group.parts[place]), place))
    return [group.parts[place] for place in places]


def next_pods(entry: SquadEntry, state: PodState = PodState.PENDING) -> list[Seat]:
    """The pods of the next step, if the first ones in order can be had: all that is missing, or one more."""
    root = entry.squad.root
    if not stands(entry, root):
        return list(_missing(entry, root, state))
    return _growth(entry, root, state)


def _missing(entry: SquadEntry, part: Part, state: PodState) -> Iterator[Seat]:
    if isinstance(part, Crew):
        short = part.at_least - active(entry, part)
        yield from [seat for seat in entry.crew(part) if seat.state is state][: max(0, short)]
        return
    chosen: list[Seat] = []
    wanted = part.at_least - sum(1 for below in part.parts if stands(entry, below))
    for below in part.parts:
        if wanted > 0 and not stands(entry, below):
            chosen += _missing(entry, below, state)
            wanted -= 1
    yield from chosen
    short = part.pods_at_least - active(entry, part) - len(chosen)
    if short > 0:
        taken = {id(seat) for seat in chosen}
        rest = (seat for crew in crews_of(part) for seat in entry.crew(crew) if id(seat) not in taken)
        yield from [seat for seat in rest if seat.state is state][:short]


def _growth(entry: SquadEntry, group: CrewGroup, state: PodState) -> list[Seat]:
    for part in by_growth(entry, group):
        if isinstance(part, CrewGroup):
            found = _growth(entry, part, state) if stands(entry, part) else list(_missing(entry, part, state))
        else:
            missing = max(1, part.at_least - active(entry, part))
            found = [seat for seat in entry.crew(part) if seat.state is state][:missing]
        if found:
            return found
    return []


def need(seats: list[Seat]) -> Counter[int]:
    """How many of each kind, by index."""
    return Counter(seat.kind.index for seat in seats)


def next_loss(entry: SquadEntry, *, keep_core: bool, where: Where | None = None) -> SquadLoss | None:
    """What a squad gives up next: surplus first, and when there is none all of it, unless its core is kept.

    With `where`, only losses count that contain such a pod.
    """
    root = entry.squad.root
    running = [seat for seat in entry.seats if seat.state is PodState.RUNNING]
    if not running or (where is not None and not any(where(seat) for seat in running)):
        return None
    if stands(entry, root):
        surplus = _surplus(entry, root, active(entry, root) - root.pods_at_least, where)
        if surplus:
            return SquadLoss(entry, surplus)
        if keep_core:
            return None
    seats = _all_of(entry, root)
    return SquadLoss(entry, seats) if seats and all(seat.pod.evictable for seat in seats) else None


def _all_of(entry: SquadEntry, part: Part) -> tuple[Seat, ...]:
    """All running pods of a part; none if others of it have just got a place, which would be left alone."""
    seats = [seat for crew in crews_of(part) for seat in entry.crew(crew) if seat.active]
    return tuple(seats) if all(seat.state is PodState.RUNNING for seat in seats) else ()


def has_surplus(entry: SquadEntry) -> bool:
    """Whether a squad could lose a pod and still stand."""
    root = entry.squad.root
    return stands(entry, root) and bool(_surplus(entry, root, active(entry, root) - root.pods_at_least, None))


def _surplus(entry: SquadEntry, group: CrewGroup, spare: int, where: Where | None) -> tuple[Seat, ...]:
    """The part of a group to be given up first, of at most `spare` pods; empty when all of it is needed."""
    optional = sum(1 for below in group.parts if stands(entry, below)) > group.at_least
    for part in reversed(by_growth(entry, group)):
        if isinstance(part, Crew):
            seats = _spare_of_crew(entry, part, where)
        else:
            seats = _surplus(entry, part, min(spare, active(entry, part) - part.pods_at_least), where)
        if not seats and (optional or not stands(entry, part)):
            seats = _all_of(entry, part)
        if not seats or len(seats) > spare or not all(seat.pod.evictable for seat in seats):
            continue
        if where is None or any(where(seat) for seat in seats):
            return seats
    return ()


def _spare_of_crew(entry: SquadEntry, crew: Crew, where: Where | None) -> tuple[Seat, ...]:
    if active(entry, crew) <= crew.at_least:
        return ()
    for seat in reversed(entry.crew(crew)):
        if seat.state is PodState.RUNNING and seat.pod.evictable and (where is None or where(seat)):
            return (seat,)
    return ()
