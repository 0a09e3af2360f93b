"""What pricing finds is possible, its bounds hold, and it ends when its steps do."""

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.optimize.purchase import Effort, Problem, Way, pricing, solve
from fleet.optimize.purchase.baseline import karpenter_order
from fleet.optimize.purchase.choice import by_choice
from fleet.optimize.purchase.cut import parts_of
from fleet.optimize.purchase.exact import at_most
from fleet.optimize.purchase.part import Floats, Part
from tests.support.purchases import HIGHS, UNEVEN, faults, problem, problems

PRICES = st.lists(st.integers(0, 20), min_size=5, max_size=5)


def parts(asked: Problem, worths: list[int]) -> Iterator[tuple[Part, Floats]]:
    """The parts of a problem, and some price for each class."""
    for part in parts_of(asked, {})[0]:
        yield part, np.resize(np.array(worths, dtype=np.float64), len(part.demand))


@pytest.mark.parametrize("way", pricing.WAYS)
@settings(max_examples=40)
@given(asked=problems(most_pods=9), worths=PRICES)
def test_every_pattern_fits_on_its_kind(way: pricing.Look, asked: Problem, worths: list[int]) -> None:
    for part, worth in parts(asked, worths):
        for bought in (karpenter_order(part), by_choice(part)):
            kinds, pods = way(part, bought, worth)
            assert (pods >= 0).all()
            assert (pods <= part.demand).all()
            assert (pods @ part.requests <= part.capacity[kinds]).all()
            assert not (pods.astype(bool) & ~part.fits.T[kinds]).any()


@settings(max_examples=60)
@given(asked=problems(most_pods=3), worths=PRICES)
def test_no_machine_carries_more_worth_than_its_bound(asked: Problem, worths: list[int]) -> None:
    for part, worth in parts(asked, worths):
        share = part.requests / np.maximum(part.capacity, 1.0)[:, None]
        most = at_most(part, share, worth)
        for kind in range(len(part.price)):
            amounts = [range(int(count) + 1) for count in part.holds[:, kind]]
            pods = np.array(list(product(*amounts)))
            fitting = pods[(pods @ part.requests <= part.capacity[kind]).all(axis=1)]
            assert (fitting @ worth).max() <= most[kind] + 1e-9


def test_one_resource_and_two_as_one_bound_what_a_machine_carries() -> None:
    (part,), _ = parts_of(
        problem({"a": (4, {"cpu": 3}), "b": (4, {"cpu": 2, "memory": 5})}, {"k": (1.0, {"cpu": 8, "memory": 10})}), {}
    )
    worth = np.array([3.0, 4.0])  # by CPU two of b and 4/3 of a, by memory all of a and two of b
    share = part.requests / part.capacity[:, None]
    assert at_most(part, share, worth).tolist() == pytest.approx([8 + 3 * 4 / 3])


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
    [(Effort(work=0), 0), (Effort(rounds=0), 0), (Effort(rounds=1), 1), (Effort(work=1), 0)],
    ids=["no work", "no rounds", "one round", "next to no work"],
)
def test_pricing_ends_when_its_steps_do(effort: Effort, rounds: int) -> None:
    answer = solve(MOTLEY, effort)
    assert answer.steps.rounds == rounds
    assert faults(MOTLEY, answer) == []
    assert not answer.failure


@HIGHS
def test_patterns_that_pricing_finds_save() -> None:
    assert solve(MOTLEY).cost_usd_h < solve(MOTLEY, Effort(work=0)).cost_usd_h


@HIGHS
def test_branch_and_bound_is_left_out_where_it_promises_too_little() -> None:
    tried, spared = solve(UNEVEN), solve(UNEVEN, Effort(whole_pairs=1e-3))
    assert tried.ways == (Way.INTEGER,)
    assert spared.steps.nodes == 0
    assert Way.INTEGER not in spared.ways
    assert tried.cost_usd_h <= spared.cost_usd_h


@HIGHS
def test_branch_and_bound_keeps_what_is_best_so_far_among_few_patterns() -> None:
    few = solve(UNEVEN, Effort(whole_patterns=0))
    assert faults(UNEVEN, few) == []
    assert few.cost_usd_h <= solve(UNEVEN, Effort(whole_pairs=1e-3)).cost_usd_h
