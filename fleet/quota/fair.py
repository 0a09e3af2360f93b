"""Fair-sharing preemption: the workload of the queue with the larger dominant share goes (reference 3.3).

Kueue `pkg/scheduler/preemption/fairsharing`, with decisions of our own:
- Children of equal share are taken in name order, not in the order of a hash table.
- Every victim of another queue is judged again after fill back, because the victims that justified it may have been put
  back (upstream issue 14543).
- A victim whose leaving does not lower the share it would be taken for is judged by the shares of what is contested: a
  team that has much of one resource does not lose what others of it have of another (Bhattacharya et al., "Hierarchical
  Scheduling for Diverse Datacenter Workloads", section 3: a node must not be held back by what it cannot use).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleet.quota.candidates import PreemptionContext, Victim, candidates_in, fill_back
from fleet.quota.declared import PreemptionStrategy
from fleet.quota.share import DominantResourceShare, dominant_resource_share
from fleet.quota.tree import QuotaNode, charge, release
from fleet.quota.workload import AdmittedWorkload
from fleet.reasons import Reason


@dataclass(slots=True)
class TargetQueueOrdering:
    """The queues of a tree that have candidates, handed out by share, highest first."""

    contest: PreemptionContext
    left: dict[str, list[AdmittedWorkload]]
    """Queue -> its candidates not handed out yet, next one first."""
    _pruned: set[int] = field(default_factory=set)
    _own_path: set[int] = field(default_factory=set)
    _rank: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, contest: PreemptionContext, candidates: list[AdmittedWorkload]) -> "TargetQueueOrdering":
        """`candidates` in their order."""
        left: dict[str, list[AdmittedWorkload]] = {}
        for holder in candidates:
            left.setdefault(holder.queue.name, []).append(holder)
        rank = {holder.workload.uid: index for index, holder in enumerate(candidates)}
        path = {id(contest.node), *(id(node) for node in contest.node.ancestors())}
        return cls(contest, left, set(), path, rank)

    def __iter__(self) -> Iterator[QuotaNode]:
        """Queues, one at a time, by the shares as they stand when the next one is asked for."""
        root = self.contest.node.root
        if root is self.contest.node:
            while self.left.get(root.name):
                yield root
            return
        while id(root) not in self._pruned:
            target = self._next(root)
            if target is not None:
                yield target

    def drop(self, queue: QuotaNode) -> None:
        """Nothing more is wanted of this queue."""
        self._pruned.add(id(queue))

    def _next(self, cohort: QuotaNode) -> QuotaNode | None:
        """The target below a cohort; None when a child or the cohort itself was just ruled out."""
        queue = self._highest_queue(cohort)
        child = self._highest_cohort(cohort)
        if queue is None and child is None:
            self._pruned.add(id(cohort))
            return None
        if queue is None or (child is not None and child[0].key >= queue[0].key):
            assert child is not None  # noqa: S101 -- one of the two is there
            return self._next(child[1])
        return queue[1]

    def _highest_queue(self, cohort: QuotaNode) -> tuple[DominantResourceShare, QuotaNode] | None:
        best: tuple[DominantResourceShare, QuotaNode] | None = None
        for child in cohort.children:
            if not child.is_queue or id(child) in self._pruned:
                continue
            share = dominant_resource_share(self.contest.books.tree, child)
            if not self.left.get(child.name) or (not share.borrowing and child is not self.contest.node):
                self._pruned.add(id(child))
                continue
            if best is None or share.key > best[0].key or (share.key == best[0].key and self._before(child, best[1])):
                best = (share, child)
        return best

    def _before(self, a: QuotaNode, b: QuotaNode) -> bool:
        first_a, first_b = self.left[a.name][0], self.left[b.name][0]
        return self._rank[first_a.workload.uid] < self._rank[first_b.workload.uid]

    def _highest_cohort(self, cohort: QuotaNode) -> tuple[DominantResourceShare, QuotaNode] | None:
        best: tuple[DominantResourceShare, QuotaNode] | None = None
        for child in cohort.children:
            if child.is_queue or id(child) in self._pruned:
                continue
            share = dominant_resource_share(self.contest.books.tree, child)
            if not share.borrowing and id(child) not in self._own_path:
                self._pruned.add(id(child))
                continue
            if best is None or share.key > best[0].key:
                best = (share, child)
        return best


def fair_preemptions(
    contest: PreemptionContext, strategies: tuple[PreemptionStrategy, ...], *, upstream: bool = False
) -> list[Victim]:
    """The holders to evict; empty when no set of permitted ones makes the workload fit. The books end as they began.

    `upstream`: by the rules of Kueue alone.
    """
    candidates = _collect(contest)
    if not candidates:
        return []
    charge(contest.node, contest.usage)
    scales = _ShareComparison(contest, dominant_only=upstream)
    taken, retry, done = _first(contest, candidates, scales, _RULES[strategies[0]])
    if not done and len(strategies) > 1:
        done = _second(contest, retry, taken, scales, _RULES[strategies[1]])
    release(contest.node, contest.usage)
    legality = _StrategyCheck(contest, scales, tuple(_RULES[strategy] for strategy in strategies))
    unharmed = legality.unharmed(taken) if done and not upstream else None
    kept = fill_back(contest, taken, borrowing=True, still_right=unharmed) if done else []
    for victim in reversed(kept if done else taken):
        contest.books.put_back(victim.holder)
    return kept


def _collect(contest: PreemptionContext) -> list[AdmittedWorkload]:
    policy = contest.queue.preemption
    others = (queue for queue in contest.node.root.queues() if queue is not contest.node)
    sources = [
        (contest.node, policy.within_queue),
        *((queue, policy.reclaim) for queue in others if not queue.within(contest.cells)),
    ]
    moods = (True, False) if contest.books.leave_later else (False,)
    found = [h for leaving in moods for q, rule in sources for h in candidates_in(contest, q, rule, leaving=leaving)]
    return contest.ordered(found)


Rule = Callable[[DominantResourceShare, DominantResourceShare, DominantResourceShare], bool]
"""(preemptor's share with its request, target's share before, target's share after) -> whether it may be taken."""

_RULES: dict[PreemptionStrategy, Rule] = {
    PreemptionStrategy.FINAL: lambda mine, _before, after: mine.key <= after.key,
    PreemptionStrategy.INITIAL: lambda mine, before, _after: mine.key < before.key,
}


def _fits(contest: PreemptionContext) -> bool:
    """`PreemptionContext.fits`, while the request itself is charged."""
    release(contest.node, contest.usage)
    fit = contest.fits()
    charge(contest.node, contest.usage)
    return fit


@dataclass(slots=True)
class _ShareComparison:
    """Weighs a victim that is out of the books against the preemptor, whose request is charged."""

    contest: PreemptionContext
    dominant_only: bool
    """Nothing but dominant shares counts."""

    def weigh(
        self, holder: AdmittedWorkload
    ) -> tuple[DominantResourceShare, DominantResourceShare, DominantResourceShare]:
        """What a rule is asked about."""
        mine, theirs = _almost_shared(self.contest.node, holder.queue)
        weighed = self._shares(mine, theirs, holder, None)
        if self.dominant_only or weighed[1].key != weighed[2].key:
            return weighed
        return self._shares(mine, theirs, holder, frozenset(self._contested()))

    def _shares(
        self, mine: QuotaNode, theirs: QuotaNode, holder: AdmittedWorkload, only: frozenset[str] | None
    ) -> tuple[DominantResourceShare, DominantResourceShare, DominantResourceShare]:
        tree = self.contest.books.tree
        asked, after = dominant_resource_share(tree, mine, only), dominant_resource_share(tree, theirs, only)
        charge(holder.queue, holder.usage)
        before = dominant_resource_share(tree, theirs, only)
        release(holder.queue, holder.usage)
        return asked, before, after

    def _contested(self) -> Iterator[str]:
        cells = self.contest.books.tree.cells
        return (cells[cell].resource for cell in self.contest.cells)


def _first(
    contest: PreemptionContext, candidates: list[AdmittedWorkload], scales: _ShareComparison, rule: Rule
) -> tuple[list[Victim], list[AdmittedWorkload], bool]:
    """Victims by the first strategy, who was passed over, and whether the workload fits now."""
    targets = TargetQueueOrdering.of(contest, candidates)
    taken: list[Victim] = []
    retry: list[AdmittedWorkload] = []
    entitled = Reason.RECLAIMED if contest.node.owner.within(contest.cells) else None
    for queue in targets:
        waiting = targets.left[queue.name]
        reason = Reason.PREEMPTED if queue is contest.node else entitled
        if reason is not None:
            holder = waiting.pop(0)
            contest.books.lift(holder)
            taken.append(Victim(holder, reason))
            if _fits(contest):
                return taken, retry, True
            continue
        while waiting:
            holder = waiting.pop(0)
            contest.books.lift(holder)
            if rule(*scales.weigh(holder)):
                taken.append(Victim(holder, Reason.FAIR_SHARING))
                if _fits(contest):
                    return taken, retry, True
                break
            contest.books.put_back(holder)
            retry.append(holder)
    return taken, retry, False


def _second(
    contest: PreemptionContext, retry: list[AdmittedWorkload], taken: list[Victim], scales: _ShareComparison, rule: Rule
) -> bool:
    """One more candidate a queue by the second strategy; extends `taken`, says whether the workload fits now."""
    targets = TargetQueueOrdering.of(contest, retry)
    for queue in targets:
        holder = targets.left[queue.name].pop(0)
        contest.books.lift(holder)
        if rule(*scales.weigh(holder)):
            taken.append(Victim(holder, Reason.FAIR_SHARING))
            if _fits(contest):
                return True
        else:
            contest.books.put_back(holder)
        targets.drop(queue)
    return False


def _almost_shared(mine: QuotaNode, theirs: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The ancestors of both, just below the lowest one they share."""
    above = {id(node): below for node, below in zip(mine.ancestors(), (mine, *mine.ancestors()), strict=False)}
    node = theirs
    while node.parent is not None and id(node.parent) not in above:
        node = node.parent
    assert node.parent is not None  # noqa: S101 -- both are in one tree
    return above[id(node.parent)], node


@dataclass(slots=True)
class _StrategyCheck:
    """Whether victims of other queues may be taken, judged with all the others out."""

    contest: PreemptionContext
    scales: _ShareComparison
    rules: tuple[Rule, ...]

    def unharmed(self, taken: list[Victim]) -> Callable[[list[Victim]], bool]:
        """A test of what is left of `taken`: everyone who could be taken before still can."""
        legal = self._legal(taken)
        return lambda left: not legal or all(id(v) not in legal or self._may_go(v) for v in left)

    def _legal(self, taken: list[Victim]) -> set[int]:
        return {id(victim) for victim in taken if victim.reason is Reason.FAIR_SHARING and self._may_go(victim)}

    def _may_go(self, victim: Victim) -> bool:
        contest = self.contest
        charge(contest.node, contest.usage)
        weighed = self.scales.weigh(victim.holder)
        release(contest.node, contest.usage)
        return any(rule(*weighed) for rule in self.rules)
