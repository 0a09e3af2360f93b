"""Dominant resource fairness (Ghodsi et al., NSDI'11): whoever has the smallest dominant share is served next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with many equal tasks. A weight above 1 in a resource makes the share of it count less."""

    task: Amounts
    weight: float = 1.0
    weights: Amounts = field(default_factory=dict)
    """Per resource; where not named, `weight`."""
    most_tasks: int | None = None
    """None = as many as fit."""


def dominant_share(
    used: Amounts, capacity: Amounts, weights: Amounts | None = None, weight: float = 1.0
) -> tuple[float, str]:
    """The largest share of any resource, and that resource (the first by name when several are equal)."""
    named = weights or {}
    best, resource = 0.0, ""
    for name in sorted(capacity):
        amount = used.get(name, 0.0)
        if amount <= 0:
            continue
        share = amount / (capacity[name] * named.get(name, weight)) if capacity[name] else float("inf")
        if share > best:
            best, resource = share, name
    return best, resource


def progressive_fill(capacity: Amounts, users: Mapping[str, User], steps: int = 1_000_000) -> dict[str, int]:
    """Whole tasks of each user when the one with the smallest dominant share always goes next.

    A user whose next task does not fit is out; the others go on. Ties go to the name.
    """
    free = dict(capacity)
    tasks = dict.fromkeys(sorted(users), 0)
    open_users = {name for name in users if any(users[name].task.values())}
    for _ in range(steps):
        if not open_users:
            break
        name = min(open_users, key=lambda key: (_share(users[key], tasks[key], capacity), key))
        user = users[name]
        full = user.most_tasks is not None and tasks[name] >= user.most_tasks
        if full or any(free.get(resource, 0.0) < amount for resource, amount in user.task.items()):
            open_users.discard(name)
            continue
        for resource, amount in user.task.items():
            free[resource] -= amount
        tasks[name] += 1
    return tasks


def _share(user: User, count: int, capacity: Amounts) -> float:
    used = {resource: amount * count for resource, amount in user.task.items()}
    return dominant_share(used, capacity, user.weights, user.weight)[0]
