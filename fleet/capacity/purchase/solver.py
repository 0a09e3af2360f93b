"""HiGHS behind a small door: linear and integer programmes, one thread, limits in steps, never in seconds.

`highspy` is imported when the first programme is solved, so that nobody else pays for it. With another value of `threads`
anywhere in the process, HiGHS would solve nothing and say nothing; here it is always 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fleet.capacity.purchase.part import Floats


class SolverFailed(Exception):
    """There is no solver, or it did not solve; the message says which."""


@cache
def _highspy() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise SolverFailed(f"highspy cannot be imported: {error}") from error
    return highspy


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """The optimum of a linear programme."""

    objective: float
    values: Floats
    duals: Floats
    """By how much the objective would grow with each row's bound."""
    reduced: Floats
    """The same for the bounds of each column."""


@dataclass(frozen=True, eq=False)
class IntegerSolution:
    """The best whole solution that was found."""

    values: Floats
    bound: float
    nodes: int


class Programme:
    """Minimize `cost @ x` with x >= 0 and rows between bounds; columns and rows can be added after a solution."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self._highs = _highspy().Highs()
        options = {"output_flag": False, "threads": 1, "parallel": "off", "random_seed": 1}
        for name, value in options.items():
            self._highs.setOptionValue(name, value)
        for low, high in zip(lower.tolist(), upper.tolist(), strict=True):
            self._highs.addRow(low, high, 0, np.zeros(0, dtype=np.int32), np.zeros(0))

    @property
    def columns(self) -> int:
        """How many there are."""
        return int(self._highs.getNumCol())

    def add_columns(self, cost: Floats, entries: Floats, upper: Floats | None = None) -> None:
        """One column for each of `cost` [N], with `entries` [N, rows]."""
        count = len(cost)
        top = np.full(count, np.inf) if upper is None else upper
        starts, index, value = _sparse(entries)
        self._highs.addCols(count, cost, np.zeros(count), top, len(index), starts, index, value)

    def add_rows(self, lower: Floats, upper: Floats, rows: Sequence[tuple[Sequence[int], Sequence[float]]]) -> None:
        """Rows given by the columns they touch and the factors there."""
        lengths = [len(columns) for columns, _ in rows]
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32)
        index = np.array([column for columns, _ in rows for column in columns], dtype=np.int32)
        value = np.array([factor for _, factors in rows for factor in factors], dtype=np.float64)
        self._highs.addRows(len(rows), lower, upper, len(index), starts, index, value)

    def solve(self, iterations: int) -> LinearSolution:
        """The optimum, within so many simplex iterations. Raises `SolverFailed`."""
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        self._run()
        solution = self._highs.getSolution()
        objective = float(self._highs.getInfo().objective_function_value)
        values, duals = np.array(solution.col_value), np.array(solution.row_dual)
        return LinearSolution(objective, values, duals, np.array(solution.col_dual))

    def solve_whole(self, start: Floats, nodes: int, iterations: int) -> IntegerSolution:
        """The best whole solution within so many nodes and LP iterations, not worse than `start`."""
        module = _highspy()
        count = self.columns
        self._highs.changeColsIntegrality(
            count, np.arange(count, dtype=np.int32), np.full(count, module.HighsVarType.kInteger)
        )
        for name, value in {"mip_max_nodes": nodes, "mip_rel_gap": 1e-5, "mip_abs_gap": 1e-7}.items():
            self._highs.setOptionValue(name, value)
        self._highs.setSolution(count, np.arange(count, dtype=np.int32), start)
        self._run()
        info = self._highs.getInfo()
        return IntegerSolution(
            np.round(np.array(self._highs.getSolution().col_value)), float(info.mip_dual_bound), int(info.mip_node_count)
        )

    def _run(self) -> None:
        module = _highspy()
        self._highs.run()
        status = self._highs.getModelStatus()
        fine = {
            module.HighsModelStatus.kOptimal,
            module.HighsModelStatus.kSolutionLimit,
            module.HighsModelStatus.kInterrupt,
        }
        if status not in fine:
            raise SolverFailed(f"HiGHS stopped: {self._highs.modelStatusToString(status)}")


def _sparse(entries: Floats) -> tuple[Any, Any, Any]:
    """Row-wise (starts, index, value) of a dense matrix."""
    rows, index = np.nonzero(entries)
    starts = np.searchsorted(rows, np.arange(len(entries)))
    return starts.astype(np.int32), index.astype(np.int32), entries[rows, index].astype(np.float64)
