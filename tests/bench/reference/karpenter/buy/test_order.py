"""Who comes first, and where to: pods, nodes, open claims, pools."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.reference.karpenter.buy import (
    KarpenterNode,
    PodSpecification,
    PoolTemplate,
    SchedulingResults,
    WaitingPod,
    solve,
)
from bench.reference.karpenter.buy.fronts import pareto
from bench.reference.karpenter.buy.level import leveled
from bench.reference.karpenter.buy.order import PodQueue, Run, runs_of
from tests.bench.reference.karpenter.buy.worlds import machine, pods

BIG = PoolTemplate("pool", (machine("big", 8),))


def placed(outcome: SchedulingResults) -> list[tuple[str, ...]]:
    return [claim.pods for claim in outcome.claims]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({"a": (1, 1, 0), "b": (2, 1, 0)}, "ba", id="cpu descending"),
        pytest.param({"a": (1, 1, 0), "b": (1, 2, 0)}, "ba", id="then memory"),
        pytest.param({"a": (2, 1, 0), "b": (1, 9, 0)}, "ab", id="cpu before memory"),
        pytest.param({"a": (1, 1, 5), "b": (1, 1, 2)}, "ba", id="then age"),
        pytest.param({"b": (1, 1, 0), "a": (1, 1, 0)}, "ab", id="then name"),
    ],
)
def test_queue(asked: dict[str, tuple[int, int, float]], expected: str) -> None:
    waiting = [
        WaitingPod(name, PodSpecification({"cpu": cpu, "memory": memory}), since)
        for name, (cpu, memory, since) in asked.items()
    ]
    _, runs = runs_of(waiting)
    assert "".join(name for run in runs for name in run.names) == expected


def test_the_queue_ends_when_a_round_brought_nothing() -> None:
    queue = PodQueue([Run(0, ["a", "b"]), Run(1, ["c"])])
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    queue.push(first)
    second.take(1)
    queue.placed(1)
    again = queue.pop()  # one has left since it failed: worth another try
    assert again is first
    queue.push(again)
    assert queue.pop() is None
    assert [run.names for run in queue.rest()] == [["a", "b"]]


def test_nodes_come_before_purchases_and_ready_ones_before_others() -> None:
    room = {"cpu": 1000, "pods": 9}
    nodes = [
        KarpenterNode("a", {}, room, initialized=False),
        KarpenterNode("c", {}, room),
        KarpenterNode("b", {}, room),
    ]
    outcome = solve(pods(PodSpecification({"cpu": 1000}), 4), [BIG], nodes)
    assert outcome.seats == {"b": ("p-00",), "c": ("p-01",), "a": ("p-02",)}
    assert placed(outcome) == [("p-03",)]


def test_open_claims_fill_evenly() -> None:
    """Two claims of big pods; the small ones go to whichever has fewer, the older one first."""
    large, small = pods(PodSpecification({"cpu": 5000}), 2, "large"), pods(PodSpecification({"cpu": 1000}), 5, "small")
    outcome = solve([*large, *small], [BIG])
    assert [len(names) for names in placed(outcome)] == [4, 3]


@pytest.mark.parametrize(
    ("weights", "chosen"),
    [({"a": 1, "b": 0}, "a"), ({"a": 0, "b": 5}, "b"), ({"a": 1, "b": 1}, "b")],
    ids=["heavier", "heavier, later", "the later name among equals"],
)
def test_pools(weights: dict[str, int], chosen: str) -> None:
    templates = [PoolTemplate(name, (machine("m", 4),), weight=weight) for name, weight in weights.items()]
    assert [claim.template for claim in solve(pods(PodSpecification({"cpu": 1}), 1), templates).claims] == [chosen]


def test_a_claim_keeps_growing_while_any_type_fits() -> None:
    """Upstream's habit: one large machine where several small ones would cost less."""
    types = (machine("small", 2, price=1), machine("huge", 16, price=20))
    outcome = solve(pods(PodSpecification({"cpu": 2000}), 8), [PoolTemplate("pool", types)])
    assert [[option.machine for option in claim.options] for claim in outcome.claims] == [["huge"]]
    assert outcome.cost_usd_h == 20


def test_options_are_ordered_by_price_then_name_and_say_the_cheapest_offer() -> None:
    types = (machine("b", 4, price=2), machine("a", 8, price=2), machine("c", 4, price=1, zones=("b", "a")))
    (claim,) = solve(pods(PodSpecification({"cpu": 1}), 1), [PoolTemplate("pool", types)]).claims
    assert [option.machine for option in claim.options] == ["c", "a", "b"]
    assert (claim.options[0].zone, claim.options[0].capacity_type, claim.price_usd_h) == ("b", "on-demand", 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6), st.integers(1, 12))
def test_leveling_is_giving_one_by_one_to_the_lowest(claims: list[tuple[int, int]], count: int) -> None:
    held, room = (np.array(column, dtype=np.int64) for column in zip(*claims, strict=True))
    expected = np.zeros_like(held)
    for _ in range(min(count, int(room.sum()))):
        free = [claim for claim in range(len(held)) if expected[claim] < room[claim]]
        expected[min(free, key=lambda claim: (held[claim] + expected[claim], claim))] += 1
    if room.any():
        assert leveled(held, room, count).tolist() == expected.tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8))
def test_a_front_is_what_nothing_dominates(rows: list[tuple[int, int]]) -> None:
    front = {tuple(row) for row in pareto(np.array(rows, dtype=np.int64)).tolist()}
    beaten = {a for a in rows for b in rows if a != b and all(x <= y for x, y in zip(a, b, strict=True))}
    assert front == set(rows) - beaten
