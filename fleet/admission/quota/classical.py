"""Classical preemption: a queue takes back what it is entitled to, and lower priority gives way to higher.

Kueue `pkg/scheduler/preemption/classical` (reference 3.2). Three classes of candidates: of the *same* queue;
*hierarchical*, in subtrees that borrow what the preemptor's own subtree is entitled to; *priority*, in other subtrees
that borrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from fleet.admission.quota.candidates import Contest, Victim, allowed, candidates_in, fill_back
from fleet.admission.quota.declared import Policy
from fleet.admission.quota.tree import Node
from fleet.admission.quota.workload import Holder
from fleet.reasons import Reason


class _Class(IntEnum):
    HIERARCHICAL = 0
    PRIORITY = 1
    SAME = 2


@dataclass(frozen=True, slots=True)
class _Candidate:
    holder: Holder
    kind: _Class
    reason: Reason
    while_borrowing: bool
    """May be taken although the preemptor borrows."""


def classical(contest: Contest) -> list[Victim]:
    """The holders to evict; empty when no set of permitted ones makes the workload fit. The books end as they began."""
    found = _collect(contest)
    candidates = [c for leaving in (True, False) for kind in found for c in found[kind] if c.holder.leaving is leaving]
    if not candidates:
        return []
    for borrowing in _attempts(contest, found):
        taken = _attempt(contest, candidates, borrowing=borrowing)
        if taken:
            return taken
    return []


def _attempts(contest: Contest, found: dict[_Class, list[_Candidate]]) -> tuple[bool, ...]:
    """Whether borrowing is allowed, attempt by attempt."""
    never_borrowing = contest.queue.preemption.while_borrowing is Policy.NEVER
    if not found[_Class.HIERARCHICAL] and not found[_Class.PRIORITY]:
        return (True,)
    if never_borrowing:
        owner = contest.node.owner
        if any(owner.unused(cell) <= 0 for cell in contest.cells):
            return (True,)
        if not found[_Class.HIERARCHICAL]:
            return (False, True)
    return (True, False)


def _attempt(contest: Contest, candidates: list[_Candidate], *, borrowing: bool) -> list[Victim]:
    books = contest.books
    taken: list[Victim] = []
    done = False
    for candidate in candidates:
        if borrowing and not candidate.while_borrowing:
            continue
        holder = candidate.holder
        if candidate.kind is not _Class.SAME and not _still_borrows(contest, holder.queue):
            continue
        books.lift(holder)
        taken.append(Victim(holder, candidate.reason))
        if done := contest.fits(borrowing=borrowing):
            break
    kept = fill_back(contest, taken, borrowing=borrowing) if done else []
    for victim in reversed(kept if done else taken):
        books.put_back(victim.holder)
    return kept


def _still_borrows(contest: Contest, queue: Node) -> bool:
    """Nothing is taken from a subtree that is within its own quota on all contested cells."""
    mine = {id(node) for node in contest.node.ancestors()}
    node: Node | None = queue
    while node is not None and id(node) not in mine:
        if node.within(contest.cells):
            return False
        node = node.parent
    return True


def _collect(contest: Contest) -> dict[_Class, list[_Candidate]]:
    found: dict[_Class, list[_Candidate]] = {kind: [] for kind in _Class}
    policy = contest.queue.preemption
    for holder in contest.ordered(candidates_in(contest, contest.node, policy.within_queue)):
        found[_Class.SAME].append(_Candidate(holder, _Class.SAME, Reason.PREEMPTED, while_borrowing=True))
    elsewhere: dict[_Class, list[Holder]] = {_Class.HIERARCHICAL: [], _Class.PRIORITY: []}
    siblings: set[str] = set()
    for queue, kind in _elsewhere(contest):
        if contest.node.through_team and queue.parent is contest.node.parent:
            siblings.add(queue.name)
            elsewhere[kind] += candidates_in(contest, queue, Policy.LOWER)
        else:
            elsewhere[kind] += candidates_in(contest, queue, policy.reclaim)
    for kind, holders in elsewhere.items():
        for holder in contest.ordered(holders):
            found[kind].append(_candidate(contest, holder, kind, same_team=holder.queue.name in siblings))
    return found


def _candidate(contest: Contest, holder: Holder, kind: _Class, *, same_team: bool) -> _Candidate:
    if same_team:
        return _Candidate(holder, kind, Reason.PREEMPTED, while_borrowing=True)
    if kind is _Class.HIERARCHICAL:
        return _Candidate(holder, kind, Reason.RECLAIMED, while_borrowing=True)
    policy = contest.queue.preemption
    most = policy.while_borrowing_below
    may = (
        policy.while_borrowing is not Policy.NEVER
        and allowed(Policy.LOWER, contest.workload, holder.workload)
        and (most is None or holder.workload.priority <= most)
    )
    return _Candidate(holder, kind, Reason.RECLAIMED_WHILE_BORROWING if may else Reason.RECLAIMED, while_borrowing=may)


def _elsewhere(contest: Contest) -> Iterator[tuple[Node, _Class]]:
    """Other queues of the tree that borrow a contested cell, with their class, nearest ancestor first."""
    if contest.queue.preemption.reclaim is Policy.NEVER and not contest.node.through_team:
        return
    node = contest.node
    remaining = dict(contest.usage)
    entitled = False
    while node.parent is not None:
        kind = _Class.HIERARCHICAL if entitled or _within_quota(node, remaining) else _Class.PRIORITY
        entitled = kind is _Class.HIERARCHICAL
        remaining = {cell: amount - node.private_left(cell) for cell, amount in remaining.items()}
        for sibling in node.parent.children:
            if sibling is not node:
                yield from ((queue, kind) for queue in _borrowing_queues(contest, sibling))
        node = node.parent


def _within_quota(node: Node, remaining: dict[int, int]) -> bool:
    """Whether the node's own quota covers what is left of the request. A queue without quota is no such node."""
    return not node.through_team and all(amount <= node.unused(cell) for cell, amount in remaining.items())


def _borrowing_queues(contest: Contest, node: Node) -> Iterator[Node]:
    if node.within(contest.cells):
        return
    if node.is_queue:
        yield node
    for child in node.children:
        yield from _borrowing_queues(contest, child)
