"""The domains of a flavor's topology form a tree of index ranges; a request asks for levels of it.

Nothing here changes while it is in use. Kueue: `pkg/cache/scheduler/tas_flavor_snapshot.go`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fleet.placement.topology.request import DomainValues, RefusalKind, TopologyFlavor, TopologyRefusal
from fleet.snapshot import Node, PodSet
from model import labels

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LeafDomain:
    """A leaf is a lowest domain: a host, or all hosts that share every level value, with their rows among all nodes."""

    values: DomainValues
    rows: tuple[int, ...]


class DomainTree:
    """The tree has the domains of every level in the order of their values, so that children of one stand together.

    A domain is (level, index). `bounds[level][i]:bounds[level][i + 1]` are the children of domain i one level down.
    """

    def __init__(self, levels: tuple[str, ...], leaves: Sequence[LeafDomain]) -> None:
        self.levels = levels
        self.leaves = leaves
        self.on_hosts = levels[-1:] == (labels.HOSTNAME,)
        self.shown_levels = levels[-1:] if self.on_hosts else levels
        self.shown: list[DomainValues] = [leaf.values[-len(self.shown_levels) :] for leaf in leaves]
        self.leaf_of: dict[DomainValues, int] = {values: leaf for leaf, values in reversed(list(enumerate(self.shown)))}
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


def leaf_domains(flavor: TopologyFlavor, nodes: Sequence[Node]) -> list[LeafDomain]:
    """The lowest domains of a flavor: usable nodes that carry its labels and every level, in value order, then name.

    Where two nodes claim one host name, the first by name has it.
    """
    found = sorted(
        (tuple(node.labels[level] for level in flavor.levels), node.name, row)
        for row, node in enumerate(nodes)
        if _belongs(node, flavor)
    )
    grouped = [(values, tuple(row for _, _, row in members)) for values, members in groupby(found, lambda it: it[0])]
    if flavor.levels[-1] == labels.HOSTNAME:
        grouped = [(values, rows[:1]) for values, rows in grouped]
    return [LeafDomain(values, rows) for values, rows in grouped]


def _belongs(node: Node, flavor: TopologyFlavor) -> bool:
    """Whether a node can take pods, is one of the flavor, and has a place on every level of its topology."""
    if not node.ready or node.unschedulable or node.deleting:
        return False
    if any(node.labels.get(key) != value for key, value in flavor.node_labels.items()):
        return False
    return all(level in node.labels for level in flavor.levels)


# -- what is asked of the levels --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """Pods are placed in slices of `size`, each inside one domain of `level`.

    `inner[l]` is the size of the smaller slices that domains of level l take, 0 where there are none.
    """

    level: int
    size: int = 1
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentParameters:
    """What is placed: `count` pods, and `leaders` (0 or 1) beside them, from `level` on.

    Kueue calls them `topologyAssignmentParameters`.
    """

    pod_set: str
    count: int
    level: int
    slicing: SliceSpec
    required: bool = False
    unconstrained: bool = False
    """No level is asked for: domains are chosen over the whole tree."""
    leaders: int = 0

    @property
    def slices(self) -> int:
        """Whole slices to place."""
        return self.count // self.slicing.size

    @property
    def unit(self) -> str:
        """What is counted."""
        return "pod" if self.slicing.size == 1 else "slice"

    def with_leader(self) -> "AssignmentParameters":
        """The same with one leader."""
        return replace(self, leaders=1)


def parameters_of(tree: DomainTree, pod_set: PodSet) -> AssignmentParameters | TopologyRefusal:
    """The parameters of a pod set in this tree, or why there are none.

    The level is the required one, else the preferred one; slices alone start from the top, and what asks for any level
    from the lowest.
    """
    label = _label(tree, pod_set)
    if not label:
        return TopologyRefusal(RefusalKind.NO_REQUEST, pod_set.name)
    level = tree.level(label)
    if level is None:
        return TopologyRefusal(RefusalKind.UNKNOWN_LEVEL, pod_set.name, label)
    slicing = _slices(tree, pod_set)
    if isinstance(slicing, TopologyRefusal):
        return slicing
    if slicing.level < level:
        return _invalid_slices(pod_set, f"level {tree.levels[slicing.level]} is coarser than level {label}")
    constrained = bool(pod_set.required_topology or pod_set.preferred_topology)
    return AssignmentParameters(
        pod_set.name,
        pod_set.count,
        level,
        slicing,
        required=bool(pod_set.required_topology),
        unconstrained=pod_set.any_topology or not constrained,
    )


def _label(tree: DomainTree, pod_set: PodSet) -> str:
    if pod_set.required_topology or pod_set.preferred_topology:
        return pod_set.required_topology or pod_set.preferred_topology
    if pod_set.slices:
        return tree.levels[0]
    return tree.levels[-1] if pod_set.any_topology else ""


def _slices(tree: DomainTree, pod_set: PodSet) -> SliceSpec | TopologyRefusal:
    """The slices of a set: each layer is finer than the one before, and its size divides that of the one before."""
    inner = [0] * len(tree.levels)
    outer_level, outer_size = -1, pod_set.count
    for layer in pod_set.slices:
        level = tree.level(layer.level)
        if level is None:
            return TopologyRefusal(RefusalKind.UNKNOWN_LEVEL, pod_set.name, layer.level)
        if layer.size <= 0:
            return _invalid_slices(pod_set, f"no size for slices at level {layer.level}")
        if level <= outer_level:
            finer_than = tree.levels[outer_level]
            return _invalid_slices(pod_set, f"level {layer.level} is not finer than level {finer_than}")
        if outer_size % layer.size:
            return _invalid_slices(pod_set, f"{outer_size} pods do not divide into slices of {layer.size}")
        for between in range(outer_level + 1, level + 1) if outer_level >= 0 else ():
            inner[between] = layer.size
        outer_level, outer_size = level, layer.size
    if not pod_set.slices:
        return SliceSpec(tree.lowest, 1, tuple(inner))
    first = pod_set.slices[0]
    return SliceSpec(tree.levels.index(first.level), first.size, tuple(inner))


def _invalid_slices(pod_set: PodSet, detail: str) -> TopologyRefusal:
    return TopologyRefusal(RefusalKind.INVALID_SLICES, pod_set.name, detail)
