"""Streams of jobs in virtual time: tiny runs, worked out by hand."""

import pytest

from fleet.quota.specs import QuotaQueueSpec
from fleet.replay.quota import Arrival, History, Stream
from tests.support.quotas import ALL, FAIR, RECLAIM, WITHIN, QuotaWorld, asks, cohort, queue

Row = tuple[str, str, int, int, int, int]
"""Name, queue, amount, priority, arrival, run time: milliseconds."""
Story = dict[str, tuple[list[int], list[int], int | None]]
"""Name -> admissions, evictions, end."""


def arrival(row: Row) -> Arrival:
    name, above, amount, priority, at_ms, runtime_ms = row
    return Arrival(asks(name, above, amount, priority=priority, at_s=at_ms / 1000), at_ms, runtime_ms)


def story(histories: dict[str, History]) -> Story:
    return {name: (h.admitted_ms, h.evicted_ms, h.finished_ms) for name, h in sorted(histories.items())}


def played(*specs: QuotaQueueSpec, rows: tuple[Row, ...]) -> Story:
    return story(Stream(QuotaWorld.of(*specs).scheduler).play([arrival(row) for row in rows]))


PAIR = (queue("a", "root", {"f": 2}, preemption=ALL), queue("b", "root", {"f": 2}, preemption=ALL))


@pytest.mark.parametrize(
    ("specs", "rows", "expected"),
    [
        pytest.param((queue("a", "", {"f": 2}),), (), {}, id="nothing comes"),
        pytest.param(
            (queue("a", "", {"f": 2}),),
            (("x", "a", 2, 0, 0, 100), ("y", "a", 2, 0, 10, 50)),
            {"x": ([0], [], 100), "y": ([100], [], 150)},
            id="one after the other",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}),),
            (("x", "a", 1, 0, 0, 100), ("y", "a", 1, 0, 0, 100), ("z", "a", 1, 0, 0, 100)),
            {"x": ([0], [], 100), "y": ([0], [], 100), "z": ([100], [], 200)},
            id="two at a time: several cycles an instant",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}),),
            (("low", "a", 2, 0, 0, 100), ("high", "a", 2, 1, 100, 10)),
            {"low": ([0], [], 100), "high": ([100], [], 110)},
            id="who finishes at an instant has left before who comes",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}, preemption=WITHIN),),
            (("low", "a", 2, 0, 0, 100), ("high", "a", 2, 1, 40, 10)),
            {"low": ([0, 50], [40], 150), "high": ([40], [], 50)},
            id="an evicted job starts over, and its first run does not finish it",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}, preemption=WITHIN),),
            (("low", "a", 2, 0, 0, 40), ("high", "a", 2, 1, 30, 10)),
            {"low": ([0, 40], [30], 80), "high": ([30], [], 40)},
            id="even when that one would have ended just then",
        ),
        pytest.param(
            PAIR,
            (("x", "a", 4, 0, 0, 100), ("y", "b", 2, 0, 20, 30)),
            {"x": ([0, 50], [20], 150), "y": ([20], [], 50)},
            id="a queue takes back its own, the borrower comes again",
        ),
        pytest.param(
            PAIR,
            (("x", "a", 2, 0, 0, 100), ("y", "a", 2, 0, 10, 100), ("z", "b", 2, 0, 50, 10)),
            {"x": ([0], [], 100), "y": ([10, 60], [50], 160), "z": ([50], [], 60)},
            id="the one admitted last of two goes",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}),),
            (("never", "a", 3, 9, 0, 10), ("x", "a", 2, 0, 5, 10)),
            {"never": ([], [], None), "x": ([5], [], 15)},
            id="one that never fits waits for ever",
        ),
        pytest.param(
            (queue("a", "", {"f": 2}, strict=True),),
            (("never", "a", 3, 9, 0, 10), ("x", "a", 2, 0, 5, 10)),
            {"never": ([], [], None), "x": ([], [], None)},
            id="and lets nobody pass under strict order",
        ),
    ],
)
def test_runs(specs: tuple[QuotaQueueSpec, ...], rows: tuple[Row, ...], expected: Story) -> None:
    assert played(*specs, rows=rows) == expected
    assert played(*specs, rows=rows[::-1]) == expected


def test_under_fair_sharing_the_larger_share_gives_way() -> None:
    """`a` took all four of the cohort; `b` gets its half, and its third job only when one of its own is done."""
    specs = (queue("a", "root", preemption=RECLAIM), queue("b", "root", preemption=RECLAIM))
    world = QuotaWorld.of(cohort("root", "", {"f": 4}), *specs, rules=FAIR)
    rows = [(f"a{n}", "a", 1, 0, n, 100) for n in range(4)] + [(f"b{n}", "b", 1, 0, 10 + n, 100) for n in range(3)]
    histories = story(Stream(world.scheduler).play([arrival(row) for row in rows]))
    assert [histories[f"b{n}"][0][0] for n in range(3)] == [10, 11, 110]
    assert [histories[f"a{n}"][1] for n in range(4)] == [[], [], [11], [10]]
    assert [histories[f"a{n}"][0] for n in range(4)] == [[0], [1], [2, 100], [3, 101]]


def test_cycles_are_counted_and_an_idle_strict_head_does_not_spin() -> None:
    world = QuotaWorld.of(queue("a", "", {"f": 2}, strict=True))
    stream = Stream(world.scheduler)
    stream.play([arrival(("never", "a", 3, 0, 0, 10))])
    assert stream.cycles == 3


def test_trees_do_not_see_each_other() -> None:
    one = (("x", "a", 2, 0, 0, 100), ("y", "a", 2, 1, 40, 10))
    other = (("v", "c", 1, 0, 0, 7), ("w", "c", 2, 0, 3, 40), ("z", "c", 1, 5, 40, 10))
    a, c = queue("a", "one", {"f": 2}, preemption=WITHIN), queue("c", "two", {"f": 2}, preemption=WITHIN)
    assert played(a, c, rows=(*one, *other)) == played(a, rows=one) | played(c, rows=other)
