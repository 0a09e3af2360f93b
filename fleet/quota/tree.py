"""The quota tree says who may still use how much, with borrowing and lending at every level, and who borrows most.

The arithmetic is Kueue's (`pkg/cache/scheduler/resource_node.go` and `fair_sharing.go`; reference 2.4 and 3.4),
complete: cohorts add up what their children lend, a child uses its private part first, and every level above may cap
what is borrowed. `charge` and `release` are exact inverses, so that a what-if is do/undo, never a copy. A
(flavor, resource) is a small integer, the `Cell`; amounts of a node are lists over cells.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.quota.specs import UNLIMITED, CellQuota, FlavorResource, QuotaCohortSpec, QuotaQueueSpec

Cell = int
Usage = Mapping[Cell, int]


class UnrelatedNodes(ValueError):
    """Nodes of different trees cannot be compared."""


class FairShare(NamedTuple):
    """A `FairShare` is what a node is entitled to of one resource, over all flavors."""

    cells: Sequence[Cell]
    amount: float
    part: float
    """Of all that its siblings and it divide."""


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A node is a cohort, or a queue at the leaves. Only `charge` and `release` change its usage."""

    name: str
    parent: "QuotaNode | None"
    weight: float
    is_queue: bool
    through_team: bool = False
    reclaimable: bool = True
    rank: int = 0
    """Of a queue: heads of a higher rank go first, and its workloads leave last."""
    children: list["QuotaNode"] = field(default_factory=list)
    height: int = 0
    """The longest path down to a leaf; 0 for a queue."""
    nominal: list[int] = field(default_factory=list)
    subtree: list[int] = field(default_factory=list)
    """Own quota and what the children lend."""
    private: list[int] = field(default_factory=list)
    """The part of `subtree` that nobody else may use."""
    ceiling: list[int] = field(default_factory=list)
    """The most that may be used past the private part: subtree - private + borrowing limit; UNLIMITED without one."""
    potential: list[int] = field(default_factory=list)
    """What could be used at most if everybody else were idle."""
    usage: list[int] = field(default_factory=list)
    declared: frozenset[Cell] = frozenset()
    """Cells that any quota of the whole tree names; set on the root."""
    fair_shares: Sequence[FairShare] = ()
    """What it is fairly entitled to of each resource, in trees where that orders heads."""

    def private_left(self, cell: Cell) -> int:
        """Returns how much of the private part is not used."""
        left = self.private[cell] - self.usage[cell]
        return max(0, left)

    def unused(self, cell: Cell) -> int:
        """Returns the subtree's quota that is not used, of one cell; negative while it borrows."""
        return self.subtree[cell] - self.usage[cell]

    def borrows_with(self, cell: Cell, amount: int) -> bool:
        """Returns whether `amount` more would be above the subtree's own quota."""
        return self.subtree[cell] < self.usage[cell] + amount

    def within(self, cells: Iterable[Cell]) -> bool:
        """Returns whether the node uses no more of each of these cells than the quota of its subtree."""
        usage, subtree = self.usage, self.subtree
        for cell in cells:  # noqa: SIM110 -- asked of all queues in every search: a generator costs three times as much
            if usage[cell] > subtree[cell]:
                return False
        return True

    def share_used(self) -> float:
        """Returns the largest part that it uses of its fair share; infinite where it has none and uses some."""
        used = ((sum(self.usage[cell] for cell in share.cells), share.amount) for share in self.fair_shares)
        return max((_ratio(amount, own) for amount, own in used if amount > 0), default=0.0)

    def guarantee_used(self) -> float:
        """Returns the largest part that it uses of its guarantee, over all cells of which it has one."""
        parts = (used / own for used, own in zip(self.usage, self.subtree, strict=True) if 0 < own < UNLIMITED)
        return max(parts, default=0.0)

    def dominant_use(self, more: Usage) -> float:
        """Returns the largest part of its quota that it uses with `more`; infinite where it has none and uses some."""
        used = (
            (now + more.get(cell, 0), own) for cell, (now, own) in enumerate(zip(self.usage, self.subtree, strict=True))
        )
        bounded = ((amount, own) for amount, own in used if amount > 0 and own < UNLIMITED)
        return max((_ratio(amount, own) for amount, own in bounded), default=0.0)

    def ancestors(self) -> Iterator["QuotaNode"]:
        """Yields the nodes above, the parent first, the root last."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> "QuotaNode":
        """Returns the top of its tree; itself when it has no parent."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def path(self) -> str:
        """Returns `/root/.../name`, for people."""
        return "/" + "/".join([*(node.name for node in reversed(list(self.ancestors()))), self.name])

    @property
    def owner(self) -> "QuotaNode":
        """Returns the node whose quota counts as the queue's own: its team for a queue without, else itself."""
        return self.parent if self.through_team and self.parent is not None else self

    def queues(self) -> Iterator["QuotaNode"]:
        """Yields the queues at or below this node, in order."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()


def _ratio(used: float, own: float) -> float:
    return used / own if own else math.inf


class QuotaTree:
    """All cohorts and queues, as one tree or several. Usage is charged at queues, and past private quota further up."""

    def __init__(self, cohorts: Sequence[QuotaCohortSpec], queues: Sequence[QuotaQueueSpec]) -> None:
        """Builds the tree; a cohort that is only named has no quota nor parent. ValueError for a circle of cohorts."""
        self.cells: list[FlavorResource] = []
        self.index: dict[FlavorResource, Cell] = {}
        self._of_resource: dict[str, list[Cell]] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        self.queues: dict[str, QuotaNode] = {}
        self._add_cohorts(_named_or_given(cohorts, queues))
        for queue in queues:
            node = self._below(queue.cohort, queue.name, queue.weight, is_queue=True)
            node.through_team, node.reclaimable, node.rank = queue.through_team, queue.reclaimable, queue.rank
            self.queues[queue.name] = node
        self._seal({spec.name: spec.quotas for spec in cohorts}, {spec.name: spec.quotas for spec in queues})

    def _add_cohorts(self, waiting: dict[str, QuotaCohortSpec]) -> None:
        """Adds cohorts once those above them are there."""
        while waiting:
            ready = [spec for spec in waiting.values() if not spec.parent or spec.parent in self.cohorts]
            if not ready:
                raise ValueError(f"cohorts {', '.join(waiting)} are above each other in a circle")
            for spec in ready:
                del waiting[spec.name]
                self.cohorts[spec.name] = self._below(spec.parent, spec.name, spec.weight, is_queue=False)

    def _below(self, parent: str, name: str, weight: float, *, is_queue: bool) -> QuotaNode:
        """Returns a new node below a cohort, or a root where `parent` is empty."""
        above = self.cohorts[parent] if parent else None
        node = QuotaNode(name, above, weight, is_queue)
        if above is not None:
            above.children.append(node)
        return node

    def _seal(
        self,
        of_cohorts: Mapping[str, Mapping[FlavorResource, CellQuota]],
        of_queues: Mapping[str, Mapping[FlavorResource, CellQuota]],
    ) -> None:
        for quotas in (*of_cohorts.values(), *of_queues.values()):
            for named in quotas:
                if named not in self.index:
                    self._intern(named)
        tables = ((self.cohorts, of_cohorts), (self.queues, of_queues))
        own = {id(node): given.get(name, {}) for nodes, given in tables for name, node in nodes.items()}
        for node in (*self.cohorts.values(), *self.queues.values()):
            if node.parent is None:
                self._sum_up(node, own)
                self._potential(node)
                node.declared = frozenset(self._named_below(node, own))

    def cell(self, named: FlavorResource) -> Cell:
        """Returns the cell of a (flavor, resource); one that no quota names gets a cell with no quota anywhere."""
        found = self.index.get(named)
        if found is None:
            found = self._intern(named)
            for node in (*self.cohorts.values(), *self.queues.values()):
                for amounts in (node.nominal, node.subtree, node.private, node.potential, node.usage):
                    amounts.append(0)
                node.ceiling.append(UNLIMITED)
        return found

    def _intern(self, named: FlavorResource) -> Cell:
        cell = self.index[named] = len(self.cells)
        self.cells.append(named)
        self._of_resource.setdefault(named.resource, []).append(cell)
        return cell

    def cells_of(self, resource: str) -> list[Cell]:
        """Returns the cells of one resource, over all flavors."""
        return self._of_resource.get(resource, [])

    def _sum_up(self, node: QuotaNode, own: Mapping[int, Mapping[FlavorResource, CellQuota]]) -> None:
        width = len(self.cells)
        node.nominal = [0] * width
        node.usage = [0] * width
        for named, quota in own[id(node)].items():
            node.nominal[self.index[named]] = quota.nominal
        node.subtree = list(node.nominal)
        for child in node.children:
            self._sum_up(child, own)
            node.height = max(node.height, child.height + 1)
            for cell in range(width):
                node.subtree[cell] += child.subtree[cell] - child.private[cell]
        node.private = [0] * width
        node.ceiling = [UNLIMITED] * width
        for named, quota in own[id(node)].items():
            cell = self.index[named]
            if quota.lending_limit is not None:
                node.private[cell] = max(0, node.subtree[cell] - quota.lending_limit)
            if quota.borrowing_limit is not None and node.parent is not None:
                node.ceiling[cell] = node.subtree[cell] - node.private[cell] + quota.borrowing_limit

    def _potential(self, node: QuotaNode) -> None:
        above = node.parent
        if above is None:
            node.potential = list(node.subtree)
        else:
            node.potential = [
                node.private[cell] + min(above.potential[cell], node.ceiling[cell]) for cell in range(len(self.cells))
            ]
        for child in node.children:
            self._potential(child)

    def _named_below(self, node: QuotaNode, own: Mapping[int, Mapping[FlavorResource, CellQuota]]) -> set[Cell]:
        named = {self.index[cell] for cell in own[id(node)]}
        return named.union(*(self._named_below(child, own) for child in node.children))

    def counts(self, queue: QuotaNode, named: FlavorResource) -> bool:
        """Returns whether any quota of the queue's tree names this (flavor, resource)."""
        cell = self.index.get(named)
        return cell is not None and cell in queue.root.declared


