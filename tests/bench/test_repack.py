"""The scenes of `bench.capacity.repack`: what is left of a fleet fits on it, and plans for it are feasible."""

from dataclasses import replace

import pytest

from bench.capacity.repack import SCENES, left
from fleet.optimize.consolidate import ConsolidationRules, applied, solve
from tests.support.repack import broken


@pytest.mark.parametrize("name", sorted({it.name for it in SCENES}))
def test_scenes(name: str) -> None:
    scene = next(it for it in SCENES if it.name == name)
    problem = left(replace(scene, pods=200), 0, ConsolidationRules())
    assert left(replace(scene, pods=200), 0, ConsolidationRules()) == problem
    assert any(it.in_gangs for it in problem.blocks) is (name == "gangs")
    answer = solve(problem)
    assert broken(problem, answer) == []
    assert answer.objective_usd_h >= answer.greedy_usd_h
    assert solve(applied(problem, answer.steps)).steps == ()
