"""Who may be preempted at all, and in which order (Kueue `pkg/scheduler/preemption/common`; reference 3.1)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.quota.declared import CandidatePolicy, QuotaQueueSpec
from fleet.quota.tree import Cell, QuotaNode, Usage, available
from fleet.quota.workload import AdmittedWorkload, QuotaLedger, Workload, eviction_order
from fleet.reasons import Reason


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A holder that would leave, and the word for why."""

    holder: AdmittedWorkload
    reason: Reason


@dataclass(slots=True)
class PreemptionContext:
    """A workload that wants cells which others hold."""

    books: QuotaLedger
    workload: Workload
    queue: QuotaQueueSpec
    node: QuotaNode
    usage: Usage
    """All it asks for."""
    cells: Collection[Cell]
    """What it asks for and cannot have without preemption."""
    finds_place: Callable[[], bool] = field(default=lambda: True)
    """Whether its pods would have a place on the ground as it stands."""
    local_usage: Mapping[str, float] = field(default_factory=dict)
    """Local queue -> decayed usage, where that orders victims of the own queue."""

    def fits(self, *, borrowing: bool = True) -> bool:
        """Whether quota and a place are there, as the books stand."""
        node = self.node
        owner = node.owner
        for cell, amount in self.usage.items():
            if not borrowing and owner.borrows_with(cell, amount):
                return False
            if amount > available(node, cell):
                return False
        return self.finds_place()

    def ordered(self, holders: Iterable[AdmittedWorkload]) -> list[AdmittedWorkload]:
        """Candidates, the one to go first at the head."""
        return sorted(holders, key=self._key)

    def _key(self, holder: AdmittedWorkload) -> tuple[object, ...]:
        own = holder.queue is self.node
        usage = -self.local_usage.get(holder.workload.local_queue, 0.0) if own and self.local_usage else 0.0
        return (
            not holder.leaving,
            own,
            usage,
            *eviction_order(holder),
        )


def satisfies_policy(policy: CandidatePolicy, preemptor: Workload, candidate: Workload) -> bool:
    """Whether the policy lets the preemptor take the candidate."""
    if policy is CandidatePolicy.ANY:
        return True
    if policy is CandidatePolicy.NEVER:
        return False
    if candidate.priority < preemptor.priority:
        return True
    equal = candidate.priority == preemptor.priority
    return policy is CandidatePolicy.LOWER_OR_NEWER and equal and preemptor.at_s < candidate.at_s


def candidates_in(
    contest: PreemptionContext, queue: QuotaNode, policy: CandidatePolicy, *, leaving: bool
) -> Iterator[AdmittedWorkload]:
    """Holders of one queue that the policy lets go and that would free a contested cell: leaving or not, by rank.

    Found one by one as they are asked for: a search that needs one does not look at thousands.
    """
    if policy is CandidatePolicy.NEVER or (queue is not contest.node and not queue.reclaimable):
        return
    books, preemptor = contest.books, contest.workload
    for holder in books.leaving_of(queue.name) if leaving else books.staying(queue.name):
        if holder.workload.priority > preemptor.priority and policy is not CandidatePolicy.ANY:
            return  # nor may any that follow
        if holder.out or holder.protected or not holder.uses_any(contest.cells):
            continue
        if satisfies_policy(policy, preemptor, holder.workload):
            yield holder


def fill_back(
    contest: PreemptionContext,
    taken: list[Victim],
    *,
    borrowing: bool,
    still_right: Callable[[list[Victim]], bool] | None = None,
) -> list[Victim]:
    """Put back whoever is not needed after all; the last one taken made it fit and stays out.

    From the last but one to the first; who is put back leaves a hole that the last of the list moves into, so the order
    of visits shifts as upstream's does. `still_right` may object to going on with just the victims left. All that are
    returned are still out of the books afterwards.
    """
    kept = list(taken)
    for index in range(len(kept) - 2, -1, -1):
        victim = kept[index]
        contest.books.put_back(victim.holder)
        left = [*kept[:index], kept[-1], *kept[index + 1 : -1]]
        if contest.fits(borrowing=borrowing) and (still_right is None or still_right(left)):
            kept = left
        else:
            contest.books.lift(victim.holder)
    return kept
