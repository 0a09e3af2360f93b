"""The problems of the benchmark: what they are, and that what is bought for them is right."""

from collections.abc import Callable

import pytest

from bench.capacity.mixes import inference, mix, openb, varied
from bench.capacity.purchases import gap, saving
from fleet.optimize.purchase import GREEDY, PurchaseEffort, PurchaseProblem, solve
from tests.support.purchases import faults
from tests.support.shared import shared_path


def asked_of(problem: PurchaseProblem, resource: str) -> int:
    return sum(it.count for it in problem.classes if resource in it.requests)


def test_a_mix_is_what_it_says() -> None:
    asked = mix(3, 1_000)
    assert asked.pods == 1_000
    assert asked_of(asked, "gpu") == 580
    assert sum(asked_of(asked, f"mig-{size}g") for size in (1, 2, 3)) == 120
    assert 15 <= len(asked.classes) <= 28
    assert asked == mix(3, 1_000) != mix(4, 1_000)


@pytest.mark.parametrize(("made", "seed", "pods"), [(mix, 0, 100), (mix, 1, 1_000), (inference, 2, 300)])
def test_mixes_are_bought_for_right(made: Callable[[int, int], PurchaseProblem], seed: int, pods: int) -> None:
    asked = made(seed, pods)
    quick, full = solve(asked, GREEDY), solve(asked, PurchaseEffort(nodes=1, exact_rounds=1))
    assert faults(asked, quick) == faults(asked, full) == []
    assert full.cost_usd_h <= quick.cost_usd_h < quick.baseline_usd_h
    assert not full.left


def test_very_many_classes_are_bought_for_right() -> None:
    asked = varied(0, 20_000, 400)
    answer = solve(asked, GREEDY)
    assert faults(asked, answer) == []
    assert gap(answer) < 0.05


def test_openb_on_machines_of_aws_costs_37_percent_less() -> None:
    """With the effort of the product, which is counted in steps."""
    asked = openb(shared_path("traces/openb/openb_pod_list_default.csv"))
    answer = solve(asked)
    assert faults(asked, answer) == []
    assert saving(answer) >= 0.41 or answer.failure
    assert answer.steps.nodes == 0  # branch and bound promises too little for its price