def _named_or_given(cohorts: Sequence[QuotaCohortSpec], queues: Sequence[QuotaQueueSpec]) -> dict[str, QuotaCohortSpec]:
    """Returns name -> cohort, sorted: all that have a spec, and without quota those only referred to."""
    given = {spec.name: spec for spec in cohorts}
    for name in [spec.parent for spec in cohorts] + [queue.cohort for queue in queues]:
        if name and name not in given:
            given[name] = QuotaCohortSpec(name)
    return dict(sorted(given.items()))


def charge(queue: QuotaNode, usage: Usage) -> None:
    """Adds usage at a queue."""
    for cell, asked in usage.items():
        node: QuotaNode | None = queue
        amount = asked
        while node is not None and amount > 0:
            private_left = node.private[cell] - node.usage[cell]
            node.usage[cell] += amount
            if private_left > 0:
                amount -= private_left
            node = node.parent


def release(queue: QuotaNode, usage: Usage) -> None:
    """Takes usage away; undoes `charge` exactly."""
    for cell, given in usage.items():
        node: QuotaNode | None = queue
        amount = given
        while node is not None and amount > 0:
            stored_above = node.usage[cell] - node.private[cell]
            node.usage[cell] -= amount
            amount = min(amount, stored_above)
            node = node.parent


