"""Configured shares in a tree."""

from typing import Any

import pytest

from tests.reference.shares.capacity import (
    Bounds,
    CapacityQueue,
    bounds,
    claims,
    exceeds,
    fits,
    keeps_guarantee,
    share,
    undeserved,
)

TREE = {
    "org": CapacityQueue(capability={"cpu": 8}),
    "a": CapacityQueue("org", deserved={"cpu": 6}, guarantee={"cpu": 2}),
    "b": CapacityQueue("org", deserved={"cpu": 9, "gpu": 0}, capability={"cpu": 5}),
}


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        pytest.param("org", Bounds({}, {}, {"cpu": 8, "gpu": 4}), id="the top has the cluster, within its capability"),
        pytest.param("a", Bounds({"cpu": 6}, {"cpu": 2}, {"cpu": 8, "gpu": 4}), id="its own guarantee is open to it"),
        pytest.param("b", Bounds({"cpu": 5}, {}, {"cpu": 5, "gpu": 4}), id="deserved no more than the most"),
    ],
)
def test_bounds(queue: str, expected: Bounds) -> None:
    assert bounds({"cpu": 10, "gpu": 4}, TREE)[queue] == expected


def test_siblings_cannot_have_what_is_guaranteed() -> None:
    tree = {"a": CapacityQueue(guarantee={"cpu": 3}), "b": CapacityQueue()}
    found = bounds({"cpu": 10}, tree)
    assert found["b"].most == {"cpu": 7}
    assert found["a"].deserved == {"cpu": 3}


@pytest.mark.parametrize(
    ("rule", "arguments", "expected"),
    [
        pytest.param(exceeds, ({"cpu": 5}, {"cpu": 4}, {"cpu": 1}), True, id="holds more than the bound"),
        pytest.param(exceeds, ({"cpu": 4}, {"cpu": 4}, {"cpu": 1}), False, id="holds just the bound"),
        pytest.param(exceeds, ({"cpu": 5, "gpu": 1}, {"cpu": 4}, {"gpu": 1}), False, id="in what nobody asks about"),
        pytest.param(fits, ({"cpu": 3}, {"cpu": 1}, {"cpu": 4}), True, id="just fits"),
        pytest.param(fits, ({"cpu": 3}, {"cpu": 2}, {"cpu": 4}), False, id="does not fit"),
        pytest.param(fits, ({}, {"gpu": 9}, {"cpu": 4}), True, id="what a limit does not name is unlimited"),
        pytest.param(claims, ({"cpu": 3}, {"cpu": 1, "gpu": 1}, {"cpu": 4}), True, id="one resource suffices"),
        pytest.param(claims, ({"cpu": 4}, {"cpu": 1}, {"cpu": 4}), False, id="has all it deserves"),
        pytest.param(claims, ({}, {"gpu": 1}, {"cpu": 4}), False, id="what is not named is not deserved"),
        pytest.param(keeps_guarantee, ({"cpu": 3}, {"cpu": 1}, {"cpu": 2}), True, id="keeps its guarantee"),
        pytest.param(keeps_guarantee, ({"cpu": 3}, {"cpu": 2}, {"cpu": 2}), False, id="would fall below it"),
        pytest.param(undeserved, ({"gpu": 1}, {"cpu": 2}), True, id="nothing speaks for keeping it"),
        pytest.param(undeserved, ({"gpu": 1, "cpu": 1}, {"cpu": 2}), False, id="part of it is deserved"),
        pytest.param(share, ({"cpu": 3, "gpu": 1}, {"cpu": 4, "gpu": 2}), 0.75, id="the largest part"),
        pytest.param(share, ({}, {}), 1.0, id="who deserves nothing is full"),
    ],
)
def test_rules(rule: Any, arguments: tuple[Any, ...], expected: bool | float) -> None:
    assert rule(*arguments) == expected
