"""Dominant resource share: how much of the cluster's lendable capacity a team borrows (Kueue `fair_sharing.go`)."""

from fleet.admission.tree import Cohort, QuotaTree, Usage


def dominant_share(tree: QuotaTree, queue: str, extra: Usage) -> float:
    """Weighted share of the queue's team once `extra` is added; 0 when it stays within its guarantee.

    borrowed[r] = sum over flavors of max(0, usage + extra - subtree quota); lendable[r] = the most the parent could
    offer; share = max over r of borrowed[r] / lendable[r] / weight. A team without a parent borrows from nobody.
    """
    team = owner(tree.queues[queue])
    if team.parent is None:
        return 0.0
    borrowed: dict[str, int] = {}
    for cell in {*team.usage, *extra}:
        above = team.usage.get(cell, 0) + extra.get(cell, 0) - team.subtree.get(cell, 0)
        if above > 0:
            borrowed[cell.resource] = borrowed.get(cell.resource, 0) + above
    lendable: dict[str, int] = {}
    for cell in team.root.declared:
        lendable[cell.resource] = lendable.get(cell.resource, 0) + team.parent.potential(cell)
    ratios = [amount / lendable[resource] for resource, amount in borrowed.items() if lendable.get(resource)]
    return max(ratios, default=0.0) / team.weight


def owner(node: Cohort) -> Cohort:
    """Who "borrows" when a queue goes beyond its guarantee: the queue itself if it has quota, else its team."""
    return node if node.quotas or node.parent is None else node.parent
