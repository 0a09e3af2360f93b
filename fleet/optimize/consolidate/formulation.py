"""Formulates consolidation as an integer programme: machines removed, gangs that move and where to, what is bought.

Equal machines are one group of n. A gang has an option for each domain it could move to, or one if it need not keep to
a domain. Columns, all integer in the end:

    d_g  machines of a group removed, 0..n  saves their price, less what moving their pods counts
    z_bw gang b moves by option w, 0 or 1   costs what moving it counts
    u_gc pods of row c that a group gets    nothing
    x_q  machines of pattern q              the price

and rows, for every class c, resource r of a group, pair (g, c), gang with pods on g, and bound:

    sum_g u_gc + sum_q q_c x_q >= sum_g independent_gc d_g + sum_bw option_bwc z_bw
    sum_c request_cr u_gc + (free_gr + used_gr) d_g <= n free_gr + sum_b used_bgr z_b
    u_gc + most_gc d_g <= n most_gc          (no pod comes to a removed machine: sharpens fractions)
    d_g <= sum_w z_bw <= 1

The room of a group counts together, so for n > 1 pods of several sizes may not fit as the programme thinks:
`plan.py` assigns them to machines one by one and finds other places where it has to.
"""

from collections.abc import Set as AbstractSet

import numpy as np

from fleet.optimize.consolidate.instance import ConsolidationInstance
from fleet.optimize.master import PodPrices
from fleet.optimize.packing import Floats, Ints
from fleet.optimize.relaxation import BulkColumns, ValidInequalities, capacity_inequalities
from fleet.optimize.solver import Programme, SparseMatrix

_WHOLE = 1e-6
"""Distance to a whole number below which a value counts as whole."""
_ROUNDING = 1e-7
"""Relative amount by which the bound is raised for the tolerances of the solver."""
_Row = tuple[list[int], list[float], float, float]
"""Columns, their factors, lower and upper bound."""


