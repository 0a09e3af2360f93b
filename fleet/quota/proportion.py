"""Weighted shares by water filling: Volcano's `proportion` plugin.

Every round pours what is left over the queues that are not yet met, by weight, and takes back what a queue cannot use.
All queues of a round see the same remainder, so the order of the queues does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, float]

TOLERANCE = 0.1
"""Amounts closer than this (a thousandth of a core, a byte, a device) are equal."""


@dataclass(frozen=True, slots=True)
class WeightedQueue:
    """A queue with work in it. `request` is what it runs and what it waits for."""

    weight: int
    request: Amounts
    capability: Amounts = field(default_factory=dict)
    """Most it may hold; a resource not named is unlimited."""
    guarantee: Amounts = field(default_factory=dict)
    """Held back for it, whether it asks or not."""


def within(amounts: Amounts, bound: Amounts) -> bool:
    """Whether every amount is at most the bound; a resource the bound does not name counts as zero."""
    return all(value <= bound.get(name, 0.0) + TOLERANCE for name, value in amounts.items())


def ceilings(total: Amounts, queues: Mapping[str, WeightedQueue]) -> dict[str, dict[str, float]]:
    """What each queue may hold at most: all that is not guaranteed to others, and never above its capability."""
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
    """What each queue deserves of `total`, for all resources of `total`."""
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
