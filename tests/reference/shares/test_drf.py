"""Dominant resource fairness: the examples of the paper (Ghodsi et al., NSDI'11)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.shares.drf import User, dominant_share, progressive_fill

CLUSTER = {"cpu": 9, "memory": 18}
A, B = {"cpu": 1, "memory": 4}, {"cpu": 3, "memory": 1}


@pytest.mark.parametrize(
    ("users", "tasks"),
    [
        pytest.param({"a": User(A), "b": User(B)}, {"a": 3, "b": 2}, id="section 4.1: both end at two thirds"),
        pytest.param({"a": User(A, weight=2), "b": User(B)}, {"a": 4, "b": 1}, id="weight 2 for a"),
        pytest.param({"a": User(A), "b": User(B, weight=2)}, {"a": 3, "b": 2}, id="weight 2 for b, in whole tasks"),
        pytest.param({"a": User(A, most_tasks=1), "b": User(B)}, {"a": 1, "b": 2}, id="what a does not want, b gets"),
        pytest.param({"a": User(A)}, {"a": 4}, id="alone"),
        pytest.param({"a": User({})}, {"a": 0}, id="who wants nothing gets nothing"),
    ],
)
def test_progressive_filling(users: dict[str, User], tasks: dict[str, int]) -> None:
    assert progressive_fill(CLUSTER, users) == tasks


@pytest.mark.parametrize(
    ("used", "weights", "expected"),
    [
        pytest.param({"cpu": 3, "memory": 12}, {}, (12 / 18, "memory"), id="section 4.1, user A"),
        pytest.param({"cpu": 6, "memory": 2}, {}, (6 / 9, "cpu"), id="section 4.1, user B"),
        pytest.param({"cpu": 3, "memory": 12}, {"memory": 4}, (1 / 3, "cpu"), id="a weight in one resource"),
        pytest.param({"cpu": 3, "memory": 6}, {}, (1 / 3, "cpu"), id="equal: the first by name"),
        pytest.param({"gpu": 3}, {}, (0, ""), id="what the cluster has not"),
        pytest.param({}, {}, (0, ""), id="nothing"),
    ],
)
def test_dominant_share(used: dict[str, float], weights: dict[str, float], expected: tuple[float, str]) -> None:
    share, resource = dominant_share(used, CLUSTER, weights)
    assert share == pytest.approx(expected[0])
    assert resource == expected[1]


TASK = st.fixed_dictionaries({"cpu": st.integers(0, 4), "memory": st.integers(0, 6)})


@settings(max_examples=60)
@given(tasks=st.dictionaries(st.sampled_from("abc"), TASK, min_size=2))
def test_nobody_would_rather_have_what_another_has(tasks: dict[str, dict[str, int]]) -> None:
    """Envy-freeness, up to the task by which filling is ahead at most."""
    users = {name: User(task) for name, task in tasks.items()}
    filled = progressive_fill(CLUSTER, users)
    for name, task in tasks.items():
        if not any(task.values()):
            continue
        for other, count in filled.items():
            bundle = {resource: amount * max(0, count - 1) for resource, amount in tasks[other].items()}
            as_tasks = min(bundle[resource] // amount for resource, amount in task.items() if amount)
            assert as_tasks <= filled[name]
