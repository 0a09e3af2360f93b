"""Fair-sharing preemption evicts workloads of the queue with the larger dominant resource share (reference 3.3).

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
from functools import partial

from fleet.quota.ledger import AdmittedWorkload
from fleet.quota.preemption import (
    PreemptionAttempt,
    PreemptionContext,
    Victim,
    candidates_in,
    fill_back,
    leaving_turns,
)
from fleet.quota.specs import PreemptionStrategy
from fleet.quota.tree import DominantResourceShare, QuotaNode, UnrelatedNodes, charge, dominant_resource_share, release
from fleet.reasons import Reason


def fair_preemptions(
    context: PreemptionContext,
    strategies: tuple[PreemptionStrategy, ...],
    *,
    upstream: bool = False,
    elsewhere: bool = False,
) -> list[Victim]:
    """Returns the holders to evict; empty when no permitted set makes the workload fit. The ledger is unchanged.

    `upstream`: by Kueue's rules, without our additional ones. `elsewhere`: as in `classical_preemptions`.
    """
    candidates = _collect(context)
    if not candidates:
        return []
    attempt = partial(_attempt, context, candidates, strategies, upstream=upstream)
    return attempt().without_one(attempt) if elsewhere else attempt().kept


def _attempt(
    context: PreemptionContext,
    candidates: list[AdmittedWorkload],
    strategies: tuple[PreemptionStrategy, ...],
    *,
    upstream: bool,
    spared: AdmittedWorkload | None = None,
) -> PreemptionAttempt:
    """Returns the victims of one attempt; with somebody `spared`, none that take a guarantee of others."""
    candidates = [holder for holder in candidates if holder is not spared]
    charge(context.node, context.usage)
    comparison = _ShareComparison(context, dominant_only=upstream)
    taken, retry, done = _first(context, candidates, comparison, _RULES[strategies[0]])
    if not done and len(strategies) > 1:
        done = _second(context, retry, taken, comparison, _RULES[strategies[1]])
    release(context.node, context.usage)
    check = _StrategyCheck(context, comparison, tuple(_RULES[strategy] for strategy in strategies))
    unharmed = check.unharmed(taken) if done and not upstream else None
    kept = fill_back(context, taken, borrowing=True, still_right=unharmed) if done else []
    no_place = not done and bool(taken) and context.has_quota()
    right = spared is None or context.takes_no_guarantee(kept)
    for victim in reversed(kept if done else taken):
        context.ledger.put_back(victim.holder)
    return PreemptionAttempt(kept if right else [], taken, no_place)


def _collect(context: PreemptionContext) -> list[AdmittedWorkload]:
    """Returns all candidates of the tree in the order of eviction."""
    policy = context.queue.preemption
    others = (queue for queue in context.node.root.queues() if queue is not context.node)
    sources = [
        (context.node, policy.within_queue),
        *((queue, policy.reclaim) for queue in others if not queue.within(context.cells)),
    ]
    turns = leaving_turns(context.ledger)
    found = [h for leaving in turns for q, rule in sources for h in candidates_in(context, q, rule, leaving=leaving)]
    return context.ordered(found)


Rule = Callable[[DominantResourceShare, DominantResourceShare, DominantResourceShare], bool]
"""(preemptor's share with its request, target's share before, target's share after) -> whether it may be evicted."""

_RULES: dict[PreemptionStrategy, Rule] = {
    PreemptionStrategy.FINAL: lambda mine, _before, after: mine.key <= after.key,
    PreemptionStrategy.INITIAL: lambda mine, before, _after: mine.key < before.key,
}


def _first(
    context: PreemptionContext, candidates: list[AdmittedWorkload], comparison: "_ShareComparison", rule: Rule
) -> tuple[list[Victim], list[AdmittedWorkload], bool]:
    """Returns (victims by the first strategy, candidates it passed over, whether the workload fits now)."""
    targets = TargetQueueOrdering.of(context, candidates)
    taken: list[Victim] = []
    retry: list[AdmittedWorkload] = []
    entitled = context.node.owner.within(context.cells)
    for queue in targets:
        waiting = targets.left[queue.name]
        reason = _without_comparison(context.node, queue, entitled=entitled)
        if reason is not None:
            holder = waiting.pop(0)
            context.ledger.lift(holder)
            taken.append(Victim(holder, reason))
            if _fits(context):
                return taken, retry, True
            continue
        while waiting:
            holder = waiting.pop(0)
            context.ledger.lift(holder)
            if rule(*comparison.shares(holder)):
                taken.append(Victim(holder, Reason.FAIR_SHARING))
                if _fits(context):
                    return taken, retry, True
                break
            context.ledger.put_back(holder)
            retry.append(holder)
    return taken, retry, False


def _without_comparison(mine: QuotaNode, target: QuotaNode, *, entitled: bool) -> Reason | None:
    """Returns why a queue loses workloads whatever the shares are; None where shares decide.

    A queue that is `entitled` to what it asks for takes it back from whom borrowed it. What two queues have through one
    team is as much the one's as the other's: each would be entitled to what the other holds, in turns.
    """
    if target is mine:
        return Reason.PREEMPTED
    return Reason.RECLAIMED if entitled and target.owner is not mine.owner else None


def _second(
    context: PreemptionContext,
    retry: list[AdmittedWorkload],
    taken: list[Victim],
    comparison: "_ShareComparison",
    rule: Rule,
) -> bool:
    """Tries one more candidate a queue by the second strategy; extends `taken`, returns whether the workload fits."""
    targets = TargetQueueOrdering.of(context, retry)
    for queue in targets:
        holder = targets.left[queue.name].pop(0)
        context.ledger.lift(holder)
        if rule(*comparison.shares(holder)):
            taken.append(Victim(holder, Reason.FAIR_SHARING))
            if _fits(context):
                return True
        else:
            context.ledger.put_back(holder)
        targets.drop(queue)
    return False


def _fits(context: PreemptionContext) -> bool:
    """Returns `PreemptionContext.fits` for a request that is charged already."""
    release(context.node, context.usage)
    fit = context.fits()
    charge(context.node, context.usage)
    return fit


@dataclass(slots=True)
class TargetQueueOrdering:
    """Hands out the queues of a tree that have candidates by their share, highest first (Kueue's name for it)."""

    context: PreemptionContext
    left: dict[str, list[AdmittedWorkload]]
    """Queue -> its candidates not handed out yet, next one first."""
    _pruned: set[int] = field(default_factory=set)
    _own_path: set[int] = field(default_factory=set)
    _rank: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, context: PreemptionContext, candidates: list[AdmittedWorkload]) -> "TargetQueueOrdering":
        """Returns the ordering over the queues of `candidates`, whose order each queue keeps."""
        left: dict[str, list[AdmittedWorkload]] = {}
        for holder in candidates:
            left.setdefault(holder.queue.name, []).append(holder)
        rank = {holder.workload.uid: index for index, holder in enumerate(candidates)}
        path = {id(context.node), *(id(node) for node in context.node.ancestors())}
        return cls(context, left, set(), path, rank)

    def __iter__(self) -> Iterator[QuotaNode]:
        """Yields queues one at a time, by their shares as they stand when the next one is asked for."""
        root = self.context.node.root
        if root is self.context.node:
            while self.left.get(root.name):
                yield root
            return
        while id(root) not in self._pruned:
            target = self._next(root)
            if target is not None:
                yield target

    def drop(self, queue: QuotaNode) -> None:
        """Removes a queue from the ordering."""
        self._pruned.add(id(queue))

    def _next(self, cohort: QuotaNode) -> QuotaNode | None:
        """Returns the next queue below a cohort; None when a child or the cohort itself was just ruled out."""
        queue = self._highest_queue(cohort)
        child = self._highest_cohort(cohort)
        if child is not None and (queue is None or child[0].key >= queue[0].key):
            return self._next(child[1])
        if queue is not None:
            return queue[1]
        self._pruned.add(id(cohort))
        return None

    def _highest_queue(self, cohort: QuotaNode) -> tuple[DominantResourceShare, QuotaNode] | None:
        best: tuple[DominantResourceShare, QuotaNode] | None = None
        for child in cohort.children:
            if not child.is_queue or id(child) in self._pruned:
                continue
            share = dominant_resource_share(self.context.ledger.tree, child)
            if not self.left.get(child.name) or (not share.borrowing and child is not self.context.node):
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
            share = dominant_resource_share(self.context.ledger.tree, child)
            if not share.borrowing and id(child) not in self._own_path:
                self._pruned.add(id(child))
                continue
            if best is None or share.key > best[0].key:
                best = (share, child)
        return best


