"""The division of one resource among queues: quota, then surplus by priority and weight, less past usage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.shares.division import UNLIMITED, Claimant, decayed, divide


@pytest.mark.parametrize(
    ("total", "claimants", "shares"),
    [
        pytest.param(10, {"a": Claimant(2, 6, 2), "b": Claimant(2, 6, 2)}, {"a": 5, "b": 5}, id="equal weights"),
        pytest.param(9, {"a": Claimant(0, 9, 2), "b": Claimant(0, 9, 1)}, {"a": 6, "b": 3}, id="by weight"),
        pytest.param(
            11, {"a": Claimant(2, 9, 2), "b": Claimant(2, 9, 2)}, {"a": 6, "b": 5}, id="the odd unit: older or by name"
        ),
        pytest.param(
            11,
            {"a": Claimant(2, 9, 2, age=1), "b": Claimant(2, 9, 2, age=0)},
            {"a": 5, "b": 6},
            id="the odd unit goes to the older",
        ),
        pytest.param(5, {"a": Claimant(4, 9), "b": Claimant(4, 9)}, {"a": 4, "b": 4}, id="quotas above what there is"),
        pytest.param(
            8, {"a": Claimant(4, 1), "b": Claimant(1, 9)}, {"a": 1, "b": 7}, id="quota counts as far as it is asked for"
        ),
        pytest.param(
            6,
            {"a": Claimant(2, 6, priority=1), "b": Claimant(2, 6, priority=2)},
            {"a": 2, "b": 4},
            id="surplus to the higher priority first",
        ),
        pytest.param(
            20,
            {"a": Claimant(2, 6, priority=1), "b": Claimant(2, 6, priority=2)},
            {"a": 6, "b": 6},
            id="and what it leaves to the next",
        ),
        pytest.param(
            10, {"a": Claimant(0, 9, limit=3), "b": Claimant(0, 9)}, {"a": 3, "b": 7}, id="never above the limit"
        ),
        pytest.param(
            10, {"a": Claimant(0, 9, weight=0), "b": Claimant(0, 4)}, {"a": 0, "b": 4}, id="no weight, no surplus"
        ),
        pytest.param(10, {"a": Claimant(UNLIMITED, 7), "b": Claimant(0, 9)}, {"a": 7, "b": 3}, id="unlimited quota"),
        pytest.param(3, {"a": Claimant(0, 0.5), "b": Claimant(0, 9)}, {"a": 0.5, "b": 2.5}, id="parts of a unit"),
    ],
)
def test_shares(total: float, claimants: dict[str, Claimant], shares: dict[str, float]) -> None:
    assert divide(total, claimants) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("usage_weight", "usage", "shares"),
    [
        pytest.param(0.0, 0.5, {"a": 50, "b": 50}, id="past usage does not count"),
        pytest.param(1.0, 0.25, {"a": 43, "b": 57}, id="what was used is taken off its weight"),
        pytest.param(1.0, 1.0, {"a": 0, "b": 100}, id="who used everything gets no surplus for now"),
    ],
)
def test_past_usage(usage_weight: float, usage: float, shares: dict[str, float]) -> None:
    claimants = {"a": Claimant(0, 100, usage=usage), "b": Claimant(0, 100)}
    found = divide(100, claimants, usage_weight)
    assert found == pytest.approx(shares, abs=1)


@pytest.mark.parametrize(("seconds", "left"), [(0, 0.8), (3_600, 0.4), (7_200, 0.2)])
def test_usage_decays(seconds: float, left: float) -> None:
    assert decayed(0.8, seconds, half_life_s=3_600) == pytest.approx(left)


CLAIMANT = st.builds(
    Claimant,
    quota=st.integers(0, 8) | st.just(UNLIMITED),
    request=st.integers(0, 20),
    weight=st.integers(0, 4),
    limit=st.integers(0, 20) | st.just(UNLIMITED),
    priority=st.integers(0, 2),
    usage=st.sampled_from([0.0, 0.1, 0.7]),
)


@settings(max_examples=100)
@given(
    total=st.integers(0, 30),
    claimants=st.dictionaries(st.sampled_from("abcd"), CLAIMANT),
    usage_weight=st.sampled_from([0.0, 1.0]),
)
def test_bounds_and_order(total: int, claimants: dict[str, Claimant], usage_weight: float) -> None:
    """Nobody gets more than it wants or less than its quota; only quotas may add up to more than there is."""
    shares = divide(total, claimants, usage_weight)
    surplus = 0.0
    for name, claimant in claimants.items():
        quota = min(total if claimant.quota == UNLIMITED else claimant.quota, claimant.wanted)
        assert quota - 1e-9 <= shares[name] <= claimant.wanted + 1e-9
        surplus += shares[name] - quota
    quotas = sum(shares.values()) - surplus
    assert surplus <= max(0.0, total - quotas) + 1e-9
    assert shares == divide(total, dict(reversed(claimants.items())), usage_weight)
