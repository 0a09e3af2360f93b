"""Consolidation as an integer programme: which machines go, which gangs move and where to, and what is bought.

Equal machines are one group of n. Columns, all whole numbers in the end:

    d_g  of a group go, 0..n            saves its price, less what moving its pods counts
    z_bw gang b moves in way w, 0 or 1  costs what moving it counts
    u_gc pods of row c come to a group  nothing
    x_q  machines of pattern q          the price

and rows, for every class c, resource r of a group, pair (g, c), gang with pods on g, and bound:

    sum_g u_gc + sum_q q_c x_q >= sum_g loose_gc d_g + sum_bw way_bwc z_bw
    sum_c request_cr u_gc + (free_gr + used_gr) d_g <= n free_gr + sum_b used_bgr z_b
    u_gc + most_gc d_g <= n most_gc          (no pod comes to a machine that goes: sharpens fractions)
    d_g <= sum_w z_bw <= 1

The room of a group counts together, so for n > 1 pods of several sizes may not fit as the programme thinks:
`plan.py` deals them out and helps itself.
"""

from collections.abc import Set as AbstractSet

import numpy as np

from fleet.optimize.consolidate.instance import ConsolidationInstance
from fleet.optimize.master import PodPrices
from fleet.optimize.packing import Floats, Ints
from fleet.optimize.relaxation import BulkColumns, ValidInequalities, capacity_inequalities
from fleet.optimize.solver import Programme, SparseMatrix

_WHOLE = 1e-6
"""How near to a whole number is one."""
_ROUNDING = 1e-7
"""What the bound gives away for the tolerances of the solver, relatively."""
_Row = tuple[list[int], list[float], float, float]
"""Columns, their factors, lower and upper bound."""