@dataclass(slots=True)
class _ShareComparison:
    """Compares the shares of a victim that is out of the ledger and of the preemptor, whose request is charged."""

    context: PreemptionContext
    dominant_only: bool
    """Whether shares of contested resources are not compared where dominant shares are equal."""

    def shares(
        self, holder: AdmittedWorkload
    ) -> tuple[DominantResourceShare, DominantResourceShare, DominantResourceShare]:
        """Returns the three shares that a `Rule` compares."""
        mine, theirs = _almost_shared(self.context.node, holder.queue)
        found = self._shares(mine, theirs, holder, None)
        if self.dominant_only or found[1].key != found[2].key:
            return found
        return self._shares(mine, theirs, holder, frozenset(self._contested()))

    def _shares(
        self, mine: QuotaNode, theirs: QuotaNode, holder: AdmittedWorkload, only: frozenset[str] | None
    ) -> tuple[DominantResourceShare, DominantResourceShare, DominantResourceShare]:
        tree = self.context.ledger.tree
        asked, after = dominant_resource_share(tree, mine, only), dominant_resource_share(tree, theirs, only)
        charge(holder.queue, holder.usage)
        before = dominant_resource_share(tree, theirs, only)
        release(holder.queue, holder.usage)
        return asked, before, after

    def _contested(self) -> Iterator[str]:
        cells = self.context.ledger.tree.cells
        return (cells[cell].resource for cell in self.context.cells)


