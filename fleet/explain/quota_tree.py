"""The quota tree as people look at it: who has how much, uses, borrows and lends, who waits and who holds it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.placement.pod_quota import ordinary_usage
from fleet.quota.build_tree import QueueUsage, QuotaSpecs, current_quota_specs, tree_charged_with
from fleet.quota.queue_binding import binding_of
from fleet.quota.specs import UNLIMITED
from fleet.quota.tree import Cell, QuotaNode, QuotaTree
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet
from model.index import Index, derived


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """One (flavor, resource) at one node of the tree; amounts are canonical."""

    flavor: str
    resource: str
    quota: int
    """Own quota and what those below lend; of a queue without quota of its own that of its team."""
    most: int | None
    """Most it could use with everybody else idle; None = no bound."""
    used: int
    borrowed: int
    lent: int
    """What others use of the quota that it leaves unused. Where several could have lent it, each has lent its part."""


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A node of the tree, with those who wait at it and those who hold quota there; both empty above the queues."""

    name: str
    path: str
    depth: int
    is_queue: bool
    shares: tuple[QuotaShare, ...]
    waiting: tuple[Gang, ...]
    """In order of priority, age and uid."""
    holders: tuple[Gang, ...]
    """By name and uid."""


def quota_rows(fleet: Fleet, snapshot: Snapshot) -> Sequence[QuotaRow]:
    """Returns the nodes of all trees from the root down, siblings by name."""
    specs, others = current_quota_specs(fleet, snapshot), ordinary_usage(fleet, snapshot)
    return _rows(snapshot.index, fleet, specs, snapshot.gangs, others)


@derived(1)
def _rows(
    _index: Index, fleet: Fleet, specs: QuotaSpecs, gangs: Mapping[str, Gang], others: QueueUsage
) -> Sequence[QuotaRow]:
    tree = tree_charged_with(fleet, specs, gangs.values(), others)
    waiting, holders = _by_queue(fleet, _waiting(gangs.values())), _by_queue(fleet, _holding(gangs.values()))
    lent = _lent(tree)
    roots = [node for node in (*tree.cohorts.values(), *tree.queues.values()) if node.parent is None]
    found = []
    for depth, node in (each for root in sorted(roots, key=_by_name) for each in _down(root, 0)):
        mine = (waiting.get(node.name, ()), holders.get(node.name, ())) if node.is_queue else ((), ())
        found.append(QuotaRow(node.name, node.path, depth, node.is_queue, _shares(tree, node, lent), *map(tuple, mine)))
    return tuple(found)


def _by_name(node: QuotaNode) -> tuple[bool, str]:
    """Orders the queues of a node before the teams below it."""
    return not node.is_queue, node.name


def _down(node: QuotaNode, depth: int) -> Iterator[tuple[int, QuotaNode]]:
    yield depth, node
    for child in sorted(node.children, key=_by_name):
        yield from _down(child, depth + 1)


def _waiting(gangs: Iterable[Gang]) -> Sequence[Gang]:
    pending = (gang for gang in gangs if gang.state is GangState.PENDING)
    return sorted(pending, key=lambda it: (-it.effective_priority, it.created_at_s, it.uid))


def _holding(gangs: Iterable[Gang]) -> Sequence[Gang]:
    return sorted((gang for gang in gangs if gang.holds_capacity), key=lambda it: (it.name, it.uid))


def _by_queue(fleet: Fleet, gangs: Iterable[Gang]) -> Mapping[str, Sequence[Gang]]:
    """Returns queue -> those of the gangs that are in it, in the order given."""
    found: dict[str, list[Gang]] = {}
    for gang in gangs:
        if (binding := binding_of(fleet, gang.namespace, gang.queue)) is not None:
            found.setdefault(binding.name, []).append(gang)
    return found


def _shares(tree: QuotaTree, node: QuotaNode, lent: Mapping[tuple[int, Cell], int]) -> tuple[QuotaShare, ...]:
    owner = node.owner
    cells = [cell for cell in range(len(tree.cells)) if owner.subtree[cell] or node.usage[cell]]
    return tuple(
        QuotaShare(
            *tree.cells[cell],
            quota=owner.subtree[cell],
            most=node.potential[cell] if node.potential[cell] < UNLIMITED else None,
            used=node.usage[cell],
            borrowed=max(0, -node.owner.unused(cell)) if node.usage[cell] else 0,
            lent=lent.get((id(node), cell), 0),
        )
        for cell in sorted(cells, key=lambda cell: tree.cells[cell])
    )


def _lent(tree: QuotaTree) -> Mapping[tuple[int, Cell], int]:
    """Returns (node, cell) -> what others use of its quota; nothing for those that lend nothing."""
    found: dict[tuple[int, Cell], int] = {}
    waiting = [node for node in tree.cohorts.values() if node.parent is None]
    while waiting:
        node = waiting.pop()
        for cell in range(len(tree.cells)):
            _lend(node, cell, found)
        waiting += [child for child in node.children if not child.is_queue]
    return found


def _lend(node: QuotaNode, cell: Cell, lent: dict[tuple[int, Cell], int]) -> None:
    """Divides what the children of a node lend: to each other, and together to those above.

    What is borrowed comes from above first, as far as the node borrows itself, then from the node's own quota.
    """
    over = sum(max(0, child.usage[cell] - child.subtree[cell]) for child in node.children)
    from_above = max(0, node.usage[cell] - node.subtree[cell])
    asked = over + lent.get((id(node), cell), 0) - from_above - node.nominal[cell]
    could = [
        (child, max(0, child.subtree[cell] - max(child.usage[cell], child.private[cell])))
        for child in node.children
        if not child.through_team
    ]
    whole = sum(amount for _, amount in could)
    left = min(asked, whole)
    for child, amount in could:
        if left > 0 and amount:
            part = min(left, amount, -(-asked * amount // whole))
            lent[id(child), cell] = part
            left -= part
