"""What the outcome of a launch means for its claims: all machines of a launch group stay, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.actions import Action, SaveClaim, TerminateMachines
from fleet.reasons import Reason
from fleet.snapshot import (
    CapacityPool,
    Claim,
    LaunchError,
    LaunchFailure,
    LaunchOutcome,
    NodeDisruption,
    Reach,
    Snapshot,
)

SHORTAGE_S: Mapping[LaunchError, float] = {
    LaunchError.SHORTAGE: 180.0,
    LaunchError.QUOTA: 600.0,
    LaunchError.MISCONFIGURED: 600.0,
    LaunchError.THROTTLED: 0.0,
    LaunchError.UNKNOWN: 0.0,
}
"""How long a capacity pool is not tried again (Karpenter remembers a shortage for 3 minutes)."""


@dataclass(frozen=True, slots=True)
class LaunchSettlement:
    """What follows from an outcome: writes and returns, and capacity pools not to be tried until an instant."""

    actions: tuple[Action, ...]
    shortages: Mapping[CapacityPool, float]
    ask_again: bool = False
    """Nothing is known to have been bought: the same launch again after a pause."""


def settle(outcome: LaunchOutcome, lot: Sequence[Claim], snapshot: Snapshot) -> LaunchSettlement:
    """Bind instances to claims, or on any shortfall give back what came and drop the whole launch group."""
    now = snapshot.now_s
    ordered = sorted(lot, key=lambda claim: claim.name)
    if len(outcome.instances) >= len(ordered):
        bound = zip(ordered, sorted(outcome.instances), strict=False)
        saves = tuple(SaveClaim(replace(claim, instance_id=found, launched_at_s=now)) for claim, found in bound)
        surplus = tuple(sorted(outcome.instances)[len(ordered) :])
        return LaunchSettlement((*saves, *((TerminateMachines(surplus, Reason.ORPHANED),) if surplus else ())), {})
    if not outcome.instances and all(failure.error in _ASK_AGAIN for failure in outcome.failures):
        return LaunchSettlement((), {}, ask_again=True)
    message = _why(outcome, ordered)
    group = [claim for claim in snapshot.claims.values() if claim.launch.group == ordered[0].launch.group]
    given_up = tuple(
        SaveClaim(claim.with_disruption(NodeDisruption(Reason.LAUNCH_FAILED, message, now)))
        for claim in sorted(group, key=lambda claim: claim.name)
        if not claim.deleting
    )
    back = (TerminateMachines(tuple(sorted(outcome.instances)), Reason.LAUNCH_FAILED),) if outcome.instances else ()
    pause_s = max((SHORTAGE_S[f.error] for f in outcome.failures), default=SHORTAGE_S[LaunchError.SHORTAGE])
    until = now + max(pause_s, 1.0)
    short = _short(outcome, ordered[0].capacity_pool, snapshot)
    return LaunchSettlement((*back, *given_up), dict.fromkeys(short, until))


def _short(outcome: LaunchOutcome, tried: CapacityPool, snapshot: Snapshot) -> list[CapacityPool]:
    """The capacity pool that was tried, and all of its capacity type where the account cannot have that at all."""
    if all(failure.reach is not Reach.CAPACITY_TYPE for failure in outcome.failures):
        return [tried]
    offers = snapshot.catalog.offers
    return [tried, *(offer.pool_key for offer in offers if offer.capacity_type == tried.capacity_type)]


_ASK_AGAIN = frozenset({LaunchError.THROTTLED, LaunchError.UNKNOWN})
"""Nothing is known to have been bought, or the call was too early: the same token again, later."""


def _why(outcome: LaunchOutcome, lot: Sequence[Claim]) -> str:
    failures: Sequence[LaunchFailure] = outcome.failures
    reasons = ", ".join(sorted({_told(failure) for failure in failures})) or "fewer machines than asked"
    return f"{len(outcome.instances)} of {len(lot)} machines of {lot[0].capacity_pool}: {reasons}"


def _told(failure: LaunchFailure) -> str:
    """The cloud's code; with its sentence where only a person can help."""
    misled = failure.error is LaunchError.MISCONFIGURED and failure.message
    return f"{failure.code} ({failure.message[:200]})" if misled else failure.code
