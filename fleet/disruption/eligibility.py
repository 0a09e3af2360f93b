"""Which machines may be disrupted at all, of those a method looks at (Karpenter, reference 4.2).

Two classes of disruption: graceful methods (emptiness, consolidation) wait for whatever protects a pod; eventual ones
(drift) do not where the machine has a termination grace period, because the pod must go by then anyhow.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

CONSOLIDATES: Final = frozenset({"WhenEmptyOrUnderutilized", "Balanced"})
"""Policies under which machines that are not empty may go for what it saves."""
_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(h|ms|us|µs|ns|m|s)")
_DURATION: Final = re.compile(rf"\+?(?:{_PART.pattern})+")
_UNIT_S: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class Care(StrEnum):
    """How much a method may ask of what runs on a machine."""

    GRACEFUL = "graceful"
    EVENTUAL = "eventual"


class Barrier(StrEnum):
    """Why a machine is left alone."""

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
class Tenant:
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
class Post:
    """A machine with its tenants, daemons and static pods included."""

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
    tenants: Sequence[Tenant] = ()


def barrier(post: Post, care: Care, now_s: float) -> Barrier | None:
    """The first reason to leave a machine alone, None when it may be disrupted."""
    barred = (
        (Barrier.NO_CLAIM, not post.claimed),
        (Barrier.NO_NODE, not post.joined),
        (Barrier.NOT_INITIALIZED, not post.initialized),
        (Barrier.LEAVING, post.leaving),
        (Barrier.NOMINATED, post.nominated),
        (Barrier.PROTECTED, protected(post.do_not_disrupt, post.since_s, now_s)),
        (Barrier.UNKNOWN_POOL, not post.pool_known),
        (Barrier.IN_HAND, post.in_hand),
    )
    of_machine = next((found for found, holds in barred if holds), None)
    if of_machine is not None or (care is Care.EVENTUAL and post.grace_s < inf):
        return of_machine
    return next((found for tenant in post.tenants if (found := _of_pod(tenant, now_s)) is not None), None)


def reschedulable(tenant: Tenant) -> bool:
    """Whether a pod would have to run somewhere else if its machine went.

    A pod of a StatefulSet that is being deleted comes back under its name; others that are have a successor already.
    """
    if tenant.ended or tenant.mirror or tenant.owner == "DaemonSet":
        return False
    return not tenant.leaving or tenant.owner == "StatefulSet"


def _of_pod(tenant: Tenant, now_s: float) -> Barrier | None:
    if tenant.ended or tenant.leaving:
        return None
    if protected(tenant.do_not_disrupt, tenant.started_at_s, now_s):
        return Barrier.PROTECTED_POD
    if tenant.mirror:
        return None
    if len(tenant.pod_budgets) > 1:
        return Barrier.SEVERAL_POD_BUDGETS
    return Barrier.POD_BUDGET if any(allowed <= 0 for allowed in tenant.pod_budgets) else None


def protected(value: str, since_s: float, now_s: float) -> bool:
    """Whether a do-not-disrupt annotation holds: for good (`true`), or for a duration from `since_s`.

    What is neither protects nothing.
    """
    if value == "true":
        return True
    return bool(_DURATION.fullmatch(value)) and now_s < since_s + _seconds(value)


def _seconds(text: str) -> float:
    return sum(float(amount) * _UNIT_S[unit] for amount, unit in _PART.findall(text))
