"""Holding jobs back and letting them go: by their switch, or pod by pod."""

from collections.abc import Iterator, Mapping

from fleet.actions import Action, EvictPod, StopJob, pod_subject
from fleet.placement.flavor_nodes import tolerations_of
from fleet.snapshot import Gang, Hold, Job, Pod, Snapshot
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
