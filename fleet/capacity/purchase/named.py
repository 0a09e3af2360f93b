"""From arrays back to names: which pods of which class stand on each machine."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from fleet.capacity.purchase.answer import Batch
from fleet.capacity.purchase.mix import Mix
from fleet.capacity.purchase.part import Member, Part

_Held = tuple[tuple[str, int], ...]
"""(class, pods on each machine), sorted."""


def batches(part: Part, mix: Mix) -> list[Batch]:
    """The machines by name, dearest kind first. Classes and open machines that were counted as one are dealt out."""
    queues = [list(reversed(group)) for group in part.members]
    rooms = [iter(names) for names in part.names]
    found: Counter[tuple[str, _Held]] = Counter()
    for pattern in np.lexsort((*mix.pods.T, -mix.kinds)).tolist():
        kind, machines = int(mix.kinds[pattern]), int(mix.machines[pattern])
        wanted = [(queues[row], int(mix.pods[pattern, row])) for row in np.flatnonzero(mix.pods[pattern]).tolist()]
        while machines:
            alike = min(machines, *(queue[-1][1] // pods for queue, pods in wanted))
            count = 1 if part.open[kind] else max(alike, 1)
            held: Counter[str] = Counter()
            for queue, pods in wanted:
                held.update(_taken(queue, pods, count))
            name = next(rooms[kind]) if part.open[kind] else part.names[kind][0]
            found[name, tuple(sorted(held.items()))] += count
            machines -= count
    return [Batch(name, dict(held), count) for (name, held), count in found.items()]


def _taken(queue: list[Member], pods: int, machines: int) -> Counter[str]:
    """`pods` for each of so many machines off the queue; more than one class only for a single machine."""
    held: Counter[str] = Counter()
    while pods:
        name, there = queue.pop()
        taken = min(pods, there // machines)
        held[name] += taken
        pods -= taken
        if rest := there - taken * machines:
            queue.append((name, rest))
    return held


def by_class(part: Part, values: Sequence[float]) -> dict[str, float]:
    """A number for each row of classes as one for each class."""
    return {name: value for group, value in zip(part.members, values, strict=True) for name, _ in group}