class ConsolidationFormulation:
    """The integer programme without patterns: columns d, z and u, and every row."""

    def __init__(self, instance: ConsolidationInstance, apart: AbstractSet[int] = frozenset()) -> None:
        self._instance = instance
        self.groups = _grouped(instance, apart)
        self._first = np.array([group[0] for group in self.groups], dtype=np.int64)
        self._count = np.array([len(group) for group in self.groups], dtype=np.float64)
        self._group_of = {machine: number for number, group in enumerate(self.groups) for machine in group}
        self._used = np.zeros((len(self.groups), instance.requests.shape[1]))
        for gang in instance.gangs:
            self._used[[self._group_of[it] for it in gang.machines.tolist()]] += gang.used
        self._most = instance.holds(instance.free[self._first] + self._used, instance.fits[:, self._first]).T
        self._to_group, self._to_row = np.nonzero(self._most)
        self._ways = [(number, way) for number, gang in enumerate(instance.gangs) for way in range(len(gang.ways))]
        self._counted, tops = _bounds(instance)
        rows = [*self._class_rows(), *self._room_rows(), *self._gang_rows(), *self._budget_rows()]
        self._rows: list[_Row] = [*rows, *(([], [], -np.inf, top) for top in tops)]

    def programme(self) -> Programme:
        """The programme as long as no pattern is known. Raises `SolverFailed`."""
        cost, most = self._cost(), self._most[self._to_group, self._to_row] * self._count[self._to_group]
        going = np.where(self._instance.may_go[self._first], self._count, 0.0)
        upper = np.concatenate([going, np.ones(len(self._ways)), most])
        programme = Programme(np.zeros(0), np.zeros(0))
        programme.add_columns(cost, SparseMatrix.of(np.zeros((len(cost), 0))), upper)
        lower, tops = (np.array([row[at] for row in self._rows], dtype=np.float64) for at in (2, 3))
        entries = SparseMatrix.of_lines([(columns, factors) for columns, factors, _, _ in self._rows])
        programme.add_rows(lower, tops, entries)
        return programme

    def settled(self, values: Floats, *, near: bool) -> Programme:
        """The programme narrowed by a solution in fractions: machines and gangs that go in it in whole numbers do.

        `near`: the ways in which no part of a gang goes are closed as well. Raises `SolverFailed`.
        """
        programme = self.programme()
        (ways, begin), whole = self._offsets, np.round(values)
        decided = whole[:begin] > 0
        decided[ways:] |= near
        held = np.flatnonzero((np.abs(values - whole) < _WHOLE)[:begin] & decided)
        every = np.arange(len(held))
        programme.add_rows(whole[held], whole[held], SparseMatrix(every, held, np.ones(len(held))))
        return programme

    def _cost(self) -> Floats:
        """[columns] USD an hour for d, z and u."""
        instance, first = self._instance, self._first
        moving = np.array([instance.gangs[gang].cost_usd_h for gang, _ in self._ways], dtype=np.float64)
        return np.concatenate([instance.cost[first] - instance.price[first], moving, np.zeros(len(self._to_group))])

    @property
    def ways(self) -> int:
        """In how many ways gangs on several machines may move, all together."""
        return len(self._ways)

    def cost_usd_h(self, values: Floats) -> float:
        """What the columns of a solution cost that are no patterns."""
        return float(self._cost() @ values)

    def entries(self, kinds: Ints, pods: Ints) -> SparseMatrix:
        """[N, rows] the factors of machines of `kinds` [N] that are bought with `pods` [N, C]."""
        bounds = len(self._rows) - len(self._counted)
        found = SparseMatrix.of(np.hstack([pods, self._counted.T[kinds]]).astype(np.float64))
        shift = bounds - pods.shape[1]
        return SparseMatrix(found.lines, found.places + shift * (found.places >= pods.shape[1]), found.values)

    def prices(self, duals: Floats) -> PodPrices:
        """What the duals say that a pod of each row is worth, and a machine costs with the bounds it uses up."""
        worth = np.maximum(duals[: len(self._instance.requests)], 0.0)
        scarce = np.maximum(-duals[len(self._rows) - len(self._counted) :], 0.0)
        return PodPrices(worth, self._instance.kinds.price + scarce @ self._counted)

    def read(self, values: Floats) -> tuple[Ints, Ints, Ints]:
        """A solution taken apart: machines of each group that go [G], ways of gangs, and pods that come [G, C]."""
        ways, pods = self._offsets
        whole = values.astype(np.int64)
        received = np.zeros((len(self.groups), len(self._instance.requests)), dtype=np.int64)
        received[self._to_group, self._to_row] = whole[pods : pods + len(self._to_group)]
        chosen = np.full(len(self._instance.gangs), -1)
        for at, (number, way) in enumerate(self._ways):
            if whole[ways + at]:
                chosen[number] = way
        return whole[:ways], chosen, received

    @property
    def _offsets(self) -> tuple[int, int]:
        """The numbers of the first columns of z and of u."""
        return len(self.groups), len(self.groups) + len(self._ways)

    # -- rows -----------------------------------------------------------------------------------------------------

    def _class_rows(self) -> list[_Row]:
        """One row for each class: what leaves has a place."""
        instance = self._instance
        ways, pods = self._offsets
        found: list[_Row] = []
        loose = instance.loose[self._first]
        moved = [instance.gangs[gang].ways[way].sum(axis=0) for gang, way in self._ways]
        for row in range(len(instance.requests)):
            going: Ints = np.flatnonzero(loose[:, row])
            moving = [(ways + at, -float(it[row])) for at, it in enumerate(moved) if it[row]]
            coming = (pods + np.flatnonzero(self._to_row == row)).tolist()
            columns = [*going.tolist(), *(at for at, _ in moving), *coming]
            factors = [*(-loose[going, row]).tolist(), *(it for _, it in moving), *([1.0] * len(coming))]
            found.append((columns, factors, 0.0, np.inf))
        return found

    def _room_rows(self) -> list[_Row]:
        """Rows for each group: room for what comes, by resource where that could run short; none where machines go."""
        _, pods = self._offsets
        found: list[_Row] = []
        begins = np.searchsorted(self._to_group, np.arange(len(self.groups) + 1))
        lifted = self._lifted()
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
                scale = float(np.abs(factors).max())  # bytes beside counts would cost the solver its digits
                found.append((columns, (factors / scale).tolist(), -np.inf, n * float(free[resource]) / scale))
            for column, top in zip((pods + at).tolist(), most.tolist(), strict=True):
                found.append(([column, group], [1.0, float(top)], -np.inf, n * top))
        return found

    def _lifted(self) -> dict[int, list[tuple[int, Floats]]]:
        """Group -> (column, room [R] that it leaves) of every way in which a gang there may move."""
        begin, _ = self._offsets
        found: dict[int, list[tuple[int, Floats]]] = {}
        for at, (number, _) in enumerate(self._ways):
            gang = self._instance.gangs[number]
            for machine, used in zip(gang.machines.tolist(), gang.used, strict=True):
                found.setdefault(self._group_of[machine], []).append((begin + at, used))
        return found

    def _gang_rows(self) -> list[_Row]:
        """Rows for each gang: it moves in one way at most, and does so when one of its machines goes."""
        ways = len(self.groups)
        found: list[_Row] = []
        for number, gang in enumerate(self._instance.gangs):
            own = [ways + at for at, (it, _) in enumerate(self._ways) if it == number]
            found.append((own, [1.0] * len(own), -np.inf, 1.0))
            for machine in gang.machines.tolist():
                columns = [self._group_of[machine], *own]
                found.append((columns, [1.0, *([-1.0] * len(own))], -np.inf, 0.0))
        return found

    def _budget_rows(self) -> list[_Row]:
        """One row for each disruption budget that binds."""
        found: list[_Row] = []
        for budget, most in enumerate(self._instance.budgets.tolist()):
            groups = np.flatnonzero(self._instance.budget[self._first] == budget).tolist()
            if groups:
                found.append((groups, [1.0] * len(groups), -np.inf, float(most)))
        return found


