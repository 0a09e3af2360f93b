"""Hierarchical dominant resource fairness (Bhattacharya et al., SoCC'13).

Adding up what children use either starves a node or breaks its promise, because a child that is stuck on one resource
keeps growing in another. Two rules repair it: a node counts its children rescaled to the smallest dominant share among
them, and children that cannot grow any more (blocked) are left out of that minimum and counted in full.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.reference.shares.drf import dominant_share

Amounts = Mapping[str, float]


@dataclass(slots=True)
class HdrfNode:
    """A node of the tree. Leaves use and demand; inner nodes are computed by `refresh`."""

    name: str
    weight: float = 1.0
    children: list["HdrfNode"] = field(default_factory=list)
    used: dict[str, float] = field(default_factory=dict)
    demand: dict[str, float] = field(default_factory=dict)
    """Of a leaf: all it runs and waits for."""
    share: float = 0.0
    blocked: bool = False

    def leaves(self) -> Iterator["HdrfNode"]:
        """The leaves below, or itself."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


def refresh(root: HdrfNode, capacity: Amounts) -> None:
    """Recompute shares and blocked nodes of the whole tree from what its leaves use."""
    taken: dict[str, float] = {}
    for leaf in root.leaves():
        for name, amount in leaf.used.items():
            taken[name] = taken.get(name, 0.0) + amount
    _refresh(root, capacity, {name for name, amount in capacity.items() if taken.get(name, 0.0) < amount})


def _refresh(node: HdrfNode, capacity: Amounts, growing: set[str]) -> None:
    if not node.children:
        node.share = dominant_share(node.used, capacity)[0]
        node.blocked = _is_blocked(node, growing)
        return
    for child in node.children:
        _refresh(child, capacity, growing)
    smallest = min((child.share for child in node.children if child.share and not child.blocked), default=1.0)
    used: dict[str, float] = {}
    for child in node.children:
        if child.share:
            scale = 1.0 if child.blocked else smallest / child.share
            for name, amount in child.used.items():
                used[name] = used.get(name, 0.0) + amount * scale
    node.used, node.share = used, dominant_share(used, capacity)[0]
    node.blocked = all(child.blocked for child in node.children)


def _is_blocked(leaf: HdrfNode, growing: set[str]) -> bool:
    """It wants something that is used up, or has got all it wants of something."""
    for name, wanted in leaf.demand.items():
        if wanted and (name not in growing or leaf.used.get(name, 0.0) >= wanted):
            return True
    return not any(leaf.demand.values())


def path_key(root: HdrfNode, path: tuple[str, ...]) -> tuple[tuple[bool, float], ...]:
    """What to sort leaves by, smallest first: level by level, blocked nodes last, then share per weight."""
    key, node = [(root.blocked, root.share / root.weight)], root
    for name in path:
        node = next(child for child in node.children if child.name == name)
        key.append((node.blocked, node.share / node.weight))
    return tuple(key)


def fill(root: HdrfNode, capacity: Amounts, tasks: Mapping[tuple[str, ...], Amounts], steps: int = 1_000_000) -> None:
    """Serve the leaf with the smallest key, one task at a time, until nobody's next task fits."""
    free = dict(capacity)
    open_leaves = {path: _leaf(root, path) for path in sorted(tasks)}
    for _ in range(steps):
        refresh(root, capacity)
        if not open_leaves:
            return
        path = min(open_leaves, key=lambda entry: (path_key(root, entry), entry))
        leaf, task = open_leaves[path], tasks[path]
        over = any(leaf.used.get(name, 0.0) + amount > leaf.demand.get(name, 0.0) for name, amount in task.items())
        if over or any(free.get(name, 0.0) < amount for name, amount in task.items()):
            del open_leaves[path]
            continue
        for name, amount in task.items():
            free[name] -= amount
            leaf.used[name] = leaf.used.get(name, 0.0) + amount


def _leaf(root: HdrfNode, path: tuple[str, ...]) -> HdrfNode:
    node = root
    for name in path:
        node = next(child for child in node.children if child.name == name)
    return node
