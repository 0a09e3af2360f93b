"""Column generation: patterns that are worth more than their machine costs are added until none is found.

They are looked for by filling greedily (`fill.py`), in ways that find what those before them miss. Most come from small
changes of what the optimum buys at present: those are few machines, and prices that are right for them are right for
their neighbours. Only where all changes fail the kinds are filled from nothing.
"""

from collections.abc import Callable

import numpy as np

from fleet.optimize.purchase.columns import Master, Optimum, Pool, added
from fleet.optimize.purchase.effort import Effort
from fleet.optimize.purchase.fill import best_fills, filled, sharpened
from fleet.optimize.purchase.mix import Mix, holding
from fleet.optimize.purchase.part import Floats, Ints, Part

_BEGUN = 300_000
"""Machines times classes that are filled at once, at most, when each class is tried as the first on each kind."""

_STALLED = 20
"""Rounds in which the optimum has to fall by what is worth the trouble."""
_ITERATION = 3
"""How many times longer an iteration of the simplex method takes, for each class, than to fill a machine."""

Fills = tuple[Ints, Ints]
"""Kinds [M] and pods [M, C]."""
Look = Callable[[Part, Mix, Floats], Fills]
"""Machines filled with a view to what is bought and what a pod of each class is worth [C]."""


class Budget:
    """What pricing may still do for a part."""

    def __init__(self, effort: Effort, enough_usd_h: float) -> None:
        self._effort, self._enough_usd_h = effort, enough_usd_h
        self.rounds = 0
        """So many there were."""
        self._work = 0

    def left(self, costs_usd_h: list[float]) -> bool:
        """Whether there may be another round, after rounds that led to these optima."""
        stalled = len(costs_usd_h) > _STALLED and costs_usd_h[-_STALLED - 1] - costs_usd_h[-1] <= self._enough_usd_h
        return not stalled and self.rounds < self._effort.rounds and self._work < self._effort.work

    def solved(self, master: Master) -> Optimum:
        """The optimum of the patterns known. Raises `SolverFailed`."""
        found = master.solve(self._effort.iterations)
        self._work += _ITERATION * found.iterations * len(found.prices.worth)
        return found

    def looked(self, pods: Ints) -> None:
        """Machines were filled."""
        self._work += pods.size


def generate(part: Part, pool: Pool, master: Master, budget: Budget) -> Optimum:
    """The best fractions when pricing finds nothing more, or its budget is spent."""
    found = budget.solved(master)
    costs_usd_h = [found.cost_usd_h]
    while budget.left(costs_usd_h) and _priced(part, pool, found, budget):
        budget.rounds += 1
        found = budget.solved(master)
        costs_usd_h.append(found.cost_usd_h)
    return found


def _priced(part: Part, pool: Pool, found: Optimum, budget: Budget) -> bool:
    """Whether patterns that help were found."""
    bought = pool.bought(found.amounts)
    for way in WAYS:
        kinds, pods = way(part, bought, found.prices.worth)
        budget.looked(pods)
        if added(part, pool, found.prices, kinds, pods):
            return True
    return False


def surrounded(part: Part, pool: Pool, found: Optimum, slack_usd_h: float) -> None:
    """Also the patterns by which fractions would cost no more than `slack_usd_h` more.

    Whole numbers need them: what is cheapest in fractions is not what fits together in the end.
    """
    bought = pool.bought(found.amounts)
    for way in WAYS:
        added(part, pool, found.prices, *way(part, bought, found.prices.worth), slack_usd_h)


def _one_less(part: Part, bought: Mix, worth: Floats) -> Fills:
    """What is bought, with one pod less of one class."""
    pattern, row = np.nonzero(bought.pods)
    full = bought.pods[pattern]
    begun = full.copy()
    begun[np.arange(len(row)), row] -= 1
    return _refilled(part, worth, bought.kinds[pattern], full, begun)


def _by_orders(part: Part, _: Mix, worth: Floats) -> Fills:
    """Each kind, filled by several orders of the classes."""
    return best_fills(part, np.arange(len(part.price)), worth, part.demand)


def _without_or_alone(part: Part, bought: Mix, worth: Floats) -> Fills:
    """What is bought, without one class, and with one class alone."""
    pattern, row = np.nonzero(bought.pods)
    full, each = bought.pods[pattern], np.arange(len(row))
    without, alone = full.copy(), np.zeros_like(full)
    without[each, row], alone[each, row] = 0, full[each, row]
    kinds = np.tile(bought.kinds[pattern], 2)
    return _refilled(part, worth, kinds, np.vstack([full, full]), np.vstack([without, alone]))


def _elsewhere(part: Part, bought: Mix, worth: Floats) -> Fills:
    """What is bought, on every other kind that holds it."""
    pattern, kinds = np.nonzero(holding(part, bought.pods))
    full = bought.pods[pattern]
    return _refilled(part, worth, kinds, full, full)


def _begun(part: Part, _: Mix, worth: Floats) -> Fills:
    """Each kind, begun with one pod, or as many as it holds, of each class; nothing where those are too many."""
    kinds, row = np.nonzero(part.fits.T & (worth > 0))
    if 2 * len(kinds) * len(worth) > _BEGUN:
        kinds, row = kinds[:0], row[:0]
    many = np.tile(kinds, 2)
    begun = np.zeros((len(many), len(worth)), dtype=np.int64)
    begun[np.arange(len(kinds)), row] = 1
    begun[np.arange(len(kinds), len(many)), row] = part.holds[row, kinds]
    rough = filled(part, many, sharpened(part, many, worth, begun), part.demand, begun)
    return _refilled(part, worth, many, rough, begun)


def _refilled(part: Part, worth: Floats, kinds: Ints, full: Ints, begun: Ints) -> Fills:
    """Machines `begun` with some pods [M, C] and filled up by what ran short when they were `full`."""
    return kinds, filled(part, kinds, sharpened(part, kinds, worth, full), part.demand, begun)


WAYS: tuple[Look, ...] = (
    _one_less, _by_orders, _without_or_alone, _elsewhere, _begun,
)  # fmt: skip
"""The quickest first, each only where those before it find nothing."""
