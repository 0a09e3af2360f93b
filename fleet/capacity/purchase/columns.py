"""Column generation: patterns that are worth more than their machine costs are added until there are none.

The restricted master programme chooses how many machines of each known pattern (kind, pods of each class) to buy, in
fractions (Gilmore and Gomory 1961). Its duals say what a pod of each class is worth; a machine filled with more worth than
its price (`fill.py`) is a pattern that would make the purchase cheaper.
"""

import numpy as np

from fleet.capacity.purchase.fill import best_fills, filled, sharpened
from fleet.capacity.purchase.mix import Mix
from fleet.capacity.purchase.part import Floats, Ints, Part
from fleet.capacity.purchase.solver import LinearSolution, Programme

_EPSILON = 1e-7
"""Relative to the price: what a pattern must gain to count as one that helps."""


class Pool:
    """The patterns known, each once, in the order they were found."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._seen: dict[tuple[int, bytes], int] = {}
        self.kinds: list[int] = []
        self.pods: list[Ints] = []

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, kind: int, pods: Ints) -> bool:
        """Whether it is a new one."""
        key = (kind, pods.tobytes())
        if key in self._seen:
            return False
        self._seen[key] = len(self.kinds)
        self.kinds.append(kind)
        self.pods.append(pods)
        return True

    def add_all(self, mix: Mix) -> None:
        """The patterns of a mix."""
        for kind, pods in zip(mix.kinds.tolist(), mix.pods, strict=True):
            self.add(kind, pods)

    def amounts(self, mix: Mix) -> Floats:
        """[patterns] how often the mix has each; its patterns have to be known."""
        found = np.zeros(len(self))
        for kind, pods, machines in zip(mix.kinds.tolist(), mix.pods, mix.machines.tolist(), strict=True):
            found[self._seen[kind, pods.tobytes()]] += machines
        return found

    def mix(self, amounts: Floats) -> Mix:
        """Patterns bought so often."""
        at = np.flatnonzero(amounts > 0)
        pods = np.array([self.pods[p] for p in at], dtype=np.int64).reshape(len(at), len(self._part.demand))
        return Mix(np.array(self.kinds, dtype=np.int64)[at], pods, amounts[at].astype(np.int64))


class Master:
    """The programme over the patterns of a pool. Rows: classes, limits, kinds with a bound."""

    def __init__(self, part: Part, pool: Pool) -> None:
        self._part, self._pool = part, pool
        self._bounded = np.flatnonzero(np.isfinite(part.most))
        classes, others = len(part.demand), len(part.limits) + len(self._bounded)
        lower = np.concatenate([part.demand.astype(np.float64), np.full(others, -np.inf)])
        upper = np.concatenate([np.full(classes, np.inf), part.limits, part.most[self._bounded]])
        self.programme = Programme(lower, upper)

    def take(self) -> None:
        """Columns for the patterns that are new in the pool."""
        known = self.programme.columns
        kinds = np.array(self._pool.kinds[known:], dtype=np.int64)
        pods = np.array(self._pool.pods[known:], dtype=np.float64).reshape(len(kinds), len(self._part.demand))
        bounds = (kinds[:, None] == self._bounded[None]).astype(np.float64)
        entries = np.hstack([pods, self._part.usage.T[kinds], bounds])
        self.programme.add_columns(self._part.price[kinds], entries)

    def prices(self, found: LinearSolution) -> tuple[Floats, Floats, Floats]:
        """What a pod is worth [C], and what limits [L] and bounds of kinds [K] add to the price of machines."""
        classes, limits = len(self._part.demand), len(self._part.limits)
        worth = np.maximum(found.duals[:classes], 0.0)
        on_kinds = np.zeros(len(self._part.price))
        on_kinds[self._bounded] = np.maximum(-found.duals[classes + limits :], 0.0)
        return worth, np.maximum(-found.duals[classes : classes + limits], 0.0), on_kinds


def generate(part: Part, pool: Pool, master: Master, rounds: int, iterations: int) -> tuple[LinearSolution, int]:
    """Rounds of pricing until nothing is found or there were so many; the last optimum and how many it took."""
    master.take()
    found = master.programme.solve(iterations)
    for turn in range(rounds):
        worth, on_limits, on_kinds = master.prices(found)
        price = part.price + on_limits @ part.usage + on_kinds
        if not _priced(part, pool, worth, price):
            return found, turn
        master.take()
        found = master.programme.solve(iterations)
    return found, rounds


def _priced(part: Part, pool: Pool, worth: Floats, price: Floats) -> bool:
    """Whether patterns that help were found: by the orders of classes, else by beginning with one class each."""
    kinds = np.arange(len(part.price))
    many, pods = best_fills(part, kinds, worth, part.demand)
    return _added(part, pool, worth, price, many, pods) or _added(part, pool, worth, price, *_begun(part, kinds, worth))


def _begun(part: Part, kinds: Ints, worth: Floats) -> tuple[Ints, Ints]:
    """Machines that begin with one pod, or as many as they hold, of each class; the rest by what then runs short."""
    at, row = np.nonzero(part.fits.T[kinds] & (worth > 0))
    many = np.tile(kinds[at], 2)
    begun = np.zeros((2 * len(at), len(worth)), dtype=np.int64)
    begun[np.arange(len(at)), row] = 1
    begun[len(at) + np.arange(len(at)), row] = part.holds[row, kinds[at]]
    rough = filled(part, many, sharpened(part, many, worth, begun), part.demand, begun)
    return many, filled(part, many, sharpened(part, many, worth, rough), part.demand, begun)


_EACH = 2
"""Patterns of a kind that are added in one round at most."""


def _added(part: Part, pool: Pool, worth: Floats, price: Floats, kinds: Ints, pods: Ints) -> bool:
    gain = pods @ worth - price[kinds]
    helps = np.flatnonzero(gain > _EPSILON * (1.0 + price[kinds]))
    ordered = helps[np.lexsort((helps, -gain[helps], kinds[helps]))]
    taken = np.zeros(len(part.price), dtype=np.int64)
    fresh = False
    for row in ordered.tolist():
        kind = int(kinds[row])
        if taken[kind] < _EACH and pool.add(kind, pods[row]):
            taken[kind] += 1
            fresh = True
    return fresh
