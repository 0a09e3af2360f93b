"""What a move costs, what it saves, and whether a Balanced pool agrees to it."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.disruption.evaluation import (
    BalancedScore,
    NodePoolTotals,
    PoolContribution,
    agreed,
    by_ratio,
    disruption_cost,
    eviction_cost,
    judged,
    savings_ratio,
)


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "cost"),
    [
        (0, 0, 1.0),
        (2**27, 0, 2.0),
        (-(2**27), 0, 0.0),
        (0, 2**25, 2.0),
        (2**31 - 1, 0, 10.0),
        (-(2**31), 0, -10.0),
        (0, 2_000_000_000, 10.0),
        (-(2**27), 2**25, 1.0),
    ],
)
def test_eviction(deletion_cost: float, priority: float, cost: float) -> None:
    assert eviction_cost(deletion_cost, priority) == cost


@pytest.mark.parametrize(
    ("evictions", "cost"), [([], 1.0), ([1.0, 1.0], 3.0), ([-10.0, 1.0], 2.0), ([0.5], 1.5), ([10.0], 11.0)]
)
def test_disruption(evictions: list[float], cost: float) -> None:
    assert disruption_cost(evictions) == cost


@pytest.mark.parametrize(
    ("price", "cost", "ratio"), [(4.0, 2.0, 2.0), (None, 2.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.0, inf)]
)
def test_ratio(price: float | None, cost: float, ratio: float) -> None:
    assert savings_ratio(price, cost) == ratio


def test_most_savings_first_then_by_name() -> None:
    assert by_ratio([("c", 1.0), ("b", 2.0), ("a", 1.0), ("d", inf)]) == ["d", "b", "a", "c"]


POOL = NodePoolTotals(100.0, 50.0)


@pytest.mark.parametrize(
    ("savings", "disruption", "pool", "threshold", "verdict"),
    [
        pytest.param(10, 10, POOL, 2, BalancedScore(0.5, approved=True), id="at the threshold"),
        pytest.param(10, 10.1, POOL, 2, BalancedScore(10 / 100 / (10.1 / 50), approved=False), id="below"),
        pytest.param(10, 10, POOL, 1, BalancedScore(0.5, approved=False), id="stricter"),
        pytest.param(0, 1, POOL, 2, BalancedScore(0.0, approved=False), id="nothing saved"),
        pytest.param(-1, 1, POOL, 2, BalancedScore(0.0, approved=False), id="it costs"),
        pytest.param(1, 0, POOL, 2, BalancedScore(inf, approved=True), id="nothing disturbed"),
        pytest.param(1, 1, NodePoolTotals(10.0, 0.0), 2, BalancedScore(inf, approved=True), id="nothing runs"),
        pytest.param(1, 1, NodePoolTotals(0.0, 5.0), 2, BalancedScore(0.0, approved=False), id="no prices"),
    ],
)
def test_one_pool(
    savings: float, disruption: float, pool: NodePoolTotals, threshold: int, verdict: BalancedScore
) -> None:
    assert judged(savings, disruption, pool, threshold) == verdict


def test_totals_count_every_machine_and_the_prices_that_are_known() -> None:
    assert NodePoolTotals.of([(4.0, [1.0]), (None, [1.0, -3.0]), (2.0, [])]) == NodePoolTotals(6.0, 5.0)


@pytest.mark.parametrize(
    ("parts", "score", "approved"),
    [
        pytest.param([], 0.0, False, id="nothing moves"),
        pytest.param([PoolContribution("a", 5.0, 9.0)], inf, True, id="nobody asked"),
        pytest.param([PoolContribution("a", 10.0, 10.0, 2)], 0.5, True, id="one"),
        pytest.param(
            [PoolContribution("a", 5.0, 5.0, 2), PoolContribution("b", 5.0, 5.0, 2)], 0.5, True, id="split by price"
        ),
        pytest.param(
            [PoolContribution("a", 9.0, 1.0, 2), PoolContribution("b", 1.0, 9.0, 2)],
            1 / 100 / (9 / 50),
            False,
            id="one refuses",
        ),
        pytest.param(
            [PoolContribution("a", 9.0, 1.0, 2), PoolContribution("b", 1.0, 9.0)],
            9 / 100 / (1 / 50),
            True,
            id="it has no say",
        ),
    ],
)
def test_several_pools(parts: list[PoolContribution], score: float, approved: bool) -> None:
    found = agreed(10.0, parts, {"a": POOL, "b": POOL})
    assert (found.score, found.approved) == (pytest.approx(score), approved)


@settings(max_examples=80, deadline=None)
@given(st.floats(0.01, 100), st.floats(0.01, 100), st.integers(1, 9), st.floats(0.5, 100))
def test_the_size_of_the_pool_does_not_matter(savings: float, disruption: float, threshold: int, scale: float) -> None:
    """Twice the fleet, the same shares: only the share of what a move takes part in counts."""
    small = judged(savings, disruption, POOL, threshold)
    large = judged(savings, disruption, NodePoolTotals(POOL.cost_usd_h * scale, POOL.disruption * scale), threshold)
    assert large.score == pytest.approx(small.score)
