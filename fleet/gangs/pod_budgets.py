"""What PodDisruptionBudgets say of work that is to leave.

PodDisruptionBudgets (Karpenter `pkg/utils/pdb`, reference 4.2) are foreseen: a gang leaves as a whole and by its job,
which no eviction API sees, so that what a budget says of its pods is heeded before, or never. As the gang moves whole,
a budget has to allow as many disruptions as the gang has pods under it: a smaller number would let them go one by one,
each stopping all. Gangs that are on their way count against it until its controller has seen them go. More than one
budget over a pod bars it, as the eviction API knows no answer to that. Pods of DaemonSets are never evicted, so that a
budget over them holds nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from fleet.reasons import some_of
from fleet.snapshot import Gang, Pod, PodBudget, Snapshot
from fleet.snapshot.constraints import PodLabels
from fleet.snapshot.lookups import ordinary_tenants
from model.index import Index, derived, derived_each
from model.upstream.selectors import LabelSelector


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


class PodBudgetRefusal(NamedTuple):
    """A `PodBudgetRefusal` says what PodDisruptionBudgets have against gangs leaving now."""

    words: str
    contested: bool = False
    """Whether a pod is under more than one budget, to which the eviction API knows no answer."""


def pod_budget_refusal(
    snapshot: Snapshot, gangs: Mapping[str, Gang], others: Callable[[], Mapping[str, Gang]]
) -> PodBudgetRefusal | None:
    """Returns the budget that does not let all of these gangs (by uid) go now, beside `others` on their way."""
    budgeted = {uid: _budgeted(snapshot, gang) for uid, gang in gangs.items()}
    contested = next(filter(None, (each.contested for _, each in sorted(budgeted.items()))), "")
    if contested:
        return PodBudgetRefusal(f"{contested}: leave it one", contested=True)
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


def _short(budget: PodBudget, need: int, taken: int, gangs: Sequence[str]) -> PodBudgetRefusal:
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
    return PodBudgetRefusal(words)


def _budgeted(snapshot: Snapshot, gang: Gang) -> _BudgetedPods:
    rules = _rules(snapshot.index, snapshot.pod_budgets).get(gang.namespace)
    if gang.ordinary:
        _, pods = ordinary_tenants(snapshot).get(gang.uid, (gang, ()))
        return _counted_now(rules, pods) if rules else _NONE
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
    return _counted_now(rules, pods)


def _counted_now(rules: Sequence[_PodBudgetRule], pods: Sequence[Pod]) -> _BudgetedPods:
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


def closed_budget(snapshot: Snapshot, pod: Pod) -> str:
    """Returns the first budget over a pod, by key, that allows no eviction now; empty where there is none."""
    rules = _rules(snapshot.index, snapshot.pod_budgets).get(pod.namespace, ())
    found = (rule.key for rule in _covering(rules, pod.labels) if snapshot.pod_budgets[rule.key].allows < 1)
    return next(found, "")


def _covering(rules: Sequence[_PodBudgetRule], labels: PodLabels) -> Sequence[_PodBudgetRule]:
    named = dict(labels)
    return [rule for rule in rules if rule.selector.matches(named)]
