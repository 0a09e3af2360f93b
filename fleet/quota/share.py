"""Dominant resource share of what a node borrows (Kueue `fair_sharing.go`; reference 3.4)."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from fleet.quota.tree import Cell, QuotaNode, QuotaTree


class DominantResourceShare(NamedTuple):
    """How much a node borrows of what it could, in thousandths. `weight` divides it; 0 makes it infinite."""

    ratio: float
    weight: float
    resource: str = ""
    """The resource it is largest in."""
    borrowing: bool = False

    @property
    def key(self) -> tuple[bool, float]:
        """Orders shares: a borrower without weight after everybody else, among themselves by ratio."""
        if not self.weight:
            return (True, self.ratio) if self.borrowing else (False, 0.0)
        return (False, self.ratio / self.weight)

    @property
    def infinite(self) -> bool:
        """Borrows although it has no weight."""
        return self.borrowing and not self.weight


NOTHING = DominantResourceShare(0.0, 1.0)


def dominant_resource_share(
    tree: QuotaTree, node: QuotaNode, only: Collection[str] | None = None
) -> DominantResourceShare:
    """The node's share as its usage stands, of all resources or of some `only`; a root has none."""
    above = node.parent
    if above is None:
        return DominantResourceShare(0.0, node.weight)
    borrowed: dict[str, int] = {}
    borrowing = False
    for cell in range(len(tree.cells)):
        over = node.usage[cell] - node.subtree[cell]
        resource = tree.cells[cell].resource
        if over > 0 and (only is None or resource in only):
            borrowing = True
            borrowed[resource] = borrowed.get(resource, 0) + over
    best, dominant = 0.0, ""
    for resource in sorted(borrowed):
        lendable = sum(above.potential[cell] for cell in tree.cells_of(resource))
        if lendable > 0 and (ratio := borrowed[resource] * 1000.0 / lendable) > best:
            best, dominant = ratio, resource
    return DominantResourceShare(best, node.weight, dominant, borrowing)


def borrows_any(node: QuotaNode, cells: Iterable[Cell]) -> bool:
    """Whether the node uses more than its own subtree's quota of any of the cells."""
    usage, subtree = node.usage, node.subtree
    return any(usage[cell] > subtree[cell] for cell in cells)
