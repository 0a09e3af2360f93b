"""A pod set's wish in terms of a tree: which level, how strictly, and how its pods are cut into slices."""

from dataclasses import dataclass, replace

from fleet.placement.topology.tree import Tree
from fleet.placement.topology.values import Refusal, RefusalKind
from fleet.snapshot import PodSet


@dataclass(frozen=True, slots=True)
class Cut:
    """Pods are placed in slices of `size`, each inside one domain of `level`.

    `inner[l]` is the size of the smaller slices that domains of level l take, 0 where there are none.
    """

    level: int
    size: int = 1
    inner: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """Place `count` pods, and `leaders` (0 or 1) beside them, from `level` on."""

    pod_set: str
    count: int
    level: int
    cut: Cut
    required: bool = False
    unconstrained: bool = False
    """No wish for a level: places are chosen over the whole tree."""
    leaders: int = 0

    @property
    def slices(self) -> int:
        """Whole slices to place."""
        return self.count // self.cut.size

    @property
    def unit(self) -> str:
        """What is counted."""
        return "pod" if self.cut.size == 1 else "slice"

    def with_leader(self) -> "Wish":
        """The same with one leader."""
        return replace(self, leaders=1)


def wish_of(tree: Tree, pod_set: PodSet) -> Wish | Refusal:
    """What the set asks of this tree.

    The level is the required one, else the preferred one; slices alone start from the top, and without any wish but
    "anywhere" from the lowest.
    """
    label = _label(tree, pod_set)
    if not label:
        return Refusal(RefusalKind.NO_WISH, pod_set.name)
    level = tree.level(label)
    if level is None:
        return Refusal(RefusalKind.UNKNOWN_LEVEL, pod_set.name, label)
    cut = _cut(tree, pod_set)
    if isinstance(cut, Refusal):
        return cut
    if cut.level < level:
        return _uncuttable(pod_set, f"level {tree.levels[cut.level]} is coarser than level {label}")
    constrained = bool(pod_set.required_topology or pod_set.preferred_topology)
    return Wish(
        pod_set.name,
        pod_set.count,
        level,
        cut,
        required=bool(pod_set.required_topology),
        unconstrained=pod_set.any_topology or not constrained,
    )


def _label(tree: Tree, pod_set: PodSet) -> str:
    if pod_set.required_topology or pod_set.preferred_topology:
        return pod_set.required_topology or pod_set.preferred_topology
    if pod_set.slices:
        return tree.levels[0]
    return tree.levels[-1] if pod_set.any_topology else ""


def _cut(tree: Tree, pod_set: PodSet) -> Cut | Refusal:
    """Each layer is finer than the one before, and its size divides that of the one before."""
    inner = [0] * len(tree.levels)
    outer_level, outer_size = -1, pod_set.count
    for layer in pod_set.slices:
        level = tree.level(layer.level)
        if level is None:
            return Refusal(RefusalKind.UNKNOWN_LEVEL, pod_set.name, layer.level)
        if layer.size <= 0:
            return _uncuttable(pod_set, f"no size for slices at level {layer.level}")
        if level <= outer_level:
            return _uncuttable(pod_set, f"level {layer.level} is not finer than level {tree.levels[outer_level]}")
        if outer_size % layer.size:
            return _uncuttable(pod_set, f"{outer_size} pods do not divide into slices of {layer.size}")
        for between in range(outer_level + 1, level + 1) if outer_level >= 0 else ():
            inner[between] = layer.size
        outer_level, outer_size = level, layer.size
    if not pod_set.slices:
        return Cut(tree.lowest, 1, tuple(inner))
    first = pod_set.slices[0]
    return Cut(tree.levels.index(first.level), first.size, tuple(inner))


def _uncuttable(pod_set: PodSet, detail: str) -> Refusal:
    return Refusal(RefusalKind.INVALID_SLICES, pod_set.name, detail)
