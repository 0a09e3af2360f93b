"""From arrays back to names: which pods of which class stand on each machine."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fleet.optimize.purchase.answer import Batch
from fleet.optimize.purchase.mix import Mix
from fleet.optimize.purchase.part import Member, Part

_Held = tuple[tuple[str, int], ...]
"""(class, pods on each machine), sorted."""


def batches(part: Part, mix: Mix) -> list[Batch]:
    """The machines by name, dearest kind first. Classes and open machines that were counted as one are dealt out."""
    queues = [list(reversed(group)) for group in part.members]
    rooms = [iter(names) for names in part.names]
    found: Counter[tuple[str, _Held]] = Counter()
    for kind, own, there in _ordered(mix):
        wanted, machines = [(queues[row], pods) for row, pods in own], there
        while machines:
            alike = min(machines, *(queue[-1][1] // pods for queue, pods in wanted))
            count = 1 if part.open[kind] else max(alike, 1)
            held: dict[str, int] = {}
            for queue, pods in wanted:
                _take(queue, pods, count, held)
            name = next(rooms[kind]) if part.open[kind] else part.names[kind][0]
            found[name, tuple(sorted(held.items()))] += count
            machines -= count
    return [Batch(name, dict(held), count) for (name, held), count in found.items()]


def _ordered(mix: Mix) -> list[tuple[int, list[tuple[int, int]], int]]:
    """(kind, its (class, pods), machines) of each pattern; dearest first, then the fewest pods of the last class."""
    patterns, rows = np.nonzero(mix.pods)
    pods: list[list[tuple[int, int]]] = [[] for _ in mix.kinds]
    for pattern, row, count in zip(patterns.tolist(), rows.tolist(), mix.pods[patterns, rows].tolist(), strict=True):
        pods[pattern].append((row, count))
    found = list(zip(mix.kinds.tolist(), pods, mix.machines.tolist(), strict=True))
    return sorted(found, key=lambda it: (-it[0], it[1][::-1]))


def _take(queue: list[Member], pods: int, machines: int, held: dict[str, int]) -> None:
    """`pods` for each of so many machines off the queue; more than one class only for a single machine."""
    while pods:
        name, there = queue.pop()
        taken = min(pods, there // machines)
        held[name] = held.get(name, 0) + taken
        pods -= taken
        if rest := there - taken * machines:
            queue.append((name, rest))


def by_class(part: Part, values: Sequence[float]) -> dict[str, float]:
    """A number for each row of classes as one for each class."""
    return {name: value for group, value in zip(part.members, values, strict=True) for name, _ in group}
