"""Wraps HiGHS: linear and integer programmes on one thread, with limits in steps, never in seconds.

`highspy` is imported when the first programme is solved, so that nobody else pays for it. Were `threads` another value
anywhere in the process, HiGHS would solve and report nothing; here it is always 1, and no solution is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleet.optimize.packing import Floats, Ints

_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "parallel": "off",
    "random_seed": 1,
    "mip_rel_gap": 1e-5,
    "mip_abs_gap": 1e-7,
    # These three take most of the time of programmes like ours, and find little.
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_allow_restart": False,
}


class SolverFailed(Exception):
    """HiGHS is not installed, or did not solve a programme; the message says which."""


def _highspy() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise SolverFailed(f"highspy cannot be imported: {error}") from error
    return highspy


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """A `LinearSolution` is the optimum of a linear programme."""

    objective: float
    values: Floats
    duals: Floats
    """[rows] by how much the objective would grow with the row's bound."""
    reduced: Floats
    """[columns] reduced costs."""
    iterations: int


@dataclass(frozen=True, eq=False)
class IntegerSolution:
    """An `IntegerSolution` is the best integer solution that was found."""

    values: Floats
    bound: float
    """Lower bound of the objective of every integer solution."""
    nodes: int


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A `SparseMatrix` lists the non-zero entries of a matrix row by row (COO format)."""

    rows: Ints
    """Row of each entry, ascending."""
    columns: Ints
    values: Floats

    @classmethod
    def of(cls, dense: Floats) -> "SparseMatrix":
        """Returns the non-zero entries of a dense matrix."""
        rows, columns = np.nonzero(dense)
        return cls(rows, columns, dense[rows, columns])

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Sequence[int], Sequence[float]]]) -> "SparseMatrix":
        """Returns the matrix with these rows, each (columns, values there)."""
        lengths = [len(columns) for columns, _ in rows]
        return cls(
            np.repeat(np.arange(len(rows)), lengths),
            np.array([column for columns, _ in rows for column in columns], dtype=np.int64),
            np.array([value for _, values in rows for value in values], dtype=np.float64),
        )

    def compressed(self, rows: int) -> tuple[int, NDArray[np.int32], NDArray[np.int32], Floats]:
        """Returns the matrix as HiGHS takes it: number of entries, start of each row, columns, values."""
        starts = np.searchsorted(self.rows, np.arange(rows)).astype(np.int32)
        return len(self.columns), starts, self.columns.astype(np.int32), self.values


class Programme:
    """A `Programme` is a linear or integer programme: minimize `cost @ x` with x >= 0 and bounded rows.

    Columns and rows can be added after a solution.
    """

    def __init__(self, lower: Floats, upper: Floats) -> None:
        self._highs = _highspy().Highs()
        for name, value in _OPTIONS.items():
            self._highs.setOptionValue(name, value)
        count = len(lower)
        nothing = np.zeros(0, dtype=np.int32)
        self._highs.addRows(count, lower, upper, 0, np.zeros(count, dtype=np.int32), nothing, np.zeros(0))

    @property
    def columns(self) -> int:
        """Returns how many columns there are."""
        return int(self._highs.getNumCol())

    def add_columns(self, cost: Floats, entries: SparseMatrix, upper: Floats | None = None) -> None:
        """Adds a column for each of `cost` [N], with coefficients `entries` [N, rows], between 0 and `upper` [N]."""
        count = len(cost)
        top = np.full(count, np.inf) if upper is None else upper
        self._highs.addCols(count, cost, np.zeros(count), top, *entries.compressed(count))

    def add_rows(self, lower: Floats, upper: Floats, entries: SparseMatrix) -> None:
        """Adds a row for each of `lower` [N] and `upper` [N], with coefficients `entries` [N, columns]."""
        self._highs.addRows(len(lower), lower, upper, *entries.compressed(len(lower)))

    def solve(self, iterations: int) -> LinearSolution:
        """Returns the optimum in fractions, within so many simplex iterations. Raises `SolverFailed`."""
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        self._run()
        solution = self._highs.getSolution()
        info = self._highs.getInfo()
        values, duals = np.array(solution.col_value), np.array(solution.row_dual)
        reduced, iterations = np.array(solution.col_dual), int(info.simplex_iteration_count)
        return LinearSolution(float(info.objective_function_value), values, duals, reduced, iterations)

    def solve_integer(self, start: Floats | None, nodes: int, *, around: bool = True) -> IntegerSolution:
        """Returns the best integer solution within so many nodes, not worse than `start`. Raises `SolverFailed`.

        `around`: whether solutions are also looked for around those that are known, which can take most of the time.
        """
        for name in ("mip_heuristic_run_rens", "mip_heuristic_run_rins"):
            self._highs.setOptionValue(name, around)
        count = self.columns
        every = np.arange(count, dtype=np.int32)
        self._highs.changeColsIntegrality(count, every, np.full(count, _highspy().HighsVarType.kInteger))
        self._highs.setOptionValue("mip_max_nodes", nodes)
        if start is not None:
            self._highs.setSolution(count, every, start)
        self._run()
        info, values = self._highs.getInfo(), np.array(self._highs.getSolution().col_value)
        if not np.isfinite(info.objective_function_value):
            raise SolverFailed("HiGHS stopped without a whole solution")
        return IntegerSolution(np.round(values), float(info.mip_dual_bound), int(info.mip_node_count))

    def _run(self) -> None:
        """Runs HiGHS. Raises `SolverFailed` for any status that is not a solution."""
        statuses = _highspy().HighsModelStatus
        self._highs.run()
        status = self._highs.getModelStatus()
        if status not in {statuses.kOptimal, statuses.kSolutionLimit}:
            raise SolverFailed(f"HiGHS stopped: {self._highs.modelStatusToString(status)}")
