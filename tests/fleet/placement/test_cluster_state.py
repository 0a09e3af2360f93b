"""The board: rooms are counted right, and undo restores everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.placement.cluster_state import ClusterState, NodeSlot
from tests.support.fleets import GPU


def slot(name: str, gpus: int = 8, pods: int = 10, **labels: str) -> NodeSlot:
    return NodeSlot(name, name, "", labels, (), {GPU: gpus, "cpu": 64000, "pods": pods}, "h100")


@pytest.mark.parametrize(
    ("requests", "room"),
    [
        ({GPU: 8}, 1),
        ({GPU: 3}, 2),
        ({GPU: 9}, 0),
        ({"cpu": 1000}, 10),
        ({"cpu": 30000, GPU: 1}, 2),
        ({"nvidia.com/mig-1g.10gb": 1}, 0),
        ({"nvidia.com/mig-1g.10gb": 0, GPU: 4}, 2),
        ({}, 10),
    ],
)
def test_room(requests: dict[str, int], room: int) -> None:
    """The scarcest resource decides, and the number of pods is one of them."""
    assert slot("a").room_for(requests) == room


def test_a_slot_that_is_overfull_has_no_room() -> None:
    board = ClusterState({"a": slot("a", gpus=2)})
    board.take(board.slots["a"], {GPU: 3}, 1)
    assert board.slots["a"].room_for({GPU: 1}) == 0


def test_two_slots_of_one_name_are_an_error() -> None:
    board = ClusterState({"a": slot("a")})
    with pytest.raises(ValueError, match="is there already"):
        board.add(slot("a"))


def test_a_closed_slot_takes_nothing_until_that_is_undone() -> None:
    board = ClusterState({"a": slot("a")})
    mark = board.mark()
    board.close("a")
    board.close("not there")
    assert board.slots["a"].room_for({}) == 0
    board.close("a")
    board.undo(mark)
    assert board.slots["a"].room_for({}) == 10


def test_a_renamed_slot_makes_room_for_the_next_of_its_name() -> None:
    board = ClusterState()
    board.add(slot("new/0/0"))
    board.rename(board.slots["new/0/0"], "claim/x")
    mark = board.mark()
    board.add(slot("new/0/0"))
    board.undo(mark)
    assert list(board.slots) == ["claim/x"]
    assert board.slots["claim/x"].name == "claim/x"


Step = tuple[str, str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(("take", "add", "close")), st.sampled_from("abcdef"), st.integers(0, 3), st.integers(-2, 4)
    ),
    max_size=15,
)


@given(steps, steps)
def test_undo_restores_the_exact_state(kept: list[Step], undone: list[Step]) -> None:
    board = ClusterState({name: slot(name) for name in "abc"})
    _do(board, kept)
    before = {name: (it, _amounts(it)) for name, it in board.slots.items()}
    mark = board.mark()
    _do(board, undone)
    board.undo(mark)
    assert {name: (it, _amounts(it)) for name, it in board.slots.items()} == before
    assert board.mark() == mark


@given(steps)
def test_a_state_goes_back_to_its_beginning(done: list[Step]) -> None:
    board = ClusterState({name: slot(name) for name in "abc"})
    before = {name: (it, _amounts(it), it.changed) for name, it in board.slots.items()}
    version, seen = board.version, board.now()
    _do(board, done)
    changed = {it.name for it in board.touched(seen) or ()}
    seen = board.now()
    board.revert()
    assert {name: (it, _amounts(it), it.changed) for name, it in board.slots.items()} == before
    assert board.version == version
    assert {it.name for it in board.touched(seen) or ()} == changed, "whoever follows the state is told"


def test_who_has_looked_is_told_of_a_slot_that_changes_again() -> None:
    board = ClusterState({name: slot(name) for name in "ab"})
    first = board.now()
    for _ in range(3):
        board.take(board.slots["a"], {GPU: 1}, 1)
    assert [it.name for it in board.touched(first) or ()] == ["a"], "once, as nobody has looked meanwhile"
    later = board.now()
    board.take(board.slots["a"], {GPU: 1}, 1)
    board.take(board.slots["b"], {GPU: 1}, 1)
    assert [it.name for it in board.touched(later) or ()] == ["a", "b"]


def _amounts(it: NodeSlot) -> dict[str, int]:
    return {resource: amount for resource, amount in it.free.items() if amount}


def _do(board: ClusterState, moves: list[Step]) -> None:
    for what, name, gpus, count in moves:
        if what == "add" and name not in board.slots:
            board.add(slot(name))
        elif what == "close":
            board.close(name)
        elif name in board.slots:
            board.take(board.slots[name], {GPU: gpus, "cpu": 100}, count)


def test_the_state_is_the_same_again_after_an_undone_what_if() -> None:
    board = ClusterState()
    board.add(slot("a"))
    board.take(board.slots["a"], {GPU: 1}, 1)
    state, mark = board.version, board.mark()
    board.take(board.slots["a"], {GPU: 1}, 1)
    assert board.version != state
    board.undo(mark)
    assert board.version == state
    board.take(board.slots["a"], {GPU: 1}, 1)
    board.take(board.slots["a"], {GPU: 1}, -1)
    assert board.version != state, "that it stands as before is not noticed"


def test_what_cannot_be_undone_changes_the_state() -> None:
    board = ClusterState()
    board.add(slot("a"))
    before = board.version
    board.rename(board.slots["a"], "b")
    renamed = board.version
    assert renamed != before
    board.share(board.slots["b"])
    assert board.version != renamed
