"""How a gang changes state: admitted with a plan, or giving capacity back: evicted, released into its queue, retired.

A gang is retired when its user deactivates it, or when a limit of its own was reached.
"""

from collections.abc import Mapping
from typing import Final

from fleet.actions import SaveGang
from fleet.placement.inventory import being_recut
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, Eviction, Gang, GangState, Job
from model.kinds.base import format_duration
from model.plain_text import counted


def evicted(gang: Gang, job: Job | None, reason: Reason, message: str, now_s: float, *, room_for: str = "") -> Gang:
    """Returns the gang told to leave. One that has not started yet gives everything back at once."""
    eviction = Eviction(reason, message, now_s, room_for, gang.admitted_at_s)
    counted = {"eviction": eviction, "evictions": gang.evictions + 1}
    if gang.state is GangState.RESERVED:
        return released(gang, job, reason, message, now_s, requeue_at_s=now_s, **counted)
    return gang.moved(
        GangState.EVICTING,
        reason,
        message,
        now_s,
        **counted,
        idle=None,
        timeouts=gang.timeouts + (reason == Reason.PODS_READY_TIMEOUT),
        ran_before_s=gang.ran_s(now_s),
    )


def released(gang: Gang, job: Job | None, reason: Reason, message: str, now_s: float, **changes: object) -> Gang:
    """Returns the gang back in its queue, holding nothing; it asks for all its job asks for, and is checked anew."""
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
        idle=None,
        checks={},
        ran_before_s=gang.ran_s(now_s),
        **changes,
    )


def moved_on(gang: Gang, message: str, now_s: float, **changes: object) -> Gang:
    """Returns the gang in its present state and for the present reason, with a new message and other changes."""
    return gang.moved(gang.state, gang.reason, message, now_s, **changes)


FOR_GOOD: Final = frozenset({Reason.MAX_RUN_TIME, Reason.REQUEUING_LIMIT, Reason.CHECK_REJECTED, Reason.IDLE_GPUS})
"""Who leaves for one of these is not considered again until somebody activates it."""


def spent(gang: Gang, now_s: float) -> tuple[Reason, str] | None:
    """Returns that a gang has used up its run time, over all its runs (Kueue's `maximumExecutionTimeSeconds`)."""
    if gang.max_run_s is None or gang.ran_s(now_s) < gang.max_run_s:
        return None
    return Reason.MAX_RUN_TIME, f"it has run for the {format_duration(gang.max_run_s)} that it may"


def called_off(gang: Gang) -> tuple[Reason, str] | None:
    """Returns that a gang was deactivated, and so may hold nothing; None while it is active."""
    return None if gang.active else (Reason.DEACTIVATED, "it was deactivated")


def retired(gang: Gang, job: Job, reason: Reason, message: str, now_s: float) -> SaveGang:
    """Returns the write that deactivates a gang. Its time-outs and run time are reset: activated again, it starts anew.

    One that is not active any more was being retired when the agent died; its last write is repeated.
    """
    eviction = gang.eviction if gang.state is GangState.EVICTING else Eviction(reason, message, now_s)
    stopped = released(gang, job, reason, message, now_s, active=False, eviction=eviction)
    return SaveGang(stopped.afresh(), deactivates=gang.active)


def deactivated(gang: Gang) -> Refusal | None:
    """Returns why a deactivated gang is not considered, and how to activate it; None for an active one."""
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


def missing_words(gang: Gang, starting: int) -> str:
    """Returns what a sentence on the start of a gang adds where so many pods start, and not all that it still needs."""
    fewer = sum([pods.count for pods in gang.pod_sets]) - sum(gang.reclaimable.values()) - starting
    if fewer <= 0:
        return ""
    if any(pods.core is not None for pods in gang.pod_sets):
        return f"; {counted(fewer, 'more pod')} may join"
    return f", with {counted(fewer, 'pod')} fewer than it asks"


def progress(plan: PlacementPlan, claims: Mapping[str, Claim]) -> tuple[GangState, Reason, str]:
    """Returns the state of a gang that was given this plan, with the reason and the sentence for it.

    `claims` are the machines that there are, by name.
    """
    if plan.ready:
        machines = len({assignment.slot.name for assignment in plan.assignments})
        return GangState.ADMITTED, Reason.ADMITTED, f"placed on {counted(machines, 'machine')}"
    parts = [
        f"{bought.count} x {(offer := bought.offering.offer).instance_type.name} ({offer.capacity_type}, {offer.zone})"
        for bought in plan.purchases
    ]
    if plan.recuts:
        parts.append(f"a new MIG layout on {', '.join(recut.slot.node for recut in plan.recuts)}")
    if not parts:
        return GangState.RESERVED, *_awaited(plan, claims)
    if plan.purchases:
        return GangState.RESERVED, Reason.BUYING, f"buying {', '.join(parts)} at {plan.cost_usd_h:.2f} USD/h"
    return GangState.RESERVED, Reason.RECUTTING, f"waits for {', '.join(parts)}"


def _awaited(plan: PlacementPlan, claims: Mapping[str, Claim]) -> tuple[Reason, str]:
    """Returns what is to be said of a gang that waits for machines that others have seen to: bought, or cut anew."""
    names = {assignment.slot.claim for assignment in plan.assignments if not assignment.slot.node}
    cut = sum(name in claims and being_recut(claims[name]) for name in names)
    coming = len(names) - cut
    if not cut:
        return Reason.BUYING, f"waits for {counted(coming, 'machine')} on the way"
    words = f"{counted(cut, 'machine')} whose GPUs are cut anew"
    if not coming:
        return Reason.RECUTTING, f"waits for {words}"
    return Reason.BUYING, f"waits for {counted(coming, 'machine')} on the way and {words}"
