"""Computes lower bounds of the cost of a purchase; each is proven here, whatever numbers the solver returned.

For any prices `pi >= 0` of pods and `v >= 0` of inequalities that every whole machine keeps (`g @ pods <= h`), no
machine of a kind carries more worth than

    U_k = sum_row v_row * h_row  +  sum_c holds_ck * max(0, pi_c - sum_row v_row * g_row,c),

so if `U_k <= price_k` for all kinds, no machines that hold all pods cost less than `sum_c pi_c * demand_c` (weak
duality); where `U_k` is above, all `pi` are scaled down by the worst ratio (Farley 1990). Limits enter as `mu`, bounds
as `nu`: prices that each machine pays on top, and that are taken off in the end. An existing machine pays its whole
`U_k`.

Prices come from three places: one resource alone; the duals of the relaxation in which machines are bought in bulk,
with inequalities added where its solution violates them (at most so many pods of a class; what is left of a resource by
a dual feasible function, Fekete and Schepers 2001); and the duals of the master problem over patterns, for which the
fullest machine of each kind is found exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from fleet.optimize.master import PatternPool, PodPrices
from fleet.optimize.packing import Floats, Ints, PackingInstance
from fleet.optimize.relaxation import BulkColumns, ValidInequalities, capacity_inequalities
from fleet.optimize.solver import LinearSolution, Programme, SparseMatrix

EACH = 12
"""Most patterns of a kind that are added in one round of pricing."""
_ROUNDS = 4
_FRACTIONS = 12
"""Number of dual feasible functions `u(t)` that are tried, t = 1.."""
_EPSILON = 1e-6
_ROUNDING = 1e-9
"""Relative amount by which a bound is lowered for the rounding of sums."""
_TRUST = 1e-6
"""Relative tolerance by which the solver's bound of a machine may be off."""
_FEW_MIXES, _MANY_MIXES = (0.5,), tuple(step / 16 for step in range(1, 16))
"""Weights of the first of two resources in a size, at first and for kinds of which more has to be known."""
_LARGE = 1_000.0
"""Least number that the worth of a machine is scaled to, because the solver's tolerances are absolute."""


@dataclass(frozen=True, eq=False)
class PurchasePrices(PodPrices):
    """`PurchasePrices` are prices >= 0 of pods and of everything scarce, by the duals of a programme."""

    on_limits: Floats
    """[L] price of one unit of a limit."""
    on_kinds: Floats
    """[K] price of one more machine of a kind with a bound."""

    @classmethod
    def of(cls, part: PackingInstance, worth: Floats, on_limits: Floats, on_kinds: Floats) -> "PurchasePrices":
        """Returns the prices, with the price of each kind's machine computed from them."""
        return cls(worth, part.price + on_limits @ part.usage + on_kinds, on_limits, on_kinds)


@dataclass(frozen=True, eq=False)
class LowerBound:
    """A `LowerBound` of the cost comes with the prices of pods that prove it."""

    usd_h: float
    worth: Floats
    """[C] USD an hour for one pod."""


def prove(part: PackingInstance, prices: PurchasePrices, most_worth: Floats) -> LowerBound:
    """Returns the bound that prices prove if no machine of a kind carries more worth than `most_worth` [K]."""
    price, on_kinds = prices.machines, prices.on_kinds.copy()
    excess = np.where(part.open, np.maximum(most_worth - price, 0.0), 0.0)
    price, on_kinds = price + excess, on_kinds + excess
    carrying = most_worth > 0
    ratio = (price[carrying] / most_worth[carrying]).min(initial=1.0)
    scale = float(ratio) * (1.0 - _ROUNDING)
    finite = np.isfinite(part.most)
    back = float(prices.on_limits @ part.limits) + float(on_kinds[finite] @ part.most[finite])
    bound = scale * float(prices.worth @ part.demand) - back * (1.0 + _ROUNDING)
    return LowerBound(max(0.0, bound), prices.worth * scale)


# -- by one resource --------------------------------------------------------------------------------------------------


