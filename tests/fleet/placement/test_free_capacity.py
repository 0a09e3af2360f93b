"""Free capacity: whatever was changed, added, undone or renamed, it is what a scan of all slots would find."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.cluster_state import ClusterState, NodeAssignment, NodeSlot, planned_slot
from fleet.placement.free_capacity import FreeCapacity, assign, free_capacity
from fleet.snapshot import PodSet
from tests.support.fleets import GPU, P5, A, catalog, offering, small_fleet

RACK, GANGS = "rack", ("", "g1", "g2")
PODS = PodSet("main", 4, {GPU: 1}, required_topology=RACK)

SLOTS = [
    NodeSlot(
        f"n{i}", f"n{i}" if i % 3 else "", "", {RACK: f"r{i % 2}"} if i % 5 else {}, (), {GPU: i % 5, "pods": 9}, pool
    )
    for i, pool in enumerate("aabbabbaab")
]
Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("take", "add", "undo", "mark", "rename", "share", "close")),
        st.integers(0, 9),
        st.integers(-2, 3),
    ),
    max_size=25,
)


def fresh() -> ClusterState:
    return ClusterState(
        {it.name: NodeSlot(it.name, it.node, "", it.labels, (), dict(it.free), it.pool) for it in SLOTS}
    )


def suits(slot: NodeSlot) -> bool:
    return slot.pool == "a"


def listed(board: ClusterState, scope: FreeCapacity) -> list[NodeSlot]:
    """What a scope should hold, by looking at every slot."""
    return [
        slot
        for slot in board.slots.values()
        if suits(slot)
        and (scope.gang in slot.only_for or not (slot.only_for or scope.kept))
        and (len(slot.only_for) == 1 or not scope.alone)
        and scope.standing in {None, bool(slot.node)}
    ]


def room(slots: Iterable[NodeSlot]) -> int:
    return sum(slot.room_for(PODS.requests) for slot in slots)


def tightest_domain(slots: list[NodeSlot]) -> list[NodeSlot] | None:
    """The rack with the least room that holds all pods, by looking at every slot."""
    racks: dict[str, list[NodeSlot]] = {}
    for slot in slots:
        if value := slot.labels.get(RACK):
            racks.setdefault(value, []).append(slot)
    fitting = [(room(members), value) for value, members in racks.items() if room(members) >= PODS.count]
    return racks[min(fitting)[1]] if fitting else None


def scopes(board: ClusterState) -> list[FreeCapacity]:
    view = free_capacity(board, "pool a", PODS.requests, suits)
    wide = [view.among(gang, standing=standing) for gang in GANGS for standing in (None, True, False)]
    return [*wide, *(replace(scope, kept=True, alone=alone) for scope in wide for alone in (False, True))]


@settings(max_examples=150)
@given(steps)
def test_a_view_says_what_a_scan_says(moves: list[Step]) -> None:
    board = fresh()
    marks = [board.mark()]
    for number, (what, which, amount) in enumerate(moves):
        _do(board, marks, number, what, which, amount)
        for scope in scopes(board):
            slots = listed(board, scope)
            assert scope.room == room(slots)
            chosen, expected = scope.tightest_domain(RACK, PODS.count), tightest_domain(slots)
            assert (chosen is None) == (expected is None)
            if chosen is not None and expected is not None:
                assert _names(board, chosen, 4) == _names(board, expected, 4)
            for count in (1, 3, 7, 40):
                assert _names(board, scope, count) == _names(board, slots, count)


def _names(board: ClusterState, among: list[NodeSlot] | FreeCapacity, count: int) -> list[tuple[str, int]]:
    mark = board.mark()
    seats: list[NodeAssignment] = assign(board, among, PODS, count)
    found = [(taken.slot.name, taken.count) for taken in seats]
    board.undo(mark)
    return found


def _do(board: ClusterState, marks: list[int], number: int, what: str, which: int, amount: int) -> None:
    names = list(board.slots)
    slot = board.slots[names[which % len(names)]]
    if what == "take":
        board.take(slot, PODS.requests, amount)
    elif what == "add":
        board.add(
            NodeSlot(
                f"new/{number}",
                "",
                "",
                {RACK: "r1"},
                (),
                {GPU: 4, "pods": 9},
                "a",
                frozenset(filter(None, [GANGS[which % 3]])),
            )
        )
    elif what == "close":
        board.close(slot.name)
    elif what == "share":
        board.share(slot)
    elif what == "rename" and len(marks) == 1:
        board.rename(slot, f"m{number}")
    elif what == "mark":
        marks.append(board.mark())
    elif what == "undo" and len(marks) > 1:
        board.undo(marks.pop())


def test_a_view_is_kept_and_a_slot_judged_once() -> None:
    board, judged = fresh(), []

    def accepts(slot: NodeSlot) -> bool:
        judged.append(slot.name)
        return True

    for _ in range(3):
        assert free_capacity(board, "all", {GPU: 1}, accepts).room
        board.take(board.slots["n4"], {GPU: 1}, 1)
    assert sorted(judged) == sorted(name for name, slot in fresh().slots.items() if slot.free[GPU])
    assert free_capacity(board, "all", {GPU: 1}).index is free_capacity(board, "all", {GPU: 1}).index
    assert free_capacity(board, "all", {GPU: 1}).index is not free_capacity(board, "other", {GPU: 1}).index


def test_machines_of_an_offering_that_does_not_suit_are_judged_once() -> None:
    board, judged = fresh(), list[str]()
    sold = offering(small_fleet(), catalog(), "h100", P5.name, A, "on-demand")

    def accepts(slot: NodeSlot) -> bool:
        judged.append(slot.name)
        return slot.offering is None

    before = free_capacity(board, "these", {GPU: 1}, accepts).room
    for number in range(3):
        board.add(planned_slot(sold, f"new/{number}/0"))
        assert free_capacity(board, "these", {GPU: 1}, accepts).room == before
        assert free_capacity(board, "others", {GPU: 1}).among().room == before + 8 * (number + 1)
    assert [name for name in judged if name.startswith("new/")] == ["new/0/0"]


@pytest.mark.parametrize("times", [1, 20_000])
def test_changes_beyond_memory_are_found_by_looking_at_everything(times: int) -> None:
    board = fresh()
    scope = free_capacity(board, "all", PODS.requests).among()
    before = scope.room
    for _ in range(times):
        board.take(board.slots["n4"], PODS.requests, 1)
        board.take(board.slots["n4"], PODS.requests, -1)
    board.take(board.slots["n4"], PODS.requests, 2)
    assert scope.room == before - 2


def test_old_views_make_way() -> None:
    board = fresh()
    first = free_capacity(board, 0, PODS.requests)
    for kind in range(1, 40):
        free_capacity(board, kind, PODS.requests)
    assert free_capacity(board, 0, PODS.requests).index is not first.index
    assert first.room == room(board.slots.values())
