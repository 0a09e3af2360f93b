"""What Karpenter asks of every candidate before it is disrupted.

Two classes of disruption (reference 4.2): graceful methods (emptiness, consolidation) wait for whatever protects a pod;
eventual ones (drift) do not where the machine has a termination grace period, because the pod must go by then anyhow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from fleet.disruption.eligibility import protected


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
