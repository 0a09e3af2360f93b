"""Why a machine that EC2 expects to take, or that its pool bought for want of a better type, is not replaced yet."""

from dataclasses import replace

from fleet.disruption.hindrances import SPARED, budget, keeps, min_stay, replaced, spans, successor
from fleet.disruption.preference import Market
from fleet.disruption.replace import Unit, move
from fleet.disruption.stay import preferred_to
from fleet.disruption.verdict import Held, Obstacle, no_reason
from fleet.disruption.yard import Yard
from fleet.placement.inventory import build_capacity
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim
from model.kinds import NEVER, NodePool


def rebalance_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine is not left on EC2's advice; or that there is none."""
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    if pool.spec.disruption.on_rebalance == "Ignore":
        return no_reason(Obstacle.POLICY, f"{pool.name} ignores EC2's advice")
    if not claim.advised_at_s:
        return no_reason(Obstacle.NOT_DUE, "EC2 has not advised to leave it")
    if yard.spared(claim):
        return SPARED
    if yard.is_empty(claim) or yard.budget(pool.name, Reason.REBALANCED) < 1:
        return budget(yard, pool, Reason.REBALANCED)
    why = "EC2 expects to take the machine soon"
    advised = [other for known, other in yard.volunteers() if known is not None and other.advised_at_s]
    fates = {other.name: (Reason.REBALANCED, why) for other in advised if not yard.is_empty(other)}
    short = {**yard.snapshot.shortages, **{other.capacity_pool: NEVER for other in advised}}
    elsewhere = replace(yard, snapshot=replace(yard.snapshot, shortages=short))
    return spans(elsewhere, claim, fates) or replaced(elsewhere, claim, fates)


def preference_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine does not give way to one of a capacity type that its pool prefers."""
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    if pool.spec.disruption.return_to_preferred is None:
        return no_reason(Obstacle.POLICY, f"{pool.name} has no returnToPreferred")
    if not preferred_to(pool, claim):
        return no_reason(Obstacle.NOT_DUE, f"{pool.name} prefers nothing to {claim.capacity_pool.capacity_type}")
    if yard.is_empty(claim):
        return no_reason(Obstacle.EMPTY, "no gang stands on it: it is emptiness that takes it")
    held = (SPARED if yard.spared(claim) else None) or min_stay(yard, pool, claim)
    return held or keeps(yard, claim, Reason.PREFERRED) or successor(yard, claim) or _unwanted(yard, pool, claim)


def _unwanted(yard: Yard, pool: NodePool, claim: Claim) -> Held:
    """Why nothing that is preferred comes in its place now."""
    market = Market(yard, build_capacity(yard.fleet, yard.snapshot))
    if not market.sells(pool, preferred_to(pool, claim)):
        return Held(Obstacle.NO_PLACE, f"all offers of {', '.join(preferred_to(pool, claim))} are short")
    unit = Unit((claim,), tuple(yard.gangs_on(claim)))
    plans = move(yard, unit)
    if isinstance(plans, Refusal):
        return Held(Obstacle.NO_PLACE, f"no place without it: {plans.message}")
    if not market.worth(unit, plans):
        return Held(
            Obstacle.PAYBACK, "what its gangs would come to is not preferred, or does not pay for the work lost"
        )
    return budget(yard, pool, Reason.PREFERRED)
