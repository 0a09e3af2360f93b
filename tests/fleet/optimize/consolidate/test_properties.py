"""What holds for every problem: plans are feasible, gangs whole, nothing is better undone, and quiet stays quiet."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.optimize.consolidate import GREEDY, ConsolidationEffort, ConsolidationProblem, applied, solve
from tests.support.repack import TOLERANCE, broken, problems

FEW = settings(max_examples=40, deadline=None)


EFFORTS = st.sampled_from([ConsolidationEffort(), GREEDY, ConsolidationEffort(gang_options=0)])


@FEW
@given(problems(), EFFORTS)
def test_plans_are_feasible(problem: ConsolidationProblem, effort: ConsolidationEffort) -> None:
    answer = solve(problem, effort)
    assert broken(problem, answer) == []
    assert answer.greedy_usd_h - TOLERANCE <= answer.objective_usd_h <= answer.bound_usd_h + TOLERANCE


@FEW
@given(problems(), st.randoms(use_true_random=False))
def test_every_choice_of_steps_is_a_plan(problem: ConsolidationProblem, draw: random.Random) -> None:
    answer = solve(problem)
    some = [step for step in answer.steps if draw.random() < 0.5]
    assert broken(problem, answer, some) == []


@FEW
@given(problems())
def test_never_worse_than_the_greedy_search_nor_than_nothing_nor_above_the_bound(problem: ConsolidationProblem) -> None:
    answer, greedy = solve(problem), solve(problem, GREEDY)
    assert answer.objective_usd_h >= 0
    assert answer.objective_usd_h >= answer.greedy_usd_h - TOLERANCE
    assert answer.objective_usd_h >= greedy.greedy_usd_h - TOLERANCE
    assert answer.objective_usd_h <= answer.bound_usd_h + TOLERANCE


@FEW
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_declaration_changes_nothing(problem: ConsolidationProblem, draw: random.Random) -> None:
    shuffled = replace(
        problem,
        classes=tuple(draw.sample(problem.classes, len(problem.classes))),
        standing=tuple(draw.sample(problem.standing, len(problem.standing))),
        blocks=tuple(draw.sample(problem.blocks, len(problem.blocks))),
        kinds=tuple(draw.sample(problem.kinds, len(problem.kinds))),
    )
    assert solve(shuffled) == solve(problem)


@FEW
@given(problems())
def test_after_a_plan_there_is_nothing_to_do(problem: ConsolidationProblem) -> None:
    answer = solve(problem)
    left = applied(problem, answer.steps)
    for _ in range(10):
        again = solve(left)
        assert again.steps == ()
        left = applied(left, again.steps)
