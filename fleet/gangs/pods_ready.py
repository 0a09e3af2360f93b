"""Whether all pods of a gang are ready, how long it may be without some, and what becomes of one that takes longer.

Source: Kueue `waitForPodsReady`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from fleet.reasons import Reason
from fleet.snapshot import Gang, Hold, Job, Pod, Snapshot
from fleet.snapshot.elastic_parts import cores, pods_in
from model.fleet import Fleet
from model.index import derived_each
from model.kinds import PodsReady
from model.kinds.base import format_duration
from model.plain_text import counted, number_of

MOST_DOUBLINGS: Final = 30
"""More could only be of use to pauses that never end."""


def pods_ready_of(fleet: Fleet, gang: Gang) -> PodsReady:
    """Returns the time-outs that the gang's queue declares; the defaults when the queue is not declared any more."""
    queue = fleet.queues.get(gang.queue)
    return queue.spec.pods_ready if queue else PodsReady()


def not_ready_in_time(fleet: Fleet, snapshot: Snapshot, gang: Gang, job: Job) -> tuple[Reason, str] | None:
    """Returns why a gang leaves some of whose pods were not ready in time; None while it may stay."""
    if gang.pods_ready or (job.suspended and job.hold is Hold.SWITCH):
        return None
    terms = pods_ready_of(fleet, gang)
    since_s, limit_s = gang.admitted_at_s, terms.start_timeout
    if gang.not_ready_since_s:
        since_s, limit_s = gang.not_ready_since_s, terms.recovery_timeout
    if snapshot.now_s - max(since_s, _last_made_s(snapshot, gang, job)) < limit_s:
        return None
    ready, wanted = ready_pods(snapshot, gang)
    if ready >= wanted:
        return None
    pods = f"{counted(wanted, 'pod')} {number_of(wanted, 'was', 'were')}"
    return late(terms, gang, f"{ready} of {pods} ready after {format_duration(limit_s)}")


def _last_made_s(snapshot: Snapshot, gang: Gang, job: Job) -> float:
    """Returns when the youngest pod was made (epoch s), of pods that are made one when those before are ready; else 0.

    So each of them has as much time as a gang has that makes all of them at once.
    """
    if job.numbering is None or not job.numbering.one_by_one:
        return 0.0
    pods = snapshot.job_pods.get(gang.uid, ())
    return max((pod.member.created_at_s for pod in pods if pod.member is not None), default=0.0)


def late(terms: PodsReady, gang: Gang, message: str) -> tuple[Reason, str]:
    """Returns why a gang leaves whose pods were not ready in time: it is requeued, or past its limit deactivated."""
    if terms.backoff_limit is None or gang.timeouts < terms.backoff_limit:
        return Reason.PODS_READY_TIMEOUT, message
    return Reason.REQUEUING_LIMIT, f"{message}, for the {gang.timeouts + 1}. time"


def requeue_pause_s(terms: PodsReady, timeouts: int) -> float:
    """Returns how long (s) a gang pauses after its n-th time-out: `base * 2^(n-1)`, and no longer than is declared."""
    return min(terms.backoff_max, terms.backoff_base * 2.0 ** min(max(timeouts, 1) - 1, MOST_DOUBLINGS))


def ready_pods(snapshot: Snapshot, gang: Gang) -> tuple[int, int]:
    """Returns (pods that are ready or have succeeded, pods there should be), of its core where a gang is elastic.

    The pods themselves are counted: the Job controller leaves `status.ready` as it was for up to 20 s after a pod was
    lost, while it backs off.
    """
    wanted = _wanted(gang, snapshot.jobs.get(gang.uid))
    well = _well_pods(snapshot, gang)
    if any(pod_set.core is not None for pod_set in gang.pod_sets):
        return sum(min(well.by_set[core.name], core.count) for core in cores(gang.pod_sets)), wanted
    good = well.by_set.total()
    if gang.remaining:  # what has ended for good is told by the job, until then by the pods
        good += sum(gang.reclaimable.values()) - well.counted
    return min(good, wanted), wanted


def _wanted(gang: Gang, job: Job | None) -> int:
    wanted = pods_in(cores(gang.pod_sets))
    if job is None or job.numbering is None:
        return wanted
    return max(1, min(wanted, pods_in(job.pod_sets)))  # those that have no number any more are on their way out


class _WellPods(NamedTuple):
    by_set: Counter[str]
    """Pod set -> its pods that are ready, or have succeeded."""
    counted: int
    """Pods that have succeeded, and which the job has counted."""


def _well_pods(snapshot: Snapshot, gang: Gang) -> _WellPods:
    key = f"{gang.namespace}/{gang.workload}"
    return _counted(snapshot.index, None, snapshot.gang_pods, key) if key in snapshot.gang_pods else _NO_PODS


@derived_each
def _counted(_context: None, pods: Sequence[Pod]) -> _WellPods:
    well = Counter(pod.pod_set for pod in pods if _is_well(pod))
    return _WellPods(well, sum(pod.phase == "Succeeded" and not pod.tracked for pod in pods))


_NO_PODS: Final = _WellPods(Counter(), 0)


def _is_well(pod: Pod) -> bool:
    return pod.phase == "Succeeded" or (pod.active and pod.ready and not pod.deleting)
