"""Decayed usage of local queues: forgetting, counting ahead, weights."""

import math

import pytest

from fleet.quota.admission_fair_sharing import LocalQueueUsage, forgotten_share, weighted

HALF_LIFE_S = 100.0


@pytest.mark.parametrize(
    ("elapsed_s", "half_life_s", "share"),
    [(0.0, 100.0, 0.0), (100.0, 100.0, 0.5), (200.0, 100.0, 0.75), (50.0, 100.0, 1 - math.sqrt(0.5)), (1.0, 0.0, 1.0)],
    ids=["at once", "one half life", "two", "half of one", "without memory"],
)
def test_forgetting(elapsed_s: float, half_life_s: float, share: float) -> None:
    assert forgotten_share(elapsed_s, half_life_s) == pytest.approx(share)


@pytest.mark.parametrize(
    ("before", "usage", "elapsed_s", "after"),
    [
        pytest.param({}, {"cpu": 8}, 100.0, {"cpu": 4.0}, id="half of it after a half life"),
        pytest.param({"cpu": 8.0}, {}, 100.0, {"cpu": 4.0}, id="and half of it is forgotten"),
        pytest.param({"cpu": 8.0}, {"cpu": 8}, 300.0, {"cpu": 8.0}, id="steady use stays"),
        pytest.param({"cpu": 8.0}, {"gpu": 2}, 200.0, {"cpu": 2.0, "gpu": 1.5}, id="each resource on its own"),
        pytest.param({"cpu": 8.0}, {"cpu": 2}, 0.0, {"cpu": 8.0}, id="no time, no change"),
        pytest.param({"cpu": 8.0}, {"cpu": 2}, -5.0, {"cpu": 8.0}, id="a clock that went back changes nothing"),
    ],
)
def test_samples(before: dict[str, float], usage: dict[str, int], elapsed_s: float, after: dict[str, float]) -> None:
    account = LocalQueueUsage(before, at_s=1000.0).sampled(usage, 1000.0 + elapsed_s, HALF_LIFE_S)
    assert account.consumed == pytest.approx(after)
    assert account.at_s == 1000.0 + elapsed_s


def test_two_samples_are_as_good_as_one() -> None:
    once = LocalQueueUsage({"cpu": 8.0}).sampled({"cpu": 2}, 70.0, HALF_LIFE_S)
    twice = LocalQueueUsage({"cpu": 8.0}).sampled({"cpu": 2}, 30.0, HALF_LIFE_S).sampled({"cpu": 2}, 70.0, HALF_LIFE_S)
    assert twice.consumed == pytest.approx(once.consumed)


def test_an_admission_counts_ahead_until_the_sample_lands() -> None:
    account = LocalQueueUsage({"cpu": 1.0}).admitted({"cpu": 8}, HALF_LIFE_S, HALF_LIFE_S)
    assert account.penalty == pytest.approx({"cpu": 4.0})
    assert account.admitted({"cpu": 8, "gpu": 1}, HALF_LIFE_S, HALF_LIFE_S).penalty == pytest.approx(
        {"cpu": 8.0, "gpu": 0.5}
    )
    assert account.consumed == {"cpu": 1.0}
    assert account.value(1.0, {}) == pytest.approx(0.005)
    assert account.sampled({"cpu": 8}, 100.0, HALF_LIFE_S).penalty == {}


def test_without_memory_nothing_counts_ahead() -> None:
    account = LocalQueueUsage().admitted({"cpu": 8}, 300.0, 0.0)
    assert account == LocalQueueUsage()
    assert account.sampled({"cpu": 8}, 1.0, 0.0).consumed == {"cpu": 8.0}


@pytest.mark.parametrize(
    ("consumed", "weight", "weights", "value"),
    [
        pytest.param({"cpu": 2000.0}, 1.0, {}, 2.0, id="cores, not thousandths"),
        pytest.param({"cpu": 2000.0, "nvidia.com/gpu": 3.0}, 1.0, {}, 5.0, id="a sum"),
        pytest.param({"cpu": 2000.0, "nvidia.com/gpu": 3.0}, 2.0, {}, 2.5, id="twice the weight, half the number"),
        pytest.param(
            {"cpu": 2000.0, "nvidia.com/gpu": 3.0}, 1.0, {"cpu": 0.0}, 3.0, id="a resource that does not count"
        ),
        pytest.param({"memory": float(1 << 30)}, 1.0, {"memory": 2.0**-30}, 1.0, id="bytes, unless weighted"),
        pytest.param({}, 0.0, {}, math.inf, id="without weight after all others"),
        pytest.param({}, -1.0, {}, math.inf, id="or with less"),
    ],
)
def test_weights(consumed: dict[str, float], weight: float, weights: dict[str, float], value: float) -> None:
    assert weighted(consumed, weight, weights) == pytest.approx(value)
    assert LocalQueueUsage(consumed).value(weight, weights) == pytest.approx(value)
