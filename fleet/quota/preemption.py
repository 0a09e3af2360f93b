"""Decides whom to evict for a workload, by entitlement and priority (Kueue's classical preemption).

Kueue `pkg/scheduler/preemption/classical` with what it has in common with fair sharing (reference 3.1, 3.2). There are
three classes of candidates: of the *same* queue; *hierarchical*, in subtrees that borrow what the preemptor's own
subtree is entitled to; *priority*, in other subtrees that borrow. What dominant shares say comes in
`fleet.quota.fair_preemption`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from heapq import merge
from itertools import chain, takewhile
from typing import Final, NamedTuple, Protocol

from fleet.quota.ledger import AdmittedWorkload, QuotaLedger, eviction_order
from fleet.quota.specs import UNLIMITED, CandidatePolicy, QuotaQueueSpec
from fleet.quota.tree import Cell, QuotaNode, Usage, available
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A holder to evict, and the reason why (Kueue's preemption Target)."""

    holder: AdmittedWorkload
    reason: Reason
    destination: object = None
    """The place that is kept for it, where it only moves."""


@dataclass(slots=True)
class PreemptionContext:
    """A workload, and the cells it wants that others hold (Kueue's preemptionCtx)."""

    ledger: QuotaLedger
    workload: Workload
    queue: QuotaQueueSpec
    node: QuotaNode
    usage: Usage
    """All that the workload asks for."""
    cells: Collection[Cell]
    """What the workload cannot have without preemption."""
    finds_place: Callable[[], bool] = field(default=lambda: True)
    """Whether its pods would have a place as the ledger stands."""
    local_usage: Mapping[str, float] = field(default_factory=dict)
    """Local queue -> decayed usage, where that orders victims of the own queue."""
    whoever: bool = False
    """Whether holders of the own queue may have to go that use no contested cell: for what no quota counts."""

    def fits(self, *, borrowing: bool = True) -> bool:
        """Returns whether quota and a place are there, as the ledger stands."""
        return self.has_quota(borrowing=borrowing) and self.finds_place()

    def has_quota(self, *, borrowing: bool = True) -> bool:
        """Returns whether the quota is there, as the ledger stands."""
        node = self.node
        owner = node.owner
        for cell, amount in self.usage.items():
            if not borrowing and owner.borrows_with(cell, amount):
                return False
            if amount > available(node, cell):
                return False
        return True

    def takes_no_guarantee(self, victims: Iterable[Victim]) -> bool:
        """Returns whether no other team is below its guarantee of what is contested while these are out."""
        others = {id(it.holder.queue): it.holder.queue.owner for it in victims if it.holder.queue is not self.node}
        return not any(owner.unused(cell) > 0 for owner in others.values() for cell in self.cells)

    def ordered(self, holders: Iterable[AdmittedWorkload]) -> list[AdmittedWorkload]:
        """Returns the candidates of all queues in the order of eviction."""
        return sorted(holders, key=self._key)

    def _key(self, holder: AdmittedWorkload) -> tuple[object, ...]:
        own = holder.queue is self.node
        usage = -self.local_usage.get(holder.workload.local_queue, 0.0) if own and self.local_usage else 0.0
        return (not holder.leaving, own, usage, *eviction_order(holder))


