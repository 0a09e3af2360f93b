"""Which machines may be disrupted at all, and the conditions that methods share.

Two classes of disruption (Karpenter, reference 4.2): graceful methods (emptiness, consolidation) wait for whatever
protects a pod; eventual ones (drift) do not where the machine has a termination grace period, because the pod must go
by then anyhow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import Blocked, Obstacle, no_reason
from fleet.reasons import Reason
from fleet.scheduling.prefilter import immovable as immovable_gang
from fleet.snapshot import Claim, Pod
from model.kinds import NEVER, CapacityType, NodePool

CONSOLIDATES: Final = frozenset({"WhenEmptyOrUnderutilized", "Balanced"})
"""Policies under which machines that are not empty may go for what it saves."""
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(h|ms|us|µs|ns|m|s)")
_DURATION: Final = re.compile(rf"\+?(?:{_PART.pattern})+")
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


# -- conditions of methods: None where nothing stands against it ------------------------------------------------------


def undeclared(claim: Claim) -> Blocked:
    """Blocks a machine whose pool was removed: methods that a pool has to ask for do nothing there."""
    return no_reason(Obstacle.NO_POOL, f"node pool {claim.node_pool} is not declared")


def spared(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Blocks a machine whose node says do-not-disrupt: neither emptiness nor drift nor consolidation take it."""
    node = context.snapshot.nodes.get(claim.node)
    if node is None or not node.do_not_disrupt:
        return None
    if not protected(node.do_not_disrupt, node.created_at_s, context.snapshot.now_s):
        return None
    return Blocked(Obstacle.PODS, "its node says do-not-disrupt")


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
    return immovable(context, claim) or context.pod_budget([claim], reason)


def immovable(context: DisruptionContext, claim: Claim) -> Blocked | None:
    """Blocks where work on the machine may not move; pods of no gang never may, as nobody finds them another place."""
    pods = context.snapshot.node_pods.get(claim.node, ())
    node = CandidateNode(pods=[CandidatePod(pod.key, _bound(pod)) for pod in pods])
    if pods and not_disruptable(node, DisruptionClass.GRACEFUL, context.snapshot.now_s) is not None:
        first = next(pod for pod in pods if _bound(pod))
        alone = f"pod {first.key} belongs to no gang, nobody would find it another place"
        return Blocked(Obstacle.PODS, f"pod {first.key} says do-not-disrupt" if first.do_not_disrupt else alone)
    staying = (immovable_gang(context.fleet, context.snapshot, gang) for gang in context.gangs_on(claim))
    words = next(filter(None, staying), "")
    return Blocked(Obstacle.GANG, words) if words else None


def _bound(pod: Pod) -> str:
    """Returns the do-not-disrupt that a pod says; a pod of no gang counts as saying `true`."""
    return "true" if pod.do_not_disrupt or not pod.workload else ""


def out_of_budget(context: DisruptionContext, pool: NodePool, reason: Reason) -> Blocked:
    """Blocks a machine that only budgets keep: they are used up, or other machines are given what they allow."""
    if context.budget(pool.name, reason) < 1:
        return Blocked(Obstacle.BUDGET, f"the budgets of {pool.name} let no more machines go as {reason} now")
    return Blocked(Obstacle.TURN, "others go first, its turn comes")


# -- what Karpenter asks of every candidate ---------------------------------------------------------------------------


class DisruptionClass(StrEnum):
    """How much a method may ask of what runs on a machine (Karpenter)."""

    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


class NotDisruptable(StrEnum):
    """The reason why a machine is left alone."""

    NO_CLAIM = "NoClaim"
    """Nobody here bought it."""
    NO_NODE = "NoNode"
    """It has not joined."""
    NOT_INITIALIZED = "NotInitialized"
    LEAVING = "Leaving"
    NOMINATED = "Nominated"
    """Pods that wait have just been promised a place on it."""
    PROTECTED = "Protected"
    """The node says do-not-disrupt."""
    UNKNOWN_POOL = "UnknownPool"
    IN_HAND = "InHand"
    """A command that is under way has it already."""
    PROTECTED_POD = "ProtectedPod"
    POD_BUDGET = "PodDisruptionBudget"
    """A pod's PodDisruptionBudget allows no disruption now."""
    SEVERAL_POD_BUDGETS = "SeveralPodDisruptionBudgets"
    """The eviction API refuses a pod that more than one PodDisruptionBudget selects."""


@dataclass(frozen=True, slots=True)
class CandidatePod:
    """A pod on a machine, as far as it may stand in the way."""

    name: str = ""
    do_not_disrupt: str = ""
    """Value of `karpenter.sh/do-not-disrupt`: `true`, or a duration from its start."""
    started_at_s: float = 0.0
    ended: bool = False
    """Succeeded or failed for good."""
    leaving: bool = False
    mirror: bool = False
    """A static pod of the kubelet, which nobody can evict."""
    owner: str = ""
    """Kind of the object it belongs to (`DaemonSet`, `StatefulSet`, ...); empty = of none."""
    pod_budgets: tuple[int, ...] = ()
    """Disruptions that each PodDisruptionBudget over it allows now."""


@dataclass(frozen=True, slots=True)
class CandidateNode:
    """A machine with its pods, daemons and static pods included."""

    claimed: bool = True
    joined: bool = True
    initialized: bool = True
    leaving: bool = False
    nominated: bool = False
    in_hand: bool = False
    pool_known: bool = True
    do_not_disrupt: str = ""
    since_s: float = 0.0
    """When it came, for a do-not-disrupt that is a duration."""
    grace_s: float = inf
    """Its termination grace period; infinite = drains take as long as they take."""
    pods: Sequence[CandidatePod] = ()


def not_disruptable(node: CandidateNode, disruption_class: DisruptionClass, now_s: float) -> NotDisruptable | None:
    """Returns the first reason to leave a machine alone, None when it may be disrupted."""
    barred = (
        (NotDisruptable.NO_CLAIM, not node.claimed),
        (NotDisruptable.NO_NODE, not node.joined),
        (NotDisruptable.NOT_INITIALIZED, not node.initialized),
        (NotDisruptable.LEAVING, node.leaving),
        (NotDisruptable.NOMINATED, node.nominated),
        (NotDisruptable.PROTECTED, protected(node.do_not_disrupt, node.since_s, now_s)),
        (NotDisruptable.UNKNOWN_POOL, not node.pool_known),
        (NotDisruptable.IN_HAND, node.in_hand),
    )
    of_machine = next((found for found, holds in barred if holds), None)
    if of_machine is not None or (disruption_class is DisruptionClass.EVENTUAL and node.grace_s < inf):
        return of_machine
    return next((found for pod in node.pods if (found := _of_pod(pod, now_s)) is not None), None)


def _of_pod(pod: CandidatePod, now_s: float) -> NotDisruptable | None:
    if pod.ended or pod.leaving:
        return None
    if protected(pod.do_not_disrupt, pod.started_at_s, now_s):
        return NotDisruptable.PROTECTED_POD
    if pod.mirror:
        return None
    if len(pod.pod_budgets) > 1:
        return NotDisruptable.SEVERAL_POD_BUDGETS
    return NotDisruptable.POD_BUDGET if any(allowed <= 0 for allowed in pod.pod_budgets) else None


def protected(value: str, since_s: float, now_s: float) -> bool:
    """Returns whether a do-not-disrupt annotation holds: for good (`true`), or for a duration from `since_s`.

    What is neither protects nothing.
    """
    if value == "true":
        return True
    return bool(_DURATION.fullmatch(value)) and now_s < since_s + _seconds(value)


def _seconds(text: str) -> float:
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))