class ConsolidationFormulation:
    """A `ConsolidationFormulation` is the integer programme without patterns: columns d, z and u, and every row."""

    def __init__(self, instance: ConsolidationInstance, ungrouped: AbstractSet[int] = frozenset()) -> None:
        self._instance = instance
        self.groups = _grouped(instance, ungrouped)
        self._first = np.array([group[0] for group in self.groups], dtype=np.int64)
        self._count = np.array([len(group) for group in self.groups], dtype=np.float64)
        self._group_of = {machine: number for number, group in enumerate(self.groups) for machine in group}
        self._used = np.zeros((len(self.groups), instance.requests.shape[1]))
        for gang in instance.gangs:
            self._used[[self._group_of[it] for it in gang.machines.tolist()]] += gang.used
        self._most = instance.holds(instance.free[self._first] + self._used, instance.fits[:, self._first]).T
        self._to_group, self._to_row = np.nonzero(self._most)
        self._options = [
            (number, option) for number, gang in enumerate(instance.gangs) for option in range(len(gang.options))
        ]
        self._counted, tops = _bounds(instance)
        rows = [*self._class_rows(), *self._room_rows(), *self._gang_rows(), *self._budget_rows()]
        self._rows: list[_Row] = [*rows, *(([], [], -np.inf, top) for top in tops)]

    def programme(self) -> Programme:
        """Returns the programme without any patterns. Raises `SolverFailed`."""
        cost, most = self._cost(), self._most[self._to_group, self._to_row] * self._count[self._to_group]
        going = np.where(self._instance.may_go[self._first], self._count, 0.0)
        upper = np.concatenate([going, np.ones(len(self._options)), most])
        programme = Programme(np.zeros(0), np.zeros(0))
        programme.add_columns(cost, SparseMatrix.of(np.zeros((len(cost), 0))), upper)
        lower, tops = (np.array([row[at] for row in self._rows], dtype=np.float64) for at in (2, 3))
        entries = SparseMatrix.of_rows([(columns, factors) for columns, factors, _, _ in self._rows])
        programme.add_rows(lower, tops, entries)
        return programme

    def with_fixed(self, values: Floats, *, near: bool) -> Programme:
        """Returns the programme with columns fixed that a fractional solution has at whole numbers above 0.

        `near`: options that no part of a gang takes in it are fixed at 0 as well. Raises `SolverFailed`.
        """
        programme = self.programme()
        (options, begin), whole = self._offsets, np.round(values)
        decided = whole[:begin] > 0
        decided[options:] |= near
        held = np.flatnonzero((np.abs(values - whole) < _WHOLE)[:begin] & decided)
        every = np.arange(len(held))
        programme.add_rows(whole[held], whole[held], SparseMatrix(every, held, np.ones(len(held))))
        return programme

    def _cost(self) -> Floats:
        """Returns [columns] USD an hour for d, z and u."""
        instance, first = self._instance, self._first
        moving = np.array([instance.gangs[gang].cost_usd_h for gang, _ in self._options], dtype=np.float64)
        return np.concatenate([instance.cost[first] - instance.price[first], moving, np.zeros(len(self._to_group))])

    @property
    def options(self) -> int:
        """Returns how many options gangs on several machines have to move, all together."""
        return len(self._options)

    def cost_usd_h(self, values: Floats) -> float:
        """Returns what the columns of a solution cost that are no patterns, in USD an hour."""
        return float(self._cost() @ values)

    def entries(self, kinds: Ints, pods: Ints) -> SparseMatrix:
        """Returns [N, rows] the coefficients of machines of `kinds` [N] that are bought with `pods` [N, C]."""
        bounds = len(self._rows) - len(self._counted)
        found = SparseMatrix.of(np.hstack([pods, self._counted.T[kinds]]).astype(np.float64))
        shift = bounds - pods.shape[1]
        return SparseMatrix(found.rows, found.columns + shift * (found.columns >= pods.shape[1]), found.values)

    def prices(self, duals: Floats) -> PodPrices:
        """Returns the duals as prices: of a pod of each row, and of a machine of each kind with binding bounds."""
        worth = np.maximum(duals[: len(self._instance.requests)], 0.0)
        scarce = np.maximum(-duals[len(self._rows) - len(self._counted) :], 0.0)
        return PodPrices(worth, self._instance.kinds.price + scarce @ self._counted)

    def read(self, values: Floats) -> tuple[Ints, Ints, Ints]:
        """Returns a solution as machines removed by group [G], option of each gang, and pods received [G, C]."""
        options, pods = self._offsets
        whole = values.astype(np.int64)
        received = np.zeros((len(self.groups), len(self._instance.requests)), dtype=np.int64)
        received[self._to_group, self._to_row] = whole[pods : pods + len(self._to_group)]
        chosen = np.full(len(self._instance.gangs), -1)
        for at, (number, option) in enumerate(self._options):
            if whole[options + at]:
                chosen[number] = option
        return whole[:options], chosen, received

    @property
    def _offsets(self) -> tuple[int, int]:
        """Returns the numbers of the first columns of z and of u."""
        return len(self.groups), len(self.groups) + len(self._options)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _class_rows(self) -> list[_Row]:
        """Returns one row for each class: every pod that leaves a machine has a place."""
        instance = self._instance
        options, pods = self._offsets
        found: list[_Row] = []
        independent = instance.independent[self._first]
        moved = [instance.gangs[gang].options[option].sum(axis=0) for gang, option in self._options]
        for row in range(len(instance.requests)):
            going: Ints = np.flatnonzero(independent[:, row])
            moving = [(options + at, -float(it[row])) for at, it in enumerate(moved) if it[row]]
            coming = (pods + np.flatnonzero(self._to_row == row)).tolist()
            columns = [*going.tolist(), *(at for at, _ in moving), *coming]
            factors = [*(-independent[going, row]).tolist(), *(it for _, it in moving), *([1.0] * len(coming))]
            found.append((columns, factors, 0.0, np.inf))
        return found

    def _room_rows(self) -> list[_Row]:
        """Returns rows for each group: room for pods received, by each resource that could run short.

        A machine that is removed receives none.
        """
        _, pods = self._offsets
        found: list[_Row] = []
        begins = np.searchsorted(self._to_group, np.arange(len(self.groups) + 1))
        lifted = self._room_left_behind()
        for group, n in enumerate(self._count.tolist()):
            at = np.arange(begins[group], begins[group + 1])
            rows = self._to_row[at]
            most, requests = self._most[group, rows], self._instance.requests[rows]
            free = self._instance.free[self._first[group]]
            for resource in np.flatnonzero(most @ requests > free).tolist():
                asking = np.flatnonzero(requests[:, resource])
                gangs = [(column, used[resource]) for column, used in lifted.get(group, ()) if used[resource]]
                columns = [*(pods + at[asking]).tolist(), group, *(it for it, _ in gangs)]
                own = [*requests[asking, resource], free[resource] + self._used[group, resource]]
                factors = np.array([*own, *(-it for _, it in gangs)])
                scale = float(
                    np.abs(factors).max()
                )  # bytes beside counts would be too far apart for the solver's precision
                found.append((columns, (factors / scale).tolist(), -np.inf, n * float(free[resource]) / scale))
            for column, top in zip((pods + at).tolist(), most.tolist(), strict=True):
                found.append(([column, group], [1.0, float(top)], -np.inf, n * top))
        return found

    def _room_left_behind(self) -> dict[int, list[tuple[int, Floats]]]:
        """Returns group -> (column, room [R] freed there) of every option to move a gang off its machines."""
        begin, _ = self._offsets
        found: dict[int, list[tuple[int, Floats]]] = {}
        for at, (number, _) in enumerate(self._options):
            gang = self._instance.gangs[number]
            for machine, used in zip(gang.machines.tolist(), gang.used, strict=True):
                found.setdefault(self._group_of[machine], []).append((begin + at, used))
        return found

    def _gang_rows(self) -> list[_Row]:
        """Returns rows for each gang: it takes one option at most, and one if any of its machines is removed."""
        options = len(self.groups)
        found: list[_Row] = []
        for number, gang in enumerate(self._instance.gangs):
            own = [options + at for at, (it, _) in enumerate(self._options) if it == number]
            found.append((own, [1.0] * len(own), -np.inf, 1.0))
            for machine in gang.machines.tolist():
                columns = [self._group_of[machine], *own]
                found.append((columns, [1.0, *([-1.0] * len(own))], -np.inf, 0.0))
        return found

    def _budget_rows(self) -> list[_Row]:
        """Returns one row for each disruption budget that binds."""
        found: list[_Row] = []
        for budget, most in enumerate(self._instance.budgets.tolist()):
            groups = np.flatnonzero(self._instance.budget[self._first] == budget).tolist()
            if groups:
                found.append((groups, [1.0] * len(groups), -np.inf, float(most)))
        return found


