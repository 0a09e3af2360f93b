"""Holding jobs back and letting them go, by their switch or pod by pod; gated pods go each onto its planned node."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from fleet.actions import Action, EvictPod, Marks, ReleasePod, StopJob, pod_subject
from fleet.gangs.lost_machines import closed_to
from fleet.placement.flavor_nodes import tolerations_of
from fleet.placement.inventory import usable
from fleet.snapshot import Gang, Hold, Job, Pin, Pod, Snapshot
from fleet.snapshot.seats import active_pods, gated_pods, hostname_of, nodes_by_host, seats_of
from fleet.snapshot.works import PLAIN, asks_anew, excess, has_started, outgrown, revision_of
from model.fleet import Fleet
from model.kinds import Toleration


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


def gone_for_good(snapshot: Snapshot, gang: Gang) -> str:
    """Returns a pod set of whose pods nobody would make as many anew, were the gang stopped; empty where it comes back.

    What a switch has stopped comes back with it. Pods that are ended one by one come back as far as their job makes
    lost pods anew; those of a plain group where each has a controller, or where `muster.dev/on-node-failure` says so.
    """
    job = snapshot.jobs.get(gang.uid)
    if job is None or job.hold is Hold.SWITCH or job.on_node_failure == "Replace":
        return ""
    standing = Counter(pod.pod_set for pod in snapshot.job_pods.get(gang.uid, ()) if _leans_on(job, pod))
    return next((name for name in sorted(standing) if standing[name] > job.restarts.get(name, 0)), "")


def _leans_on(job: Job, pod: Pod) -> bool:
    """Returns whether nobody but its job could make a pod that has started anew."""
    return has_started(pod) and not (pod.controlled and job.ref.kind in PLAIN)


def trimmed(snapshot: Snapshot, uid: str) -> Iterator[Action]:
    """Ends the pods that a plain group has beyond its total."""
    job = snapshot.jobs.get(uid)
    if job is not None and job.queue:
        for pod in excess(snapshot.job_pods[uid]):
            yield from ended(snapshot, pod)


def flavor_tolerations(fleet: Fleet, gang: Gang) -> Mapping[str, tuple[Toleration, ...]]:
    """Returns pod set -> the tolerations that its pods get: of the flavors they were admitted with, and ours."""
    names = sorted({*gang.flavors, *(pods.name for pods in gang.pod_sets)})
    return {name: tolerations_of(fleet, gang.flavors.get(name, ())) for name in names}


def ended(snapshot: Snapshot, pod: Pod) -> Iterator[Action]:
    """Ends a pod with its own grace period, unless an action on it is under way."""
    if pod_subject(pod.uid) not in snapshot.busy:
        yield EvictPod(pod, force_grace_s=int(pod.deletion_grace_s))


def releases(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """Releases every gated pod of the gang for which its pins have a place left, onto that node.

    Pods that are held one by one are taken into the gang by their release; among alike ones their own priority counts.
    """
    if not (gated_pods(snapshot, gang) or snapshot.job_pods.get(gang.uid)):
        return  # as of most gangs, most of the time
    pods = [*active_pods(snapshot, gang), *_held(snapshot, gang)]
    waiting = sorted((pod for pod in pods if pod.gated), key=_turn)
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
            role = gang.pod_set(pod.pod_set).part_of or pod.pod_set
            marks = Marks(gang.workload, role, tolerations.get(pod.pod_set, ())) if pod.held else None
            yield ReleasePod(pod, node, hostname_of(snapshot, node), marks)


def _turn(pod: Pod) -> tuple[object, ...]:
    return -pod.priority, pod.namespace, pod.name, pod.uid


def _held(snapshot: Snapshot, gang: Gang) -> Iterator[Pod]:
    """Yields the pods of the gang's job that wait to be taken into it, without those that its group has too many."""
    own, job = snapshot.job_pods.get(gang.uid, ()), snapshot.jobs.get(gang.uid)
    surplus, outgrows = {pod.uid for pod in excess(own)}, outgrown(gang, job, own)
    return (pod for pod in own if pod.held and pod.uid not in surplus and _fits(gang, job, pod, outgrows))


_ADDED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""What admission plug-ins and sidecars add to pods; what else a pod asks for stands in its template."""


def _fits(gang: Gang, job: Job | None, pod: Pod, outgrows: str) -> bool:
    """Returns whether a pod may have a seat of the gang: one of a StatefulSet may be of a newer template than it.

    `outgrows`: the revision whose pods may not. While that of a new template has no name yet none may.
    """
    if job is None or job.numbering is None:
        return True
    if (outgrows and revision_of(pod) == outgrows) or (not job.numbering.revision and asks_anew(gang, job)):
        return False
    seat = gang.pod_set(pod.pod_set).requests
    return all(amount <= seat.get(name, 0) for name, amount in pod.requests.items() if name not in _ADDED)


def _free_places(fleet: Fleet, snapshot: Snapshot, gang: Gang, released: Iterable[Pod]) -> Mapping[str, list[str]]:
    """Returns pod set -> a node for every pod that its pins have place for beside those released; the first comes last.

    Pins without a node have none yet: their machine is still to come. Nothing goes onto a machine that is cordoned,
    tainted since, not ready or leaving: it would be evicted again at once, and its job charged with one more failure,
    or never be bound.
    """
    free: Counter[tuple[str, str]] = Counter()
    for pin in seats_of(snapshot, gang):
        if _takes_pods(fleet, snapshot, gang, pin):
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
