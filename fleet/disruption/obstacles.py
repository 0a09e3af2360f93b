"""Why a voluntary method has not taken a machine, found in the order in which the method looks."""

from collections.abc import Sequence

from fleet.disruption.drift import drifted_claims
from fleet.disruption.eligibility import CONSOLIDATES
from fleet.disruption.fixed_drift import serves
from fleet.disruption.hindrances import SPARED, budget, keeps, min_stay, quiet, replaced, spans, successor
from fleet.disruption.proposals import waits
from fleet.disruption.verdict import Held, Obstacle, no_reason
from fleet.disruption.weigh import weighed
from fleet.disruption.yard import Yard
from fleet.nodeclaims.fixed import best_offering
from fleet.nodeclaims.interruption import block_ends_message
from fleet.offerings.reservations import closes_s, reservation_of
from fleet.placement.inventory import build_capacity
from fleet.reasons import Reason
from fleet.snapshot import Claim, Gang
from model.kinds import NEVER, NodePool


def ending_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine is not left because its capacity block ends."""
    known = reservation_of(yard.snapshot, claim)
    if known is None or known.kind != "capacity-block":
        return no_reason(Obstacle.NOT_DUE, "it is of no capacity block")
    closes_at_s = closes_s(yard.fleet.node_pools.get(claim.node_pool), known)
    if yard.snapshot.now_s < closes_at_s:
        return no_reason(Obstacle.NOT_DUE, f"capacity block {known.id} is open", closes_at_s)
    return replaced(yard, claim, {claim.name: (Reason.BLOCK_ENDS, block_ends_message(known))})


def emptiness_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine is not given back as idle."""
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    if pool.spec.replicas is not None:
        return no_reason(Obstacle.FIXED_POOL, f"{pool.name} keeps {pool.spec.replicas} machines, idle or not")
    if not yard.is_empty(claim):
        return no_reason(Obstacle.OCCUPIED, _occupants(yard, claim))
    if yard.spared(claim):
        return SPARED
    quiet_s = pool.spec.disruption.consolidate_after
    if not claim.emptied_at_s or yard.snapshot.now_s < claim.emptied_at_s + quiet_s:
        return quiet(claim.emptied_at_s or yard.snapshot.now_s, quiet_s)
    return budget(yard, pool, Reason.EMPTY)


def drift_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine that is not what its pool declares stays; or that it is just that."""
    whys = drifted_claims(yard.fleet, yard.snapshot)
    why = whys.get(claim.name)
    if why is None:
        return no_reason(Obstacle.NOT_DUE, "it is what its pool declares")
    if yard.spared(claim):
        return Held(SPARED.obstacle, f"{why}; {SPARED.message}")
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is not None and serves(yard, pool):
        return _fixed(yard, pool, claim, why)
    if pool is not None and (yard.is_empty(claim) or yard.budget(pool.name, Reason.DRIFTED) < 1):
        return budget(yard, pool, Reason.DRIFTED, why)
    fixed = {name for name, each in yard.fleet.node_pools.items() if serves(yard, each)}
    fates = {
        other.name: (Reason.DRIFTED if known else Reason.POOL_REMOVED, whys[other.name])
        for known, other in yard.volunteers()
        if other.name in whys and other.node_pool not in fixed
    }
    return spans(yard, claim, fates) or replaced(yard, claim, fates)


def expiry_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine has not reached its pool's age, or cannot go yet."""
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    most_s = pool.spec.template.expire_after
    if most_s == NEVER:
        return no_reason(Obstacle.NOT_DUE, "machines of its pool never expire")
    ends_s = claim.launched_at_s + most_s
    if yard.snapshot.now_s < ends_s:
        return no_reason(Obstacle.NOT_DUE, f"the pool allows {most_s / 3600:.1f} h", ends_s)
    return replaced(yard, claim, {claim.name: (Reason.EXPIRED, f"it is past {most_s / 3600:.1f} h")})


def consolidation_held(yard: Yard, claim: Claim) -> Held:
    """Why it does not pay, or is not allowed, to do without a machine; or that it is about to go."""
    if (proposal := yard.outlook.of(claim.name)) is not None:
        return waits(proposal)
    pool, gangs = yard.fleet.node_pools.get(claim.node_pool), yard.gangs_on(claim)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    idle = _unconcerned(pool, gangs) or (SPARED if yard.spared(claim) else None) or _begun(yard, claim)
    if idle is not None:
        return idle
    quiet_since_s, quiet_s = max(gang.admitted_at_s for gang in gangs), pool.spec.disruption.consolidate_after
    if yard.snapshot.now_s < quiet_since_s + quiet_s:
        return quiet(quiet_since_s, quiet_s)
    if (staying := min_stay(yard, pool, claim)) is not None:
        return staying
    kept = keeps(yard, claim, Reason.UNDERUTILIZED)
    return kept or _unpaid(yard, claim) or budget(yard, pool, Reason.UNDERUTILIZED)


def _unconcerned(pool: NodePool, gangs: Sequence[Gang]) -> Held | None:
    """Machines that consolidation never looks at."""
    if pool.spec.replicas is not None:
        return no_reason(Obstacle.FIXED_POOL, f"{pool.name} keeps {pool.spec.replicas} machines")
    if pool.spec.disruption.consolidation_policy not in CONSOLIDATES:
        return no_reason(Obstacle.POLICY, f"{pool.name} gives back empty machines only (WhenEmpty)")
    if not gangs:
        return no_reason(Obstacle.EMPTY, "no gang stands on it: it is emptiness that takes it")
    return None


def _fixed(yard: Yard, pool: NodePool, claim: Claim, why: str) -> Held:
    """A drifted machine of a fixed pool goes when another one stands in its place (`fixed_drift`)."""
    held = (None if yard.is_empty(claim) else keeps(yard, claim, Reason.DRIFTED)) or successor(yard, claim)
    if held is not None:
        return Held(held.obstacle, f"{why}; {held.message}")
    members = yard.members.get(pool.name, ())
    running = sum(1 for member in members if not member.deleting and not member.disruption)
    if running != pool.spec.replicas:
        words = f"{pool.name} has {running} machines and keeps {pool.spec.replicas}, that comes first"
        return Held(Obstacle.FIXED_POOL, f"{why}; {words}")
    if best_offering(pool, build_capacity(yard.fleet, yard.snapshot)) is None:
        return Held(Obstacle.NO_PLACE, f"{why}; no machine can be bought in its place now")
    return budget(yard, pool, Reason.DRIFTED, why)


def _begun(yard: Yard, claim: Claim) -> Held | None:
    """What a move that has begun waits for: what was bought for it, and what still runs on the machine."""
    bought = successor(yard, claim)
    return None if bought is None else keeps(yard, claim, Reason.UNDERUTILIZED) or bought


def _unpaid(yard: Yard, claim: Claim) -> Held | None:
    """Why it is not worth it to do without the machine; None when it is."""
    found = weighed(yard, [claim])
    return found if isinstance(found, Held) else None


def _occupants(yard: Yard, claim: Claim) -> str:
    gangs = [gang.name for gang in yard.gangs_on(claim)]
    others = sum(1 for pod in yard.snapshot.node_pods.get(claim.node, ()) if not pod.workload)
    named = [", ".join(gangs[:3]) + (f" and {len(gangs) - 3} more" if len(gangs) > 3 else "")] if gangs else []
    named += [f"{others} pod{'s' if others > 1 else ''} of no gang"] if others else []
    return f"{' and '.join(named) or 'work'} on it"
