"""Usage of local queues: what is forgotten, what counts ahead, what orders."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.admission.quota.ledger import Account, forgetting, weighted

amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "gpu")), st.integers(0, 10**9), max_size=3)


@pytest.mark.parametrize(("elapsed_s", "half_life_s", "share"), [(0, 10, 0), (10, 10, 0.5), (20, 10, 0.75), (1, 0, 1)])
def test_what_is_forgotten(elapsed_s: float, half_life_s: float, share: float) -> None:
    assert forgetting(elapsed_s, half_life_s) == pytest.approx(share)


@pytest.mark.parametrize(
    ("consumed", "queue_weight", "resource_weights", "value"),
    [
        ({"cpu": 8000}, 1, {}, 8),
        ({"cpu": 8000}, 2, {}, 4),
        ({"cpu": 8000, "memory": 1024}, 1, {}, 1032),
        ({"cpu": 8000, "memory": 1024}, 1, {"memory": 0}, 8),
        ({}, 0, {}, math.inf),
    ],
)
def test_what_orders(
    consumed: dict[str, float], queue_weight: float, resource_weights: dict[str, float], value: float
) -> None:
    assert weighted(consumed, queue_weight, resource_weights) == value
    assert Account(consumed).value(queue_weight, resource_weights) == value


def test_an_admission_counts_at_once_until_the_sample_has_it() -> None:
    admitted = Account({"cpu": 1000}).admitted({"cpu": 4000}, sampling_s=10, half_life_s=10)
    assert admitted.value(1, {}) == pytest.approx(3)
    sampled = admitted.sampled({"cpu": 4000}, 10, half_life_s=10)
    assert sampled.penalty == {}
    assert sampled.value(1, {}) == pytest.approx(2.5)


@given(amounts, amounts, st.floats(0, 1e6), st.floats(1, 1e6))
def test_a_sample_lies_between_the_past_and_the_present(
    past: dict[str, int], present: dict[str, int], elapsed_s: float, half_life_s: float
) -> None:
    sampled = Account(past).sampled(present, elapsed_s, half_life_s)
    for name in {*past, *present}:
        low, high = sorted((past.get(name, 0), present.get(name, 0)))
        assert low - 1e-3 <= sampled.consumed[name] <= high + 1e-3
