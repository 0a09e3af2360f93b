"""The door to HiGHS: what it solves, where it stops, and that an answer stands without it."""

import subprocess
import sys

import numpy as np
import pytest

from fleet.optimize.purchase import GREEDY, PurchaseEffort, PurchaseHeuristic, solve
from fleet.optimize.solver import Programme, SolverFailed, SparseMatrix
from tests.support.purchases import HIGHS, UNEVEN, faults

INF = np.inf


@HIGHS
def test_a_linear_programme_and_its_prices() -> None:
    """Two foods, three nutrients: the cheapest mix, and what a unit of each nutrient is worth."""
    programme = Programme(np.array([8.0, 6.0]), np.array([INF, INF]))
    programme.add_columns(np.array([4.0, 3.0]), SparseMatrix.of(np.array([[2.0, 1.0], [1.0, 2.0]])))
    found = programme.solve(100)
    assert found.objective == pytest.approx(4 * 10 / 3 + 3 * 4 / 3)
    assert found.duals @ [8.0, 6.0] == pytest.approx(found.objective)
    programme.add_columns(np.array([1.0]), SparseMatrix.of(np.array([[1.0, 1.0]])))
    assert programme.solve(100).objective == pytest.approx(8.0)


@HIGHS
def test_whole_numbers_and_their_bound() -> None:
    programme = Programme(np.array([-INF]), np.array([10.0]))
    programme.add_columns(-np.array([10.0, 7.0]), SparseMatrix.of(np.array([[6.0], [4.0]])), np.array([5.0, 5.0]))
    found = programme.solve_integer(None, 100)
    assert found.values.tolist() == [1.0, 1.0]
    assert found.bound == pytest.approx(-17.0)


@HIGHS
def test_running_out_of_steps_is_an_error() -> None:
    programme = Programme(np.arange(1.0, 9.0), np.full(8, INF))
    programme.add_columns(np.arange(1.0, 9.0), SparseMatrix.of(np.ones((8, 8)) + np.tri(8)))
    with pytest.raises(SolverFailed, match="limit"):
        programme.solve(0)


@HIGHS
def test_what_cannot_be_is_an_error() -> None:
    programme = Programme(np.array([1.0]), np.array([INF]))
    programme.add_columns(np.array([1.0]), SparseMatrix.of(np.array([[-1.0]])))
    with pytest.raises(SolverFailed, match="Infeasible"):
        programme.solve(100)


@HIGHS
def test_the_solver_saves_more_than_the_quick_ways() -> None:
    quick, full = solve(UNEVEN, GREEDY), solve(UNEVEN)
    assert faults(UNEVEN, full) == []
    assert full.cost_usd_h < quick.cost_usd_h
    assert full.bound_usd_h > quick.bound_usd_h
    assert full.heuristics == (PurchaseHeuristic.INTEGER,)
    assert full.steps.patterns
    assert not full.failure
    assert solve(UNEVEN) == full


@pytest.mark.parametrize(
    "effort", [PurchaseEffort(), PurchaseEffort(iterations=0)], ids=["not installed", "out of steps"]
)
def test_without_it_the_quick_answer_stands(effort: PurchaseEffort, monkeypatch: pytest.MonkeyPatch) -> None:
    if effort.iterations:
        monkeypatch.setitem(sys.modules, "highspy", None)
    answer, quick = solve(UNEVEN, effort), solve(UNEVEN, GREEDY)
    assert answer.failure
    assert (answer.batches, answer.cost_usd_h) == (quick.batches, quick.cost_usd_h)


def test_nobody_pays_for_it_who_does_not_use_it() -> None:
    script = "import sys, fleet.optimize.purchase; sys.exit('highspy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
