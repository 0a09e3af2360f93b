"""Water filling: worked by hand, and what must hold however queues are drawn."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.quota.fair_share import WeightedQueue, ceilings, deserved

Total = Mapping[str, float]


def cpu(amount: float) -> dict[str, float]:
    return {"cpu": amount}


@pytest.mark.parametrize(
    ("total", "queues", "shares"),
    [
        pytest.param(
            cpu(9), {"a": WeightedQueue(1, cpu(9)), "b": WeightedQueue(2, cpu(9))}, {"a": 3, "b": 6}, id="by weight"
        ),
        pytest.param(
            cpu(12),
            {"a": WeightedQueue(1, cpu(1)), "b": WeightedQueue(1, cpu(9)), "c": WeightedQueue(2, cpu(9))},
            {"a": 1, "b": 11 / 3, "c": 22 / 3},
            id="what one cannot use is poured again",
        ),
        pytest.param(
            cpu(10),
            {"a": WeightedQueue(1, cpu(9), capability=cpu(2)), "b": WeightedQueue(1, cpu(9))},
            {"a": 2, "b": 8},
            id="never above the capability",
        ),
        pytest.param(
            cpu(10),
            {"a": WeightedQueue(1, {}, guarantee=cpu(4)), "b": WeightedQueue(1, cpu(20))},
            {"a": 4, "b": 6},
            id="the guarantee is kept for a queue that asks for nothing",
        ),
        pytest.param(
            cpu(6), {"a": WeightedQueue(1, cpu(2)), "b": WeightedQueue(1, cpu(2))}, {"a": 2, "b": 2}, id="no more"
        ),
        pytest.param(cpu(6), {}, {}, id="nobody"),
    ],
)
def test_what_is_deserved(total: Total, queues: dict[str, WeightedQueue], shares: dict[str, float]) -> None:
    found = deserved(total, queues)
    assert {name: share["cpu"] for name, share in found.items()} == pytest.approx(shares, abs=0.2)


def test_every_resource_is_filled_for_itself() -> None:
    queues = {
        "a": WeightedQueue(1, {"cpu": 2, "gpu": 8}),
        "b": WeightedQueue(1, {"cpu": 20, "gpu": 2}),
    }
    found = deserved({"cpu": 10, "gpu": 8}, queues)
    assert found["a"] == pytest.approx({"cpu": 2, "gpu": 6}, abs=0.2)
    assert found["b"] == pytest.approx({"cpu": 8, "gpu": 2}, abs=0.2)


def test_a_ceiling_leaves_others_their_guarantees() -> None:
    queues = {
        "a": WeightedQueue(1, {}, guarantee=cpu(3)),
        "b": WeightedQueue(1, {}, capability={"cpu": 5, "gpu": 1}),
    }
    assert ceilings(cpu(10), queues) == {"a": {"cpu": 10}, "b": {"cpu": 5, "gpu": 1}}


QUEUES = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        WeightedQueue, st.integers(1, 5), st.builds(cpu, st.integers(0, 40)), st.just({}) | st.just({"cpu": 7.0})
    ),
    min_size=1,
)


@settings(max_examples=80)
@given(total=st.integers(1, 60), queues=QUEUES)
def test_nothing_is_wasted_and_nobody_gets_what_is_not_there(total: int, queues: dict[str, WeightedQueue]) -> None:
    found = deserved(cpu(total), queues)
    given_out = sum(share["cpu"] for share in found.values())
    wanted = sum(min(queue.request["cpu"], queue.capability.get("cpu", 99.0)) for queue in queues.values())
    assert given_out <= total + 0.5
    assert given_out >= min(total, wanted) - 0.5
    assert found == deserved(cpu(total), dict(reversed(queues.items())))
