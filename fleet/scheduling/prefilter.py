"""Checks what a gang must satisfy before quota is looked at: a table of rules, of which the first refusal counts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from fleet.actions import gang_subject
from fleet.gangs.holding import gone_for_good
from fleet.gangs.transitions import deactivated
from fleet.placement.flavor_nodes import FlavorNodes, gpus_asked, nodes_of_flavor, one_each_configs
from fleet.quota.build_tree import quota_specs
from fleet.quota.namespace_room import never_let_in
from fleet.quota.queue_binding import QueueBinding, binding_of, known_queues, why_non_preemptible
from fleet.reasons import Reason, Refusal
from fleet.scheduling.queue_order import is_moved
from fleet.snapshot import LAYOUTS, Claim, Gang, GangState, PodSet, Snapshot
from fleet.snapshot.lookups import claims_whatever_runs
from model.cron import window_active
from model.fleet import Fleet
from model.index import TableChanges, followed
from model.kinds import NodePool, Team
from model.labels import MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from model.upstream.do_not_disrupt import protected

PODS_MAX: Final = 150_000
"""Most pods of a gang: as many as a cluster can have (Kubernetes, "Considerations for large clusters")."""
LAUNCHES_MOST: Final = 3
LAUNCHES_WITHIN_S: Final = 60.0
"""More launches than this for one gang, in so long, are a loop."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""The label that the API server puts on every namespace."""


class _Candidate(NamedTuple):
    """A `_Candidate` is a gang with the queue it leads to and all that rules look at."""

    fleet: Fleet
    snapshot: Snapshot
    gang: Gang
    binding: QueueBinding

    @property
    def team(self) -> Team | None:
        """Returns the team whose quota the queue uses; None for a ClusterQueue."""
        return self.binding.team


def prefilter(fleet: Fleet, snapshot: Snapshot, gang: Gang, binding: QueueBinding | None = None) -> Refusal | None:
    """Returns the refusal of the first rule that keeps a gang from being considered now; None when it may be.

    `binding`: where its queue leads, of whoever has looked that up already.
    """
    if (refusal := deactivated(gang)) is not None:
        return refusal
    if (binding := binding or binding_of(fleet, gang.namespace, gang.queue)) is None:
        known = _listed(known_queues(fleet, gang.namespace))
        what = (
            f"queue {gang.queue!r} is not declared" if gang.queue else "it names no queue, and its namespace holds such"
        )
        return Refusal(Reason.QUEUE_NOT_FOUND, f"{what}; declared: {known}")
    case = _Candidate(fleet, snapshot, gang, binding)
    for rule in _RULES:  # a generator takes longer than most of the rules
        if (refusal := rule(case)) is not None:
            return refusal
    return None