class Mover(Protocol):
    """A `Mover` finds holders that could stand elsewhere, each with its place there, so that a workload finds one."""

    def room(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Victim]:
        """Returns whom to move for a workload that has quota and no place; empty where nobody helps."""

    def compares(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether `instead_of_buying` may look for somebody to move."""

    def note_purchase(self, workload: Workload, given: Sequence[PodSetAssignment]) -> None:
        """Notes of a workload that has a place what `instead_of_buying` would, where that does not look for anybody."""

    def rests(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Returns whether `instead_of_buying` has nothing to look for, and nothing to say, as things stand."""

    def instead_of_buying(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Victim]:
        """Returns whom to move for one that has a place already, if that would be bought and moving costs less."""


def satisfies_policy(policy: CandidatePolicy, preemptor: Workload, candidate: Workload) -> bool:
    """Returns whether the policy lets the preemptor evict the candidate."""
    if policy is CandidatePolicy.ANY:
        return True
    if policy is CandidatePolicy.NEVER:
        return False
    if candidate.priority < preemptor.priority:
        return True
    equal = candidate.priority == preemptor.priority
    return policy is CandidatePolicy.LOWER_OR_NEWER and equal and preemptor.at_s < candidate.at_s


def candidates_in(
    context: PreemptionContext, queue: QuotaNode, policy: CandidatePolicy, *, leaving: bool
) -> Iterator[AdmittedWorkload]:
    """Yields holders of a queue that the policy lets go and that use a contested cell, in the order of eviction.

    Either those who are leaving or those who are not. They are found one by one as they are asked for: a search that
    needs one does not look at thousands.
    """
    if policy is CandidatePolicy.NEVER or (queue is not context.node and not queue.reclaimable):
        return
    ledger, preemptor = context.ledger, context.workload
    if policy is CandidatePolicy.LOWER and ledger.lowest_priority(queue.name) >= preemptor.priority:
        return
    for holder in ledger.leaving_of(queue.name) if leaving else ledger.staying(queue.name):
        above = holder.workload.priority - preemptor.priority
        if policy is not CandidatePolicy.ANY and (above > 0 or (above == 0 and policy is CandidatePolicy.LOWER)):
            return  # nor may any that follow
        if holder.out or holder.protected or not (context.whoever or holder.uses_any(context.cells)):
            continue
        if satisfies_policy(policy, preemptor, holder.workload):
            yield holder


def leaving_turns(ledger: QuotaLedger) -> tuple[bool, ...]:
    """Returns in which turns a search takes candidates: first those that are leaving (True), then others."""
    return (True, False) if ledger.leave_later else (False,)


def why_kept(queue: QuotaQueueSpec, node: QuotaNode, preemptor: Workload, holder: AdmittedWorkload) -> str:
    """Returns why a holder may not be evicted for a workload of the queue at `node`; empty where it may.

    These are the reasons for which `candidates_in` passes a holder over.
    """
    own = holder.queue is node
    policy = queue.preemption.within_queue if own else queue.preemption.reclaim
    if policy is CandidatePolicy.NEVER:
        return "preemption within the queue is off" if own else "reclaim from other teams is off"
    if not satisfies_policy(policy, preemptor, holder.workload):
        newer = ", or newer" if policy is CandidatePolicy.LOWER_OR_NEWER else ""
        return f"priority {holder.workload.priority} is not below {preemptor.priority}{newer}"
    return holder.protected


def fill_back(
    context: PreemptionContext,
    taken: list[Victim],
    *,
    borrowing: bool,
    still_right: Callable[[list[Victim]], bool] | None = None,
) -> list[Victim]:
    """Puts back the victims that are not needed after all; the last one taken made it fit and stays out.

    Goes from the last but one to the first. Each victim put back is replaced in the list by the last one, so the order
    of visits shifts as upstream's does. `still_right` may object to going on with just the remaining victims. All
    victims returned are still out of the ledger.
    """
    kept = list(taken)
    for index in range(len(kept) - 2, -1, -1):
        victim = kept[index]
        context.ledger.put_back(victim.holder)
        fits = context.fits(borrowing=borrowing)
        if fits and (still_right is None or still_right([*kept[:index], kept[-1], *kept[index + 1 : -1]])):
            kept[index] = kept.pop()
        else:
            context.ledger.lift(victim.holder)
    return kept


class _CandidateClass(IntEnum):
    """The relation of a candidate's queue to the preemptor's; lower values are searched first."""

    HIERARCHICAL = 0
    PRIORITY = 1
    SAME = 2


class _CandidateQueue(NamedTuple):
    """A queue, and which of its holders may be candidates."""

    queue: QuotaNode
    policy: CandidatePolicy
    same_team: bool = False


CandidateQueues = dict[_CandidateClass, list[_CandidateQueue]]
"""Queues that have candidates, by the class of these."""


MOST_SPARED: Final = 8
"""Holders of which each is spared once, where the place that a search needs is not what it frees first."""


def classical_preemptions(context: PreemptionContext, *, elsewhere: bool = False) -> list[Victim]:
    """Returns the holders to evict; empty when no permitted set makes the workload fit. The ledger is unchanged.

    Holders are taken in one order until quota and place suffice, and a team that is within its guarantee loses no more.
    So the first ones may be enough for the quota, on machines that are of no use. `elsewhere`: then each of the last
    that were taken is left out once, the last before others, as long as that takes nobody's guarantee.
    """
    sources = _collect(context)
    if not any(sources.values()):
        return []
    for borrowing in _attempts(context, sources):
        found = _attempt(context, sources, borrowing=borrowing)
        again = partial(_attempt, context, sources, borrowing=borrowing)
        if kept := found.without_one(again) if elsewhere else found.kept:
            return kept
    return []


class PreemptionAttempt(NamedTuple):
    """A `PreemptionAttempt` is what came of taking holders in order."""

    kept: list[Victim]
    """The victims; empty when all candidates together would not do."""
    taken: list[Victim]
    no_place: bool = False
    """Whether the quota would suffice without all that were taken."""

    def without_one(self, again: Callable[..., "PreemptionAttempt"]) -> list[Victim]:
        """Returns the victims, or those of the first attempt that finds any and has `spared` one of the last here."""
        if self.kept or not self.no_place:
            return self.kept
        attempts = (again(spared=victim.holder).kept for victim in reversed(self.taken[-MOST_SPARED:]))
        return next(filter(None, attempts), [])


def _attempts(context: PreemptionContext, sources: CandidateQueues) -> tuple[bool, ...]:
    """Returns for each attempt, in order, whether the preemptor may borrow."""
    never_borrowing = context.queue.preemption.while_borrowing is CandidatePolicy.NEVER
    if not sources[_CandidateClass.HIERARCHICAL] and not sources[_CandidateClass.PRIORITY]:
        return (True,)
    if never_borrowing:
        owner = context.node.owner
        if any(owner.unused(cell) <= 0 for cell in context.cells):
            return (True,)
        if not sources[_CandidateClass.HIERARCHICAL]:
            return (False, True)
    return (True, False)


def _attempt(
    context: PreemptionContext, sources: CandidateQueues, *, borrowing: bool, spared: AdmittedWorkload | None = None
) -> PreemptionAttempt:
    """Returns the victims of one attempt; with somebody `spared`, none that take a guarantee of others."""
    ledger = context.ledger
    taken: list[Victim] = []
    done = False
    paths: dict[str, list[QuotaNode]] = {}
    spent: set[str] = set()
    for kind, victim in _candidates(context, sources, spent, borrowing=borrowing):
        queue = victim.holder.queue
        if victim.holder is spared:
            continue
        if kind is not _CandidateClass.SAME and _spared(context, queue, paths):
            spent.add(queue.name)  # it stays so: each further victim lowers the usage
            continue
        ledger.lift(victim.holder)
        taken.append(victim)
        if done := context.fits(borrowing=borrowing):
            break
    kept = fill_back(context, taken, borrowing=borrowing) if done else []
    no_place = not done and bool(taken) and context.has_quota(borrowing=borrowing)
    right = spared is None or context.takes_no_guarantee(kept)
    for victim in reversed(kept if done else taken):
        ledger.put_back(victim.holder)
    return PreemptionAttempt(kept if right else [], taken, no_place)


def _spared(context: PreemptionContext, queue: QuotaNode, paths: dict[str, list[QuotaNode]]) -> bool:
    """Returns whether a queue loses nobody, because a subtree above it is within its quota on all contested cells."""
    path = paths.get(queue.name)
    if path is None:
        path = paths[queue.name] = list(_apart(context, queue))
    return any(node.within(context.cells) for node in path) or _uses_no_more(context, path[-1])


def _uses_no_more(context: PreemptionContext, theirs: QuotaNode) -> bool:
    """Returns whether a subtree has no more of its quota than the preemptor's own would, where one resource entitles.

    By single resources two subtrees may each be entitled to what the other has; the one that has more gives way, so
    that they do not evict each other in turns (Volcano issue 561).
    """
    if not context.queue.preemption.by_any_resource:
        return False
    mine = next(node for node in (context.node, *context.node.ancestors()) if node.parent is theirs.parent)
    within = all(amount <= mine.unused(cell) for cell, amount in context.usage.items())
    return not within and theirs.dominant_use({}) <= mine.dominant_use(context.usage)


def _apart(context: PreemptionContext, queue: QuotaNode) -> Iterator[QuotaNode]:
    """Yields the queue and its ancestors below the first one that is an ancestor of the preemptor's queue, too."""
    mine = {id(node) for node in context.node.ancestors()}
    node: QuotaNode | None = queue
    while node is not None and id(node) not in mine:
        yield node
        node = node.parent


def _collect(context: PreemptionContext) -> CandidateQueues:
    """Returns queues with at least one candidate, in the order in which they are searched."""
    found: CandidateQueues = {kind: [] for kind in _CandidateClass}
    policy = context.queue.preemption
    found[_CandidateClass.SAME].append(_CandidateQueue(context.node, policy.within_queue))
    for queue, kind in _elsewhere(context):
        same_team = context.node.through_team and queue.parent is context.node.parent
        found[kind].append(_CandidateQueue(queue, CandidatePolicy.LOWER if same_team else policy.reclaim, same_team))
    turns = leaving_turns(context.ledger)
    return {
        kind: [s for s in sources if any(_has_any(context, s, leaving=leaving) for leaving in turns)]
        for kind, sources in found.items()
    }


def _has_any(context: PreemptionContext, source: _CandidateQueue, *, leaving: bool) -> bool:
    return next(candidates_in(context, source.queue, source.policy, leaving=leaving), None) is not None


def _candidates(
    context: PreemptionContext, sources: CandidateQueues, spent: set[str], *, borrowing: bool
) -> Iterator[tuple[_CandidateClass, Victim]]:
    """Yields candidates with their class in the order of eviction; when `borrowing` only those a borrower may take.

    Queues that the caller adds to `spent` meanwhile are passed over.
    """
    never_borrowing = context.queue.preemption.while_borrowing is CandidatePolicy.NEVER
    for leaving in leaving_turns(context.ledger):
        for kind, queues in sources.items():
            if kind is _CandidateClass.PRIORITY and borrowing and never_borrowing:
                queues = [source for source in queues if source.same_team]  # noqa: PLW2901 -- spares a scan in vain
            of_team = {source.queue.name for source in queues if source.same_team}
            holders = _by_rank(context, queues, spent, leaving=leaving)
            if kind is _CandidateClass.SAME and context.local_usage:
                holders = context.ordered(holders)
            for holder in holders:
                reason = _reason(context, holder, kind, same_team=holder.queue.name in of_team)
                if not (borrowing and kind is _CandidateClass.PRIORITY and reason is Reason.RECLAIMED):
                    yield kind, Victim(holder, reason)


def _by_rank(
    context: PreemptionContext, queues: list[_CandidateQueue], spent: set[str], *, leaving: bool
) -> Iterable[AdmittedWorkload]:
    """Returns the candidates of several queues: those of a lower rank first (Volcano's `priority` of queues)."""
    ranks = {source.queue.rank for source in queues}
    if len(ranks) < 2:
        return _merged(context, queues, spent, leaving=leaving)
    return chain.from_iterable(
        _merged(context, [source for source in queues if source.queue.rank == rank], spent, leaving=leaving)
        for rank in sorted(ranks)
    )


def _merged(
    context: PreemptionContext, queues: list[_CandidateQueue], spent: set[str], *, leaving: bool
) -> Iterator[AdmittedWorkload]:
    """Yields the candidates of several queues in the order of eviction, as far as they are asked for."""

    def from_one(source: _CandidateQueue) -> Iterator[AdmittedWorkload]:
        name = source.queue.name
        found = candidates_in(context, source.queue, source.policy, leaving=leaving)
        return takewhile(lambda _holder: name not in spent, found)

    streams = [from_one(source) for source in queues]
    return merge(*streams, key=eviction_order) if len(streams) > 1 else chain(*streams)


def _reason(context: PreemptionContext, holder: AdmittedWorkload, kind: _CandidateClass, *, same_team: bool) -> Reason:
    """Returns the reason for which a candidate would be evicted, by its class."""
    if same_team or kind is _CandidateClass.SAME:
        return Reason.PREEMPTED
    if kind is _CandidateClass.HIERARCHICAL:
        return Reason.RECLAIMED
    policy = context.queue.preemption
    most = policy.while_borrowing_below
    may = (
        policy.while_borrowing is not CandidatePolicy.NEVER
        and satisfies_policy(CandidatePolicy.LOWER, context.workload, holder.workload)
        and (most is None or holder.workload.priority <= most)
    )
    return Reason.RECLAIMED_WHILE_BORROWING if may else Reason.RECLAIMED


def _elsewhere(context: PreemptionContext) -> Iterator[tuple[QuotaNode, _CandidateClass]]:
    """Yields other queues of the tree that borrow a contested cell, with their class, nearest ancestor first."""
    if context.queue.preemption.reclaim is CandidatePolicy.NEVER and not context.node.through_team:
        return
    node = context.node
    remaining = dict(context.usage)
    entitled, by_any = False, context.queue.preemption.by_any_resource
    while node.parent is not None:
        entitled = entitled or _within_quota(node, remaining, by_any=by_any)
        kind = _CandidateClass.HIERARCHICAL if entitled else _CandidateClass.PRIORITY
        remaining = {cell: amount - node.private_left(cell) for cell, amount in remaining.items()}
        for sibling in node.parent.children:
            if sibling is not node and not sibling.within(context.cells):
                for queue in _borrowing_queues(context, sibling):
                    yield queue, kind
        node = node.parent


def _within_quota(node: QuotaNode, remaining: dict[int, int], *, by_any: bool) -> bool:
    """Returns whether the node's own quota covers the rest of the request; never for a queue without quota.

    By any resource, one of those suffices of which its quota is bounded.
    """
    if node.through_team:
        return False
    bounded = {cell: amount for cell, amount in remaining.items() if not by_any or node.subtree[cell] < UNLIMITED}
    covered = [amount <= node.unused(cell) for cell, amount in bounded.items()]
    return all(covered) or (by_any and any(covered))


def _borrowing_queues(context: PreemptionContext, node: QuotaNode) -> Iterator[QuotaNode]:
    """Yields queues at or below a node that borrow a contested cell, if all nodes between them do."""
    if node.within(context.cells):
        return
    if node.is_queue:
        yield node
    for child in node.children:
        yield from _borrowing_queues(context, child)
