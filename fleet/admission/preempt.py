"""Whose gangs must leave so that another can run: Kueue's classical preemption, on whole gangs.

Three classes of victims (Kueue `pkg/scheduler/preemption/classical`, reference 3.2): *same* queue; *hierarchical*, when
the preemptor's own team takes back what it is entitled to; *priority*, everybody else who borrows. Victims are taken
one by one until the goal holds, then put back, newest need first, as long as it still holds.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from fleet.admission.compile import usage_of
from fleet.admission.share import owner
from fleet.admission.tree import Cohort, FlavorResource, QuotaTree, Usage
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState
from model.kinds import Queue


class _Class(IntEnum):
    HIERARCHICAL = 0
    PRIORITY = 1
    SAME = 2


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that would leave, and the word for why."""

    gang: Gang
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Candidate:
    gang: Gang
    kind: _Class
    usage: Usage
    while_borrowing: bool
    """May be taken although the preemptor borrows."""
    crossing: tuple[Cohort, ...]
    """Its queue and the cohorts above it, below the lowest one shared with the preemptor."""

    @property
    def reason(self) -> Reason:
        if self.kind is _Class.SAME:
            return Reason.PREEMPTED
        if self.kind is _Class.PRIORITY and self.while_borrowing:
            return Reason.RECLAIMED_WHILE_BORROWING
        return Reason.RECLAIMED


@dataclass(frozen=True, slots=True)
class Contest:
    """A gang that wants cells which others hold."""

    tree: QuotaTree
    gang: Gang
    queue: Queue
    usage: Usage
    cells: tuple[FlavorResource, ...]
    """The contested cells: those that do not fit now (all of them when only a place is missing)."""

    def borrows(self) -> bool:
        """Whether the preemptor's team would be above its guarantee on any cell it asks for."""
        team = owner(self.tree.queues[self.gang.queue])
        return any(team.borrows_with(cell, amount) for cell, amount in self.usage.items())


def victims(
    contest: Contest,
    running: Iterable[Gang],
    now_s: float,
    protected_s: Callable[[Gang], float],
    remove: Callable[[Gang], None],
    restore: Callable[[Gang], None],
    goal: Callable[[], bool],
) -> tuple[Victim, ...]:
    """The gangs to evict, in the order taken; empty when no set of permitted victims reaches the goal.

    `remove` and `restore` take a gang off quota and machines and put it back; `goal` says whether the preemptor would
    then have quota and a place. Everything is restored before this returns.
    """
    permitted = [gang for gang in running if _may_leave(gang, now_s, protected_s)]
    candidates = sorted(_candidates(contest, permitted), key=_order)
    for borrowing in _attempts(contest, candidates):
        taken = _attempt(contest, candidates, remove, restore, goal, borrowing=borrowing)
        if taken:
            return tuple(Victim(candidate.gang, candidate.reason) for candidate in taken)
    return ()


def _may_leave(gang: Gang, now_s: float, protected_s: Callable[[Gang], float]) -> bool:
    if gang.state is GangState.RESERVED:
        return True
    return gang.state is GangState.ADMITTED and now_s - gang.admitted_at_s >= protected_s(gang)


def _order(candidate: _Candidate) -> tuple[object, ...]:
    gang = candidate.gang
    return (candidate.kind, gang.priority, -gang.quota_reserved_at_s, gang.uid)


