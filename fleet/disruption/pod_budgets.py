"""PodDisruptionBudgets foreseen: whether they let gangs go now (Karpenter `pkg/utils/pdb`, reference 4.2).

A gang leaves as a whole and by its job, which no eviction API sees: what a budget says of its pods is heeded before, or
never. As it moves whole, a budget has to allow as many disruptions as the gang has pods under it: a smaller number
would let them go one by one, each stopping all. Gangs that are on their way count against it until its controller has
seen them go. More than one budget over a pod bars it, as the eviction API knows no answer to that.

Pods of no gang are not asked for: they keep their machine whatever a budget says (`Yard.unit`). Those of DaemonSets are
never evicted, so that a budget over them holds nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from fleet.disruption.verdict import Held, Obstacle
from fleet.reasons import Reason
from fleet.snapshot import Gang, Pod, PodBudget, Snapshot
from fleet.snapshot.memo import remembered, remembered_each
from model.upstream.selectors import LabelSelector

_FORCEFUL: Final = frozenset({Reason.EXPIRED, Reason.BLOCK_ENDS})
"""What nobody can put off: as in Karpenter expiry waits for no budget, and EC2 ends a capacity block whatever runs."""
_EVENTUAL: Final = frozenset({Reason.DRIFTED})
"""What waits for budgets only where a drain may take for ever."""
_SHOWN: Final = 3
"""Gangs named in a sentence."""


class _Rule(NamedTuple):
    """What stays of a budget when its count changes."""

    key: str
    selector: LabelSelector
    unready_may_go: bool


class _Stake(NamedTuple):
    """What a gang asks of budgets when it goes."""

    pods: Mapping[str, int]
    """Budget -> pods that it counts."""
    contested: str = ""
    """A pod under more than one, with their names; empty = there is none."""


def heeds(reason: Reason, grace_s: float) -> bool:
    """Whether a machine that goes for this reason waits for PodDisruptionBudgets, by its termination grace period."""
    return reason not in _FORCEFUL and not (reason in _EVENTUAL and grace_s < inf)


def held_by_pod_budget(
    snapshot: Snapshot, gangs: Mapping[str, Gang], others: Callable[[], Mapping[str, Gang]]
) -> Held | None:
    """The budget that does not let all of these gangs (by uid) go now, beside `others` that are on their way."""
    stakes = {uid: _stake_of(snapshot, gang) for uid, gang in gangs.items()}
    contested = next((stake.contested for _, stake in sorted(stakes.items()) if stake.contested), "")
    if contested:
        return Held(Obstacle.SEVERAL_POD_BUDGETS, f"{contested}: leave it one")
    need = _total(stakes.values())
    if not need:
        return None
    taken: Counter[str] = Counter()
    if all(count <= snapshot.pod_budgets[key].allows for key, count in need.items()):
        taken = _total(_stake_of(snapshot, gang) for uid, gang in others().items() if uid not in gangs)
    for key in sorted(need):
        if need[key] > snapshot.pod_budgets[key].allows - taken[key]:
            whose = sorted(gangs[uid].name for uid, stake in stakes.items() if key in stake.pods)
            return _short(snapshot.pod_budgets[key], need[key], taken[key], whose)
    return None


def _total(stakes: Iterable[_Stake]) -> Counter[str]:
    total: Counter[str] = Counter()
    for stake in stakes:
        total.update(stake.pods)
    return total


def _short(budget: PodBudget, need: int, taken: int, gangs: Sequence[str]) -> Held:
    whose = ", ".join(gangs[:_SHOWN]) + (f" and {len(gangs) - _SHOWN} more" if len(gangs) > _SHOWN else "")
    pods = f"1 pod of {whose}" if need == 1 else f"{need} pods of {whose}, which go together"
    allowed = f"allows {budget.allows} disruption{'' if budget.allows == 1 else 's'} now"
    beside = f", and gangs on their way take {taken}" if taken else ""
    why = ""
    if not budget.counted:
        why = " (its status is older than its spec)"
    elif budget.trouble:
        why = f" ({budget.trouble})"
    words = f"PodDisruptionBudget {budget.key} {allowed}{beside}{why}; it has to allow {need + taken} for the {pods}"
    return Held(Obstacle.POD_BUDGET, words)


def _stake_of(snapshot: Snapshot, gang: Gang) -> _Stake:
    rules, key = _rules(snapshot.pod_budgets).get(gang.namespace), f"{gang.namespace}/{gang.workload}"
    return _stake(rules, snapshot.gang_pods, key) if rules and key in snapshot.gang_pods else _NOTHING


_NOTHING = _Stake({})


@remembered(1, steady=True)
def _rules(budgets: Mapping[str, PodBudget]) -> Mapping[str, Sequence[_Rule]]:
    """By namespace, then by name."""
    found: dict[str, list[_Rule]] = {}
    for key, budget in sorted(budgets.items()):
        if budget.selector is not None:
            found.setdefault(budget.namespace, []).append(_Rule(key, budget.selector, budget.unready_may_go))
    return found


@remembered_each
def _stake(rules: Sequence[_Rule], pods: Sequence[Pod]) -> _Stake:
    counts: Counter[str] = Counter()
    known: dict[tuple[str, ...], Sequence[_Rule]] = {}
    for pod in pods:
        if not pod.active or pod.deleting:
            continue
        covering = known.get(pod.labels)
        if covering is None:
            covering = known[pod.labels] = _covering(rules, pod.labels)
        if len(covering) > 1:
            named = ", ".join(rule.key for rule in covering)
            return _Stake(counts, f"pod {pod.key} is under more than one PodDisruptionBudget ({named})")
        if covering and not (covering[0].unready_may_go and not pod.ready):
            counts[covering[0].key] += 1
    return _Stake(counts)


def _covering(rules: Sequence[_Rule], labels: Sequence[str]) -> Sequence[_Rule]:
    named = dict(zip(labels[::2], labels[1::2], strict=True))
    return [rule for rule in rules if rule.selector.matches(named)]