def by_one_resource(part: PackingInstance) -> LowerBound:
    """Returns the best bound that looks at one resource alone.

    A pod pays at least for its amount of the resource at the cheapest kind's price for it.
    """
    found = []
    free = np.zeros(len(part.limits)), np.zeros(len(part.price))
    for resource in range(part.requests.shape[1]):
        unit = part.price / np.maximum(part.capacity[:, resource], 1.0)
        least = np.where(part.fits & ~part.open, unit, np.inf).min(axis=1)
        worth = part.requests[:, resource] * np.where(np.isfinite(least), least, 0.0)
        # a unit of the resource carries at most the worth of the dearest class
        dearest = np.where(part.fits, np.where(np.isfinite(least), least, 0.0)[:, None], 0.0).max(axis=0)
        found.append(prove(part, PurchasePrices.of(part, worth, *free), dearest * part.capacity[:, resource]))
    return max(found, key=lambda it: it.usd_h)


# -- by machines in bulk ----------------------------------------------------------------------------------------------


def by_bulk(part: PackingInstance, iterations: int) -> LowerBound:
    """Returns the bound of the relaxation in which machines are bought in bulk. Raises `SolverFailed`."""
    relaxation = _BulkPurchase(part)
    best = LowerBound(0.0, np.zeros(len(part.demand)))
    for turn in range(_ROUNDS):
        found = relaxation.programme.solve(iterations)
        best = max(best, relaxation.bound(found), key=lambda it: it.usd_h)
        fresh = _violated(part, *relaxation.columns.amounts(found.values))
        if turn == _ROUNDS - 1 or not len(fresh):
            break
        relaxation.require(fresh)
    return best


class _BulkPurchase:
    """`_BulkPurchase` is the relaxation as a programme: rows of classes and limits, then the inequalities."""

    def __init__(self, part: PackingInstance) -> None:
        self._part = part
        classes, limits = len(part.demand), len(part.limits)
        lower = np.concatenate([part.demand.astype(np.float64), np.full(limits, -np.inf)])
        upper = np.concatenate([np.full(classes, np.inf), part.limits / part.scale])
        self.programme = Programme(lower, upper)
        bought = np.hstack([np.zeros((len(part.price), classes)), (part.usage / part.scale[:, None]).T])
        self.columns = BulkColumns(self.programme, part, SparseMatrix.of(bought), part.most)
        self._rows = capacity_inequalities(part)
        self.columns.require(self._rows)

    def require(self, rows: ValidInequalities) -> None:
        """Adds inequalities that each machine keeps."""
        self.columns.require(rows)
        self._rows = self._rows.plus(rows)

    def bound(self, found: LinearSolution) -> LowerBound:
        """Returns the bound that the duals of a solution prove."""
        part = self._part
        classes, limits = len(part.demand), len(part.limits)
        worth = np.maximum(found.duals[:classes], 0.0)
        on_limits = np.maximum(-found.duals[classes : classes + limits], 0.0) / part.scale
        weights = np.maximum(-found.duals[classes + limits :], 0.0)
        on_kinds = np.where(np.isfinite(part.most), np.maximum(-found.reduced[: len(part.price)], 0.0), 0.0)
        prices = PurchasePrices.of(part, worth, on_limits, on_kinds)
        return prove(part, prices, self._carried(worth, weights))

    def _carried(self, worth: Floats, weights: Floats) -> Floats:
        """Returns [K] the `U` of the module's text, with `weights` [N] of the inequalities."""
        part, rows = self._part, self._rows
        paid = np.zeros((len(part.price), len(part.demand)))
        line = rows.factors.rows
        np.add.at(paid, (rows.kinds[line], rows.factors.columns), weights[line] * rows.factors.values)
        by_rows = np.bincount(rows.kinds, weights=weights * rows.tops, minlength=len(part.price))
        found: Floats = by_rows + (part.holds * np.maximum(worth[:, None] - paid.T, 0.0)).sum(axis=0)
        return found


def _violated(part: PackingInstance, bought: Floats, spread: Floats) -> ValidInequalities:
    """Returns the valid inequalities that a solution (`bought` [K], `spread` [C, K]) violates.

    They are: at most so many pods of a class on a machine, and `u(t)` of a resource.
    """
    held = np.maximum(part.holds, 1.0)
    row, kind = np.nonzero(spread > part.holds * bought * (1 + _EPSILON) + _EPSILON)
    singles = SparseMatrix(np.arange(len(row)), row, 1.0 / held[row, kind])
    return ValidInequalities(kind, singles, np.ones(len(row))).plus(_violated_dual_feasible(part, bought, spread))


