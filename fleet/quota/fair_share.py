"""Divides the quota of a tree among its nodes by guarantee, weight and demand: what each is fairly entitled to.

Level by level from the root: every node gets what it asks for within its guarantee, and what is left goes by weight to
those who ask for more (KAI-Scheduler `plugins/proportion/resource_division`; reference 2.2). A node is measured by its
guarantee where that is more: who asks for little is not behind for it (`GetAllocatableShare`). What is left is poured
as Volcano's plugin `proportion` pours the machines over its queues (reference 1.3), which is here for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.quota.specs import UNLIMITED
from fleet.quota.tree import FairShare, QuotaNode, QuotaTree
from model.quantity import Resources

TOLERANCE = 0.1
"""Amounts closer than this (a thousandth of a core, a byte, a device) are equal."""
Amounts = Mapping[str, float]
"""Resource -> amount."""
Demand = Mapping[str, Resources]
"""Queue -> what its gangs hold and wait for."""


def share_out(tree: QuotaTree, demand: Demand) -> None:
    """Sets the fair share of every node of the trees in which a queue has demand, resource by resource."""
    roots = {id(root): root for root in (tree.queues[name].root for name in demand)}
    resources = sorted({name for asked in demand.values() for name in asked if tree.cells_of(name)})
    for root in roots.values():
        _share_out_below(tree, root, {name: _sum(tree, root.subtree, name) for name in resources}, demand)


def _share_out_below(tree: QuotaTree, node: QuotaNode, total: Amounts, demand: Demand) -> None:
    asked = {id(child): _asked(tree, child, demand, total) for child in node.children}
    within = {id(child): _within_guarantee(tree, child, asked[id(child)]) for child in node.children}
    left = {name: max(0.0, amount - sum(own[name] for own in within.values())) for name, amount in total.items()}
    beyond = {
        str(n): WeightedQueue(child.weight, _less(asked[id(child)], within[id(child)]))
        for n, child in enumerate(node.children)
    }
    more = deserved(left, beyond)
    for n, child in enumerate(node.children):
        fair = {name: amount + more[str(n)][name] for name, amount in within[id(child)].items()}
        child.fair_shares = [
            FairShare(tree.cells_of(name), most, _part(most, total[name]))
            for name, amount in fair.items()
            for most in (max(amount, _sum(tree, child.subtree, name)),)
        ]
        _share_out_below(tree, child, fair, demand)


def _asked(tree: QuotaTree, node: QuotaNode, demand: Demand, total: Amounts) -> dict[str, float]:
    """Returns what is asked of a node and may be used by it."""
    queues = [demand.get(queue.name, {}) for queue in node.queues()]
    return {
        name: float(min(_sum(tree, node.potential, name), sum(asked.get(name, 0) for asked in queues)))
        for name in total
    }


def _within_guarantee(tree: QuotaTree, node: QuotaNode, asked: Amounts) -> dict[str, float]:
    return {name: float(min(_sum(tree, node.subtree, name), amount)) for name, amount in asked.items()}


def _less(amounts: Amounts, others: Amounts) -> dict[str, float]:
    return {name: max(0.0, amount - others[name]) for name, amount in amounts.items()}


def _part(amount: float, total: float) -> float:
    return amount / total if total else 0.0


def _sum(tree: QuotaTree, amounts: Sequence[int], resource: str) -> int:
    return min(UNLIMITED, sum(amounts[cell] for cell in tree.cells_of(resource)))


@dataclass(frozen=True, slots=True)
class WeightedQueue:
    """A `WeightedQueue` takes part in sharing by weight; `request` is what its gangs hold and wait for."""

    weight: float
    request: Amounts
    capability: Amounts = field(default_factory=dict)
    """The most that it may hold; a resource not named is unlimited."""
    guarantee: Amounts = field(default_factory=dict)
    """Held back for it, whether it asks or not."""


def within(amounts: Amounts, bound: Amounts) -> bool:
    """Returns whether every amount is at most the bound; a resource the bound does not name counts as zero."""
    return all(value <= bound.get(name, 0.0) + TOLERANCE for name, value in amounts.items())


def ceilings(total: Amounts, queues: Mapping[str, WeightedQueue]) -> dict[str, dict[str, float]]:
    """Returns the most that each queue may hold: all not guaranteed to others, and never above its capability."""
    guaranteed = {name: sum(q.guarantee.get(name, 0.0) for q in queues.values()) for name in total}
    found: dict[str, dict[str, float]] = {}
    for key, queue in queues.items():
        open_to_it = {
            name: max(0.0, amount - guaranteed[name]) + queue.guarantee.get(name, 0.0) for name, amount in total.items()
        }
        named = {**dict.fromkeys(queue.capability, float("inf")), **open_to_it}
        found[key] = {name: min(value, queue.capability.get(name, float("inf"))) for name, value in named.items()}
    return found


def deserved(total: Amounts, queues: Mapping[str, WeightedQueue]) -> dict[str, dict[str, float]]:
    """Returns what each queue deserves of `total`, for all resources of it: shares by weight (water filling).

    Every round pours what is left over the queues that are not yet met, by weight, and takes back what a queue cannot
    use. All queues of a round see the same remainder, so the order of the queues does not matter.
    """
    most = ceilings(total, queues)
    shares = {key: dict.fromkeys(total, 0.0) for key in queues}
    remaining = {name: float(amount) for name, amount in total.items()}
    met: set[str] = set()
    while weights := sum(queue.weight for key, queue in queues.items() if key not in met):
        poured = dict(remaining)
        for key in sorted(queues.keys() - met):
            queue, before = queues[key], shares[key]
            after = {
                name: _bounded(before[name] + poured[name] * queue.weight / weights, name, queue, most[key])
                for name in total
            }
            for name in total:
                remaining[name] -= after[name] - before[name]
            if within(queue.request, after) or _same(before, after):
                met.add(key)
            shares[key] = after
        remaining = {name: max(0.0, amount) for name, amount in remaining.items()}
        if all(amount <= TOLERANCE for amount in remaining.values()) or _same(remaining, poured):
            break
    return shares


def _bounded(amount: float, name: str, queue: WeightedQueue, most: Amounts) -> float:
    wanted = min(amount, most.get(name, float("inf")), queue.request.get(name, 0.0))
    return max(wanted, queue.guarantee.get(name, 0.0))


def _same(one: Amounts, other: Amounts) -> bool:
    return all(abs(value - other[name]) < TOLERANCE for name, value in one.items())
