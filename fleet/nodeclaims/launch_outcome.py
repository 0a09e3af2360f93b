"""What the outcome of a launch means for its claims: all machines of a launch group stay, or none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from model.changed import changed
from model.plain_text import counted

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
    """What follows from an outcome: writes, instances to give back, and capacity pools to avoid until an instant."""

    actions: tuple[Action, ...]
    shortages: Mapping[CapacityPool, float]
    ask_again: bool = False
    """Nothing is known to have been bought: the same launch again after a pause."""


def settle(outcome: LaunchOutcome, lot: Sequence[Claim], snapshot: Snapshot) -> LaunchSettlement:
    """Binds instances to the claims of a lot; on a shortfall gives back what came and drops the whole launch group."""
    ordered = sorted(lot, key=lambda claim: claim.name)
    if len(outcome.instances) >= len(ordered):
        return LaunchSettlement(tuple(_bound(outcome, ordered, snapshot.now_s)), {})
    if not outcome.instances and all(failure.error in _ASK_AGAIN for failure in outcome.failures):
        return LaunchSettlement((), {}, ask_again=True)
    pause_s = max((SHORTAGE_S[f.error] for f in outcome.failures), default=SHORTAGE_S[LaunchError.SHORTAGE])
    until_s = snapshot.now_s + max(pause_s, 1.0)
    short = _short(outcome, ordered[0].capacity_pool, snapshot)
    return LaunchSettlement(tuple(_dropped(outcome, ordered, snapshot)), dict.fromkeys(short, until_s))


def _bound(outcome: LaunchOutcome, lot: Sequence[Claim], now_s: float) -> Iterator[Action]:
    """Binds an instance to each claim, and gives back those that nobody asked for."""
    found = sorted(outcome.instances)
    for claim, instance_id in zip(lot, found, strict=False):
        yield SaveClaim(changed(claim, instance_id=instance_id, launched_at_s=now_s))
    if surplus := tuple(found[len(lot) :]):
        yield TerminateMachines(surplus, Reason.ORPHANED)


def _dropped(outcome: LaunchOutcome, lot: Sequence[Claim], snapshot: Snapshot) -> Iterator[Action]:
    """Gives back the instances that came, and gives up every claim of the launch group."""
    if outcome.instances:
        yield TerminateMachines(tuple(sorted(outcome.instances)), Reason.LAUNCH_FAILED)
    misled = bool(outcome.failures) and all(it.error is LaunchError.MISCONFIGURED for it in outcome.failures)
    reason = Reason.LAUNCH_REFUSED if misled else Reason.LAUNCH_FAILED
    failed = NodeDisruption(reason, _why(outcome, lot), snapshot.now_s)
    group = [claim for claim in snapshot.claims.values() if claim.launch.group == lot[0].launch.group]
    for claim in sorted(group, key=lambda claim: claim.name):
        if not claim.deleting:
            yield SaveClaim(claim.with_disruption(failed))


def _short(outcome: LaunchOutcome, tried: CapacityPool, snapshot: Snapshot) -> list[CapacityPool]:
    """Returns the capacity pool that was tried, and what a failure puts out of reach beside it.

    That is all of its capacity type where the account can have none, and all of its zone where no address is left.
    """
    reached, offers = {failure.reach for failure in outcome.failures}, snapshot.catalog.offers
    found = [tried]
    if Reach.CAPACITY_TYPE in reached:
        found += [offer.pool_key for offer in offers if offer.capacity_type == tried.capacity_type]
    if Reach.SUBNET in reached:
        found += [offer.pool_key for offer in offers if offer.zone == tried.zone]
    return found


_ASK_AGAIN = frozenset({LaunchError.THROTTLED, LaunchError.UNKNOWN})
"""Nothing is known to have been bought, or the call was too early: the same token again, later."""


def _why(outcome: LaunchOutcome, lot: Sequence[Claim]) -> str:
    failures: Sequence[LaunchFailure] = outcome.failures
    reasons = ", ".join(sorted({_told(failure) for failure in failures})) or "fewer machines than asked"
    return f"{len(outcome.instances)} of {counted(len(lot), 'machine')} of {lot[0].capacity_pool}: {reasons}"


def _told(failure: LaunchFailure) -> str:
    """Returns the cloud's code; with its sentence where only a person can help."""
    misled = failure.error is LaunchError.MISCONFIGURED and failure.message
    return f"{failure.code} ({failure.message[:200]})" if misled else failure.code
