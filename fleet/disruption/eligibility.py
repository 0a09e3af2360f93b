"""Which machines may be disrupted at all: the conditions that methods share."""

from collections.abc import Sequence
from itertools import chain
from math import inf
from typing import Final

from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import Blocked, Obstacle, no_reason
from fleet.reasons import Reason
from fleet.scheduling.prefilter import immovable as immovable_gang
from fleet.snapshot import Claim, Gang, Pod, Snapshot
from model.index import followed_each
from model.kinds import NEVER, CapacityType, NodePool
from model.upstream.do_not_disrupt import lasts_s, protected

CONSOLIDATES: Final = frozenset({"WhenEmptyOrUnderutilized", "Balanced"})
"""Policies under which machines that are not empty may go for what it saves."""


# -- conditions of methods: None where nothing stands against it ------------------------------------------------------


def undeclared(claim: Claim) -> Blocked:
    """Blocks a machine whose pool was removed: methods that a pool has to ask for do nothing there."""
    return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")


def spared(context: DisruptionContext, claim: Claim, reason: Reason = Reason.UNDERUTILIZED) -> Blocked | None:
    """Blocks a machine whose node, or a DaemonSet's pod on it, is not to be disrupted.

    Neither emptiness nor drift nor consolidation take it; but a drain that has to end heeds no pods.
    """
    if claim.node not in context.objecting:
        return None
    node, now_s = context.snapshot.nodes[claim.node], context.snapshot.now_s
    if node.do_not_disrupt and protected(node.do_not_disrupt, node.created_at_s, now_s):
        return Blocked(Obstacle.PODS, "its node says do-not-disrupt")
    return None if context.in_the_end(claim, reason) else _kept_by_daemons(context, claim)


def _kept_by_daemons(context: DisruptionContext, claim: Claim) -> Blocked | None:
    now_s, daemons = context.snapshot.now_s, context.snapshot.daemon_pods.get(claim.node, ())
    held = next((it for it in daemons if protected(it.do_not_disrupt, it.started_at_s, now_s)), None)
    if held is not None:
        return Blocked(Obstacle.PODS, f"pod {held.key} says do-not-disrupt")
    budget = next(filter(None, map(context.closed_budget, daemons)), "")
    return Blocked(Obstacle.POD_BUDGET, f"PodDisruptionBudget {budget} allows no disruption now") if budget else None


def quiet(now_s: float, since_s: float | None, quiet_s: float) -> Blocked | None:
    """Blocks while the pool's `consolidateAfter` is not over; `since_s` is None where it has not been seen to begin."""
    if since_s is not None and now_s >= since_s + quiet_s:
        return None
    if quiet_s == NEVER:
        return no_reason(Obstacle.QUIET_TIME, "consolidateAfter is Never")
    until_s = (now_s if since_s is None else since_s) + quiet_s
    return Blocked(
        Obstacle.QUIET_TIME, f"no gang may have come or gone for {quiet_s:.0f} s (consolidateAfter)", until_s
    )


def minimum_stay(context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked | None:
    """Blocks the return to a preferred capacity type until the pool's `returnToPreferred.after` is over."""
    policy = pool.spec.disruption.return_to_preferred
    if policy is None or not preferred_to(pool, claim):
        return None
    until_s = claim.ready_at_s + policy.after
    if context.snapshot.now_s >= until_s:
        return None
    return Blocked(Obstacle.MINIMUM_STAY, "it stays for returnToPreferred.after first", until_s)


def preferred_to(pool: NodePool, claim: Claim) -> Sequence[CapacityType]:
    """Returns the capacity types that the pool prefers to the machine's, in order; none for one it does not declare."""
    order, held = pool.spec.capacity_types, claim.capacity_pool.capacity_type
    return order[: order.index(held)] if held in order else ()


def keeps(context: DisruptionContext, claim: Claim, reason: Reason) -> Blocked | None:
    """Blocks where work on the machine may not move, or not for this reason."""
    return immovable(context, claim, reason) or context.pod_budget([claim], reason)


def immovable(context: DisruptionContext, claim: Claim, reason: Reason = Reason.UNDERUTILIZED) -> Blocked | None:
    """Blocks where work on the machine may not move; pods that nobody makes anew never may.

    A drain that has to end keeps no machine that has drifted: its pods are let run as long as it may take.
    """
    for pod in () if context.in_the_end(claim, reason) else context.snapshot.node_pods.get(claim.node, ()):
        if protected(pod.do_not_disrupt, pod.started_at_s, context.snapshot.now_s):
            return Blocked(Obstacle.PODS, f"pod {pod.key} says do-not-disrupt")
        if not pod.workload and not pod.controlled:
            return Blocked(Obstacle.PODS, f"pod {pod.key} has no controller, so that nobody would make it anew")
    gangs = (gang for gang in context.gangs_on(claim) if not gang.ordinary)
    words = next(filter(None, (immovable_gang(context.fleet, context.snapshot, gang) for gang in gangs)), "")
    return Blocked(Obstacle.GANG, words) if words else None


def protections_over(snapshot: Snapshot) -> int:
    """Returns how many protections of work by do-not-disrupt have run out by now: nothing else changes with that."""
    pods, gangs = _pods_ends_s(snapshot.index, snapshot.node_pods), _gang_end_s(snapshot.index, snapshot.gangs)
    ends_s = (*chain.from_iterable(pods.values()), *gangs.values())
    return sum(1 for end_s in ends_s if end_s <= snapshot.now_s)


@followed_each()
def _pods_ends_s(pods: Sequence[Pod]) -> Sequence[float] | None:
    """Returns when the protections of a node's pods run out (epoch seconds), of those that do; None for none."""
    ends_s = [pod.started_at_s + lasts_s(pod.do_not_disrupt) for pod in pods if pod.do_not_disrupt]
    return [end_s for end_s in ends_s if end_s < inf] or None


@followed_each()
def _gang_end_s(gang: Gang) -> float | None:
    end_s = gang.admitted_at_s + lasts_s(gang.do_not_disrupt) if gang.do_not_disrupt and gang.admitted_at_s else inf
    return end_s if end_s < inf else None


def out_of_budget(context: DisruptionContext, pool: NodePool, reason: Reason) -> Blocked:
    """Blocks a machine that only budgets keep: they are used up, or other machines are given what they allow."""
    if context.budget(pool.name, reason) < 1:
        return Blocked(Obstacle.BUDGET, f"the budgets of {pool.name} let no more machines go as {reason} now")
    return Blocked(Obstacle.TURN, "others go first, its turn comes")