def _attempts(contest: Contest, candidates: list[_Candidate]) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt (reference 3.2)."""
    kinds = {candidate.kind for candidate in candidates}
    if not kinds & {_Class.HIERARCHICAL, _Class.PRIORITY}:
        return (True,)
    if contest.queue.spec.preemption.while_borrowing == "Never":
        team = owner(contest.tree.queues[contest.gang.queue])
        if any(team.unused(cell) <= 0 for cell in contest.cells):
            return (True,)
        if _Class.HIERARCHICAL not in kinds:
            return (False, True)
    return (True, False)


def _attempt(
    contest: Contest,
    candidates: list[_Candidate],
    remove: Callable[[Gang], None],
    restore: Callable[[Gang], None],
    goal: Callable[[], bool],
    *,
    borrowing: bool,
) -> list[_Candidate]:
    def reached() -> bool:
        return (borrowing or not contest.borrows()) and goal()

    taken: list[_Candidate] = []
    done = False
    for candidate in candidates:
        if borrowing and candidate.kind is _Class.PRIORITY and not candidate.while_borrowing:
            continue
        if not _still_borrows(contest, candidate):
            continue
        remove(candidate.gang)
        taken.append(candidate)
        if done := reached():
            break
    kept = _fill_back(taken, remove, restore, reached) if done else []
    for candidate in taken if not done else kept:
        restore(candidate.gang)
    return kept


def _fill_back(
    taken: list[_Candidate],
    remove: Callable[[Gang], None],
    restore: Callable[[Gang], None],
    reached: Callable[[], bool],
) -> list[_Candidate]:
    """Put back whoever is not needed after all; the last one taken made it fit and stays out."""
    kept = list(taken)
    for candidate in reversed(taken[:-1]):
        restore(candidate.gang)
        if reached():
            kept.remove(candidate)
        else:
            remove(candidate.gang)
    return kept


def _still_borrows(contest: Contest, candidate: _Candidate) -> bool:
    """Nothing is taken from a subtree that is within its own quota on all contested cells."""
    return all(any(node.unused(cell) < 0 for cell in contest.cells) for node in candidate.crossing if node.subtree)


def _candidates(contest: Contest, running: Iterable[Gang]) -> Iterator[_Candidate]:
    mine = contest.tree.queues[contest.gang.queue]
    classes = _classes(contest, mine)
    policy = contest.queue.spec.preemption
    for gang in running:
        usage = usage_of(contest.tree, gang)
        if gang.uid == contest.gang.uid or not any(cell in usage for cell in contest.cells):
            continue
        if gang.queue == contest.gang.queue:
            if _within_queue(policy.within_queue, contest.gang, gang):
                yield _Candidate(gang, _Class.SAME, usage, while_borrowing=True, crossing=())
            continue
        theirs = contest.tree.queues.get(gang.queue)
        if theirs is None or policy.reclaim == "Never":
            continue
        lower = gang.priority < contest.gang.priority
        crossing = _crossing(mine, theirs)
        shared = crossing[-1].parent
        if shared is None:
            continue
        same_team = shared is owner(mine)
        if (same_team or policy.reclaim == "LowerPriority") and not lower:
            continue
        kind = _Class.PRIORITY if same_team else classes[shared.name]
        yield _Candidate(
            gang,
            kind,
            usage,
            while_borrowing=same_team
            or kind is _Class.HIERARCHICAL
            or (policy.while_borrowing == "LowerPriority" and lower),
            crossing=() if same_team else crossing,
        )


def _within_queue(policy: str, preemptor: Gang, candidate: Gang) -> bool:
    if policy == "Never":
        return False
    if candidate.priority < preemptor.priority:
        return True
    newer = (candidate.created_at_s, candidate.uid) > (preemptor.created_at_s, preemptor.uid)
    return policy == "LowerOrNewerEqualPriority" and candidate.priority == preemptor.priority and newer


def _classes(contest: Contest, mine: Cohort) -> dict[str, _Class]:
    """Ancestor -> class of the candidates found below it: hierarchical once the request fits an own subtree's quota."""
    classes: dict[str, _Class] = {}
    team = owner(mine)
    remaining = {cell: contest.usage.get(cell, 0) for cell in contest.cells}
    entitled = all(remaining[cell] <= team.unused(cell) for cell in contest.cells)
    remaining = {cell: amount - team.local_available(cell) for cell, amount in remaining.items()}
    for node in team.ancestors():
        classes[node.name] = _Class.HIERARCHICAL if entitled else _Class.PRIORITY
        entitled = entitled or all(remaining[cell] <= node.unused(cell) for cell in contest.cells)
        remaining = {cell: amount - node.local_available(cell) for cell, amount in remaining.items()}
    return classes


def _crossing(mine: Cohort, theirs: Cohort) -> tuple[Cohort, ...]:
    above = {node.name for node in mine.ancestors()}
    crossing = [theirs]
    while crossing[-1].parent is not None and crossing[-1].parent.name not in above:
        crossing.append(crossing[-1].parent)
    return tuple(crossing)
