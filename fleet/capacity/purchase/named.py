"""From arrays back to names: which pods of which class stand on each machine, and starts that came by name."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from fleet.capacity.purchase.answer import Batch
from fleet.capacity.purchase.mix import Mix, empty, housed, trimmed, valid
from fleet.capacity.purchase.part import Part

_Pods = tuple[tuple[str, int], ...]


def batches(part: Part, mix: Mix) -> list[Batch]:
    """The machines by name, dearest kind first. Classes that were counted as one are dealt out in their order."""
    queues = [[list(member) for member in reversed(group)] for group in part.members]
    found: Counter[tuple[int, _Pods]] = Counter()
    for pattern in np.lexsort((*mix.pods.T, -mix.kinds)).tolist():
        kind, machines = int(mix.kinds[pattern]), int(mix.machines[pattern])
        wanted = [(row, int(mix.pods[pattern, row])) for row in np.flatnonzero(mix.pods[pattern])]
        while machines:
            count = min([machines, *(queues[row][-1][1] // pods for row, pods in wanted)])
            pods = _dealt(queues, wanted, max(count, 1))
            found[kind, pods] += max(count, 1)
            machines -= max(count, 1)
    return [Batch(part.kinds[kind], dict(pods), count) for (kind, pods), count in found.items()]


def _dealt(queues: list[list[list[str | int]]], wanted: Iterable[tuple[int, int]], machines: int) -> _Pods:
    """Take the pods of so many equal machines off the queues; one machine may take of several classes."""
    held: Counter[str] = Counter()
    for row, pods in wanted:
        queue, missing = queues[row], pods
        while missing and queue:
            name, there = str(queue[-1][0]), int(queue[-1][1])
            taken = min(missing, there // machines)
            held[name] += taken
            missing -= taken
            queue[-1][1] = there - taken * machines
            if not queue[-1][1]:
                queue.pop()
            elif missing and machines > 1:
                break
    return tuple(sorted(held.items()))


def given(part: Part, start: Sequence[Batch]) -> Mix:
    """The machines of a start that belong to the part; none of them where the start is not possible."""
    places = {name: row for row, group in enumerate(part.members) for name, _ in group}
    own = [batch for batch in start if batch.machines > 0 and any(name in places for name in batch.pods)]
    pods = np.zeros((len(own), len(part.demand)), dtype=np.int64)
    for number, batch in enumerate(own):
        for name, count in batch.pods.items():
            if name in places:
                pods[number, places[name]] += count
    machines = np.array([batch.machines for batch in own], dtype=np.int64)
    if not len(own):
        return empty(part)
    again = trimmed(part, housed(part, pods, machines))
    columns = {name: col for col, name in enumerate(part.kinds)}
    if int((machines @ pods).sum()) > int(again.placed.sum()) and all(batch.kind in columns for batch in own):
        again = Mix(np.array([columns[batch.kind] for batch in own], dtype=np.int64), pods, machines)
    return again if valid(part, again) else empty(part)
