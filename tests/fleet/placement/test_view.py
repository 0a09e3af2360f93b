"""Views of a board: whatever was changed, added, undone or renamed, they say what a scan of all slots would."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.board import Board, Slot
from fleet.placement.pack import Seat, choose_domain, room, seat
from fleet.placement.view import Scope
from fleet.snapshot import PodSet
from tests.support.fleets import GPU

RACK, GANGS = "rack", ("", "g1", "g2")
PODS = PodSet("main", 4, {GPU: 1}, required_topology=RACK)

SLOTS = [
    Slot(f"n{i}", f"n{i}" if i % 3 else "", "", {RACK: f"r{i % 2}"} if i % 5 else {}, (), {GPU: i % 5, "pods": 9}, pool)
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


def fresh() -> Board:
    return Board({it.name: Slot(it.name, it.node, "", it.labels, (), dict(it.free), it.pool) for it in SLOTS})


def suits(slot: Slot) -> bool:
    return slot.pool == "a"


def listed(board: Board, scope: Scope) -> list[Slot]:
    """What a scope should hold, by looking at every slot."""
    return [
        slot
        for slot in board.slots.values()
        if suits(slot)
        and (not slot.only_for or scope.gang in slot.only_for)
        and scope.standing in {None, bool(slot.node)}
    ]


def scopes(board: Board) -> list[Scope]:
    view = board.view("pool a", PODS.requests, suits)
    return [view.among(gang, standing=standing) for gang in GANGS for standing in (None, True, False)]


@settings(max_examples=150)
@given(steps)
def test_a_view_says_what_a_scan_says(moves: list[Step]) -> None:
    board = fresh()
    marks = [board.mark()]
    for number, (what, which, amount) in enumerate(moves):
        _do(board, marks, number, what, which, amount)
        for scope in scopes(board):
            slots = listed(board, scope)
            assert room(scope, PODS) == room(slots, PODS)
            chosen, expected = choose_domain(scope, PODS), choose_domain(slots, PODS)
            assert (chosen is None) == (expected is None)
            if chosen is not None and expected is not None:
                assert _names(board, chosen, 4) == _names(board, expected, 4)
            for count in (1, 3, 7, 40):
                assert _names(board, scope, count) == _names(board, slots, count)


def _names(board: Board, among: list[Slot] | Scope, count: int) -> list[tuple[str, int]]:
    mark = board.mark()
    seats: list[Seat] = seat(board, among, PODS, count)
    found = [(taken.slot.name, taken.count) for taken in seats]
    board.undo(mark)
    return found


def _do(board: Board, marks: list[int], number: int, what: str, which: int, amount: int) -> None:
    names = list(board.slots)
    slot = board.slots[names[which % len(names)]]
    if what == "take":
        board.take(slot, PODS.requests, amount)
    elif what == "add":
        board.add(
            Slot(
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

    def accepts(slot: Slot) -> bool:
        judged.append(slot.name)
        return True

    for _ in range(3):
        room(board.view("all", {GPU: 1}, accepts).among(), PODS)
        board.take(board.slots["n4"], {GPU: 1}, 1)
    assert sorted(judged) == sorted(name for name, slot in fresh().slots.items() if slot.free[GPU])
    assert board.view("all", {GPU: 1}).rooms is board.view("all", {GPU: 1}).rooms
    assert board.view("all", {GPU: 1}).rooms is not board.view("all", {GPU: 2}).rooms
    assert board.view("all", {GPU: 1}).rooms is not board.view("other", {GPU: 1}).rooms


@pytest.mark.parametrize("times", [1, 20_000])
def test_changes_beyond_memory_are_found_by_looking_at_everything(times: int) -> None:
    board = fresh()
    scope = board.view("all", PODS.requests).among()
    before = room(scope, PODS)
    for _ in range(times):
        board.take(board.slots["n4"], PODS.requests, 1)
        board.take(board.slots["n4"], PODS.requests, -1)
    board.take(board.slots["n4"], PODS.requests, 2)
    assert room(scope, PODS) == before - 2


def test_old_views_make_way() -> None:
    board = fresh()
    first = board.view(0, PODS.requests)
    for kind in range(1, 40):
        board.view(kind, PODS.requests)
    assert board.view(0, PODS.requests).rooms is not first.rooms
    assert room(first.among(), PODS) == room(board.slots.values(), PODS)