def _almost_shared(mine: QuotaNode, theirs: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """Returns the highest ancestors that two queues do not share, one of each; raises `UnrelatedNodes`."""
    above = {id(node): below for node, below in zip(mine.ancestors(), (mine, *mine.ancestors()), strict=False)}
    node = theirs
    while node.parent is not None:
        if id(node.parent) in above:
            return above[id(node.parent)], node
        node = node.parent
    raise UnrelatedNodes(f"{mine.path} and {theirs.path} are not in one tree")


@dataclass(slots=True)
class _StrategyCheck:
    """Checks that victims of other queues may be evicted by the strategies when all victims are out."""

    context: PreemptionContext
    comparison: _ShareComparison
    rules: tuple[Rule, ...]

    def unharmed(self, taken: list[Victim]) -> Callable[[list[Victim]], bool]:
        """Returns a test of remaining victims: whether each whose eviction a strategy permitted is still permitted."""
        legal = self._legal(taken)
        return lambda left: not legal or all(id(v) not in legal or self._may_go(v) for v in left)

    def _legal(self, taken: list[Victim]) -> set[int]:
        return {id(victim) for victim in taken if victim.reason is Reason.FAIR_SHARING and self._may_go(victim)}

    def _may_go(self, victim: Victim) -> bool:
        context = self.context
        charge(context.node, context.usage)
        shares = self.comparison.shares(victim.holder)
        release(context.node, context.usage)
        return any(rule(*shares) for rule in self.rules)
