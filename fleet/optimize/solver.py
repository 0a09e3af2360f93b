"""HiGHS behind a small door: linear and integer programmes, one thread, limits in steps, never in seconds.

`highspy` is imported when the first programme is solved, so that nobody else pays for it. With another value of
`threads` anywhere in the process, HiGHS would solve nothing and say nothing; here it is always 1, and a status that
is not a solution is an error.
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
    """HiGHS is not there, or did not solve a programme; the message says which."""


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
    iterations: int


@dataclass(frozen=True, eq=False)
class IntegerSolution:
    """The best solution in whole numbers that was found."""

    values: Floats
    bound: float
    """No solution in whole numbers has a lower objective."""
    nodes: int


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """The entries of a matrix that are not zero, line by line."""

    lines: Ints
    """Ascending."""
    places: Ints
    values: Floats

    @classmethod
    def of(cls, dense: Floats) -> "SparseMatrix":
        """The entries of a dense matrix."""
        lines, places = np.nonzero(dense)
        return cls(lines, places, dense[lines, places])

    @classmethod
    def of_lines(cls, lines: Sequence[tuple[Sequence[int], Sequence[float]]]) -> "SparseMatrix":
        """A matrix from lines of (places, values there)."""
        lengths = [len(places) for places, _ in lines]
        return cls(
            np.repeat(np.arange(len(lines)), lengths),
            np.array([place for places, _ in lines for place in places], dtype=np.int64),
            np.array([value for _, values in lines for value in values], dtype=np.float64),
        )

    def compressed(self, lines: int) -> tuple[int, NDArray[np.int32], NDArray[np.int32], Floats]:
        """The matrix as HiGHS takes it: how many entries, where each line starts, places, values."""
        starts = np.searchsorted(self.lines, np.arange(lines)).astype(np.int32)
        return len(self.places), starts, self.places.astype(np.int32), self.values


class Programme:
    """A linear or integer programme: minimize `cost @ x` with x >= 0 and rows between bounds.

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
        """How many columns there are."""
        return int(self._highs.getNumCol())

    def add_columns(self, cost: Floats, entries: SparseMatrix, upper: Floats | None = None) -> None:
        """Adds a column for each of `cost` [N], with `entries` [N, rows], between 0 and `upper` [N]."""
        count = len(cost)
        top = np.full(count, np.inf) if upper is None else upper
        self._highs.addCols(count, cost, np.zeros(count), top, *entries.compressed(count))

    def add_rows(self, lower: Floats, upper: Floats, entries: SparseMatrix) -> None:
        """Adds a row for each of `lower` [N], with `entries` [N, columns]."""
        self._highs.addRows(len(lower), lower, upper, *entries.compressed(len(lower)))

    def solve(self, iterations: int) -> LinearSolution:
        """The optimum in fractions, within so many simplex iterations. Raises `SolverFailed`."""
        self._highs.setOptionValue("simplex_iteration_limit", iterations)
        self._run()
        solution = self._highs.getSolution()
        info = self._highs.getInfo()
        values, duals = np.array(solution.col_value), np.array(solution.row_dual)
        reduced, iterations = np.array(solution.col_dual), int(info.simplex_iteration_count)
        return LinearSolution(float(info.objective_function_value), values, duals, reduced, iterations)

    def solve_integer(self, start: Floats | None, nodes: int) -> IntegerSolution:
        """The best whole numbers within so many nodes of branch and bound, not worse than `start` [columns].

        Raises `SolverFailed`.
        """
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
        statuses = _highspy().HighsModelStatus
        self._highs.run()
        status = self._highs.getModelStatus()
        if status not in {statuses.kOptimal, statuses.kSolutionLimit}:
            raise SolverFailed(f"HiGHS stopped: {self._highs.modelStatusToString(status)}")
