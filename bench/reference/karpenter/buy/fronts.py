"""How many more pods fit into a set of possible machines: only its undominated ones have to be asked."""

import numpy as np

from bench.reference.karpenter.buy.rows import Bools, Ints

MANY = np.int64(1 << 40)
"""More pods than there can be."""


def pareto(room: Ints) -> Ints:
    """The rows of `room` that no other row matches or exceeds in everything, each once, largest sum first."""
    left = np.unique(room, axis=0)
    scale = np.maximum(left.max(axis=0, initial=1), 1)
    left = left[np.argsort(-(left / scale).sum(axis=1), kind="stable")]
    kept = []
    while len(left):
        best = left[0]
        kept.append(best)
        left = left[(left > best).any(axis=1)]
    return np.array(kept, dtype=np.int64).reshape(len(kept), room.shape[1])


class Fronts:
    """The undominated rows of sets of machines, each distinct one known by a number."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._fronts: list[Ints] = []

    def of(self, room: Ints, rows: Bools) -> int:
        """The number of the front of these rows."""
        front = pareto(room[rows])
        number = self._numbers.setdefault(front.tobytes(), len(self._fronts))
        if number == len(self._fronts):
            self._fronts.append(front)
        return number

    def room(self, number: int, used: Ints, ask: Ints) -> Ints:
        """How many more pods that take `ask` fit beside `used` (a column for each claim), on the best row for each.

        Shape of the result: (claims,). Never negative.
        """
        front = self._fronts[number]
        hopeful = (used <= (front.max(axis=0, initial=-1) - ask)[:, None]).all(axis=0)
        claims = np.flatnonzero(hopeful)
        if 2 * len(claims) > len(hopeful):
            return _times(front, used, ask)
        found = np.zeros(len(hopeful), dtype=np.int64)
        if len(claims):  # most are full, and comparing is cheaper than dividing
            found[claims] = _times(front, used[:, claims], ask)
        return found


def _times(front: Ints, used: Ints, ask: Ints) -> Ints:
    """How many pods fit beside `used` (a column for each claim), on the best row for each."""
    fits: Ints | None = None
    for resource, each in enumerate(ask.tolist()):
        left = front[:, resource, None] - used[resource, None, :]
        here = left // each if each else np.where(left < 0, 0, MANY)
        fits = here if fits is None else np.minimum(fits, here)
    if fits is None:
        return np.full(used.shape[1], MANY)
    return np.asarray(np.maximum(fits.max(axis=0, initial=0), 0), dtype=np.int64)