def _violated_dual_feasible(part: PackingInstance, bought: Floats, spread: Floats) -> ValidInequalities:
    """Returns the inequalities by dual feasible functions that a solution violates.

    `u(t)(s) = s` if `(t+1)s` is whole, else `floor((t+1)s)/t`: sums of shares up to 1 stay sums up to 1.
    """
    kinds: list[Ints] = []
    factors: list[Floats] = []
    active = np.flatnonzero(bought > _EPSILON)
    top = np.maximum(part.capacity[active], 1.0)
    share = part.requests.T[None] / top[:, :, None]  # [A, R, C]
    for t in range(1, _FRACTIONS + 1):
        times = part.requests.T[None] * (t + 1)
        whole = np.floor(times / top[:, :, None])
        exact = whole * top[:, :, None] == times
        changed = np.where(exact, share, whole / t) * part.fits.T[active][:, None]
        used = np.einsum("arc,ca->ar", changed, spread[:, active])
        at, resource = np.nonzero(used > bought[active][:, None] * (1 + _EPSILON) + _EPSILON)
        kinds.append(active[at])
        factors.append(changed[at, resource])
    rows = np.concatenate(kinds)
    return ValidInequalities(rows, SparseMatrix.of(np.vstack(factors)), np.ones(len(rows)))


# -- by the fullest machines ------------------------------------------------------------------------------------------


def by_fullest_machines(
    part: PackingInstance, pool: PatternPool, prices: PurchasePrices, nodes: int
) -> tuple[LowerBound, bool]:
    """Returns the bound that prices prove, and whether patterns were added: exact pricing, which misses none.

    The fullest machine of each kind comes from an integer knapsack programme. Kinds whose machines cannot carry more
    worth than they cost by `at_most` need no programme: that is a hundredth of the work. Raises `SolverFailed`.
    """
    kinds = np.arange(len(part.price))
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64)
    most_worth = np.full(len(kinds), np.inf)
    for mixes in (_FEW_MIXES, _MANY_MIXES):
        left = np.flatnonzero(most_worth > prices.machines)
        most_worth[left] = np.minimum(most_worth[left], at_most(part, left, prices.worth, mixes))
    for kind in np.flatnonzero(most_worth > prices.machines).tolist():
        rows = np.flatnonzero(part.fits[:, kind] & (prices.worth > 0))
        share = part.requests[rows] / np.maximum(part.capacity[kind], 1.0)
        knapsack = Programme(np.full(part.requests.shape[1], -np.inf), np.minimum(part.capacity[kind], 1.0))
        unit = _LARGE / (prices.worth[rows] * part.holds[rows, kind]).max()
        knapsack.add_columns(-unit * prices.worth[rows], SparseMatrix.of(share), part.holds[rows, kind])
        found = knapsack.solve_integer(None, nodes, around=False)
        pods[kind, rows] = found.values
        most_worth[kind] = -found.bound / unit * (1 + _TRUST)
    pods[(pods @ part.requests > part.capacity).any(axis=1)] = 0  # whole only within the tolerances
    return prove(part, prices, most_worth), pool.add_improving(prices, kinds, pods, EACH)


def at_most(part: PackingInstance, kinds: Ints, worth: Floats, mixes: Sequence[float]) -> Floats:
    """Returns [N] an upper bound of the worth that a machine of each of `kinds` [N] carries, by sizes of pods.

    For one size the best is to take pods by worth for their size, the last in part (Dantzig 1957). Sizes are the parts
    of the machine that a pod takes: of each resource alone, and of each two together in these `mixes`.
    """
    share = part.requests / np.maximum(part.capacity[kinds], 1.0)[:, None]
    each, weights = np.moveaxis(share, 2, 0), np.array(mixes)[:, None, None]
    held = part.holds.T[kinds]
    most: Floats = np.full(len(kinds), np.inf)
    for sizes in (each, *(weights * one + (1 - weights) * other for one, other in combinations(each, 2))):
        whole, value = sizes * held, np.broadcast_to(held * worth, sizes.shape)  # [S, N, C]
        density = np.divide(value, whole, out=np.full(whole.shape, np.inf), where=whole > 0)
        order = np.argsort(-density, axis=2, kind="stable")
        taken = np.take_along_axis(whole, order, axis=2)
        rest = 1.0 - (np.cumsum(taken, axis=2) - taken)
        part_of = np.divide(rest, taken, out=np.ones_like(rest), where=taken > 0)
        carried = (np.take_along_axis(value, order, axis=2) * np.clip(part_of, 0.0, 1.0)).sum(axis=2)
        most = np.minimum(most, carried.min(axis=0))
    return most
