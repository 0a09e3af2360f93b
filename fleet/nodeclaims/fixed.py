"""Fixed pools: exactly `replicas` machines, whatever the queues hold (Karpenter's static capacity).

Machines are bought by halves of what is missing: a thousand are ten requests instead of a thousand, which a cloud
would throttle, and when the cloud has not got them all, what it has is found in a few passes.
"""

from collections.abc import Sequence
from functools import cache

from fleet.actions import Action, OpenClaims, SaveClaim, claim_subject, pool_subject
from fleet.fence import Decided, each
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.offerings import Offering, preference
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason
from fleet.snapshot import Claim, NodeDisruption, Snapshot
from fleet.snapshot.lookups import claims_by_pool, machines_held
from model.fleet import Fleet
from model.kinds import NodePool
from model.pools import capacity_rank


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Decided]:
    """Buys the machines that fixed pools lack, by halves, and gives back surplus ones, idle and youngest first."""
    supply = cache(lambda: build_capacity(fleet, snapshot))

    def step(pool: NodePool) -> list[Action]:
        claims = claims_by_pool(snapshot).get(pool.name, ())
        if any(claim_subject(claim.name) in snapshot.busy for claim in claims):
            return []
        staying = remaining(claims)
        missing = (pool.spec.replicas or 0) - len(staying)
        if missing > 0:
            return _buy(pool, supply(), claims, missing, snapshot.now_s)
        return _let_go(pool, snapshot, staying, -missing)

    pools = ((pool_subject(name), pool) for name, pool in sorted(fleet.node_pools.items()))
    return list(each(snapshot, ((key, pool) for key, pool in pools if pool.spec.replicas is not None), step))


def remaining(claims: Sequence[Claim]) -> list[Claim]:
    """Returns the claims that stay: neither on their way out nor about to be replaced by one of the others."""
    living = [claim for claim in claims if not claim.deleting and not claim.disruption]
    succeeded = {old for claim in living for old in claim.replaces}
    return [claim for claim in living if claim.name not in succeeded]


def _buy(pool: NodePool, supply: BuyableCapacity, claims: Sequence[Claim], missing: int, now_s: float) -> list[Action]:
    actions: list[Action] = []
    # Who loses a machine in the instant in which another was bought buys the same once more: by another name.
    owner = ",".join([pool.name, *sorted(claim.name for claim in claims)])
    purpose = f"one of the {pool.spec.replicas} replicas of {pool.name}"
    while missing:
        offering = best_offering(pool, supply)
        if offering is None:
            break
        count = min(-(-missing // 2), supply.headroom[pool.name].most(offering))
        supply.headroom[pool.name].spend(offering, count)
        plan = PlacementPlan(purchases=(PlannedNodeClaims(offering, count),))
        actions.append(OpenClaims(write_claims(plan, f"{owner}/{len(actions)}", now_s, purpose=purpose).claims))
        missing -= count
    return actions


def best_offering(pool: NodePool, supply: BuyableCapacity) -> Offering | None:
    """Returns the offering that the pool would buy now; None when limits or shortages leave none."""
    free = supply.headroom[pool.name]
    ranked = sorted(
        supply.offerings.of(pool),
        key=lambda offering: (
            capacity_rank(pool, offering.offer.capacity_type),
            offering.offer.price_usd_h,
            preference(offering.offer),
            -(free.reserved_left(offering) or 0),
            offering.key,
        ),
    )
    return next((s for s in ranked if s.offer.pool_key not in supply.shortages and free.most(s) > 0), None)


def _let_go(pool: NodePool, snapshot: Snapshot, staying: list[Claim], surplus: int) -> list[Action]:
    held = machines_held(snapshot)
    used = {claim.name for claim in staying if claim.name in held or snapshot.node_pods.get(claim.node)}
    ranked = sorted(staying, key=lambda claim: (claim.name in used, -claim.created_at_s, claim.name))
    message = f"node pool {pool.name} now has {pool.spec.replicas} replicas"
    why = NodeDisruption(Reason.SCALED_DOWN, message, snapshot.now_s)
    return [SaveClaim(claim.with_disruption(why)) for claim in ranked[:surplus]]