def readmission_refusal(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Refusal | None:
    """Returns why a running gang would not be considered again, were it stopped now; None when it would be.

    Its quota is looked at elsewhere, together with a place. Nothing is stopped voluntarily that has this answer: it
    would stay stopped until somebody changes the fleet.
    """
    binding = binding_of(fleet, gang.namespace, gang.queue)
    if not gang.active or binding is None:
        return prefilter(fleet, snapshot, gang)
    case = _Candidate(fleet, snapshot, gang, binding)
    return next((refusal for rule in (*_LASTING, _cut) if (refusal := rule(case))), None)


def immovable(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> str:
    """Returns why a running gang may not be stopped to be started elsewhere, as a sentence; empty where it may."""
    if words := next(_against_moving(fleet, snapshot, gang), ""):
        return words
    refusal = readmission_refusal(fleet, snapshot, gang)
    return f"{gang.name} could not start again: {refusal.message}" if refusal is not None else ""


def _against_moving(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[str]:
    """Yields what a gang itself has against being stopped now."""
    subject, kept, strange = gang_subject(gang.uid), why_non_preemptible(fleet, gang), gang.strange_pins
    lost = gone_for_good(snapshot, gang)
    against = (
        (protected(gang.do_not_disrupt, gang.admitted_at_s, snapshot.now_s), f"{gang.name} says do-not-disrupt"),
        (kept, f"{gang.name} is {kept}"),
        (gang.state is not GangState.ADMITTED, f"{gang.name} is {gang.state}"),
        (lost, f"nobody would make the pods of {lost} of {gang.name} anew"),
        (gang.replacing_since_s, f"{gang.name} is replacing a machine it has lost"),
        (strange, f"{gang.name} has places for pod sets that its Workload does not have: {', '.join(strange)}"),
        (subject in snapshot.busy, f"an action on {gang.name} is under way"),
        (subject in snapshot.set_aside, f"a decision about {gang.name} has failed lately"),
    )
    return (words for holds, words in against if holds)


def frozen(fleet: Fleet, now_s: float, activity: str) -> str:
    """Returns what blocks `activity` (`Sync`, `Disruption`) now, in words; empty when nothing does.

    An open freeze window, or that none of the allow windows for the activity is open.
    """
    spec = fleet.policy.spec
    for window in spec.freeze_windows:
        if activity in window.blocks and window_active(window.opening, window.duration, now_s):
            return f"freeze window {window.name} is open"
    allowing = [window for window in spec.allow_windows if activity in window.allows]
    if not allowing or any(window_active(window.opening, window.duration, now_s) for window in allowing):
        return ""
    return f"no allow window ({', '.join(window.name for window in allowing)}) is open"


def _namespace(case: _Candidate) -> Refusal | None:
    """Refuses a gang of a namespace that does not belong to the queue's team."""
    if (team := case.team) is None:
        return _selected(case)
    allowed = team.spec.namespaces
    if case.gang.namespace in allowed:
        return None
    return Refusal(
        Reason.NAMESPACE_NOT_ALLOWED,
        f"namespace {case.gang.namespace!r} may not use queue {case.gang.queue!r}: "
        f"team {team.name!r} has {_listed(allowed)}",
    )


def _selected(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose namespace the ClusterQueue's `namespaceSelector` does not match."""
    name = case.gang.namespace
    labels = case.snapshot.namespaces.get(name, {NAMESPACE_LABEL: name})
    if case.binding.namespaces is not None and case.binding.namespaces.matches(labels):
        return None
    message = f"namespace {name!r} is not selected by ClusterQueue {case.binding.name!r} (namespaceSelector)"
    return Refusal(Reason.NAMESPACE_NOT_ALLOWED, message)


def _priority_exists(case: _Candidate) -> Refusal | None:
    """Refuses a priority class that is not declared."""
    wanted = case.gang.priority_class
    if not wanted or wanted in case.fleet.priority_classes:
        return None
    known = _listed(case.fleet.priority_classes)
    return Refusal(Reason.PRIORITY_NOT_FOUND, f"priority class {wanted!r} is not declared; declared: {known}")


def _priority_allowed(case: _Candidate) -> Refusal | None:
    """Refuses a priority class that the team may not use."""
    wanted, team = case.gang.priority_class, case.team
    allowed = team.spec.priority_classes if team is not None and wanted else ()
    if team is None or not allowed or wanted in allowed:
        return None
    message = f"team {team.name!r} may not use priority class {wanted!r}, only {_listed(allowed)}"
    return Refusal(Reason.PRIORITY_NOT_ALLOWED, message)


def takes_no_more(snapshot: Snapshot, binding: QueueBinding) -> Refusal | None:
    """Returns why a queue takes no further work, whoever asks: it is stopped, or its team's month is spent."""
    if binding.stop_policy != "None":
        return Refusal(Reason.QUEUE_STOPPED, f"queue {binding.name!r} is stopped ({binding.stop_policy})")
    team = binding.team
    if team is None or team.spec.budget is None or not has_spent_month(snapshot, team):
        return None
    message = f"team {team.name!r} has used up its {team.spec.budget.usd_per_month:.2f} USD of this month"
    return Refusal(Reason.BUDGET_EXHAUSTED, message)


def has_spent_month(snapshot: Snapshot, team: Team) -> bool:
    """Returns whether a team has a budget and has used it up this month."""
    budget = team.spec.budget
    return budget is not None and snapshot.spent_usd.get(team.name, 0.0) >= budget.usd_per_month


def _taken(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose queue takes no further work. One that was only moved is none: it ran within the budget."""
    refusal, gang = takes_no_more(case.snapshot, case.binding), case.gang
    spent = refusal is not None and refusal.reason is Reason.BUDGET_EXHAUSTED
    if spent and gang.state is GangState.PENDING and is_moved(gang, case.snapshot.now_s):
        return None
    return refusal


def _supported(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose pods ask something that is not honoured: they might be bought machines they cannot use."""
    asked = [(pods.name, each) for pods in case.gang.pod_sets for each in pods.unsupported]
    if not asked:
        return None
    (name, first), more = asked[0], len(asked) - 1
    others = f" (and {more} more)" if more else ""
    message = f"pod set {name!r} asks for {first.path}, which is not supported: {first.words}{others}"
    return Refusal(Reason.UNSUPPORTED, message)


def _readable(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose job says of its run what cannot be read: a limit of "2 hours" would be none, untold."""
    job = case.snapshot.jobs.get(case.gang.uid)
    if job is None or not job.unread:
        return None
    first = job.unread[0]
    return Refusal(Reason.UNSUPPORTED, f"it says {first.path}, which cannot be read: {first.words}")


def _one_replica(case: _Candidate) -> Refusal | None:
    """Refuses pods that ask for several GPUs of pools that give each pod one replica: the device plugin would."""
    several = [pods for pods in case.gang.pod_sets if gpus_asked(pods) > 1]
    some_do = several and one_each_configs(case.fleet.index, case.fleet.node_pools)
    pools = _gpu_pools(case.fleet, case.binding) if some_do else []
    if not pools or not all(pool.spec.sharing.one_each for pool in pools):
        return None
    message = (
        f"pods of {several[0].name!r} ask for {gpus_asked(several[0])} GPUs, and the device plugin gives a pod one "
        f"replica of those of {_listed(pool.name for pool in pools)} (mps, or failRequestsGreaterThanOne): ask for 1"
    )
    return Refusal(Reason.UNSUPPORTED, message)


def _gpu_pools(fleet: Fleet, binding: QueueBinding) -> list[NodePool]:
    """Returns the pools behind a queue's flavors if whole GPUs, or replicas, come from no other nodes; else nothing."""
    flavors = list(behind_queue(fleet, binding))
    if any(nodes.any_node or nodes.node_labels for nodes in flavors):
        return []
    pools = {pool.name: pool for nodes in flavors for pool in nodes.pools}
    return [pool for _, pool in sorted(pools.items()) if pool.spec.sharing.mig is None]


def behind_queue(fleet: Fleet, binding: QueueBinding) -> Iterator[FlavorNodes]:
    """Yields the machines of a queue's flavors, in the order of its groups."""
    spec = quota_specs(fleet).queues.get(binding.name)
    for group in spec.groups if spec is not None else ():
        found = (nodes_of_flavor(fleet, name) for name in group.flavors)
        yield from (nodes for nodes in found if nodes is not None)


def _runtime_exists(case: _Candidate) -> Refusal | None:
    """Refuses a RuntimeClass that is not there: the API server would refuse the pods."""
    named = {pods.runtime_class for pods in case.gang.pod_sets if pods.runtime_class}
    if not (named and (wanted := sorted(named.difference(case.snapshot.runtime_classes)))):
        return None
    known = _listed(case.snapshot.runtime_classes)
    return Refusal(Reason.RUNTIME_CLASS_NOT_FOUND, f"RuntimeClass {wanted[0]!r} does not exist; there are: {known}")


def _pods_allowed(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose pods the API server would refuse for their amounts (`PodSet.forbidden`)."""
    against = [(pods.name, words) for pods in case.gang.pod_sets for words in pods.forbidden]
    if not against:
        return None
    (name, first), more = against[0], len(against) - 1
    others = f" (and {more} more)" if more else ""
    return Refusal(Reason.PODS_FORBIDDEN, f"the API server would refuse pods of pod set {name!r}: {first}{others}")


def _let_in(case: _Candidate) -> Refusal | None:
    """Refuses a gang of which a ResourceQuota would never let the pods in."""
    bounded = case.gang.namespace in case.snapshot.namespace_quotas.by_namespace
    return never_let_in(case.snapshot, case.gang) if bounded else None


def _few_enough(case: _Candidate) -> Refusal | None:
    """Refuses a gang of more pods than a cluster can run, before anything is computed for it."""
    pods = sum([pod_set.count for pod_set in case.gang.pod_sets])
    if pods <= PODS_MAX:
        return None
    return Refusal(Reason.TOO_MANY_PODS, f"it asks for {pods} pods; a cluster runs {PODS_MAX} at most")


def _back_off(case: _Candidate) -> Refusal | None:
    """Refuses a gang until its back-off after an eviction ends (`requeue_at_s`)."""
    left_s = case.gang.requeue_at_s - case.snapshot.now_s
    if left_s <= 0:
        return None
    return Refusal(Reason.BACK_OFF, "waits out the pause after its last eviction", case.gang.requeue_at_s)


def _calm(case: _Candidate) -> Refusal | None:
    """Refuses a gang for which machines were bought again and again within a minute: something eats them.

    A loop of launches (a clock that was set, an API that lies) costs at most so many a minute. Attempts that the cloud
    refused do not count.
    """
    snapshot = case.snapshot
    of_gangs = _launched_for(snapshot.index, claims_whatever_runs(snapshot))
    if (launched := of_gangs.get(case.gang.uid)) is None:
        return None
    recent = [at_s for at_s in dict(launched.values()).values() if at_s > snapshot.now_s - LAUNCHES_WITHIN_S]
    if len(recent) < LAUNCHES_MOST:
        return None
    message = f"machines were bought for it {len(recent)} times within {LAUNCHES_WITHIN_S:.0f} s; it pauses"
    return Refusal(Reason.BACK_OFF, message, min(recent) + LAUNCHES_WITHIN_S)


def _launch_of(claim: Claim) -> tuple[str, str, float] | None:
    """Returns the gang, group and instant of the launch of a machine that was bought for a gang to start on."""
    if not claim.gang or not claim.launched_at_s or claim.replaces:
        return None
    return claim.gang, claim.launch.group, claim.launched_at_s


_Launched = dict[str, Mapping[str, tuple[str, float]]]
"""Gang (uid) -> claim, in order of name -> launch group, and when it was launched."""


@followed(_Launched)
def _launched_for(before: _Launched, changes: TableChanges[Claim]) -> _Launched:
    gone = {name: it for name, claim in changes.gone() if (it := _launch_of(claim)) is not None}
    came = {name: it for name, claim in changes.came() if (it := _launch_of(claim)) is not None}
    if gone == came:
        return before
    found = before.copy()
    others = {gang: dict(before.get(gang, {})) for gang, _, _ in (*gone.values(), *came.values())}
    for name, (gang, _, _) in gone.items():
        del others[gang][name]
    for name, (gang, group, at_s) in came.items():
        others[gang][name] = group, at_s
    for gang, launched in others.items():
        found[gang] = dict(sorted(launched.items()))
        if not launched:
            del found[gang]
    return found


def uncut(snapshot: Snapshot, gang: Gang) -> Refusal | None:
    """Returns why no GPUs can be cut for a gang now: it may use slices that stand, and none are bought for it."""
    found = snapshot.refused.get(LAYOUTS)
    return Refusal(Reason.WRITE_REFUSED, found.message) if found and any(map(_has_slices, gang.pod_sets)) else None


def _cut(case: _Candidate) -> Refusal | None:
    return uncut(case.snapshot, case.gang)


def _writable(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose start the API keeps refusing: machines would be bought for it in vain."""
    found = case.snapshot.refused.get(gang_subject(case.gang.uid))
    return None if found is None else Refusal(Reason.WRITE_REFUSED, found.message)


def _has_slices(pod_set: PodSet) -> bool:
    return any(name.startswith((MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE)) for name in pod_set.requests)


def _suspended(case: _Candidate) -> Refusal | None:
    """Refuses a gang whose job runs without having been admitted: it is suspended and its pods end first."""
    job = case.snapshot.jobs.get(case.gang.uid)
    if job is None or (job.suspended and not job.active_pods):
        return None
    return Refusal(Reason.QUEUED, "its job was started without admission, and is suspended first")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


_Rule = Callable[[_Candidate], Refusal | None]
_LASTING: tuple[_Rule, ...] = (
    *(_supported, _readable, _one_replica, _runtime_exists, _pods_allowed, _let_in, _few_enough, _namespace),
    *(_priority_exists, _priority_allowed, _taken, _writable),
)
"""Rules whose refusal stays until the fleet is changed, or a month ends."""
_RULES: tuple[_Rule, ...] = (*_LASTING, _back_off, _suspended, _calm)
