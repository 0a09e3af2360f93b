"""Holding jobs back and letting them go, by their switch or pod by pod; gated pods go each onto its planned node."""

from collections import Counter
from collections.abc import Iterator, Mapping

from fleet.actions import Action, EvictPod, Marks, ReleasePod, StopJob, pod_subject
from fleet.placement.flavor_nodes import tolerations_of
from fleet.snapshot import Gang, Hold, Job, Pod, Snapshot
from fleet.snapshot.seats import hostname_of, seats_of
from fleet.snapshot.works import excess, has_started
from model.fleet import Fleet
from model.kinds import Toleration


def stop(snapshot: Snapshot, gang: Gang, job: Job) -> Iterator[Action]:
    """End the pods of a job that runs, whoever started them; their owner may make them anew, behind the gate.

    A gang leaves as a whole, with the grace each of its pods asks for; disruption budgets are for what is voluntary.
    """
    if job.hold is Hold.SWITCH:
        yield StopJob(job.ref, gang.uid)
        return
    for pod in snapshot.job_pods.get(gang.uid, ()):
        if has_started(pod):
            yield from _ended(snapshot, pod)


def trimmed(snapshot: Snapshot, uid: str) -> Iterator[Action]:
    """End the pods that a plain group has too many of."""
    job = snapshot.jobs.get(uid)
    if job is not None and job.queue:
        for pod in excess(snapshot.job_pods[uid]):
            yield from _ended(snapshot, pod)


def flavor_tolerations(fleet: Fleet, gang: Gang) -> Mapping[str, tuple[Toleration, ...]]:
    """Pod set -> what its pods have to tolerate in the flavors they were admitted to."""
    return {name: tolerations_of(fleet, given) for name, given in sorted(gang.flavors.items())}


def _ended(snapshot: Snapshot, pod: Pod) -> Iterator[Action]:
    if pod_subject(pod.uid) not in snapshot.busy:
        yield EvictPod(pod, force_grace_s=int(pod.deletion_grace_s))


def releases(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[Action]:
    """A release for every gated pod of the gang that has a free slot left in the pins.

    Pods that are held one by one are taken into the gang by their release.
    """
    pods = [pod for pod in snapshot.gang_pods.get(f"{gang.namespace}/{gang.workload}", ()) if pod.active]
    own = snapshot.job_pods.get(gang.uid, ())
    surplus = {pod.uid for pod in excess(own)}
    pods += [pod for pod in own if pod.held and pod.uid not in surplus]
    if not any(pod.gated for pod in pods):
        return
    tolerations = flavor_tolerations(fleet, gang)
    free: Counter[tuple[str, str]] = Counter()
    for pin in seats_of(snapshot, gang):
        if pin.node:  # else its machine is still to come
            free[pin.pod_set, pin.node] += pin.count
    free.subtract({(pin.pod_set, pin.node): pin.count for pin in gang.leaving})
    node_of_host = {hostname_of(snapshot, pin.node): pin.node for pin in gang.pins if pin.node}
    for pod in pods:
        if not pod.gated:
            free[pod.pod_set, pod.node or node_of_host.get(pod.pinned_host, "")] -= 1
    waiting = sorted((pod for pod in pods if pod.gated), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    slots: dict[str, list[str]] = {}
    for (pod_set, node), left in sorted(free.items(), reverse=True):
        slots.setdefault(pod_set, []).extend([node] * left)
    for pod in waiting:
        nodes = slots.get(pod.pod_set)
        if not nodes or pod.deleting:
            continue
        node = nodes.pop()
        if pod_subject(pod.uid) not in snapshot.busy:
            marks = Marks(gang.workload, pod.pod_set, tolerations.get(pod.pod_set, ())) if pod.held else None
            yield ReleasePod(pod, node, hostname_of(snapshot, node), marks)
