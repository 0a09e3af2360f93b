"""How many machines of a pool may be disrupted now (Karpenter `GetAllowedDisruptionsByReason`, reference 1.1, 4.7).

A percentage rounds up, schedules are UTC, the least of the budgets that apply counts; what is malformed allows nothing.
"""

import re
from collections.abc import Iterable
from math import ceil
from typing import Final

from fleet.reasons import Reason
from fleet.snapshot import Claim, Snapshot
from model.cron import Cron, InvalidCron, window_active
from model.kinds import Budget, NodePool

UNBOUNDED = 1 << 31
BUDGET_REASONS = {
    Reason.EMPTY: "Empty",
    Reason.UNDERUTILIZED: "Underutilized",
    Reason.DRIFTED: "Drifted",
    Reason.EXPIRED: "Expired",
    Reason.REBALANCED: "Rebalanced",
    Reason.PREFERRED: "Underutilized",
}
_PERCENT: Final = re.compile(r"(100|[0-9]{1,2})%")


class InvalidBudget(ValueError):
    """A budget that says neither how many machines nor when, as only one that nobody has checked can."""


def allowed(pool: NodePool, reason: Reason, nodes: int, disrupted: int, now_s: float) -> int:
    """Least over the budgets that name the reason and are open now, less what is being disrupted already."""
    name = BUDGET_REASONS.get(reason)
    open_now = (
        _closed_if_invalid(budget, nodes, now_s)
        for budget in pool.spec.disruption.budgets
        if not budget.reasons or name in budget.reasons
    )
    return max(0, min(open_now, default=UNBOUNDED) - disrupted)


def _closed_if_invalid(budget: Budget, nodes: int, now_s: float) -> int:
    try:
        return allowed_by(budget, nodes, now_s)
    except InvalidBudget:
        return 0


def allowed_by(budget: Budget, nodes: int, now_s: float) -> int:
    """What one budget allows of `nodes` machines; `UNBOUNDED` outside its window. Raises `InvalidBudget`."""
    if not open_now(budget, now_s):
        return UNBOUNDED
    if isinstance(budget.nodes, int):
        return budget.nodes
    if not _PERCENT.fullmatch(budget.nodes):
        raise InvalidBudget(f"{budget.nodes!r} is neither a count nor a percentage")
    return ceil(nodes * int(budget.nodes.removesuffix("%")) / 100)


def open_now(budget: Budget, now_s: float) -> bool:
    """Whether the budget holds now: it has no window, or is within one. Raises `InvalidBudget`."""
    if not budget.schedule:
        return True
    try:
        return window_active(Cron.parse(budget.schedule), budget.duration or 0.0, now_s)
    except InvalidCron as error:
        raise InvalidBudget(str(error)) from None


def headcount(claims: Iterable[Claim], snapshot: Snapshot) -> tuple[int, int]:
    """(machines a percentage is of, those of them that count as disrupted already) among the claims of a pool.

    A machine that the cloud is taking down is neither: whatever its node still says, it is gone.
    """
    known = [claim for claim in claims if claim.ready_at_s and not _going_down(claim, snapshot)]
    return len(known), disrupted(known, snapshot)


def _going_down(claim: Claim, snapshot: Snapshot) -> bool:
    instance = snapshot.instances.get(claim.instance_id)
    return claim.deleting and instance is not None and instance.gone


def disrupted(claims: Iterable[Claim], snapshot: Snapshot) -> int:
    """Machines that count against every budget: on their way out, being replaced, or not well."""
    known = list(claims)
    coming = (claim for claim in snapshot.claims.values() if not claim.disruption and not claim.deleting)
    replaced = {name for claim in coming for name in claim.replaces}
    return sum(
        1 for claim in known if claim.deleting or claim.disruption or claim.name in replaced or _unwell(claim, snapshot)
    )


def _unwell(claim: Claim, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(claim.node)
    return node is None or not node.ready
