"""Single-node consolidation: one machine less, or one cheaper machine, when it pays for the work it interrupts.

Karpenter's rule (delete if all fits elsewhere, replace by at most one cheaper machine) on whole gangs, with one more
condition: the saving over `PAYBACK_S` must exceed the value of the work lost since the last checkpoint.
"""

from dataclasses import dataclass

from fleet.capacity.disrupt.command import Command
from fleet.capacity.disrupt.replace import Unit, move
from fleet.capacity.disrupt.yard import Yard
from fleet.capacity.intent import write_claims
from fleet.capacity.provision import Plan, Refusal
from fleet.cost.lost import lost_work_usd
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState, Gang
from model.kinds import NodePool

PAYBACK_S = 4 * 3600.0
"""The saving of this long must pay for the interruption."""


@dataclass(frozen=True, slots=True)
class _Move:
    unit: Unit
    plans: dict[str, Plan]
    saving_usd_h: float


def consolidate(yard: Yard) -> list[Command]:
    """At most one command a pass: the world after it is looked at anew."""
    finished = _finish(yard)
    if finished:
        return finished
    for pool, claim in sorted(yard.candidates(), key=lambda entry: (-entry[1].price_usd_h, entry[1].name)):
        if pool is None or not _eligible(yard, pool, claim):
            continue
        found = _best(yard, claim)
        if found is None or not yard.may_take([claim], Reason.UNDERUTILIZED):
            continue
        lots = [lot for plan in found.plans.values() for lot in plan.lots]
        message = f"its work fits elsewhere, saving {found.saving_usd_h:.2f} USD/h"
        if not lots:
            return [Command((claim,), Reason.UNDERUTILIZED, message)]
        uid, plan = next((uid, plan) for uid, plan in sorted(found.plans.items()) if plan.lots)
        bought = write_claims(plan, uid, yard.snapshot.now_s, gang=uid, replaces=(claim.name,)).claims
        return [Command((claim,), Reason.UNDERUTILIZED, message, bought)]
    return []


def _finish(yard: Yard) -> list[Command]:
    """A cheaper machine that was bought for this is ready: the old one may go."""
    for _, claim in yard.candidates():
        coming = [
            other for other in yard.snapshot.claims.values() if claim.name in other.replaces and not other.disruption
        ]
        if coming and all(other.state is ClaimState.READY for other in coming):
            saving = claim.price_usd_h - sum(other.price_usd_h for other in coming)
            yard.gone.add(claim.name)
            return [Command((claim,), Reason.UNDERUTILIZED, f"a cheaper machine is ready, saving {saving:.2f} USD/h")]
    return []


def _eligible(yard: Yard, pool: NodePool, claim: Claim) -> bool:
    policy = pool.spec.disruption
    if policy.consolidation_policy != "WhenEmptyOrUnderutilized" or pool.spec.replicas is not None:
        return False
    if not yard.gangs_on(claim) or yard.unit(claim) is None:
        return False
    if any(claim.name in other.replaces for other in yard.snapshot.claims.values()):
        return False
    quiet_since_s = max(gang.admitted_at_s for gang in yard.gangs_on(claim))
    return yard.snapshot.now_s - quiet_since_s >= policy.consolidate_after


def _best(yard: Yard, claim: Claim) -> _Move | None:
    unit = Unit((claim,), tuple(yard.gangs_on(claim)))
    plans = move(yard, unit)
    if isinstance(plans, Refusal):
        return None
    lots = [lot for plan in plans.values() for lot in plan.lots]
    if sum(lot.count for lot in lots) > 1:
        return None
    if claim.capacity_pool.capacity_type == "spot" and any(lot.shape.offer.capacity_type == "spot" for lot in lots):
        return None  # spot for cheaper spot only trades interruption risk (Karpenter's rule of fifteen types)
    saving = claim.price_usd_h - sum(plan.cost_usd_h for plan in plans.values())
    if saving <= 0 or saving * PAYBACK_S / 3600 <= _lost(yard, unit.gangs):
        return None
    return _Move(unit, plans, saving)


def _lost(yard: Yard, gangs: tuple[Gang, ...]) -> float:
    return sum(lost_work_usd(gang, yard.snapshot) for gang in gangs)
