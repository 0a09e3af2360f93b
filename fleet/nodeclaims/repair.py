"""Machines that are not well: how long each complaint is borne, and when the fault is likelier somewhere else.

Karpenter `pkg/controllers/node/health` with the provider's policies (reference 3.3). Repair is involuntary: budgets and
do-not-disrupt do not hold it back.
"""

from collections.abc import Iterable, Mapping
from math import ceil, inf
from typing import Final

from fleet.snapshot import Node, NodeCondition
from model.kinds import Repair

MOST_PERCENT: Final = 20
"""When more of a pool are not well, machines are not what is wrong."""
READY: Final = "Ready"
GATE_AGAIN_S: Final = 5 * 60.0


def conditions_of(node: Node) -> Mapping[str, NodeCondition]:
    """What the node says of itself; whether it is ready is always among it."""
    if node.ready:
        return {**node.conditions, READY: NodeCondition("True", node.ready_changed_at_s)}
    told = node.conditions.get(READY)
    unknown = told is not None and told.status == "Unknown"
    return {**node.conditions, READY: NodeCondition("Unknown" if unknown else "False", node.ready_changed_at_s)}


def unwell(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition]) -> bool:
    """Whether there is a complaint at all, however young."""
    return bool(_ends(policies, conditions))


def overdue(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition], now_s: float) -> Repair | None:
    """The policy whose patience ended first, None while all complaints are borne."""
    ends = sorted((end_s, policy.condition, policy) for policy, end_s in _ends(policies, conditions) if end_s <= now_s)
    return ends[0][2] if ends else None


def look_again_s(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition], now_s: float) -> float:
    """Seconds until the next complaint is overdue, infinite when there is none."""
    return min((end_s - now_s for _, end_s in _ends(policies, conditions) if end_s > now_s), default=inf)


def _ends(policies: Iterable[Repair], conditions: Mapping[str, NodeCondition]) -> list[tuple[Repair, float]]:
    return [
        (policy, found.since_s + policy.after)
        for policy in policies
        if (found := conditions.get(policy.condition)) is not None and found.status in policy.statuses
    ]


def too_many(complaining: int, machines: int) -> bool:
    """Whether so many of a pool (of the cluster, for machines of no pool) are unwell that none is replaced."""
    return complaining > ceil(machines * MOST_PERCENT / 100)
