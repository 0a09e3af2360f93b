"""Holding jobs back and letting them go, by their switch or pod by pod; gated pods go each onto its planned node.

PodDisruptionBudgets (Karpenter `pkg/utils/pdb`, reference 4.2) are foreseen: a gang leaves as a whole and by its job,
which no eviction API sees, so that what a budget says of its pods is heeded before, or never. As the gang moves whole,
a budget has to allow as many disruptions as the gang has pods under it: a smaller number would let them go one by one,
each stopping all. Gangs that are on their way count against it until its controller has seen them go. More than one
budget over a pod bars it, as the eviction API knows no answer to that. Pods of no gang are not asked for: they keep
their machine whatever a budget says (`eligibility.immovable`). Those of DaemonSets are never evicted, so that a budget
over them holds nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fleet.actions import Action, EvictPod, Marks, ReleasePod, StopJob, pod_subject
from fleet.gangs.lost_machines import closed_to
from fleet.placement.flavor_nodes import tolerations_of
from fleet.placement.inventory import usable
from fleet.reasons import some_of
from fleet.snapshot import Gang, Hold, Job, Pin, Pod, PodBudget, Snapshot
from fleet.snapshot.constraints import PodLabels
from fleet.snapshot.lookups import ordinary_tenants
from fleet.snapshot.seats import active_pods, hostname_of, nodes_by_host, seats_of
from fleet.snapshot.works import excess, has_started
from model.fleet import Fleet
from model.index import Index, derived, derived_each
from model.kinds import Toleration
from model.upstream.selectors import LabelSelector


def stop(snapshot: Snapshot, gang: Gang, job: Job) -> Iterator[Action]:
    """Ends the pods of a job that runs, whoever started them; their owner may make them anew, behind the gate.

    A gang leaves as a whole, each pod with its own grace period. PodDisruptionBudgets are not asked: they are for
    voluntary disruption.
    """
    if job.hold is Hold.SWITCH:
        yield StopJob(job.ref, gang.uid)
        return
    for pod in snapshot.job_pods.get(gang.uid, ()):
        if has_started(pod):
            yield from ended(snapshot, pod)


def trimmed(snapshot: Snapshot, uid: str) -> Iterator[Action]:
    """Ends the pods that a plain group has beyond its total."""
    job = snapshot.jobs.get(uid)
    if job is not None and job.queue:
        for pod in excess(snapshot.job_pods[uid]):
            yield from ended(snapshot, pod)


def flavor_tolerations(fleet: Fleet, gang: Gang) -> Mapping[str, tuple[Toleration, ...]]:
    """Returns pod set -> the tolerations that its pods get from the flavors they were admitted with."""
    return {name: tolerations_of(fleet, given) for name, given in sorted(gang.flavors.items())}


def ended(snapshot: Snapshot, pod: Pod) -> Iterator[Action]:
    """Ends a pod with its own grace period, unless an action on it is under way."""
    if pod_subject(pod.uid) not in snapshot.busy:
        yield EvictPod(pod, force_grace_s=int(pod.deletion_grace_s))


def releases(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """Releases every gated pod of the gang for which its pins have a place left, onto that node.

    Pods that are held one by one are taken into the gang by their release.
    """
    pods = [*active_pods(snapshot, gang), *_held(snapshot, gang)]
    waiting = sorted((pod for pod in pods if pod.gated), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    if not waiting:
        return
    tolerations = flavor_tolerations(fleet, gang)
    free = _free_places(fleet, snapshot, gang, (pod for pod in pods if not pod.gated))
    for pod in waiting:
        nodes = free.get(pod.pod_set)
        if not nodes or pod.deleting:
            continue
        node = nodes.pop()
        if pod_subject(pod.uid) not in snapshot.busy:
            marks = Marks(gang.workload, pod.pod_set, tolerations.get(pod.pod_set, ())) if pod.held else None
            yield ReleasePod(pod, node, hostname_of(snapshot, node), marks)


def _held(snapshot: Snapshot, gang: Gang) -> Iterator[Pod]:
    """Yields the pods of the gang's job that wait to be taken into it, without those that its group has too many."""
    own = snapshot.job_pods.get(gang.uid, ())
    surplus = {pod.uid for pod in excess(own)}
    return (pod for pod in own if pod.held and pod.uid not in surplus)


def _free_places(fleet: Fleet, snapshot: Snapshot, gang: Gang, released: Iterable[Pod]) -> Mapping[str, list[str]]:
    """Returns pod set -> a node for every pod that its pins have place for beside those released; the first comes last.

    Pins without a node have none yet: their machine is still to come. Nothing goes onto a machine that is cordoned,
    tainted since, not ready or leaving: it would be evicted again at once, and its job charged with one more failure,
    or never be bound.
    """
    free: Counter[tuple[str, str]] = Counter()
    for pin in seats_of(snapshot, gang):
        if pin.node and _takes_pods(fleet, snapshot, gang, pin):
            free[pin.pod_set, pin.node] += pin.count
    free.subtract({(pin.pod_set, pin.node): pin.count for pin in gang.leaving})
    node_of_host = nodes_by_host(snapshot, gang)
    free.subtract(Counter((pod.pod_set, pod.node or node_of_host.get(pod.pinned_host, "")) for pod in released))
    nodes: dict[str, list[str]] = {}
    for (pod_set, node), left in sorted(free.items(), reverse=True):
        nodes.setdefault(pod_set, []).extend([node] * left)
    return nodes


def _takes_pods(fleet: Fleet, snapshot: Snapshot, gang: Gang, pin: Pin) -> bool:
    node, claim = snapshot.nodes.get(pin.node), snapshot.claims.get(pin.claim)
    return node is not None and usable(node, claim) and not closed_to(fleet, gang, node, claim)


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


def _covering(rules: Sequence[_PodBudgetRule], labels: PodLabels) -> Sequence[_PodBudgetRule]:
    named = dict(labels)
    return [rule for rule in rules if rule.selector.matches(named)]
