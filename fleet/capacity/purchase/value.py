"""Greedy by value for money: buy the machine whose pods are worth most for its price, until every pod has a place.

What a pod is worth comes from outside: the duals of a linear programme, or the cheapest way to hold it by itself.
"""

from collections.abc import Iterator

import numpy as np

from fleet.capacity.purchase.fill import best_fills
from fleet.capacity.purchase.mix import Headroom, Mix, empty, trimmed
from fleet.capacity.purchase.part import Bools, Floats, Ints, Part

_FREE = 1e-9
"""USD an hour that a machine for nothing counts as."""


def by_value(part: Part, worth: Floats, begun: Mix | None = None) -> Mix:
    """Machines for all pods, as far as the limits allow, on top of those `begun` with."""
    demand, head = part.demand.copy(), Headroom(part)
    bought: list[tuple[int, Ints, int]] = []
    if begun is not None:
        bought += zip(begun.kinds.tolist(), begun.pods, begun.machines.tolist(), strict=True)
        demand = np.maximum(demand - begun.placed, 0)
        for kind, _, count in bought:
            head.buy(kind, count)
    shelf = _Shelf(part, np.maximum(worth, _FREE))
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
    """The filled machines to choose from; only those that a purchase made impossible are filled anew."""

    def __init__(self, part: Part, worth: Floats) -> None:
        self._part, self._worth = part, worth
        self._kinds: Ints = np.zeros(0, dtype=np.int64)
        self._pods: Ints = np.zeros((0, len(worth)), dtype=np.int64)
        self._score: Floats = np.zeros(0)
        self._stale = np.arange(len(part.price))

    def best(self, demand: Ints, head: Headroom) -> tuple[int, Ints] | None:
        """The kind and pods worth most for the price; None when nothing fits or may be bought any more."""
        self._drop((self._pods > demand).any(axis=1))
        if len(self._stale):
            self._refill(demand)
        score = self._score
        if self._part.bounded:
            score = np.where(head.every()[self._kinds], score, 0.0)
        if not len(score) or score.max() <= 0:
            return None
        row = int(score.argmax())
        return int(self._kinds[row]), self._pods[row]

    def _drop(self, gone: Bools) -> None:
        self._stale = np.union1d(self._stale, self._kinds[gone])
        kept = ~np.isin(self._kinds, self._stale)
        self._kinds, self._pods, self._score = self._kinds[kept], self._pods[kept], self._score[kept]

    def _refill(self, demand: Ints) -> None:
        kinds, pods = best_fills(self._part, self._stale, self._worth, demand)
        score = pods @ self._worth / np.maximum(self._part.price[kinds], _FREE)
        at = np.lexsort((-score, kinds))
        at = at[np.unique(kinds[at], return_index=True)[1]]  # the best of each kind
        self._kinds = np.concatenate([self._kinds, kinds[at]])
        self._pods = np.concatenate([self._pods, pods[at]])
        self._score = np.concatenate([self._score, score[at]])
        self._stale = np.zeros(0, dtype=np.int64)


def simple_worths(part: Part) -> Iterator[Floats]:
    """[C] prices of a pod without any solver: its share of the machine that is cheapest for it, by three measures."""
    alone = part.price / np.maximum(part.holds, 1.0)
    shares = part.requests[:, None] / np.maximum(part.capacity, 1.0)[None]
    for measure in (alone, shares.max(axis=2) * part.price, shares.mean(axis=2) * part.price):
        least = np.where(part.fits & ~part.open, measure, np.inf).min(axis=1)
        yield np.where(np.isfinite(least), least, 1.0)  # what fits on open machines alone is worth anything
