"""Gangs that are out of the running: their user has deactivated them, or a limit of theirs was reached."""

from typing import Final

from fleet.actions import SaveGang
from fleet.admission.transitions import released
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Eviction, Gang, GangState

FOR_GOOD: Final = frozenset({Reason.MAX_RUN_TIME, Reason.REQUEUING_LIMIT, Reason.CHECK_REJECTED})
"""Who leaves for one of these is not considered again until somebody activates it."""


def must_stop(gang: Gang, now_s: float) -> tuple[Reason, str] | None:
    """Why a gang may not hold anything any more, wherever it is; None when it may.

    The time it has run counts over all its runs (Kueue's `maximumExecutionTimeSeconds`).
    """
    if not gang.active:
        return Reason.DEACTIVATED, "it was deactivated"
    if gang.max_run_s is not None and gang.ran_s(now_s) >= gang.max_run_s:
        return Reason.MAX_RUN_TIME, f"it has run for the {gang.max_run_s:.0f} s that it may"
    return None


def retired(gang: Gang, reason: Reason, message: str, now_s: float) -> SaveGang:
    """Take a gang out of the running. What was counted against it is forgotten: activated again, it starts afresh."""
    eviction = gang.eviction if gang.state is GangState.EVICTING else Eviction(reason, message, now_s)
    stopped = released(gang, reason, message, now_s, active=False, eviction=eviction)
    return SaveGang(stopped.afresh(), deactivates=True)


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
