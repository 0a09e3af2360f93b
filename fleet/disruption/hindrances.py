"""What may hold any method back: budgets, work that may not move, successors that boot, quiet times, minimum stays."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fleet.actions import gang_subject
from fleet.disruption.held_back import held_back
from fleet.disruption.replace import Unit, coming, move, units
from fleet.disruption.stay import stays_until_s
from fleet.disruption.verdict import Held, Obstacle, no_reason
from fleet.disruption.yard import Yard
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState, Gang, GangState
from model.kinds import NEVER, NodePool

SPARED = Held(Obstacle.PODS, "its node says do-not-disrupt")


def min_stay(yard: Yard, pool: NodePool, claim: Claim) -> Held | None:
    """A machine of a capacity type that its pool did not prefer stays for a while."""
    until_s = stays_until_s(pool, claim)
    if yard.snapshot.now_s >= until_s:
        return None
    return Held(Obstacle.MINIMUM_STAY, "it stays for returnToPreferred.after first", until_s)


def quiet(since_s: float, quiet_s: float) -> Held:
    """The quiet time of a pool, that is not over."""
    if quiet_s == NEVER:
        return no_reason(Obstacle.QUIET_TIME, "consolidateAfter is Never")
    return Held(Obstacle.QUIET_TIME, f"it has to be quiet for {quiet_s:.0f} s first", since_s + quiet_s)


def budget(yard: Yard, pool: NodePool, reason: Reason, why: str = "") -> Held:
    """The budgets of a pool, or others that they were given to."""
    left = yard.budget(pool.name, reason)
    lead = f"{why}; " if why else ""
    if left < 1:
        return Held(Obstacle.BUDGET, f"{lead}the budgets of {pool.name} let no more machines go as {reason} now")
    return Held(Obstacle.TURN, f"{lead}others go first, its turn comes")


def spans(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Held | None:
    """A gang that spans more machines than the budgets let go: ever, or now."""
    reason, why = fates[claim.name]
    if (span := held_back(yard, fates).get(claim.name)) is not None:
        return Held(Obstacle.BUDGET, f"{why}; it {span}")
    unit = unit_of(yard, claim, fates)
    together = Counter(other.node_pool for other in unit.claims) if unit is not None else Counter[str]()
    for name, count in sorted(together.items()):
        if count > (left := yard.budget(name, reason)):
            return Held(
                Obstacle.BUDGET, f"{why}; {count} machines go together, the budgets of {name} let {left} go now"
            )
    return None


def unit_of(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Unit | None:
    """The machines that go together with this one, and their gangs; None when one of these may not move."""
    return next((unit for unit in units(yard, fates) if claim.name in unit.names), None)


def replaced(yard: Yard, claim: Claim, fates: Mapping[str, tuple[Reason, str]]) -> Held:
    """What keeps a busy machine that has to be replaced first."""
    reason, why = fates[claim.name]
    held = keeps(yard, claim, reason) or successor(yard, claim)
    if held is not None:
        return Held(held.obstacle, f"{why}; {held.message}")
    unit = unit_of(yard, claim, fates)
    if unit is None:
        return Held(Obstacle.GANG, f"{why}; machines that go with it carry work that may not move")
    if (held := yard.pod_budget(unit.claims, reason)) is not None:
        return Held(held.obstacle, f"{why}; {held.message}")
    plans = move(yard, unit, avoid=fates)
    if isinstance(plans, Refusal):
        return Held(Obstacle.NO_PLACE, f"{why}; {plans.message}")
    return Held(Obstacle.TURN, f"{why}; others go first, its turn comes")


def successor(yard: Yard, claim: Claim) -> Held | None:
    """A machine that was bought to replace it and is not ready, or has just become it."""
    bought = coming(yard, [claim.name])
    if not bought:
        return None
    unready = sorted(other.name for other in bought if other.state is not ClaimState.READY)
    words = f"{', '.join(unready)} has to be ready first" if unready else f"{bought[0].name} stands ready for it"
    return Held(Obstacle.REPLACEMENT, words)


def stays(yard: Yard, claim: Claim) -> Held | None:
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


def keeps(yard: Yard, claim: Claim, reason: Reason) -> Held | None:
    """Work on the machine that may not move, or not for this reason."""
    return stays(yard, claim) or yard.pod_budget([claim], reason)


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