def available(queue: QuotaNode, cell: Cell) -> int:
    """Returns what the queue could use more now; never negative."""
    left = _available(queue, cell)
    return max(0, left)


def _available(node: QuotaNode, cell: Cell) -> int:
    above = node.parent
    if above is None:
        return node.subtree[cell] - node.usage[cell]
    usage, private = node.usage[cell], node.private[cell]
    left = _available(above, cell)
    past = usage - private
    most = node.ceiling[cell] - (max(0, past))
    return (-past if past < 0 else 0) + (min(most, left))


def fits(queue: QuotaNode, usage: Usage) -> bool:
    """Returns whether all of `usage` is available now."""
    for cell, amount in usage.items():  # noqa: SIM110 -- asked after every victim: a generator costs twice as much
        if amount > available(queue, cell):
            return False
    return True


def borrow_height(queue: QuotaNode, cell: Cell, amount: int) -> tuple[int, bool]:
    """Returns how far up the tree the amount has to be borrowed, and whether that is below the root (reference 2.4).

    0 = within its own quota. Below the root, what is borrowed higher up may be taken back by preemption.
    """
    node = queue.owner
    if node.parent is None or not node.borrows_with(cell, amount):
        return 0, node.parent is not None
    remainder = amount
    for above in node.ancestors():
        remainder -= node.private_left(cell)
        if not above.borrows_with(cell, remainder):
            return above.height, above.parent is not None
        node = above
    return node.height, False


class DominantResourceShare(NamedTuple):
    """A `DominantResourceShare` is the part of what a node could borrow that it does, in thousandths.

    It is that of the resource which the node borrows most of, divided by its `weight`; infinite for a weight of 0.
    """

    ratio: float
    weight: float
    resource: str = ""
    """The resource in which it is largest."""
    borrowing: bool = False

    @property
    def key(self) -> tuple[bool, float]:
        """Orders shares: a borrower without weight after everybody else, among themselves by ratio."""
        if not self.weight:
            return (True, self.ratio) if self.borrowing else (False, 0.0)
        return (False, self.ratio / self.weight)


def dominant_resource_share(
    tree: QuotaTree, node: QuotaNode, only: Collection[str] | None = None
) -> DominantResourceShare:
    """Returns the share of a node by its present usage, of all resources or `only` of some; 0 for a root."""
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
