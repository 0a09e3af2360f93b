"""The patterns known, and the programme that chooses among them.

The restricted master programme chooses how many machines of each known pattern (kind, pods of each class) to buy, in
fractions (Gilmore and Gomory 1961). Its duals say what a pod of each class is worth; a machine filled with more worth
than its price is a pattern that would make the purchase cheaper (`pricing.py`).
"""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.purchase.bound import Prices
from fleet.optimize.purchase.mix import Mix
from fleet.optimize.purchase.part import Floats, Ints, Part
from fleet.optimize.purchase.solver import LinearSolution, Programme, Sparse

_EPSILON = 1e-7
"""Relative to the price: what a pattern must gain to count as one that helps."""
_EACH = 12
"""Patterns of a kind that are added in one round at most."""
_BOUGHT = 1e-9
"""Machines of a pattern that count as bought."""


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

    def bought(self, amounts: Floats) -> Mix:
        """The patterns of which at least a fraction is bought, one machine each."""
        return self.mix((amounts > _BOUGHT).astype(np.float64))

    def mix(self, amounts: Floats) -> Mix:
        """Patterns bought so often, in whole numbers."""
        at = np.flatnonzero(amounts >= 1)
        pods = np.array([self.pods[p] for p in at], dtype=np.int64).reshape(len(at), len(self._part.demand))
        return Mix(np.array(self.kinds, dtype=np.int64)[at], pods, amounts[at].astype(np.int64))


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best fractions of the patterns known."""

    cost_usd_h: float
    amounts: Floats
    """[patterns]"""
    reduced: Floats
    """[patterns] by how much one machine more of it would cost more."""
    prices: Prices
    iterations: int
    """Of the simplex method, that it took."""


class Master:
    """The programme over the patterns of a pool. Rows: classes, limits, kinds with a bound."""

    def __init__(self, part: Part, pool: Pool) -> None:
        self._part, self._pool = part, pool
        self._bounded = np.flatnonzero(np.isfinite(part.most))
        self._programme = self._empty()

    def solve(self, iterations: int) -> Optimum:
        """With all patterns of the pool. Raises `SolverFailed`."""
        self._extend(self._programme, np.arange(self._programme.columns, len(self._pool)))
        found = self._programme.solve(iterations)
        return Optimum(found.objective, found.values, found.reduced, self._prices(found), found.iterations)

    def whole(self, among: Ints, start: Mix, nodes: int) -> tuple[Mix, int]:
        """The best whole numbers of some patterns, and the nodes it took. Raises `SolverFailed`."""
        programme = self._empty()
        self._extend(programme, among)
        found = programme.solve_whole(self._pool.amounts(start)[among], nodes)
        amounts = np.zeros(len(self._pool))
        amounts[among] = found.values
        return self._pool.mix(amounts), found.nodes

    def _empty(self) -> Programme:
        part = self._part
        classes, others = len(part.demand), len(part.limits) + len(self._bounded)
        lower = np.concatenate([part.demand.astype(np.float64), np.full(others, -np.inf)])
        upper = np.concatenate([np.full(classes, np.inf), part.limits / part.scale, part.most[self._bounded]])
        return Programme(lower, upper)

    def _extend(self, programme: Programme, patterns: Ints) -> None:
        kinds = np.array(self._pool.kinds, dtype=np.int64)[patterns]
        pods = np.array([self._pool.pods[p] for p in patterns], dtype=np.float64)
        bounds = (kinds[:, None] == self._bounded[None]).astype(np.float64)
        entries = np.hstack(
            [
                pods.reshape(len(kinds), len(self._part.demand)),
                (self._part.usage / self._part.scale[:, None]).T[kinds],
                bounds,
            ]
        )
        programme.add_columns(self._part.price[kinds], Sparse.of(entries))

    def _prices(self, found: LinearSolution) -> Prices:
        classes, limits = len(self._part.demand), len(self._part.limits)
        on_kinds = np.zeros(len(self._part.price))
        on_kinds[self._bounded] = np.maximum(-found.duals[classes + limits :], 0.0)
        on_limits = np.maximum(-found.duals[classes : classes + limits], 0.0) / self._part.scale
        return Prices(np.maximum(found.duals[:classes], 0.0), on_limits, on_kinds)


def added(part: Part, pool: Pool, prices: Prices, kinds: Ints, pods: Ints, slack_usd_h: float = 0.0) -> bool:
    """Whether the pool grew by some of the patterns (kinds [M], pods [M, C]) that are worth more than they cost.

    With slack also by some that are worth less, but not by more than that.
    """
    price = prices.of_machines(part)
    gain = pods @ prices.worth - price[kinds]
    helps = np.flatnonzero(gain > _EPSILON * (1.0 + price[kinds]) - slack_usd_h)
    ordered = helps[np.lexsort((helps, -gain[helps], kinds[helps]))]
    taken = np.zeros(len(part.price), dtype=np.int64)
    fresh = False
    for row in ordered.tolist():
        kind = int(kinds[row])
        if taken[kind] < _EACH and pool.add(kind, pods[row]):
            taken[kind] += 1
            fresh = True
    return fresh
