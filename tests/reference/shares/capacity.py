"""Configured shares in a tree of queues: Volcano's `capacity` plugin.

A queue names what it deserves, what is guaranteed to it and the most it may have. What a limit does not name is
unlimited, what `deserved` does not name is not deserved; zero counts as not named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fleet.quota.volcano import TOLERANCE

Amounts = Mapping[str, float]
NO_LIMIT = float("inf")


@dataclass(frozen=True, slots=True)
class CapacityQueue:
    """A queue as declared. `parent` is empty for the top."""

    parent: str = ""
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    capability: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a declared queue comes down to in a cluster of a given size."""

    deserved: Amounts
    guarantee: Amounts
    most: Amounts
    """A resource not named is unlimited."""


def bounds(total: Amounts, queues: Mapping[str, CapacityQueue]) -> dict[str, Bounds]:
    """The bounds of every queue, top down: a child has at most what its parent has and siblings are not guaranteed."""
    found: dict[str, Bounds] = {}
    for parent, names in _levels(queues):
        above = found[parent].most if parent else total
        inherited = _named(queues[parent].capability) if parent else {}
        guaranteed = _sum(queues[name].guarantee for name in names)
        for name in names:
            found[name] = _bounds_below(above, inherited, guaranteed, queues[name])
    return found


def _bounds_below(above: Amounts, inherited: Amounts, guaranteed: Amounts, queue: CapacityQueue) -> Bounds:
    open_to_it = {
        name: max(0.0, amount - guaranteed.get(name, 0.0)) + queue.guarantee.get(name, 0.0)
        for name, amount in above.items()
    }
    capability = {**inherited, **_named(queue.capability)}
    most = {
        name: min(open_to_it.get(name, NO_LIMIT), capability.get(name, NO_LIMIT))
        for name in open_to_it.keys() | capability.keys()
    }
    deserved = {name: min(amount, most.get(name, NO_LIMIT)) for name, amount in _named(queue.deserved).items()}
    for name, amount in queue.guarantee.items():
        deserved[name] = max(deserved.get(name, 0.0), amount)
    return Bounds(deserved, dict(queue.guarantee), most)


def _levels(queues: Mapping[str, CapacityQueue]) -> Iterator[tuple[str, list[str]]]:
    """Parents with their children, parents first; queues whose parent is missing stand at the top."""
    waiting = [""]
    while waiting:
        parent = waiting.pop(0)
        names = sorted(
            name for name, queue in queues.items() if (queue.parent if queue.parent in queues else "") == parent
        )
        if names:
            yield parent, names
            waiting += names


def exceeds(held: Amounts, bound: Amounts, relevant: Amounts) -> bool:
    """Whether more is held than the bound in a resource that both the bound and `relevant` name."""
    return any(
        held.get(name, 0.0) > limit + TOLERANCE for name, limit in bound.items() if limit and relevant.get(name, 0.0)
    )


def fits(held: Amounts, more: Amounts, most: Amounts) -> bool:
    """Whether `more` can be added without going above `most`, in the resources asked for."""
    return all(
        held.get(name, 0.0) + amount <= most.get(name, NO_LIMIT) + TOLERANCE for name, amount in more.items() if amount
    )


def claims(held: Amounts, more: Amounts, deserved: Amounts) -> bool:
    """Whether in some resource asked for the queue still stays within what it deserves."""
    return any(
        held.get(name, 0.0) + amount <= deserved.get(name, 0.0) + TOLERANCE for name, amount in more.items() if amount
    )


def keeps_guarantee(held: Amounts, loss: Amounts, guarantee: Amounts) -> bool:
    """Whether the guarantee still holds after the loss."""
    return all(held.get(name, 0.0) - loss.get(name, 0.0) >= limit - TOLERANCE for name, limit in guarantee.items())


def undeserved(loss: Amounts, deserved: Amounts) -> bool:
    """Whether the queue deserves nothing of what would be lost, so that nothing speaks for keeping it."""
    return not any(deserved.get(name, 0.0) for name, amount in loss.items() if amount)


def share(held: Amounts, deserved: Amounts) -> float:
    """The largest part of what is deserved that is held; 1 for a queue that deserves nothing."""
    named = _named(deserved)
    return max((held.get(name, 0.0) / limit for name, limit in named.items()), default=1.0)


def _named(amounts: Amounts) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if amount}


def _sum(parts: Iterator[Amounts]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found.get(name, 0.0) + amount
    return found
