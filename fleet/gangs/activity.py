"""Gangs that are out of the running: their user has deactivated them, or a limit of theirs was reached."""

from typing import Final

from fleet.actions import SaveGang
from fleet.gangs.transitions import released
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Eviction, Gang, GangState, Job
from model.kinds.base import format_duration

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
