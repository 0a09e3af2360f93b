"""The tree of domains over the nodes of one flavor, as index ranges: nothing here changes while it is in use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from fleet.placement.topology.ledger import IntArray
from fleet.placement.topology.values import TopologyFlavor, Values
from fleet.snapshot import Node
from model import labels


@dataclass(frozen=True, slots=True)
class Leaf:
    """A lowest domain: a host, or all hosts that share every level value. `rows` are their rows among all nodes."""

    values: Values
    rows: tuple[int, ...]


class Tree:
    """Domains of every level in the order of their values, so that the children of a domain stand together.

    A domain is (level, index). `bounds[level][i]:bounds[level][i + 1]` are the children of domain i one level down.
    """

    def __init__(self, levels: tuple[str, ...], leaves: Sequence[Leaf]) -> None:
        self.levels = levels
        self.leaves = leaves
        self.on_hosts = levels[-1:] == (labels.HOSTNAME,)
        self.shown_levels = levels[-1:] if self.on_hosts else levels
        self.shown: list[Values] = [leaf.values[-len(self.shown_levels) :] for leaf in leaves]
        self.leaf_of: dict[Values, int] = {values: leaf for leaf, values in reversed(list(enumerate(self.shown)))}
        self.parent_of_leaf: list[IntArray] = [self._domain_of_leaves(level) for level in range(len(levels))]
        self.sizes = [int(up[-1]) + 1 if len(up) else 0 for up in self.parent_of_leaf]
        self.bounds: list[IntArray] = [self._bounds(level) for level in range(len(levels) - 1)]

    def _domain_of_leaves(self, level: int) -> IntArray:
        """Leaf -> index of the domain of `level` it is in."""
        prefixes = [leaf.values[: level + 1] for leaf in self.leaves]
        opens = [index > 0 and prefix != prefixes[index - 1] for index, prefix in enumerate(prefixes)]
        return np.cumsum(np.array(opens, np.int64))

    def _bounds(self, level: int) -> IntArray:
        parents = np.zeros(self.sizes[level + 1], np.int64)
        parents[self.parent_of_leaf[level + 1]] = self.parent_of_leaf[level]
        return np.searchsorted(parents, np.arange(self.sizes[level] + 1))

    @property
    def lowest(self) -> int:
        """The level of the leaves."""
        return len(self.levels) - 1

    def level(self, label: str) -> int | None:
        """The number of the level with that label, 0 for the coarsest."""
        return self.levels.index(label) if label in self.levels else None

    def children(self, level: int, parent: int) -> IntArray:
        """Indices one level down, ascending."""
        return np.arange(self.bounds[level][parent], self.bounds[level][parent + 1])

    def children_of_all(self, level: int, parents: IntArray) -> IntArray:
        """Indices one level down of all children of `parents`, ascending."""
        parents = np.sort(parents)
        first = self.bounds[level][parents]
        widths = self.bounds[level][parents + 1] - first
        before: IntArray = np.cumsum(widths) - widths
        within: IntArray = np.repeat(first - before, widths)
        return within + np.arange(len(within))

    def span(self, level: int, index: int, below: int) -> tuple[int, int]:
        """The range of descendants of a domain at level `below` (>= `level`)."""
        first, end = index, index + 1
        for step in range(level, below):
            first, end = int(self.bounds[step][first]), int(self.bounds[step][end])
        return first, end

    @cached_property
    def everything(self) -> list[IntArray]:
        """All indices of each level, ascending."""
        return [np.arange(size) for size in self.sizes]


def leaves_of(flavor: TopologyFlavor, nodes: Sequence[Node]) -> list[Leaf]:
    """The lowest domains of a flavor: usable nodes that carry its labels and every level, in value order, then name.

    Where two nodes claim one host name, the first by name has it.
    """
    found = []
    for row, node in enumerate(nodes):
        if not node.ready or node.unschedulable or node.deleting:
            continue
        if any(node.labels.get(key) != value for key, value in flavor.node_labels.items()):
            continue
        if all(level in node.labels for level in flavor.levels):
            found.append((tuple(node.labels[level] for level in flavor.levels), node.name, row))
    found.sort()
    grouped = [(values, tuple(row for _, _, row in members)) for values, members in groupby(found, lambda it: it[0])]
    if flavor.levels[-1] == labels.HOSTNAME:
        grouped = [(values, rows[:1]) for values, rows in grouped]
    return [Leaf(values, rows) for values, rows in grouped]