def _bounds(instance: ConsolidationInstance) -> tuple[Floats, list[float]]:
    """Returns what a machine of each kind counts [N, K] against bounds on what is bought, and the bounds [N].

    There is one for each limit, for each kind with a bound, and for all machines together.
    """
    part = instance.kinds
    limited = np.flatnonzero(np.isfinite(part.most))
    counted = [part.usage, np.eye(len(part.price))[limited]]
    tops = [*part.limits.tolist(), *part.most[limited].tolist()]
    if np.isfinite(instance.most_bought):
        counted.append(np.ones((1, len(part.price))))
        tops.append(instance.most_bought)
    return np.vstack(counted), tops


def _grouped(instance: ConsolidationInstance, ungrouped: AbstractSet[int] = frozenset()) -> list[list[int]]:
    """Returns groups of machines that are equal in everything; machines with gangs and `ungrouped` ones stay alone."""
    alone = {machine for gang in instance.gangs for machine in gang.machines.tolist()} | ungrouped
    it = instance
    traits = np.column_stack([it.price, it.free, it.independent, it.cost, it.may_go, it.spot, it.budget, it.fits.T])
    found: dict[tuple[bytes, int], list[int]] = {}
    for machine, row in enumerate(traits):
        found.setdefault((row.tobytes(), machine if machine in alone else -1), []).append(machine)
    return list(found.values())


def upper_bound_usd_h(instance: ConsolidationInstance, formulation: ConsolidationFormulation, iterations: int) -> float:
    """Returns an upper bound of every plan's objective: the linear programme with machines bought in bulk.

    Every plan is a solution, so the optimum is a bound whatever patterns are known. Raises `SolverFailed`.
    """
    part, programme = instance.kinds, formulation.programme()
    every, nobody = np.arange(len(part.price)), np.zeros((len(part.price), len(part.demand)), dtype=np.int64)
    columns = BulkColumns(programme, part, formulation.entries(every, nobody))
    kind, row = np.nonzero(part.fits.T)
    alone = ValidInequalities(kind, SparseMatrix(np.arange(len(kind)), row, np.ones(len(kind))), part.holds[row, kind])
    columns.require(capacity_inequalities(part).non_trivial().plus(alone).by_kind())
    objective = -programme.solve(iterations).objective
    return objective + _ROUNDING * (abs(objective) + float(instance.price.sum()))
