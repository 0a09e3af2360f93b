"""What pricing finds is possible, its bounds hold, and it ends when its steps do."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from fleet.optimize.purchase import PurchaseEffort, PurchaseHeuristic, PurchaseProblem, column_search, solve
from fleet.optimize.purchase.heuristics import by_choice, provisioning_order
from fleet.optimize.purchase.purchase_problem import GREEDY
from tests.support.purchases import HIGHS, UNEVEN, WORTHS, faults, priced_parts, problem, problems


@pytest.mark.parametrize("neighbourhood", column_search.NEIGHBOURHOODS)
@settings(max_examples=40)
@given(asked=problems(most_pods=9), worths=WORTHS)
def test_every_pattern_fits_on_its_kind(
    neighbourhood: column_search.Neighbourhood, asked: PurchaseProblem, worths: list[int]
) -> None:
    for part, worth in priced_parts(asked, worths):
        for bought in (provisioning_order(part), by_choice(part)):
            kinds, pods = neighbourhood(part, bought, worth)
            assert (pods >= 0).all()
            assert (pods <= part.demand).all()
            assert (pods @ part.requests <= part.capacity[kinds]).all()
            assert not (pods.astype(bool) & ~part.fits.T[kinds]).any()


@settings(max_examples=60)
@given(asked=problems(most_pods=9))
def test_where_a_purchase_costs_its_bound_other_heuristics_find_nothing_else(asked: PurchaseProblem) -> None:
    early = solve(asked, GREEDY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(column_search.PurchaseIncumbent, "cannot_be_beaten", lambda _: False)
        assert solve(asked, GREEDY) == early


# -- ends, in steps ---------------------------------------------------------------------------------------------------

# Twenty classes whose sizes divide nothing, on machines of four shapes.
MOTLEY = problem(
    {f"c{n:02}": (7 + n, {"cpu": 101 + 37 * n % 113, "memory": 53 + 61 * n % 127}) for n in range(20)},
    {
        f"{shape}-{size}": (size * price, {"cpu": size * cpu, "memory": size * memory})
        for size in (1, 2, 5)
        for shape, price, cpu, memory in (("wide", 1.0, 400, 200), ("even", 1.1, 350, 350), ("deep", 1.2, 300, 550))
    },
)


@HIGHS
@pytest.mark.parametrize(
    ("effort", "rounds"),
    [
        (PurchaseEffort(work=0), 0),
        (PurchaseEffort(rounds=0), 0),
        (PurchaseEffort(rounds=1), 1),
        (PurchaseEffort(work=1), 0),
    ],
    ids=["no work", "no rounds", "one round", "next to no work"],
)
def test_pricing_ends_when_its_steps_do(effort: PurchaseEffort, rounds: int) -> None:
    answer = solve(MOTLEY, effort)
    assert answer.steps.rounds == rounds
    assert faults(MOTLEY, answer) == []
    assert not answer.failure


@HIGHS
def test_patterns_that_pricing_finds_save() -> None:
    assert solve(MOTLEY).cost_usd_h < solve(MOTLEY, PurchaseEffort(work=0)).cost_usd_h


@HIGHS
def test_branch_and_bound_is_left_out_where_it_promises_too_little() -> None:
    tried, spared = solve(UNEVEN), solve(UNEVEN, PurchaseEffort(whole_pairs=1e-3))
    assert tried.heuristics == (PurchaseHeuristic.INTEGER,)
    assert spared.steps.nodes == 0
    assert PurchaseHeuristic.INTEGER not in spared.heuristics
    assert tried.cost_usd_h <= spared.cost_usd_h


@HIGHS
def test_branch_and_bound_keeps_what_is_best_so_far_among_few_patterns() -> None:
    few = solve(UNEVEN, PurchaseEffort(whole_patterns=0))
    assert faults(UNEVEN, few) == []
    assert few.cost_usd_h <= solve(UNEVEN, PurchaseEffort(whole_pairs=1e-3)).cost_usd_h


@HIGHS
def test_diving_finds_a_mix_without_branch_and_bound() -> None:
    """That is not tried here: each pattern that is known asks for more than there is to save."""
    asked = replace(MOTLEY, classes=tuple(replace(it, count=it.count - 4) for it in MOTLEY.classes))
    dived = solve(asked, PurchaseEffort(whole_known=1e-6))
    assert faults(asked, dived) == []
    assert dived.steps.nodes == 0
    assert dived.heuristics == (PurchaseHeuristic.DIVED,)
    assert dived.cost_usd_h <= 1.015 * dived.bound_usd_h
