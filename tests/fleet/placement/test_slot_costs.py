"""Places by price: what closes a pod set goes where it costs least, and so does what fills some of many equals."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.cluster_state import PODS, ClusterState, NodeSlot
from fleet.placement.free_capacity import FreeCapacity, SlotCost, assign, free_capacity
from fleet.snapshot import PodSet
from model.quantity import Resources
from tests.support.fleets import GPU

ONE = PodSet("main", 1, {GPU: 1})


def board_of(free: Mapping[str, int]) -> ClusterState:
    board = ClusterState()
    for name, gpus in free.items():
        board.add(NodeSlot(name, name, "", {}, (), {GPU: gpus, "pods": 100}, pods_when_empty=100))
    return board


def placed(board: ClusterState, price: SlotCost, count: int) -> dict[str, int]:
    """Slot -> pods, in the order of the seats; they stay there."""
    return {taken.slot.name: taken.count for taken in assign(board, scope(board, price), ONE, count)}


def scope(board: ClusterState, price: SlotCost) -> FreeCapacity:
    return free_capacity(board, "any", ONE.requests, priced=lambda _requests: price).among()


def priced(losses: Mapping[str, int], kept: str = "") -> SlotCost:
    """A price by the slot's name, for any count; those in `kept` are kept empty."""
    return lambda slot, _count: (slot.name in kept, losses.get(slot.name, 0))


@pytest.mark.parametrize(
    ("free", "losses", "kept", "count", "seats"),
    [
        ({"a": 1, "b": 8}, {"a": 5}, "", 1, {"b": 1}),
        ({"a": 1, "b": 8}, {"a": 5, "b": 5}, "", 1, {"a": 1}),
        ({"a": 1, "b": 8}, {"b": -1}, "", 1, {"b": 1}),
        ({"b": 4, "a": 4}, {}, "", 1, {"a": 1}),
        ({"a": 1, "b": 8}, {"b": 900}, "a", 1, {"b": 1}),
        ({"a": 1, "b": 8}, {"b": 900}, "ab", 1, {"a": 1}),
        ({"a": 2, "b": 4, "c": 8}, {"b": -1}, "", 10, {"c": 8, "b": 2}),
        ({"a": 1, "b": 4, "c": 8}, {"a": -1}, "", 10, {"c": 8, "b": 2}),
        ({"a": 8, "b": 8, "c": 8}, {"a": 2, "c": 1}, "", 12, {"b": 8, "c": 4}),
        ({"a": 8, "b": 8, "c": 8}, {"a": -2}, "", 12, {"a": 8, "b": 4}),
        ({"a": 8, "b": 8, "c": 8}, {"b": 1}, "a", 16, {"c": 8, "b": 8}),
        ({"a": 8, "b": 9, "c": 9}, {"c": -1}, "", 26, {"b": 9, "c": 9, "a": 8}),
        ({"a": 1, "b": 1}, {"a": 1}, "", 5, {"a": 1, "b": 1}),
        ({"a": 4}, {}, "", 0, {}),
    ],
    ids=[
        "least loss before least room", "least room before name", "a gain is best", "name ends it",
        "kept empty before loss", "kept like all others", "closing where it costs least", "closing where it fits",
        "equals filled by price", "not twice to the same", "equals kept empty last", "all of a room are filled",
        "not all fit", "nobody",
    ],
)  # fmt: skip
def test_seats(free: dict[str, int], losses: dict[str, int], kept: str, count: int, seats: dict[str, int]) -> None:
    found = placed(board_of(free), priced(losses, kept), count)
    assert list(found.items()) == list(seats.items())


# -- whatever is on the board -----------------------------------------------------------------------------------------


def by_what_is_left(slot: NodeSlot, count: int) -> tuple[bool, int]:
    """A price that changes with what stands on the slot, in no orderly way."""
    left = slot.free.get(GPU, 0) - count
    return slot.empty and slot.name < "n3", (7 * left * left + 3 * left) % 5 - 1


def plainly(slots: Sequence[NodeSlot], price: SlotCost, count: int) -> list[tuple[str, int]]:
    """The rule of 0003 as it is written down, by looking at every slot again and again."""
    free, found = {slot.name: slot for slot in slots if slot.room_for(ONE.requests)}, []
    while count > 0 and free:
        rooms = {name: slot.room_for(ONE.requests) for name, slot in free.items()}
        part = min(count, max(rooms.values()))
        fitting = [name for name, room in rooms.items() if room >= part]
        chosen = min(fitting, key=lambda name: (*price(free[name], part), rooms[name], name))
        found.append((chosen, part))
        del free[chosen]
        count -= part
    return found


