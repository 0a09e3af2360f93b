"""Why a voluntary method has not taken a machine, found in the order in which the method looks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fleet.actions import gang_subject
from fleet.capacity.disrupt.drift import drifted_claims
from fleet.capacity.disrupt.fixed_drift import serves
from fleet.capacity.disrupt.held_back import held_back
from fleet.capacity.disrupt.replace import Unit, coming, move, units
from fleet.capacity.disrupt.rounds import CONSOLIDATES
from fleet.capacity.disrupt.verdict import Held, Obstacle, no_reason
from fleet.capacity.disrupt.weigh import weighed
from fleet.capacity.disrupt.yard import Yard
from fleet.capacity.fixed import best_shape
from fleet.capacity.stock import build_supply
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState, Gang, GangState
from model.kinds import NEVER, NodePool


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
        return _SPARED
    quiet_s = pool.spec.disruption.consolidate_after
    if not claim.emptied_at_s or yard.snapshot.now_s < claim.emptied_at_s + quiet_s:
        return _quiet(claim.emptied_at_s or yard.snapshot.now_s, quiet_s)
    return _budget(yard, pool, Reason.EMPTY)


def drift_held(yard: Yard, claim: Claim) -> Held:
    """Why a machine that is not what its pool declares stays; or that it is just that."""
    whys = drifted_claims(yard.fleet, yard.snapshot)
    why = whys.get(claim.name)
    if why is None:
        return no_reason(Obstacle.NOT_DUE, "it is what its pool declares")
    if yard.spared(claim):
        return Held(_SPARED.obstacle, f"{why}; {_SPARED.message}")
    pool = yard.fleet.node_pools.get(claim.node_pool)
    if pool is not None and serves(yard, pool):
        return _fixed(yard, pool, claim, why)
    if pool is not None and (yard.is_empty(claim) or yard.budget(pool.name, Reason.DRIFTED) < 1):
        return _budget(yard, pool, Reason.DRIFTED, why)
    fixed = {name for name, each in yard.fleet.node_pools.items() if serves(yard, each)}
    fates = {
        other.name: (Reason.DRIFTED if known else Reason.POOL_REMOVED, whys[other.name])
        for known, other in yard.volunteers()
        if other.name in whys and other.node_pool not in fixed
    }
    return _spans(yard, claim, fates) or _replaced(yard, claim, fates)


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
    return _replaced(yard, claim, {claim.name: (Reason.EXPIRED, f"it is past {most_s / 3600:.1f} h")})


def consolidation_held(yard: Yard, claim: Claim) -> Held:
    """Why it does not pay, or is not allowed, to do without a machine."""
    pool, gangs = yard.fleet.node_pools.get(claim.node_pool), yard.gangs_on(claim)
    if pool is None:
        return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")
    idle = _unconcerned(pool, gangs) or (_SPARED if yard.spared(claim) else None) or _coming(yard, claim)
    if idle is not None:
        return idle
    quiet_since_s, quiet_s = max(gang.admitted_at_s for gang in gangs), pool.spec.disruption.consolidate_after
    if yard.snapshot.now_s < quiet_since_s + quiet_s:
        return _quiet(quiet_since_s, quiet_s)
    return _stays(yard, claim) or _unpaid(yard, claim) or _budget(yard, pool, Reason.UNDERUTILIZED)


def _unconcerned(pool: NodePool, gangs: Sequence[Gang]) -> Held | None:
    """Machines that consolidation never looks at."""
    if pool.spec.replicas is not None:
        return no_reason(Obstacle.FIXED_POOL, f"{pool.name} keeps {pool.spec.replicas} machines")
    if pool.spec.disruption.consolidation_policy not in CONSOLIDATES:
        return no_reason(Obstacle.POLICY, f"{pool.name} gives back empty machines only (WhenEmpty)")
    if not gangs:
        return no_reason(Obstacle.EMPTY, "no gang stands on it: it is emptiness that takes it")
    return None


# -- parts ------------------------------------------------------------------------------------------------------------

_SPARED = Held(Obstacle.PODS, "its node says do-not-disrupt")


def _fixed(yard: Yard, pool: NodePool, claim: Claim, why: str) -> Held:
    """A drifted machine of a fixed pool goes when another one stands in its place (`fixed_drift`)."""
    held = _coming(yard, claim) or (None if yard.is_empty(claim) else _stays(yard, claim))
    if held is not None:
        return Held(held.obstacle, f"{why}; {held.message}")
    members = yard.members.get(pool.name, ())
    running = sum(1 for member in members if not member.deleting and not member.disruption)
    if running != pool.spec.replicas:
        words = f"{pool.name} has {running} machines and keeps {pool.spec.replicas}, that comes first"
        return Held(Obstacle.FIXED_POOL, f"{why}; {words}")
    if best_shape(pool, build_supply(yard.fleet, yard.snapshot)) is None:
        return Held(Obstacle.NO_PLACE, f"{why}; no machine can be bought in its place now")
    return _budget(yard, pool, Reason.DRIFTED, why)


def _quiet(since_s: float, quiet_s: float) -> Held:
    if quiet_s == NEVER:
        return no_reason(Obstacle.QUIET_TIME, "consolidateAfter is Never")
    return Held(Obstacle.QUIET_TIME, f"it has to be quiet for {quiet_s:.0f} s first", since_s + quiet_s)


def _budget(yard: Yard, pool: NodePool, reason: Reason, why: str = "") -> Held:
    left = yard.budget(pool.name, reason)
    lead = f"{why}; " if why else ""
    if left < 1:
        return Held(Obstacle.BUDGET, f"{lead}the budgets of {pool.name} let no more machines go as {reason} now")
    return Held(Obstacle.TURN, f"{lead}others go first, its turn comes")


def _spans(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Held | None:
    """A gang that spans more machines than the budgets let go: ever, or now."""
    reason, why = fates[claim.name]
    if (span := held_back(yard, fates).get(claim.name)) is not None:
        return Held(Obstacle.BUDGET, f"{why}; it {span}")
    unit = _unit_of(yard, claim, fates)
    together = Counter(other.node_pool for other in unit.claims) if unit is not None else Counter[str]()
    for name, count in sorted(together.items()):
        if count > (left := yard.budget(name, reason)):
            return Held(
                Obstacle.BUDGET, f"{why}; {count} machines go together, the budgets of {name} let {left} go now"
            )
    return None


def _unit_of(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Unit | None:
    return next((unit for unit in units(yard, fates) if claim.name in unit.names), None)


def _replaced(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Held:
    """What keeps a busy machine that has to be replaced first."""
    why = fates[claim.name][1]
    held = _coming(yard, claim) or _stays(yard, claim)
    if held is not None:
        return Held(held.obstacle, f"{why}; {held.message}")
    unit = _unit_of(yard, claim, fates)
    if unit is None:
        return Held(Obstacle.GANG, f"{why}; machines that go with it carry work that may not move")
    plans = move(yard, unit, avoid=fates)
    if isinstance(plans, Refusal):
        return Held(Obstacle.NO_PLACE, f"{why}; {plans.message}")
    return Held(Obstacle.TURN, f"{why}; others go first, its turn comes")


def _coming(yard: Yard, claim: Claim) -> Held | None:
    bought = coming(yard, [claim.name])
    if not bought:
        return None
    unready = sorted(other.name for other in bought if other.state is not ClaimState.READY)
    words = f"{', '.join(unready)} has to be ready first" if unready else f"{bought[0].name} stands ready for it"
    return Held(Obstacle.REPLACEMENT, words)


def _stays(yard: Yard, claim: Claim) -> Held | None:
    """Work on the machine that may not move (`Yard.unit`)."""
    if yard.unit(claim) is not None:
        return None
    for pod in yard.snapshot.node_pods.get(claim.node, ()):
        if pod.do_not_disrupt:
            return Held(Obstacle.PODS, f"pod {pod.key} says do-not-disrupt")
        if not pod.workload:
            return Held(Obstacle.PODS, f"pod {pod.key} belongs to no gang, nobody would find it another place")
    words = next(_immovable(yard, yard.gangs_on(claim)), "a gang on it may not move")
    return Held(Obstacle.GANG, words)


def _immovable(yard: Yard, gangs: Iterable[Gang]) -> Iterator[str]:
    for gang in gangs:
        if gang.do_not_disrupt:
            yield f"{gang.name} says do-not-disrupt"
        elif gang.state is not GangState.ADMITTED:
            yield f"{gang.name} is {gang.state}"
        elif gang.replacing_since_s:
            yield f"{gang.name} is replacing a machine it has lost"
        elif gang_subject(gang.uid) in yard.snapshot.busy:
            yield f"an action on {gang.name} is under way"


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
