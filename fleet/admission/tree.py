"""The quota tree: who may still use how much, with borrowing and lending at every level.

The arithmetic is Kueue's (`pkg/cache/scheduler/resource_node.go`), complete: cohorts add up what their children lend,
a child uses its private part first, and every level above may cap what is borrowed. `charge` and `release` are exact
inverses, so that a what-if is do/undo, never a copy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class FlavorResource(NamedTuple):
    """What quotas are counted in: an amount of `resource` of one `flavor`."""

    flavor: str
    resource: str


Usage = Mapping[FlavorResource, int]


@dataclass(frozen=True, slots=True)
class Quota:
    """One cell of quota, in canonical amounts. `None` = no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(slots=True)
class Cohort:
    """A node of the tree: a team, or a queue at the leaves. Mutable only through `QuotaTree`."""

    name: str
    parent: "Cohort | None"
    quotas: Mapping[FlavorResource, Quota]
    weight: float = 1.0
    is_queue: bool = False
    children: list["Cohort"] = field(default_factory=list)
    subtree: dict[FlavorResource, int] = field(default_factory=dict)
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    height: int = 0
    """Longest path down to a leaf; 0 for a queue."""
    declared: frozenset[FlavorResource] = frozenset()
    """Cells that any quota of the whole tree names; set on the root."""

    def local_quota(self, cell: FlavorResource) -> int:
        """The part of its quota that nobody else may use."""
        quota = self.quotas.get(cell)
        if quota is None or quota.lending_limit is None:
            return 0
        return max(0, self.subtree.get(cell, 0) - quota.lending_limit)

    def local_available(self, cell: FlavorResource) -> int:
        """What is left of the private part."""
        return max(0, self.local_quota(cell) - self.usage.get(cell, 0))

    def unused(self, cell: FlavorResource) -> int:
        """Subtree quota not used; negative while it borrows."""
        return self.subtree.get(cell, 0) - self.usage.get(cell, 0)

    def potential(self, cell: FlavorResource) -> int:
        """What it could use at most if everybody else were idle."""
        if self.parent is None:
            return self.subtree.get(cell, 0)
        most = self.local_quota(cell) + self.parent.potential(cell)
        quota = self.quotas.get(cell)
        if quota is not None and quota.borrowing_limit is not None:
            most = min(most, self.subtree.get(cell, 0) + quota.borrowing_limit)
        return most

    def borrows_with(self, cell: FlavorResource, amount: int) -> bool:
        """Whether `amount` more would be above the subtree's own quota."""
        return self.unused(cell) < amount

    def ancestors(self) -> Iterable["Cohort"]:
        """Parent first, root last."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> "Cohort":
        """The top of its tree; itself when it has no parent."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    @property
    def path(self) -> str:
        """`/root/.../name`, for people."""
        return "/" + "/".join([*(node.name for node in reversed(list(self.ancestors()))), self.name])


class QuotaTree:
    """All cohorts and queues. Usage is charged at queues and spills upwards past private quota."""

    def __init__(self) -> None:
        self.cohorts: dict[str, Cohort] = {}
        self.queues: dict[str, Cohort] = {}

    def add(
        self,
        name: str,
        parent: str | None,
        quotas: Mapping[FlavorResource, Quota],
        *,
        weight: float = 1.0,
        is_queue: bool = False,
    ) -> Cohort:
        """Insert a node below an existing cohort; KeyError when the parent is not there yet."""
        above = self.cohorts[parent] if parent else None
        node = Cohort(name, above, quotas, weight, is_queue)
        (self.queues if is_queue else self.cohorts)[name] = node
        if above is not None:
            above.children.append(node)
        return node

    def seal(self) -> None:
        """Compute subtree quotas and heights once all nodes are in."""
        for node in (*self.cohorts.values(), *self.queues.values()):
            if node.parent is None:
                self._seal(node)
                node.declared = frozenset(_declared(node))

    def _seal(self, node: Cohort) -> None:
        node.subtree = {cell: quota.nominal for cell, quota in node.quotas.items()}
        for child in node.children:
            self._seal(child)
            node.height = max(node.height, child.height + 1)
            for cell, amount in child.subtree.items():
                node.subtree[cell] = node.subtree.get(cell, 0) + amount - child.local_quota(cell)

    def counts(self, queue: str, cell: FlavorResource) -> bool:
        """Whether any quota of the queue's tree names this cell; others are not limited by quota."""
        return cell in self.queues[queue].root.declared

    def offers_flavor(self, queue: str, flavor: str) -> bool:
        """Whether any quota of the queue's tree is in this flavor."""
        return any(cell.flavor == flavor for cell in self.queues[queue].root.declared)

    def charge(self, queue: str, usage: Usage) -> None:
        """Add usage at a queue."""
        for cell, amount in usage.items():
            _add(self.queues[queue], cell, amount)

    def release(self, queue: str, usage: Usage) -> None:
        """Take usage away; undoes `charge` exactly."""
        for cell, amount in usage.items():
            _remove(self.queues[queue], cell, amount)

    def available(self, queue: str, cell: FlavorResource) -> int:
        """What the queue could use more now; never negative."""
        return max(0, _available(self.queues[queue], cell))

    def potential(self, queue: str, cell: FlavorResource) -> int:
        """What the queue could use at most if everybody else were idle."""
        return self.queues[queue].potential(cell)

    def fits(self, queue: str, usage: Usage) -> bool:
        """Whether all of `usage` is available now."""
        return all(amount <= self.available(queue, cell) for cell, amount in usage.items())

    def borrow_height(self, queue: str, cell: FlavorResource, amount: int) -> int:
        """How far up the tree the amount has to be borrowed: 0 = within its own quota (reference 2.4).

        "Its own" is the queue's quota, or its team's where the queue has none.
        """
        node = self.queues[queue]
        if not node.quotas and node.parent is not None:
            node = node.parent
        if node.parent is None or not node.borrows_with(cell, amount):
            return 0
        remainder = amount
        height = 0
        while node.parent is not None:
            remainder -= node.local_available(cell)
            node = node.parent
            height = node.height
            if not node.borrows_with(cell, remainder):
                break
        return height


def _declared(node: Cohort) -> set[FlavorResource]:
    return set(node.quotas).union(*(_declared(child) for child in node.children))


def _available(node: Cohort, cell: FlavorResource) -> int:
    if node.parent is None:
        return node.unused(cell)
    above = _available(node.parent, cell)
    quota = node.quotas.get(cell)
    if quota is not None and quota.borrowing_limit is not None:
        local = node.local_quota(cell)
        used_of_parent = max(0, node.usage.get(cell, 0) - local)
        above = min(above, node.subtree.get(cell, 0) - local - used_of_parent + quota.borrowing_limit)
    return node.local_available(cell) + above


def _add(node: Cohort, cell: FlavorResource, amount: int) -> None:
    private = node.local_available(cell)
    node.usage[cell] = node.usage.get(cell, 0) + amount
    if node.parent is not None and amount > private:
        _add(node.parent, cell, amount - private)


def _remove(node: Cohort, cell: FlavorResource, amount: int) -> None:
    stored_above = node.usage.get(cell, 0) - node.local_quota(cell)
    node.usage[cell] = node.usage.get(cell, 0) - amount
    if node.parent is not None and stored_above > 0:
        _remove(node.parent, cell, min(amount, stored_above))