def _bounds(instance: ConsolidationInstance) -> tuple[Floats, list[float]]:
    """What a machine of a kind counts [N, K] against bounds on what is bought, and the bounds [N].

    There is one for each limit, for each kind with an end, and for all machines together.
    """
    part = instance.kinds
    limited = np.flatnonzero(np.isfinite(part.most))
    counted = [part.usage, np.eye(len(part.price))[limited]]
    tops = [*part.limits.tolist(), *part.most[limited].tolist()]
    if np.isfinite(instance.most_bought):
        counted.append(np.ones((1, len(part.price))))
        tops.append(instance.most_bought)
    return np.vstack(counted), tops


def _grouped(instance: ConsolidationInstance, apart: AbstractSet[int] = frozenset()) -> list[list[int]]:
    """Groups of machines that are equal in everything; those with gangs on them, and those `apart`, are alone."""
    alone = {machine for gang in instance.gangs for machine in gang.machines.tolist()} | apart
    it = instance
    traits = np.column_stack([it.price, it.free, it.loose, it.cost, it.may_go, it.spot, it.budget, it.fits.T])
    found: dict[tuple[bytes, int], list[int]] = {}
    for machine, row in enumerate(traits):
        found.setdefault((row.tobytes(), machine if machine in alone else -1), []).append(machine)
    return list(found.values())


def upper_bound_usd_h(instance: ConsolidationInstance, formulation: ConsolidationFormulation, iterations: int) -> float:
    """The objective that no plan can exceed: the programme in fractions, with machines bought in bulk.

    Every plan is a solution, so the optimum is a bound whatever patterns are known. Raises `SolverFailed`.
    """
    part, programme = instance.kinds, formulation.programme()
    every, nobody = np.arange(len(part.price)), np.zeros((len(part.price), len(part.demand)), dtype=np.int64)
    columns = BulkColumns(programme, part, formulation.entries(every, nobody))
    kind, row = np.nonzero(part.fits.T)
    alone = ValidInequalities(kind, SparseMatrix(np.arange(len(kind)), row, np.ones(len(kind))), part.holds[row, kind])
    columns.require(capacity_inequalities(part).of_somebody().plus(alone).by_kind())
    objective = -programme.solve(iterations).objective
    return objective + _ROUNDING * (abs(objective) + float(instance.price.sum()))
