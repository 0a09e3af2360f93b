"""Making room: the fewest victims in policy order that let one squad take its next step.

Victims are made to leave in order until the step is possible (galloping, then halving, so that the number of attempts
grows with the logarithm of the number of victims). Then everybody who is not in the way stays after all, the most
precious first, and the others get another place where that is allowed. What cannot be justified to the queues in the
end is undone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tests.reference.session.domains import Domains
from tests.reference.session.hall import Hall, SquadEntry
from tests.reference.session.parts import SquadLoss, next_pods
from tests.reference.session.seating import Seating
from tests.reference.session.values import PodState
from tests.reference.session.victims import Losses

MOST_REJECTIONS = 16
"""How many sets of victims may be found wanting before a search is given up."""


@dataclass(slots=True)
class Search:
    """One search for one squad. `justified` judges who would finally be evicted, in the order of leaving."""

    hall: Hall
    domains: Domains
    entry: SquadEntry
    losses: Losses
    justified: Callable[[Sequence[SquadLoss]], bool]
    all_return: bool = False
    """Whether every victim has to get another place: making room without evicting anybody."""
    most: int = 1_000_000
    """Most losses considered."""
    pulled: list[SquadLoss] = field(default_factory=list)
    _marks: list[int] = field(default_factory=list)
    """The state of the hall after each of the losses evicted at present, the first entry before any."""

    def run(self) -> tuple[SquadLoss, ...] | None:
        """Make room and take it; the losses that remain, or None when nothing was changed."""
        start = self.hall.mark()
        self._marks = [start]
        seating = Seating(self.hall, self.domains, now=False, before=self.hall.floor.future.copy())
        tried = 0
        for _ in range(MOST_REJECTIONS if not self.all_return else self.most):
            reached = self._gallop(tried, seating)
            if reached is None:
                break
            tried = reached
            gone = self._settle(reached, seating)
            if gone is not None:
                return gone
        self.hall.undo(start)
        return None

    def _gallop(self, tried: int, seating: Seating) -> int | None:
        """The smallest number of losses above `tried` with which the step is possible, as far as halving finds it."""
        self._evicted(len(self.pulled))
        low, stride = tried, 1
        while True:
            if len(self.pulled) > low and self._possible(seating):
                break
            low = max(low, len(self.pulled))
            if not self._pull(min(stride, self.most - len(self.pulled))):
                return None
            stride = 1 if self.all_return else stride * 2
        high = len(self.pulled)
        while high - low > 1:
            middle = (low + high) // 2
            self._evicted(middle)
            low, high = (low, middle) if self._possible(seating) else (middle, high)
        return high

    def _pull(self, count: int) -> bool:
        before = len(self.pulled)
        for loss in islice(iter(self.losses.pull, None), max(0, count)):
            self.pulled.append(loss)
            self._evicted(len(self.pulled))
        return len(self.pulled) > before

    def _evicted(self, count: int) -> None:
        """Bring about that the first `count` losses have been evicted, and nothing else has changed."""
        self.hall.undo(self._marks[min(count, len(self._marks) - 1)])
        del self._marks[count + 1 :]
        for loss in self.pulled[len(self._marks) - 1 : count]:
            for seat in loss.seats:
                self.hall.evict(seat)
            self._marks.append(self.hall.mark())

    def _possible(self, seating: Seating) -> bool:
        mark = self.hall.mark()
        done = seating.step(self.entry)
        self.hall.undo(mark)
        return done

    def _settle(self, count: int, seating: Seating) -> tuple[SquadLoss, ...] | None:
        self._evicted(count)
        losses = self.pulled[:count]
        before = self.hall.mark()
        if not seating.step(self.entry):
            return None
        taken = self.hall.charged_since(before)
        gone = put_back(self.hall, losses, lambda: self.hall.still_allowed(self.entry, taken))
        if self.hall.policy.moves or self.all_return:
            gone = resettle(self.hall, self.domains, gone)
        if self.all_return:
            return () if not gone else None
        return tuple(gone) if self.justified(gone) else None


def put_back(hall: Hall, losses: Sequence[SquadLoss], allowed: Callable[[], bool]) -> list[SquadLoss]:
    """Let everybody stay who is not in the way, the last to leave first; the losses that remain, in order.

    What a squad gave up later was needed more: nothing it gave up earlier comes back without it.
    """
    remaining: list[SquadLoss] = []
    without: set[str] = set()
    for loss in reversed(losses):
        name = loss.entry.squad.name
        if name in without or not _return(hall, loss, allowed):
            without.add(name)
            remaining.append(loss)
    remaining.reverse()
    return remaining


def _return(hall: Hall, loss: SquadLoss, allowed: Callable[[], bool]) -> bool:
    mark = hall.mark()
    if all(hall.keep(seat) for seat in loss.seats) and allowed():
        return True
    hall.undo(mark)
    return False


def resettle(hall: Hall, domains: Domains, losses: Sequence[SquadLoss]) -> list[SquadLoss]:
    """Give the victims other places, squad by squad, the last to leave first; the losses that remain.

    A squad moves with all it lost or not at all.
    """
    stayed: set[str] = set()
    entries = {loss.entry.squad.name: loss.entry for loss in reversed(losses)}
    seating = Seating(hall, domains, now=False, meant=PodState.EVICTED)
    for name, entry in entries.items():
        mark = hall.mark()
        while next_pods(entry, PodState.EVICTED) and seating.step(entry):
            pass
        if any(seat.state is PodState.EVICTED for seat in entry.seats):
            hall.undo(mark)
        else:
            stayed.add(name)
    return [loss for loss in losses if loss.entry.squad.name not in stayed]
