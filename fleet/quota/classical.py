"""Classical preemption: a queue takes back what it is entitled to, and lower priority gives way to higher.

Kueue `pkg/scheduler/preemption/classical` (reference 3.2). Three classes of candidates: of the *same* queue;
*hierarchical*, in subtrees that borrow what the preemptor's own subtree is entitled to; *priority*, in other subtrees
that borrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from heapq import merge
from itertools import chain, takewhile
from typing import NamedTuple

from fleet.quota.candidates import PreemptionContext, Victim, candidates_in, fill_back, satisfies_policy
from fleet.quota.declared import CandidatePolicy
from fleet.quota.tree import QuotaNode
from fleet.quota.workload import AdmittedWorkload, eviction_order
from fleet.reasons import Reason


class _CandidateClass(IntEnum):
    HIERARCHICAL = 0
    PRIORITY = 1
    SAME = 2


@dataclass(frozen=True, slots=True)
class _ClassedCandidate:
    holder: AdmittedWorkload
    kind: _CandidateClass
    reason: Reason
    while_borrowing: bool
    """May be taken although the preemptor borrows."""


class _CandidateQueue(NamedTuple):
    """A queue, and whom of it the policy lets go."""

    queue: QuotaNode
    policy: CandidatePolicy
    same_team: bool = False


CandidateQueues = dict[_CandidateClass, list[_CandidateQueue]]
"""Queues that have candidates, by the class of these."""


def classical_preemptions(contest: PreemptionContext) -> list[Victim]:
    """The holders to evict; empty when no set of permitted ones makes the workload fit. The books end as they began."""
    sources = _collect(contest)
    if not any(sources.values()):
        return []
    for borrowing in _attempts(contest, sources):
        taken = _attempt(contest, sources, borrowing=borrowing)
        if taken:
            return taken
    return []


def _attempts(contest: PreemptionContext, sources: CandidateQueues) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt."""
    never_borrowing = contest.queue.preemption.while_borrowing is CandidatePolicy.NEVER
    if not sources[_CandidateClass.HIERARCHICAL] and not sources[_CandidateClass.PRIORITY]:
        return (True,)
    if never_borrowing:
        owner = contest.node.owner
        if any(owner.unused(cell) <= 0 for cell in contest.cells):
            return (True,)
        if not sources[_CandidateClass.HIERARCHICAL]:
            return (False, True)
    return (True, False)


def _attempt(contest: PreemptionContext, sources: CandidateQueues, *, borrowing: bool) -> list[Victim]:
    books = contest.books
    taken: list[Victim] = []
    done = False
    paths: dict[str, list[QuotaNode]] = {}
    spent: set[str] = set()
    for candidate in _candidates(contest, sources, spent, borrowing=borrowing):
        holder, queue = candidate.holder, candidate.holder.queue
        if candidate.kind is not _CandidateClass.SAME:
            if queue.name not in paths:
                paths[queue.name] = list(_apart(contest, queue))
            if any(node.within(contest.cells) for node in paths[queue.name]):
                spent.add(queue.name)  # nothing is taken from a subtree within its own quota on all contested cells,
                continue  # and the more are out the more it is so
        books.lift(holder)
        taken.append(Victim(holder, candidate.reason))
        if done := contest.fits(borrowing=borrowing):
            break
    kept = fill_back(contest, taken, borrowing=borrowing) if done else []
    for victim in reversed(kept if done else taken):
        books.put_back(victim.holder)
    return kept


def _apart(contest: PreemptionContext, queue: QuotaNode) -> Iterator[QuotaNode]:
    """The queue and its ancestors up to the first one that is the preemptor's too."""
    mine = {id(node) for node in contest.node.ancestors()}
    node: QuotaNode | None = queue
    while node is not None and id(node) not in mine:
        yield node
        node = node.parent


def _collect(contest: PreemptionContext) -> CandidateQueues:
    found: CandidateQueues = {kind: [] for kind in _CandidateClass}
    policy = contest.queue.preemption
    found[_CandidateClass.SAME].append(_CandidateQueue(contest.node, policy.within_queue))
    for queue, kind in _elsewhere(contest):
        same_team = contest.node.through_team and queue.parent is contest.node.parent
        found[kind].append(_CandidateQueue(queue, CandidatePolicy.LOWER if same_team else policy.reclaim, same_team))
    moods = _moods(contest)
    return {
        kind: [s for s in sources if any(_has_any(contest, s, leaving=leaving) for leaving in moods)]
        for kind, sources in found.items()
    }


