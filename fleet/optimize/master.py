"""Column generation: solves the master problem over patterns, and adds patterns that improve it.

A pattern is one machine: its kind and how many pods of each class stand on it. The restricted master problem chooses
how many machines of each known pattern to buy, at first in fractions (Gilmore and Gomory 1961). Its duals are a price
for a pod of each class; a machine whose pods are worth more at these prices than it costs is a pattern with negative
reduced cost, by which the optimum may fall. Finding such patterns is the pricing problem.

What has to be covered, and by what besides machines that are bought, is the formulation's to say: there is one for
buying alone, and one in which standing machines may be removed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Generic, Protocol, TypeVar

import numpy as np

from fleet.optimize.packing import Floats, Ints, PackingInstance
from fleet.optimize.solver import Programme, SparseMatrix

_EPSILON = 1e-7
"""Least gain of a pattern, relative to its price, that counts as an improvement."""
_BOUGHT = 1e-9
"""Least number of machines of a pattern that counts as bought."""
_STALLED = 20
"""Rounds over which the optimum has to fall by a worthwhile amount, else column generation ends."""
_ITERATION = 3
"""Cost of a simplex iteration for each class, in machines filled (the unit of `PricingBudget`)."""


# -- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PatternMix:
    """A `PatternMix` says how many machines of each of P patterns are bought, for C classes."""

    kinds: Ints
    """[P] number of the kind."""
    pods: Ints
    """[P, C] pods of each class on each machine."""
    machines: Ints
    """[P] machines bought."""

    def cost_usd_h(self, part: PackingInstance) -> float:
        """Returns what all machines cost in USD an hour."""
        return float(part.price[self.kinds] @ self.machines)

    @cached_property
    def placed(self) -> Ints:
        """Returns [C] pods that have a place."""
        return self.machines @ self.pods


@dataclass(frozen=True, eq=False)
class PodPrices:
    """`PodPrices` are the duals of the master problem as prices of pods and machines: the input of pricing."""

    worth: Floats
    """[C] price of a pod in USD an hour, at least 0."""
    machines: Floats
    """[K] price of a machine in USD an hour, including what it uses of binding bounds."""


class PatternPool:
    """A `PatternPool` holds the known patterns, each once, in the order they were found."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._seen: dict[tuple[int, bytes], int] = {}
        self._kinds: list[int] = []
        self._pods: list[Ints] = []

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, kind: int, pods: Ints) -> bool:
        """Adds a pattern. Returns whether it was new."""
        key = (kind, pods.tobytes())
        if key in self._seen:
            return False
        self._seen[key] = len(self._kinds)
        self._kinds.append(kind)
        self._pods.append(pods)
        return True

    def add_all(self, kinds: Ints, pods: Ints) -> None:
        """Adds the patterns of `kinds` [P] with `pods` [P, C]."""
        for kind, held in zip(kinds.tolist(), pods, strict=True):
            self.add(kind, held)

    def add_improving(self, prices: PodPrices, kinds: Ints, pods: Ints, each: int, slack_usd_h: float = 0.0) -> bool:
        """Adds the patterns (kinds [M], pods [M, C]) with negative reduced cost. Returns whether any was new.

        With `slack_usd_h` also patterns whose reduced cost is below that. Of a kind at most `each` are added, best
        first.
        """
        gain = pods @ prices.worth - prices.machines[kinds]
        helps = np.flatnonzero(gain > _EPSILON * (1.0 + prices.machines[kinds]) - slack_usd_h)
        taken = np.zeros(len(prices.machines), dtype=np.int64)
        for row in helps[np.lexsort((helps, -gain[helps], kinds[helps]))].tolist():
            kind = int(kinds[row])
            if taken[kind] < each and self.add(kind, pods[row]):
                taken[kind] += 1
        return bool(taken.any())

    def patterns(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Returns kinds [P] and pods [P, C] of the patterns with these numbers [P]."""
        pods = np.array([self._pods[at] for at in numbers.tolist()], dtype=np.int64)
        return np.array(self._kinds, dtype=np.int64)[numbers], pods.reshape(len(numbers), self._classes)

    def amounts(self, mix: PatternMix) -> Floats:
        """Returns [patterns] how many machines of each a mix has; raises KeyError for unknown patterns."""
        found = np.zeros(len(self))
        for kind, pods, machines in zip(mix.kinds.tolist(), mix.pods, mix.machines.tolist(), strict=True):
            found[self._seen[kind, pods.tobytes()]] += machines
        return found

    def mix(self, amounts: Floats) -> PatternMix:
        """Returns the mix of `amounts` [patterns], of which the whole machines count."""
        at = np.flatnonzero(amounts >= 1)
        return PatternMix(*self.patterns(at), amounts[at].astype(np.int64))

    def bought(self, amounts: Floats) -> PatternMix:
        """Returns the patterns of which `amounts` [patterns] buys at least a fraction, one machine each."""
        return self.mix((amounts > _BOUGHT).astype(np.float64))


# -- the restricted master problem ------------------------------------------------------------------------------------


Prices = TypeVar("Prices", bound=PodPrices)
Prices_co = TypeVar("Prices_co", bound=PodPrices, covariant=True)


class Formulation(Protocol[Prices_co]):
    """A `Formulation` gives the rows of a master problem and its columns besides patterns."""

    def programme(self) -> Programme:
        """Returns the programme without any patterns. Raises `SolverFailed`."""

    def entries(self, kinds: Ints, pods: Ints) -> SparseMatrix:
        """Returns [N, rows] the coefficients of machines of `kinds` [N] with `pods` [N, C]."""

    def prices(self, duals: Floats) -> Prices_co:
        """Returns the duals of all rows as prices."""


@dataclass(frozen=True, eq=False)
class MasterOptimum(Generic[Prices]):
    """A `MasterOptimum` is the optimum of the restricted master problem in fractions."""

    cost_usd_h: float
    values: Floats
    """Values of all columns, the patterns last."""
    amounts: Floats
    """[patterns] how many machines of each are bought."""
    reduced: Floats
    """[patterns] reduced cost: how much more one further machine of it would cost, in USD an hour."""
    prices: Prices
    iterations: int
    """Iterations of the simplex method that it took."""


class RestrictedMaster(Generic[Prices]):
    """A `RestrictedMaster` is the master problem over the patterns of a pool, which may grow between two solutions."""

    def __init__(self, part: PackingInstance, pool: PatternPool, formulation: Formulation[Prices]) -> None:
        self._part, self._pool, self._formulation = part, pool, formulation
        self._programme = formulation.programme()
        self._others = self._programme.columns

    def solve(self, iterations: int) -> MasterOptimum[Prices]:
        """Returns the optimum in fractions over all patterns of the pool. Raises `SolverFailed`."""
        self._extend(self._programme, np.arange(self._programme.columns - self._others, len(self._pool)))
        found = self._programme.solve(iterations)
        amounts, reduced = found.values[self._others :], found.reduced[self._others :]
        prices = self._formulation.prices(found.duals)
        return MasterOptimum(found.objective, found.values, amounts, reduced, prices, found.iterations)

    def solve_integer(
        self,
        among: Ints,
        nodes: int,
        start: PatternMix | None = None,
        programme: Programme | None = None,
        *,
        around: bool = True,
    ) -> tuple[Floats, PatternMix, int]:
        """Returns the best integer solution over some patterns: other columns, what is bought, nodes used.

        Branch and bound ends after `nodes`; the result is not worse than `start`. `programme` is a narrower one than
        the formulation's, `around` as of that. Raises `SolverFailed`.
        """
        if programme is None:
            programme = self._formulation.programme()
        self._extend(programme, among)
        known = None if start is None else self._pool.amounts(start)[among]
        found = programme.solve_integer(known, nodes, around=around)
        amounts = np.zeros(len(self._pool))
        amounts[among] = found.values[self._others :]
        return found.values[: self._others], self._pool.mix(amounts), found.nodes

    def _extend(self, programme: Programme, patterns: Ints) -> None:
        """Adds patterns as columns of a programme."""
        if len(patterns):
            kinds, pods = self._pool.patterns(patterns)
            programme.add_columns(self._part.price[kinds], self._formulation.entries(kinds, pods))


# -- column generation ------------------------------------------------------------------------------------------------


class PricingBudget:
    """A `PricingBudget` bounds column generation in rounds, and in work: machines filled times classes."""

    def __init__(self, rounds: int, iterations: int, work: float = inf, enough_usd_h: float = -inf) -> None:
        self._rounds, self._iterations, self._work, self._enough_usd_h = rounds, iterations, work, enough_usd_h
        self.rounds = 0
        """Rounds so far."""
        self._done = 0

    def left(self, costs_usd_h: list[float]) -> bool:
        """Returns whether there may be another round, given the optima of the rounds so far."""
        stalled = len(costs_usd_h) > _STALLED and costs_usd_h[-_STALLED - 1] - costs_usd_h[-1] <= self._enough_usd_h
        return not stalled and self.rounds < self._rounds and self._done < self._work

    def solved(self, master: RestrictedMaster[Prices]) -> MasterOptimum[Prices]:
        """Returns the optimum over the known patterns; deducts its iterations. Raises `SolverFailed`."""
        found = master.solve(self._iterations)
        self._done += _ITERATION * found.iterations * len(found.prices.worth)
        return found

    def filled(self, pods: Ints) -> None:
        """Deducts the work of filling machines with `pods` [M, C] from the budget."""
        self._done += pods.size


def generate(
    master: RestrictedMaster[Prices], price: Callable[[MasterOptimum[Prices]], bool], budget: PricingBudget
) -> MasterOptimum[Prices]:
    """Returns the optimum in fractions once `price` finds no improving pattern, or the budget is spent.

    `price` adds patterns to the pool of the master problem, and says whether it did. Raises `SolverFailed`.
    """
    found = budget.solved(master)
    costs_usd_h = [found.cost_usd_h]
    while budget.left(costs_usd_h) and price(found):
        budget.rounds += 1
        found = budget.solved(master)
        costs_usd_h.append(found.cost_usd_h)
    return found
