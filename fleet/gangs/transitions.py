"""How a gang changes state when it gives capacity back."""

from fleet.reasons import Reason
from fleet.snapshot import Eviction, Gang, GangState, Job


def evicted(gang: Gang, job: Job | None, reason: Reason, message: str, now_s: float) -> Gang:
    """The gang told to leave. One that has not started yet gives everything back at once."""
    eviction = Eviction(reason, message, now_s)
    if gang.state is GangState.RESERVED:
        return released(gang, job, reason, message, now_s, requeue_at_s=now_s, eviction=eviction)
    return gang.moved(
        GangState.EVICTING,
        reason,
        message,
        now_s,
        eviction=eviction,
        evictions=gang.evictions + 1,
        timeouts=gang.timeouts + (reason == Reason.PODS_READY_TIMEOUT),
        ran_before_s=gang.ran_s(now_s),
    )


def released(gang: Gang, job: Job | None, reason: Reason, message: str, now_s: float, **changes: object) -> Gang:
    """Back in the queue, holding nothing, asking for all that its job asks for; its checks are asked anew."""
    return gang.moved(
        GangState.PENDING,
        reason,
        message,
        now_s,
        pod_sets=job.pod_sets if job is not None else gang.pod_sets,
        flavors={},
        pins=(),
        leaving=(),
        recuts={},
        quota_reserved_at_s=0.0,
        admitted_at_s=0.0,
        pods_ready=False,
        not_ready_since_s=0.0,
        replacing_since_s=0.0,
        checks={},
        ran_before_s=gang.ran_s(now_s),
        **changes,
    )


def moved_on(gang: Gang, message: str, now_s: float, **changes: object) -> Gang:
    """The gang where it stands and why, with something about it changed."""
    return gang.moved(gang.state, gang.reason, message, now_s, **changes)