def _has_any(contest: PreemptionContext, source: _CandidateQueue, *, leaving: bool) -> bool:
    return next(candidates_in(contest, source.queue, source.policy, leaving=leaving), None) is not None


def _moods(contest: PreemptionContext) -> tuple[bool, ...]:
    """Whether candidates are leaving: those who are come first."""
    return (True, False) if contest.books.leave_later else (False,)


def _candidates(
    contest: PreemptionContext, sources: CandidateQueues, spent: set[str], *, borrowing: bool
) -> Iterator[_ClassedCandidate]:
    """Who may go, the one to go first at the head; with `borrowing` only whom a borrower may take.

    A queue that the caller adds to `spent` meanwhile gives nobody else.
    """

    def from_source(source: _CandidateQueue, *, leaving: bool) -> Iterator[AdmittedWorkload]:
        name = source.queue.name
        found = candidates_in(contest, source.queue, source.policy, leaving=leaving)
        return takewhile(lambda _holder: name not in spent, found)

    for leaving in _moods(contest):
        for kind, queues in sources.items():
            if (
                borrowing
                and kind is _CandidateClass.PRIORITY
                and contest.queue.preemption.while_borrowing is CandidatePolicy.NEVER
            ):
                queues = [source for source in queues if source.same_team]  # noqa: PLW2901 -- spares a scan in vain
            of_team = {source.queue.name for source in queues if source.same_team}
            streams = [from_source(source, leaving=leaving) for source in queues]
            holders: Iterator[AdmittedWorkload] = (
                merge(*streams, key=eviction_order) if len(streams) > 1 else chain(*streams)
            )
            if kind is _CandidateClass.SAME and contest.local_usage:
                holders = iter(contest.ordered(holders))
            for holder in holders:
                found = _candidate(contest, holder, kind, same_team=holder.queue.name in of_team)
                if found.while_borrowing or not borrowing:
                    yield found


def _candidate(
    contest: PreemptionContext, holder: AdmittedWorkload, kind: _CandidateClass, *, same_team: bool
) -> _ClassedCandidate:
    if same_team or kind is _CandidateClass.SAME:
        return _ClassedCandidate(holder, kind, Reason.PREEMPTED, while_borrowing=True)
    if kind is _CandidateClass.HIERARCHICAL:
        return _ClassedCandidate(holder, kind, Reason.RECLAIMED, while_borrowing=True)
    policy = contest.queue.preemption
    most = policy.while_borrowing_below
    may = (
        policy.while_borrowing is not CandidatePolicy.NEVER
        and satisfies_policy(CandidatePolicy.LOWER, contest.workload, holder.workload)
        and (most is None or holder.workload.priority <= most)
    )
    return _ClassedCandidate(
        holder, kind, Reason.RECLAIMED_WHILE_BORROWING if may else Reason.RECLAIMED, while_borrowing=may
    )


def _elsewhere(contest: PreemptionContext) -> Iterator[tuple[QuotaNode, _CandidateClass]]:
    """Other queues of the tree that borrow a contested cell, with their class, nearest ancestor first."""
    if contest.queue.preemption.reclaim is CandidatePolicy.NEVER and not contest.node.through_team:
        return
    node = contest.node
    remaining = dict(contest.usage)
    entitled = False
    while node.parent is not None:
        kind = _CandidateClass.HIERARCHICAL if entitled or _within_quota(node, remaining) else _CandidateClass.PRIORITY
        entitled = kind is _CandidateClass.HIERARCHICAL
        remaining = {cell: amount - node.private_left(cell) for cell, amount in remaining.items()}
        for sibling in node.parent.children:
            if sibling is not node and not sibling.within(contest.cells):
                for queue in _borrowing_queues(contest, sibling):
                    yield queue, kind
        node = node.parent


def _within_quota(node: QuotaNode, remaining: dict[int, int]) -> bool:
    """Whether the node's own quota covers what is left of the request. A queue without quota is no such node."""
    return not node.through_team and all(amount <= node.unused(cell) for cell, amount in remaining.items())


def _borrowing_queues(contest: PreemptionContext, node: QuotaNode) -> Iterator[QuotaNode]:
    if node.within(contest.cells):
        return
    if node.is_queue:
        yield node
    for child in node.children:
        yield from _borrowing_queues(contest, child)
