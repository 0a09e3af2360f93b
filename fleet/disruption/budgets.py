"""What budgets let go: those of a node pool count machines, PodDisruptionBudgets count the pods of gangs.

Of a pool's budgets (Karpenter `GetAllowedDisruptionsByReason`, reference 1.1, 4.7) a percentage rounds up, schedules
are UTC, the least of those that apply counts; what is malformed allows nothing.
What PodDisruptionBudgets say of gangs is in `fleet.gangs.pod_budgets`.
"""

import re
from collections.abc import Collection, Iterable
from math import ceil, inf
from typing import Final

from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.reasons import Reason
from fleet.snapshot import Claim, Snapshot
from fleet.snapshot.lookups import claims_whatever_runs
from model.cron import Cron, InvalidCron, window_active
from model.index import followed_each
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
_FORCEFUL: Final = frozenset({Reason.EXPIRED, Reason.BLOCK_ENDS})
"""What nobody can put off: as in Karpenter expiry waits for no budget, and a capacity block ends whatever runs."""
_EVENTUAL: Final = frozenset({Reason.DRIFTED})
"""What waits for budgets only where a drain may take for ever."""


class InvalidBudget(ValueError):
    """A budget does not say how many machines or when; loaders refuse such a budget."""


def allowed(pool: NodePool, reason: Reason, nodes: int, disrupted: int, now_s: float) -> int:
    """Returns what the tightest open budget for a reason allows, less what is being disrupted already."""
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
    """Returns what one budget allows of `nodes` machines: `UNBOUNDED` outside its window. Raises `InvalidBudget`."""
    if not open_now(budget, now_s):
        return UNBOUNDED
    if isinstance(budget.nodes, int):
        return budget.nodes
    if not _PERCENT.fullmatch(budget.nodes):
        raise InvalidBudget(f"{budget.nodes!r} is neither a count nor a percentage")
    return ceil(nodes * int(budget.nodes.removesuffix("%")) / 100)


def open_now(budget: Budget, now_s: float) -> bool:
    """Returns whether the budget holds now: it has no window, or is within one. Raises `InvalidBudget`."""
    if not budget.schedule:
        return True
    try:
        return window_active(Cron.parse(budget.schedule), budget.duration or 0.0, now_s)
    except InvalidCron as error:
        raise InvalidBudget(str(error)) from None


def headcount(claims: Collection[Claim], snapshot: Snapshot) -> tuple[int, int]:
    """Counts the machines of a pool that a percentage is of, and those of them that are disrupted already.

    One that is terminated is neither, whatever its node still says; one that is being terminated is disrupted.
    """
    known = [it for it in claims if it.ready_at_s and not (it.deleting and _terminated(it, snapshot))]
    return len(known), disrupted(known, snapshot)


def _terminated(claim: Claim, snapshot: Snapshot) -> bool:
    """Returns whether the machine of a claim that is being deleted has ended."""
    instance = snapshot.instances.get(claim.instance_id)
    return instance is not None and instance.gone and not instance.ending


def disrupted(claims: Iterable[Claim], snapshot: Snapshot) -> int:
    """Counts the machines that every budget counts as disrupted: they leave, are being replaced, or are not well."""
    replaced, node_of = _replaced(snapshot), snapshot.nodes.get
    return sum(
        1
        for it in claims
        if _leaving(it) or it.name in replaced or (node := node_of(it.node)) is None or not node.ready
    )


def _replaced(snapshot: Snapshot) -> set[str]:
    """Returns the claims that go once others, which are still waited for, are ready."""
    new = [snapshot.claims[name] for name in replacing(snapshot.index, claims_whatever_runs(snapshot))]
    return {name for claim in new if _replaces(claim, snapshot.now_s) for name in claim.replaces}


@followed_each()
def replacing(claim: Claim) -> bool | None:
    """Returns True for a machine that others may go for."""
    return True if claim.replaces else None


def _replaces(claim: Claim, now_s: float) -> bool:
    """Returns whether a machine is still waited for, or for a move to it: not one into which others have moved."""
    return not _leaving(claim) and not (claim.ready_at_s and claim.ready_at_s + MOVES_WITHIN_S < now_s)


def _leaving(claim: Claim) -> bool:
    return claim.deleting or claim.disruption is not None


def heeds(reason: Reason, grace_s: float) -> bool:
    """Returns whether a machine that goes for this reason waits for PodDisruptionBudgets, by its grace period (s)."""
    return reason not in _FORCEFUL and not (reason in _EVENTUAL and grace_s < inf)