frees = st.dictionaries(st.sampled_from([f"n{i}" for i in range(8)]), st.integers(0, 5), min_size=1)
counts = st.lists(st.integers(1, 9), max_size=8)


@settings(max_examples=200)
@given(frees, counts, st.data())
def test_it_is_the_rule_as_written_whatever_happened_before(
    free: dict[str, int], asked: list[int], data: st.DataObject
) -> None:
    board = board_of(free)
    for count in asked:
        expected = plainly(list(board.slots.values()), by_what_is_left, count)
        before, mark = {name: dict(slot.free) for name, slot in board.slots.items()}, board.mark()
        assert sorted(placed(board, by_what_is_left, count).items()) == sorted(expected)
        assert all(slot.free[GPU] >= 0 for slot in board.slots.values())
        if data.draw(st.booleans()):
            board.undo(mark)
            assert {name: slot.free for name, slot in board.slots.items()} == before
            assert placed(board, by_what_is_left, count) == dict(expected)


@given(frees, counts, st.randoms(use_true_random=False))
def test_the_order_of_the_slots_changes_nothing(free: dict[str, int], asked: list[int], rng: object) -> None:
    mixed = list(free.items())
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    one, other = board_of(free), board_of(dict(mixed))
    for count in asked:
        assert list(placed(one, by_what_is_left, count).items()) == list(placed(other, by_what_is_left, count).items())


def keeps_empty(slot: NodeSlot, _count: int) -> tuple[bool, int]:
    return slot.empty, -slot.free[GPU]


@given(frees, st.lists(st.integers(1, 3), max_size=8))
def test_no_machine_is_begun_for_what_a_used_one_holds(free: dict[str, int], asked: list[int]) -> None:
    board = board_of(free)
    for count in asked:
        used = [slot for slot in board.slots.values() if not slot.empty and slot.free[GPU] >= count]
        roomiest = max(slot.free[GPU] for slot in board.slots.values())
        before = {slot.name: slot.empty for slot in board.slots.values()}
        found = placed(board, keeps_empty, count)
        if used and count <= roomiest:
            assert [before[name] for name in found] == [False]


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_only_what_changed_is_priced_again() -> None:
    board, asked = board_of({f"n{i}": 8 for i in range(9)}), []

    def price(slot: NodeSlot, _count: int) -> tuple[bool, int]:
        asked.append(slot.name)
        return False, 0

    placed(board, price, 1)
    assert sorted(asked) == sorted(board.slots)
    asked.clear()
    assert placed(board, price, 1) == {"n0": 1}
    assert asked == ["n0"]
    asked.clear()
    mark = board.mark()
    board.take(board.slots["n5"], ONE.requests, 8)
    board.undo(mark)
    board.take(board.slots["n7"], {"cpu": 1}, 1)  # its room stays the same, its worth may not
    placed(board, price, 1)
    assert sorted(asked) == ["n0", "n7"]


@pytest.mark.parametrize("parts", [3, 40])
def test_orders_make_way_and_say_the_same(parts: int) -> None:
    board = board_of({f"n{i:02}": 1 + i % 45 for i in range(90)})
    for count in [*range(1, parts), *range(1, parts)]:
        mark = board.mark()
        expected = plainly(list(board.slots.values()), by_what_is_left, count)
        assert list(placed(board, by_what_is_left, count).items()) == expected
        board.undo(mark)


def test_renamed_and_shared_slots_are_found_by_what_they_are_now() -> None:
    board = board_of({"a": 4, "b": 4})
    assert placed(board, priced({}), 1) == {"a": 1}
    board.rename(board.slots["a"], "z")
    assert placed(board, priced({"b": 3}), 1) == {"z": 1}
    board.share(board.slots["z"])
    assert board.slots["z"].node == ""
    standing = free_capacity(board, "any", ONE.requests).among(standing=True)
    assert [taken.slot.name for taken in assign(board, standing, ONE, 1)] == ["b"]


@pytest.mark.parametrize(("when_empty", "free", "empty"), [(None, 9, False), (9, 9, True), (9, 8, False), (0, 0, True)])
def test_empty(when_empty: int | None, free: int, empty: bool) -> None:
    room: Resources = {PODS: free}
    assert NodeSlot("n", "n", "", {}, (), dict(room), pods_when_empty=when_empty).empty is empty
