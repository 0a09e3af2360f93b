"""How a gang changes state when it gives capacity back: evicted, released into its queue, or retired.

A gang is retired when its user deactivates it, or when a limit of its own was reached.
"""

from typing import Final

from fleet.actions import SaveGang
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Eviction, Gang, GangState, Job
from model.kinds.base import format_duration


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


FOR_GOOD: Final = frozenset({Reason.MAX_RUN_TIME, Reason.REQUEUING_LIMIT, Reason.CHECK_REJECTED})
"""Who leaves for one of these is not considered again until somebody activates it."""


def spent(gang: Gang, now_s: float) -> tuple[Reason, str] | None:
    """Why a gang has had its time, wherever it is: all its runs count (Kueue's `maximumExecutionTimeSeconds`)."""
    if gang.max_run_s is None or gang.ran_s(now_s) < gang.max_run_s:
        return None
    return Reason.MAX_RUN_TIME, f"it has run for the {format_duration(gang.max_run_s)} that it may"


def called_off(gang: Gang) -> tuple[Reason, str] | None:
    """Why a gang may not hold anything although nothing else is against it."""
    return None if gang.active else (Reason.DEACTIVATED, "it was deactivated")


def retired(gang: Gang, job: Job, reason: Reason, message: str, now_s: float) -> SaveGang:
    """Take a gang out of the running. What was counted against it is forgotten: activated again, it starts afresh.

    One that is not active any more was being retired when the agent died, and has its last write still to come.
    """
    eviction = gang.eviction if gang.state is GangState.EVICTING else Eviction(reason, message, now_s)
    stopped = released(gang, job, reason, message, now_s, active=False, eviction=eviction)
    return SaveGang(stopped.afresh(), deactivates=gang.active)


def deactivated(gang: Gang) -> Refusal | None:
    """Why a gang that is not active is not considered, and how that ends."""
    if gang.active:
        return None
    limit = gang.eviction if gang.eviction and gang.eviction.reason in FOR_GOOD else None
    why = f" ({limit.reason}: {limit.message})" if limit else ""
    patch = '--type merge -p \'{"spec":{"active":true}}\''
    message = (
        f"it is deactivated{why}; "
        f"activate it with kubectl -n {gang.namespace} patch workloads.muster.dev {gang.workload} {patch}"
    )
    return Refusal(Reason.DEACTIVATED, message)
