"""Drift of fixed pools: another machine of the pool is bought first, and the old one goes when that is ready.

Karpenter `staticdrift.go`, reference 4.5 and 4.9. A pool whose limit leaves no room for one more machine is not served
here: what is idle there goes first, and `fixed` buys the next.
"""

from collections.abc import Iterable, Sequence
from math import inf

from fleet.disruption.command import Command
from fleet.disruption.replace import coming
from fleet.disruption.yard import Yard
from fleet.nodeclaims.fixed import best_offering
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import offerings_now
from fleet.placement.inventory import BuyableCapacity, build_capacity
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason
from fleet.snapshot import Claim, ClaimState
from model.kinds import NodePool

Drifted = tuple[NodePool, Claim, str]
"""A machine, its pool, and how it differs from it."""


def staged(replicas: int, running: int, drifted: int, budget: int, most_nodes: float = inf) -> int:
    """How many drifted machines of a fixed pool are replaced now, each by one that is bought first.

    None while the pool has more than it should; no more than the limit leaves room for beside all that run.
    """
    if running > replicas:
        return 0
    return int(max(0, min(drifted, budget, most_nodes - running)))


def serves(yard: Yard, pool: NodePool | None) -> bool:
    """Whether drifted machines of the pool are replaced here: it is fixed, and its limits leave room for one more."""
    if pool is None or pool.spec.replicas is None:
        return False
    members = yard.members.get(pool.name, ())
    if any(coming(yard, [claim.name]) for claim in members):
        return True
    free, all_of_it = PoolHeadroom.of(yard.snapshot, pool), offerings_now(yard.fleet, yard.snapshot).of(pool)
    offerings = [offering for offering in all_of_it if offering.offer.reservation is None]
    return not offerings or any(free.most(offering) > 0 for offering in offerings)


def fixed_drift(yard: Yard, drifted: Iterable[Drifted]) -> list[Command]:
    """Machines whose successor is ready go; as many others as budget and limit allow get one."""
    by_pool: dict[str, list[Drifted]] = {}
    for each in drifted:
        by_pool.setdefault(each[0].name, []).append(each)
    supply: BuyableCapacity | None = None
    commands: list[Command] = []
    for name, mine in sorted(by_pool.items()):
        waiting = []
        for pool, claim, why in mine:
            successors = coming(yard, [claim.name])
            if not successors:
                waiting.append((pool, claim, why))
            elif all(it.state is ClaimState.READY for it in successors) and _may_go(yard, claim):
                yard.gone.add(claim.name)
                commands.append(Command((claim,), Reason.DRIFTED, why))
        turn = _turn(yard, name, waiting)
        if turn:
            supply = supply or build_capacity(yard.fleet, yard.snapshot)
            commands += _successors(yard, supply, turn)
    return commands


def _may_go(yard: Yard, claim: Claim) -> bool:
    if yard.is_empty(claim):
        return True
    return yard.unit(claim) is not None and yard.pod_budget([claim], Reason.DRIFTED) is None


def _turn(yard: Yard, name: str, waiting: Sequence[Drifted]) -> Sequence[Drifted]:
    pool = yard.fleet.node_pools[name]
    able = [each for each in waiting if _may_go(yard, each[1])]
    replicas = pool.spec.replicas or 0
    running = sum(1 for claim in yard.members.get(name, ()) if not claim.deleting and not claim.disruption)
    if running < replicas:
        return ()  # what is missing is bought first (`fixed`), perhaps in this very pass
    limit = inf if pool.spec.limits.nodes is None else pool.spec.limits.nodes
    budget = yard.budget(name, Reason.DRIFTED)
    return able[: staged(replicas, running, len(able), budget, limit)]


def _successors(yard: Yard, supply: BuyableCapacity, turn: Iterable[Drifted]) -> Iterable[Command]:
    for pool, claim, why in turn:
        if not _may_go(yard, claim):
            continue  # those taken in this turn leave its gangs' PodDisruptionBudgets too little
        offering = best_offering(pool, supply)
        if offering is None or not yard.may_take([claim], Reason.DRIFTED):
            return
        supply.headroom[pool.name].spend(offering, 1)
        plan = PlacementPlan(purchases=(PlannedNodeClaims(offering, 1),))
        bought = write_claims(plan, f"{pool.name}/{claim.name}", yard.snapshot.now_s, replaces=(claim.name,)).claims
        yield Command((claim,), Reason.DRIFTED, why, bought)
