"""Drift: machines that are not what their pool now declares (Karpenter `nodeclaim/disruption/drift.go`)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from fleet.actions import claim_subject, pool_subject
from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.eligibility import keeps, out_of_budget, spared
from fleet.disruption.outcomes import Blocked, Command, Due, Obstacle, no_reason
from fleet.disruption.pool_rollout import begun, held_pools
from fleet.disruption.replacement import coming, replacement, replacing, unready, why_not_replaced
from fleet.fence import concerning
from fleet.nodeclaims.drift import drifted_claims
from fleet.nodeclaims.fixed import best_offering
from fleet.nodeclaims.launch import write_claims
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import offerings_now
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.reasons import Reason
from fleet.snapshot import Claim
from model.kinds import NodePool
from model.plain_text import counted

Drifted = tuple[NodePool | None, Claim, str]
"""A machine, its pool (None when it was removed), and how it differs from it."""
_DriftedOf = tuple[NodePool, Claim, str]


class DriftMethod:
    """Idle drifted machines go at once; those with gangs when their replacements are ready; both under budget.

    Fixed pools are served first, each machine by another one that is ready before it goes (Karpenter `staticdrift.go`,
    reference 4.5 and 4.9). A fixed pool whose limits leave no room for one more machine is treated as the others: what
    is idle there goes first, and `fleet.nodeclaims.fixed` buys the next.
    """

    name = "drift"
    reason = Reason.DRIFTED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for machines of fixed pools, then for idle ones, then for busy ones."""
        whys = drifted_claims(context.fleet, context.snapshot)
        if not whys:
            return ()
        drifted = self._drifted(context, whys)
        pools = {pool.name: pool for pool, _, _ in drifted if pool}
        served = {name for name, pool in pools.items() if _has_room(context, pool)}
        fixed = [(pool, claim, why) for pool, claim, why in drifted if pool and pool.name in served]
        rest = [(pool, claim, why) for pool, claim, why in drifted if claim.node_pool not in served]
        commands = [*_fixed(context, fixed), *self._idle(context, rest)]
        return [*commands, *replacing(context, _due(rest), avoid=whys)]

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why a machine that is not what its pool declares stays; or that it is just that."""
        whys = drifted_claims(context.fleet, context.snapshot)
        why = whys.get(claim.name)
        if why is None:
            return no_reason(Obstacle.NOT_DUE, "it is what its pool declares")
        pool, sparing = context.pool_of(claim), spared(context, claim, self.reason)
        if sparing is not None:
            return sparing.although(why)
        if (held := held_pools(context, whys).get(claim.node_pool)) and not begun(context, claim):
            return Blocked(Obstacle.ROLLOUT, held).although(why)
        if pool is not None and _has_room(context, pool):
            return _fixed_blocked(context, pool, claim).although(why)
        if pool is not None and (context.is_empty(claim) or context.budget(pool.name, self.reason) < 1):
            return out_of_budget(context, pool, self.reason).although(why)
        served = {name for name, each in context.fleet.node_pools.items() if _has_room(context, each)}
        rest = [each for each in self._drifted(context, whys) if each[1].node_pool not in served]
        return why_not_replaced(context, claim, _due(rest), avoid=whys)

    def _drifted(self, context: DisruptionContext, whys: Mapping[str, str]) -> list[Drifted]:
        """Returns the machines that are different and may be touched: in a roll-out, of the pool whose turn it is."""
        held = held_pools(context, whys)

        def look(pool: NodePool | None, claim: Claim) -> Drifted | None:
            why = whys.get(claim.name)
            if (
                why is None
                or spared(context, claim, self.reason)
                or (claim.node_pool in held and not begun(context, claim))
            ):
                return None
            return pool, claim, why

        return found_at(context.candidates(), look)

    def _idle(self, context: DisruptionContext, drifted: Iterable[Drifted]) -> Iterator[Command]:
        for pool, claim, why in drifted:
            reason = _reason(pool)
            if context.is_empty(claim) and context.may_take([claim], reason):
                yield Command((claim,), reason, why)


def _due(drifted: Iterable[Drifted]) -> Due:
    return {claim.name: (_reason(pool), why) for pool, claim, why in drifted}


def _reason(pool: NodePool | None) -> Reason:
    return Reason.DRIFTED if pool else Reason.POOL_REMOVED


# -- fixed pools: another machine is bought first, and the old one goes when that is ready ----------------------------


def staged(replicas: int, running: int, drifted: int, budget: int, most_nodes: float = inf) -> int:
    """Returns how many drifted machines of a fixed pool are replaced now, each by one that is bought first.

    0 while the pool has more than it should; no more than the limit leaves room for beside all that run.
    """
    if running > replicas:
        return 0
    return int(max(0, min(drifted, budget, most_nodes - running)))


def _has_room(context: DisruptionContext, pool: NodePool) -> bool:
    """Returns whether a fixed pool has room within its limits for one machine more, or such a one already."""
    if pool.spec.replicas is None:
        return False
    members = context.members.get(pool.name, ())
    if any(coming(context, [claim.name]) for claim in members):
        return True
    with concerning(pool_subject(pool.name)):
        free = PoolHeadroom.of(context.snapshot, pool)
        sold = offerings_now(context.fleet, context.snapshot).of(pool)
        offerings = [offering for offering in sold if offering.offer.reservation is None]
        return not offerings or any(free.most(offering) > 0 for offering in offerings)


def _fixed(context: DisruptionContext, drifted: Iterable[_DriftedOf]) -> list[Command]:
    """Gives back machines whose successor is ready, and buys one for as many others as budget and limit allow."""
    by_pool: dict[str, list[_DriftedOf]] = {}
    for each in drifted:
        by_pool.setdefault(each[0].name, []).append(each)
    capacity: BuyableCapacity | None = None
    commands: list[Command] = []
    for _, mine in sorted(by_pool.items()):
        commands += _succeeded(context, mine)
        turn = _turn(context, [each for each in mine if not coming(context, [each[1].name])])
        if turn:
            capacity = capacity or build_capacity(context.fleet, context.snapshot)
            commands += _successors(context, capacity, turn)
    return commands


def _fixed_blocked(context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked:
    """Tells what keeps a drifted machine of a fixed pool."""
    blocked = _kept(context, claim) or replacement(context, claim) or _uneven(context, pool)
    if blocked is None and best_offering(pool, build_capacity(context.fleet, context.snapshot)) is None:
        blocked = Blocked(Obstacle.NO_PLACE, "no machine can be bought in its place now")
    return blocked or out_of_budget(context, pool, Reason.DRIFTED)


def _kept(context: DisruptionContext, claim: Claim) -> Blocked | None:
    with concerning(claim_subject(claim.name)):
        return None if context.is_empty(claim) else keeps(context, claim, Reason.DRIFTED)


def _uneven(context: DisruptionContext, pool: NodePool) -> Blocked | None:
    """Blocks while the pool has not the number of machines that it keeps: what is missing is bought first."""
    running = _running(context, pool)
    if running == pool.spec.replicas:
        return None
    words = f"{pool.name} has {counted(running, 'machine')} and keeps {pool.spec.replicas}, that comes first"
    return Blocked(Obstacle.FIXED_POOL, words)


def _running(context: DisruptionContext, pool: NodePool) -> int:
    return sum(1 for claim in context.members.get(pool.name, ()) if not claim.deleting and not claim.disruption)


def _succeeded(context: DisruptionContext, drifted: Iterable[_DriftedOf]) -> Iterator[Command]:
    """Gives back the machines in whose place another one stands ready."""
    for _, claim, why in drifted:
        names = [claim.name]
        if coming(context, names) and not unready(context, names) and not _kept(context, claim):
            context.taken.add(claim.name)
            yield Command((claim,), Reason.DRIFTED, why)


def _turn(context: DisruptionContext, waiting: Sequence[_DriftedOf]) -> Sequence[_DriftedOf]:
    """Returns those of a pool's machines for which another one is bought now."""
    if not waiting or _uneven(context, pool := waiting[0][0]):
        return ()
    able = [each for each in waiting if _kept(context, each[1]) is None]
    limit = inf if pool.spec.limits.nodes is None else pool.spec.limits.nodes
    budget = context.budget(pool.name, Reason.DRIFTED)
    return able[: staged(pool.spec.replicas or 0, _running(context, pool), len(able), budget, limit)]


def _successors(context: DisruptionContext, capacity: BuyableCapacity, turn: Iterable[_DriftedOf]) -> Iterator[Command]:
    for pool, claim, why in turn:
        if _kept(context, claim):
            continue  # those taken in this turn leave its gangs' PodDisruptionBudgets too little
        with concerning(pool_subject(pool.name)):
            offering = best_offering(pool, capacity)
        if offering is None or not context.may_take([claim], Reason.DRIFTED):
            return
        capacity.headroom[pool.name].spend(offering, 1)
        plan, now_s = PlacementPlan(purchases=(PlannedNodeClaims(offering, 1),)), context.snapshot.now_s
        bought = write_claims(plan, f"{pool.name}/{claim.name}", now_s, replaces=(claim.name,)).claims
        yield Command((claim,), Reason.DRIFTED, why, bought)
