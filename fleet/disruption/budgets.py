"""What budgets let go: those of a node pool count machines, PodDisruptionBudgets count the pods of gangs.

Of a pool's budgets (Karpenter `GetAllowedDisruptionsByReason`, reference 1.1, 4.7) a percentage rounds up, schedules
are UTC, the least of those that apply counts; what is malformed allows nothing.

PodDisruptionBudgets (Karpenter `pkg/utils/pdb`, reference 4.2) are foreseen: a gang leaves as a whole and by its job,
which no eviction API sees, so that what a budget says of its pods is heeded before, or never. As the gang moves whole,
a budget has to allow as many disruptions as the gang has pods under it: a smaller number would let them go one by one,
each stopping all. Gangs that are on their way count against it until its controller has seen them go. More than one
budget over a pod bars it, as the eviction API knows no answer to that. Pods of no gang are not asked for: they keep
their machine whatever a budget says (`eligibility.immovable`). Those of DaemonSets are never evicted, so that a budget
over them holds nothing.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final, NamedTuple

from fleet.disruption.outcomes import Blocked, Obstacle, some_of
from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.reasons import Reason
from fleet.snapshot import Claim, Gang, Pod, PodBudget, Snapshot
from fleet.snapshot.constraints import PodLabels
from model.cron import Cron, InvalidCron, window_active
from model.index import Index, derived, derived_each
from model.kinds import Budget, NodePool
from model.upstream.selectors import LabelSelector

UNBOUNDED = 1 << 31
BUDGET_REASONS = {
    Reason.EMPTY: "Empty",
    Reason.UNDERUTILIZED: "Underutilized",
    Reason.DRIFTED: "Drifted",
    Reason.EXPIRED: "Expired",
    Reason.REBALANCED: "Rebalanced",
    Reason.PREFERRED: "Underutilized",
}
_PERCENT: Final = re.compile(r"(100|[0-9]{1,2})%")
_FORCEFUL: Final = frozenset({Reason.EXPIRED, Reason.BLOCK_ENDS})
"""What nobody can put off: as in Karpenter expiry waits for no budget, and a capacity block ends whatever runs."""
_EVENTUAL: Final = frozenset({Reason.DRIFTED})
"""What waits for budgets only where a drain may take for ever."""


class InvalidBudget(ValueError):
    """A budget does not say how many machines or when; loaders refuse such a budget."""


def allowed(pool: NodePool, reason: Reason, nodes: int, disrupted: int, now_s: float) -> int:
    """Returns what the tightest open budget for a reason allows, less what is being disrupted already."""
    name = BUDGET_REASONS.get(reason)
    open_now = (
        _closed_if_invalid(budget, nodes, now_s)
        for budget in pool.spec.disruption.budgets
        if not budget.reasons or name in budget.reasons
    )
    return max(0, min(open_now, default=UNBOUNDED) - disrupted)


def _closed_if_invalid(budget: Budget, nodes: int, now_s: float) -> int:
    try:
        return allowed_by(budget, nodes, now_s)
    except InvalidBudget:
        return 0


def allowed_by(budget: Budget, nodes: int, now_s: float) -> int:
    """Returns what one budget allows of `nodes` machines: `UNBOUNDED` outside its window. Raises `InvalidBudget`."""
    if not open_now(budget, now_s):
        return UNBOUNDED
    if isinstance(budget.nodes, int):
        return budget.nodes
    if not _PERCENT.fullmatch(budget.nodes):
        raise InvalidBudget(f"{budget.nodes!r} is neither a count nor a percentage")
    return ceil(nodes * int(budget.nodes.removesuffix("%")) / 100)


def open_now(budget: Budget, now_s: float) -> bool:
    """Returns whether the budget holds now: it has no window, or is within one. Raises `InvalidBudget`."""
    if not budget.schedule:
        return True
    try:
        return window_active(Cron.parse(budget.schedule), budget.duration or 0.0, now_s)
    except InvalidCron as error:
        raise InvalidBudget(str(error)) from None


def headcount(claims: Iterable[Claim], snapshot: Snapshot) -> tuple[int, int]:
    """Counts the machines of a pool that a percentage is of, and those of them that are disrupted already.

    One that is terminated is neither, whatever its node still says; one that is being terminated is disrupted.
    """
    known = [claim for claim in claims if claim.ready_at_s and not _terminated(claim, snapshot)]
    return len(known), disrupted(known, snapshot)


def _terminated(claim: Claim, snapshot: Snapshot) -> bool:
    instance = snapshot.instances.get(claim.instance_id)
    return claim.deleting and instance is not None and instance.gone and not instance.ending


def disrupted(claims: Iterable[Claim], snapshot: Snapshot) -> int:
    """Counts the machines that every budget counts as disrupted: they leave, are being replaced, or are not well."""
    replaced = {
        name for claim in snapshot.claims.values() if _replaces(claim, snapshot.now_s) for name in claim.replaces
    }
    return sum(_leaving(claim) or claim.name in replaced or _unwell(claim, snapshot) for claim in claims)


def _replaces(claim: Claim, now_s: float) -> bool:
    """Returns whether a machine is still waited for, or for a move to it: not one into which others have moved."""
    return not _leaving(claim) and not (claim.ready_at_s and claim.ready_at_s + MOVES_WITHIN_S < now_s)


def _leaving(claim: Claim) -> bool:
    return claim.deleting or claim.disruption is not None


def _unwell(claim: Claim, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(claim.node)
    return node is None or not node.ready


# -- PodDisruptionBudgets ---------------------------------------------------------------------------------------------


class _PodBudgetRule(NamedTuple):
    """What a PodDisruptionBudget covers, which stays the same when its count changes."""

    key: str
    selector: LabelSelector
    unready_may_go: bool


class _BudgetedPods(NamedTuple):
    """How many pods of a gang each PodDisruptionBudget covers: so many disruptions it takes when the gang goes."""

    pods: Mapping[str, int]
    """Budget -> pods that it counts."""
    contested: str = ""
    """A pod under more than one, with their names; empty = there is none."""


def heeds(reason: Reason, grace_s: float) -> bool:
    """Returns whether a machine that goes for this reason waits for PodDisruptionBudgets, by its grace period (s)."""
    return reason not in _FORCEFUL and not (reason in _EVENTUAL and grace_s < inf)


def blocked_by_pod_budget(
    snapshot: Snapshot, gangs: Mapping[str, Gang], others: Callable[[], Mapping[str, Gang]]
) -> Blocked | None:
    """Returns the budget that does not let all of these gangs (by uid) go now, beside `others` on their way."""
    budgeted = {uid: _budgeted(snapshot, gang) for uid, gang in gangs.items()}
    contested = next(filter(None, (each.contested for _, each in sorted(budgeted.items()))), "")
    if contested:
        return Blocked(Obstacle.SEVERAL_POD_BUDGETS, f"{contested}: leave it one")
    need, taken = _total(budgeted.values()), Counter[str]()
    if not need:
        return None
    allows = Counter({key: snapshot.pod_budgets[key].allows for key in need})
    if need <= allows:
        taken = _total(_budgeted(snapshot, gang) for uid, gang in others().items() if uid not in gangs)
    short = next((key for key in sorted(need) if need[key] + taken[key] > allows[key]), None)
    if short is None:
        return None
    whose = sorted(gangs[uid].name for uid, each in budgeted.items() if short in each.pods)
    return _short(snapshot.pod_budgets[short], need[short], taken[short], whose)


def _total(budgeted: Iterable[_BudgetedPods]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in budgeted:
        total.update(each.pods)
    return total


def _short(budget: PodBudget, need: int, taken: int, gangs: Sequence[str]) -> Blocked:
    whose = some_of(gangs)
    pods = f"1 pod of {whose}" if need == 1 else f"{need} pods of {whose}, which go together"
    allowed = f"allows {budget.allows} disruption{'' if budget.allows == 1 else 's'} now"
    beside = f", and gangs on their way take {taken}" if taken else ""
    why = ""
    if not budget.counted:
        why = " (its status is older than its spec)"
    elif budget.trouble:
        why = f" ({budget.trouble})"
    words = f"PodDisruptionBudget {budget.key} {allowed}{beside}{why}; it has to allow {need + taken} for the {pods}"
    return Blocked(Obstacle.POD_BUDGET, words)


def _budgeted(snapshot: Snapshot, gang: Gang) -> _BudgetedPods:
    rules = _rules(snapshot.index, snapshot.pod_budgets).get(gang.namespace)
    key = f"{gang.namespace}/{gang.workload}"
    return _counted(snapshot.index, rules, snapshot.gang_pods, key) if rules and key in snapshot.gang_pods else _NONE


_NONE = _BudgetedPods({})


@derived(1, steady=True)
def _rules(_index: Index, budgets: Mapping[str, PodBudget]) -> Mapping[str, Sequence[_PodBudgetRule]]:
    """Returns what the budgets of each namespace cover, in order of name."""
    found: dict[str, list[_PodBudgetRule]] = {}
    for key, budget in sorted(budgets.items()):
        if budget.selector is not None:
            found.setdefault(budget.namespace, []).append(_PodBudgetRule(key, budget.selector, budget.unready_may_go))
    return found


@derived_each
def _counted(rules: Sequence[_PodBudgetRule], pods: Sequence[Pod]) -> _BudgetedPods:
    counts: Counter[str] = Counter()
    known: dict[PodLabels, Sequence[_PodBudgetRule]] = {}
    for pod in (pod for pod in pods if pod.active and not pod.deleting):
        if pod.labels not in known:
            known[pod.labels] = _covering(rules, pod.labels)
        covering = known[pod.labels]
        if len(covering) > 1:
            named = ", ".join(rule.key for rule in covering)
            return _BudgetedPods(counts, f"pod {pod.key} is under more than one PodDisruptionBudget ({named})")
        if covering and not (covering[0].unready_may_go and not pod.ready):
            counts[covering[0].key] += 1
    return _BudgetedPods(counts)


def _covering(rules: Sequence[_PodBudgetRule], labels: PodLabels) -> Sequence[_PodBudgetRule]:
    named = dict(labels)
    return [rule for rule in rules if rule.selector.matches(named)]
