"""What no purchase can undercut: a linear programme over all machines at once, and a certificate that needs no solver.

The programme lets every kind be bought in fractions (`y_k`) and pods be spread over kinds (`x_ck`), and asks only
what holds for the machines of a kind together: capacity, and inequalities that every whole machine keeps (at most so
many pods of a class; what is left of a resource by a dual feasible function, Fekete and Schepers 2001). Those are
added where the solution breaks them.

Its duals are a price for each class and each row. The certificate takes nothing of the solver on trust: for any
prices `pi >= 0` of pods and `v >= 0` of a kind's rows, no machine of the kind carries more worth than

    U_k = sum_row v_row * h_row  +  sum_c holds_ck * max(0, pi_c - sum_row v_row * g_row,c),

so if `U_k <= price_k` for all kinds, no machines that hold all pods cost less than `sum_c pi_c * demand_c` (weak
duality); where `U_k` is above, all `pi` are scaled down by the worst ratio (Farley 1990). Limits enter as `mu`,
bounds as `nu`: prices that each machine pays on top, and that are taken off in the end. A machine that stands already
pays its whole `U_k`.
"""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.purchase.part import Floats, Ints, Part
from fleet.optimize.purchase.solver import LinearSolution, Programme, Sparse

_ROUNDS = 4
_FRACTIONS = 12
"""Dual feasible functions `u(t)` that are tried, t = 1.."""
_EPSILON = 1e-6
_ROUNDING = 1e-9
"""What the certificate gives away for the rounding of sums."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Inequalities `g @ pods <= h` that every whole machine of a kind keeps."""

    kinds: Ints
    """[N]"""
    factors: Floats
    """[N, C]"""
    tops: Floats
    """[N]"""

    def plus(self, other: "Rows") -> "Rows":
        """Both."""
        return Rows(
            np.concatenate([self.kinds, other.kinds]),
            np.concatenate([self.factors, other.factors]),
            np.concatenate([self.tops, other.tops]),
        )


@dataclass(frozen=True, eq=False)
class Certificate:
    """Prices that prove a bound."""

    bound_usd_h: float
    worth: Floats
    """[C] USD an hour for one pod."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What things cost that the solver thinks scarce, all >= 0."""

    worth: Floats
    """[C] USD an hour for a pod."""
    on_limits: Floats
    """[L] for what a machine counts against a limit."""
    on_kinds: Floats
    """[K] for one machine more of a kind with a bound."""

    def of_machines(self, part: Part) -> Floats:
        """[K] what a machine costs with them."""
        return part.price + self.on_limits @ part.usage + self.on_kinds


def by_one_resource(part: Part) -> Certificate:
    """The best bound by one resource alone: no pod has its share of it for less than the cheapest kind asks."""
    found = []
    free = np.zeros(len(part.limits)), np.zeros(len(part.price))
    for resource in range(part.requests.shape[1]):
        unit = part.price / np.maximum(part.capacity[:, resource], 1.0)
        least = np.where(part.fits & ~part.open, unit, np.inf).min(axis=1)
        worth = part.requests[:, resource] * np.where(np.isfinite(least), least, 0.0)
        # a unit carries at most what the dearest class pays for it
        dearest = np.where(part.fits, np.where(np.isfinite(least), least, 0.0)[:, None], 0.0).max(axis=0)
        found.append(proven(part, Prices(worth, *free), dearest * part.capacity[:, resource]))
    return max(found, key=lambda it: it.bound_usd_h)


def proven(part: Part, prices: Prices, carried: Floats) -> Certificate:
    """The bound that prices prove when no machine of a kind carries more worth than `carried` [K]."""
    price, on_kinds = prices.of_machines(part), prices.on_kinds.copy()
    excess = np.where(part.open, np.maximum(carried - price, 0.0), 0.0)
    price, on_kinds = price + excess, on_kinds + excess
    carrying = carried > 0
    ratio = (price[carrying] / carried[carrying]).min(initial=1.0)
    scale = float(ratio) * (1.0 - _ROUNDING)
    finite = np.isfinite(part.most)
    back = float(prices.on_limits @ part.limits) + float(on_kinds[finite] @ part.most[finite])
    bound = scale * float(prices.worth @ part.demand) - back * (1.0 + _ROUNDING)
    return Certificate(max(0.0, bound), prices.worth * scale)


def aggregate(part: Part, iterations: int) -> Certificate:
    """The bound of the linear programme over all machines. Raises `SolverFailed`."""
    rows = _capacity_rows(part)
    model = _Aggregate(part, rows)
    best = Certificate(0.0, np.zeros(len(part.demand)))
    for turn in range(_ROUNDS):
        found = model.solve(iterations)
        prices, weights = model.prices(found)
        best = max(best, proven(part, prices, _carried(part, rows, prices, weights)), key=lambda it: it.bound_usd_h)
        fresh = _broken(part, *model.amounts(found))
        if turn == _ROUNDS - 1 or not len(fresh.kinds):
            break
        model.add(fresh)
        rows = rows.plus(fresh)
    return best


