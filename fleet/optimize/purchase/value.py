"""Greedy by value for money: buy the machine whose pods are worth most for its price, until every pod has a place.

What a pod is worth comes from outside: the duals of a linear programme, or the cheapest way to hold it by itself.
"""

from collections.abc import Iterator

import numpy as np

from fleet.optimize.purchase.fill import best_fills
from fleet.optimize.purchase.mix import Headroom, Mix, empty, trimmed
from fleet.optimize.purchase.part import Bools, Floats, Ints, Part

_FREE = 1e-9
"""USD an hour that a machine for nothing counts as."""
_AT_ONCE = 2_000
"""Kinds times classes that are filled anew side by side, which costs little more than one kind."""


def by_value(part: Part, worth: Floats, begun: Mix | None = None) -> Mix:
    """Machines for all pods, as far as the limits allow, on top of those `begun` with."""
    demand, head = part.demand.copy(), Headroom(part)
    bought: list[tuple[int, Ints, int]] = []
    if begun is not None:
        bought += zip(begun.kinds.tolist(), begun.pods, begun.machines.tolist(), strict=True)
        demand = np.maximum(demand - begun.placed, 0)
        for kind, _, count in bought:
            head.buy(kind, count)
    shelf = _Shelf(part, np.maximum(worth, _FREE), demand)
    while demand.any():
        chosen = shelf.best(demand, head)
        if chosen is None:
            break
        kind, pods = chosen
        held = pods > 0
        count = int(min((demand[held] // pods[held]).min(), head.machines(kind)))
        head.buy(kind, count)
        demand -= pods * count
        bought.append((kind, pods, count))
    if not bought:
        return empty(part)
    kinds, patterns, machines = zip(*bought, strict=True)
    mix = Mix(np.array(kinds, dtype=np.int64), np.array(patterns), np.array(machines, dtype=np.int64))
    return trimmed(part, mix)


class _Shelf:
    """The best filled machine of each kind.

    A purchase makes patterns impossible for which there are no longer pods enough. Those kinds are filled anew only
    when their old score, which they will hardly reach again, is above that of all others.
    """

    def __init__(self, part: Part, worth: Floats, demand: Ints) -> None:
        self._part, self._worth = part, worth
        self._pods: Ints = np.zeros((len(part.price), len(worth)), dtype=np.int64)
        self._score: Floats = np.zeros(len(part.price))
        self._at_once = max(1, _AT_ONCE // len(worth))
        self._fill(np.arange(len(part.price)), demand)

    def best(self, demand: Ints, head: Headroom) -> tuple[int, Ints] | None:
        """The kind and pods worth most for the price; None when nothing fits or may be bought any more."""
        while True:
            score: Floats = np.where(head.every(), self._score, 0.0) if self._part.bounded else self._score
            possible: Bools = np.logical_and.reduce(self._pods <= demand, axis=1)
            top = int(np.where(possible, score, 0.0).argmax())
            least = score[top] if possible[top] else 0.0
            hopeful = np.flatnonzero(~possible & (score > least))
            if not len(hopeful):
                return (top, self._pods[top].copy()) if least > 0 else None
            self._fill(hopeful[np.argsort(-score[hopeful], kind="stable")[: self._at_once]], demand)

    def _fill(self, which: Ints, demand: Ints) -> None:
        kinds, pods = best_fills(self._part, which, self._worth, demand)
        score = pods @ self._worth / np.maximum(self._part.price[kinds], _FREE)
        at = np.lexsort((-score, kinds))
        at = at[np.unique(kinds[at], return_index=True)[1]]  # the best of each kind
        self._pods[kinds[at]], self._score[kinds[at]] = pods[at], score[at]


def simple_worths(part: Part) -> Iterator[Floats]:
    """[C] prices of a pod without any solver: its share of the machine that is cheapest for it, by two measures."""
    alone = part.price / np.maximum(part.holds, 1.0)
    shares = part.requests[:, None] / np.maximum(part.capacity, 1.0)[None]
    for measure in (alone, shares.max(axis=2) * part.price):
        least = np.where(part.fits & ~part.open, measure, np.inf).min(axis=1)
        yield np.where(np.isfinite(least), least, 1.0)  # what fits on open machines alone is worth anything
