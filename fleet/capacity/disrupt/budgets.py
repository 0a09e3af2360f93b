"""How many machines of a pool may be disrupted now (Karpenter `GetAllowedDisruptionsByReason`, reference 1.1, 4.7)."""

from collections.abc import Iterable
from math import ceil

from fleet.reasons import Reason
from fleet.snapshot import Claim, Snapshot
from model.cron import Cron, window_active
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


def allowed(pool: NodePool, reason: Reason, nodes: int, disrupted: int, now_s: float) -> int:
    """Least over the budgets that name the reason and are open now, less what is being disrupted already."""
    name = BUDGET_REASONS.get(reason)
    open_now = (
        _nodes(budget, nodes, now_s)
        for budget in pool.spec.disruption.budgets
        if not budget.reasons or name in budget.reasons
    )
    return max(0, min(open_now, default=UNBOUNDED) - disrupted)


def _nodes(budget: Budget, nodes: int, now_s: float) -> int:
    if budget.schedule and not window_active(Cron.parse(budget.schedule), budget.duration or 0.0, now_s):
        return UNBOUNDED
    if isinstance(budget.nodes, int):
        return budget.nodes
    return ceil(nodes * int(budget.nodes.removesuffix("%")) / 100)


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