def _carried(part: Part, rows: Rows, prices: Prices, weights: Floats) -> Floats:
    """[K] `U` of the module, with `weights` [N] of the rows."""
    paid = np.zeros((len(part.price), len(part.demand)))
    np.add.at(paid, rows.kinds, weights[:, None] * rows.factors)
    by_rows = np.bincount(rows.kinds, weights=weights * rows.tops, minlength=len(part.price))
    found: Floats = by_rows + (part.holds * np.maximum(prices.worth[:, None] - paid.T, 0.0)).sum(axis=0)
    return found


class _Aggregate:
    """The programme: columns `y` of all kinds, then `x` of every class that fits on a kind."""

    def __init__(self, part: Part, rows: Rows) -> None:
        self._part = part
        self._kind, self._class = np.nonzero(part.fits.T)
        self._place = np.full(part.fits.shape, -1)
        self._place[self._class, self._kind] = len(part.price) + np.arange(len(self._kind))
        classes, limits = len(part.demand), len(part.limits)
        lower = np.concatenate([part.demand.astype(np.float64), np.full(limits, -np.inf)])
        upper = np.concatenate([np.full(classes, np.inf), part.limits / part.scale])
        self._model = Programme(lower, upper)
        bought = np.hstack([np.zeros((len(part.price), classes)), (part.usage / part.scale[:, None]).T])
        self._model.add_columns(part.price, Sparse.of(bought), part.most)
        every = np.arange(len(self._kind))
        self._model.add_columns(np.zeros(len(every)), Sparse(every, self._class, np.ones(len(every))))
        self.add(rows)

    def add(self, rows: Rows) -> None:
        """More inequalities that each machine keeps."""
        line, row = np.nonzero(rows.factors * self._part.fits.T[rows.kinds])
        every = np.arange(len(rows.kinds))
        lines, places = np.concatenate([every, line]), np.concatenate([rows.kinds, self._place[row, rows.kinds[line]]])
        values = np.concatenate([-rows.tops, rows.factors[line, row]])
        at = np.argsort(lines, kind="stable")
        entries = Sparse(lines[at], places[at], values[at])
        self._model.add_rows(np.full(len(every), -np.inf), np.zeros(len(every)), entries)

    def solve(self, iterations: int) -> LinearSolution:
        """The optimum."""
        return self._model.solve(iterations)

    def prices(self, found: LinearSolution) -> tuple[Prices, Floats]:
        """The duals, those of the kinds' rows [N] apart."""
        classes, limits = len(self._part.demand), len(self._part.limits)
        worth = np.maximum(found.duals[:classes], 0.0)
        on_limits = np.maximum(-found.duals[classes : classes + limits], 0.0) / self._part.scale
        weights = np.maximum(-found.duals[classes + limits :], 0.0)
        on_kinds = np.where(np.isfinite(self._part.most), np.maximum(-found.reduced[: len(self._part.price)], 0.0), 0.0)
        return Prices(worth, on_limits, on_kinds), weights

    def amounts(self, found: LinearSolution) -> tuple[Floats, Floats]:
        """`y` [K] and `x` [C, K]."""
        count = len(self._part.price)
        spread = np.zeros(self._part.fits.shape)
        spread[self._class, self._kind] = found.values[count:]
        return found.values[:count], spread


def _capacity_rows(part: Part) -> Rows:
    kinds, resources = part.capacity.shape
    asked = part.requests.T[None] * part.fits.T[:, None]
    top = np.maximum(part.capacity, 1.0)[:, :, None]
    return Rows(
        np.repeat(np.arange(kinds), resources),
        (asked / top).reshape(kinds * resources, -1),
        (part.capacity / top[:, :, 0]).reshape(-1),
    )


def _broken(part: Part, bought: Floats, spread: Floats) -> Rows:
    """Inequalities that the amounts break: at most so many pods of a class on a machine, and `u(t)` of a resource."""
    held = np.maximum(part.holds, 1.0)
    row, kind = np.nonzero(spread > part.holds * bought * (1 + _EPSILON) + _EPSILON)
    factors = np.zeros((len(row), len(part.demand)))
    factors[np.arange(len(row)), row] = 1.0 / held[row, kind]
    singles = Rows(kind, factors, np.ones(len(row)))
    return singles.plus(_fractions(part, bought, spread))


def _fractions(part: Part, bought: Floats, spread: Floats) -> Rows:
    """`u(t)(s) = s if (t+1)s is whole, else floor((t+1)s)/t`: sums of shares up to 1 stay sums up to 1."""
    found = [Rows(np.zeros(0, dtype=np.int64), np.zeros((0, len(part.demand))), np.zeros(0))]
    active = np.flatnonzero(bought > _EPSILON)
    top = np.maximum(part.capacity[active], 1.0)
    share = part.requests.T[None] / top[:, :, None]  # [A, R, C]
    for t in range(1, _FRACTIONS + 1):
        times = part.requests.T[None] * (t + 1)
        whole = np.floor(times / top[:, :, None])
        exact = whole * top[:, :, None] == times
        factors = np.where(exact, share, whole / t) * part.fits.T[active][:, None]
        used = np.einsum("arc,ca->ar", factors, spread[:, active])
        at, resource = np.nonzero(used > bought[active][:, None] * (1 + _EPSILON) + _EPSILON)
        found.append(Rows(active[at], factors[at, resource], np.ones(len(at))))
    rows = found[0]
    for more in found[1:]:
        rows = rows.plus(more)
    return rows
