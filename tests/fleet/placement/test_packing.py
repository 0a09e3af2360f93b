"""Packing: as few machines as possible, the last one the smallest that still takes the rest, one domain when asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.free_capacity import assign, free_capacity
from fleet.snapshot import PodSet
from tests.support.fleets import GPU

RACK = "rack"


def board(**gpus: int) -> ClusterState:
    return ClusterState(
        {name: NodeSlot(name, name, "", {}, (), {GPU: free, "pods": 100}) for name, free in gpus.items()}
    )


def pods(count: int, gpu: int = 1) -> PodSet:
    return PodSet("main", count, {GPU: gpu}, required_topology=RACK)


@pytest.mark.parametrize(
    ("free", "count", "seated"),
    [
        ({"a": 8, "b": 8}, 8, {"a": 8}),
        ({"a": 8, "b": 8}, 10, {"a": 8, "b": 2}),
        ({"a": 8, "b": 2, "c": 4}, 10, {"a": 8, "b": 2}),
        ({"a": 8, "b": 3, "c": 4}, 11, {"a": 8, "b": 3}),
        ({"a": 2, "b": 8, "c": 4}, 2, {"a": 2}),
        ({"a": 3, "b": 3}, 2, {"a": 2}),
        ({"a": 1, "b": 1, "c": 1}, 5, {"a": 1, "b": 1, "c": 1}),
        ({"a": 0, "b": 0}, 1, {}),
    ],
)
def test_seat(free: dict[str, int], count: int, seated: dict[str, int]) -> None:
    made = board(**free)
    seats = assign(made, list(made.slots.values()), pods(count), count)
    assert {it.slot.name: it.count for it in seats} == seated
    assert {name: it.free[GPU] for name, it in made.slots.items()} == {
        name: much - seated.get(name, 0) for name, much in free.items()
    }


def racks(*entries: tuple[str, str, int]) -> list[NodeSlot]:
    return [
        NodeSlot(name, name, "", {RACK: rack} if rack else {}, (), {GPU: free, "pods": 100})
        for name, rack, free in entries
    ]


@pytest.mark.parametrize(
    ("slots", "count", "chosen"),
    [
        ((("a", "r1", 8), ("b", "r2", 8), ("c", "r2", 8)), 12, ["b", "c"]),
        ((("a", "r1", 8), ("b", "r2", 4), ("c", "r2", 2)), 6, ["b", "c"]),
        ((("a", "r2", 4), ("b", "r1", 4)), 4, ["b"]),
        ((("a", "r1", 4), ("b", "r2", 4)), 5, None),
        ((("a", "", 8),), 4, None),
        ((), 1, None),
    ],
    ids=["the one that holds it", "the tightest", "ties by value", "never across", "unlabelled is nowhere", "nothing"],
)
def test_tightest_domain(slots: tuple[tuple[str, str, int], ...], count: int, chosen: list[str] | None) -> None:
    state = ClusterState({slot.name: slot for slot in racks(*slots)})
    found = free_capacity(state, "any", pods(count).requests).tightest_domain(RACK, count)
    members = None if found is None else assign(state, found, pods(count), found.room)
    assert (None if members is None else sorted(it.slot.name for it in members)) == chosen


def test_domains_leave_out_what_has_no_label() -> None:
    slots = racks(("a", "r1", 1), ("b", "", 1), ("c", "r1", 1))
    state = ClusterState({slot.name: slot for slot in slots})
    assert free_capacity(state, "any", {GPU: 1}).totals(RACK) == {"r1": 2}


rooms = st.lists(st.integers(0, 8), min_size=1, max_size=7)


@given(rooms, st.integers(0, 30))
def test_nobody_is_left_out_while_there_is_room_and_no_machine_is_wasted(free: list[int], count: int) -> None:
    made = board(**{f"n{i}": much for i, much in enumerate(free)})
    seats = assign(made, list(made.slots.values()), pods(count), count)
    placed = sum(it.count for it in seats)
    assert placed == min(count, sum(free))
    assert all(it.free[GPU] >= 0 for it in made.slots.values())
    fewest = next(n for n in range(len(free) + 1) if sum(sorted(free, reverse=True)[:n]) >= placed)
    assert len(seats) == fewest
    if len(seats) < len(free) and seats:
        last = seats[-1]
        others = [much for i, much in enumerate(free) if f"n{i}" not in {it.slot.name for it in seats}]
        taken_from = free[int(last.slot.name[1:])]
        assert not any(last.count <= much < taken_from for much in others), "the last machine is the best fit"


@given(rooms, st.integers(1, 20), st.randoms(use_true_random=False))
def test_the_order_of_the_slots_does_not_matter(free: list[int], count: int, rng: object) -> None:
    left, right = (board(**{f"n{i}": much for i, much in enumerate(free)}) for _ in range(2))
    mixed = list(right.slots.values())
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    one = assign(left, list(left.slots.values()), pods(count), count)
    other = assign(right, mixed, pods(count), count)
    assert [(it.slot.name, it.count) for it in one] == [(it.slot.name, it.count) for it in other]
