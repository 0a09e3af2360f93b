"""What may stand on a machine so that the choice that `minValues` asks for is kept."""

from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fleet.offerings.min_values import flexible, most_on_one, shared_room, shared_rooms
from model.kinds import NodePool
from tests.support.fleets import FleetBuilder

LABEL = "family"


class FamilyMachine(NamedTuple):
    """A machine of a family."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, int]


def kind(family: str, cpu: int, memory: int = 8) -> FamilyMachine:
    return FamilyMachine({LABEL: family}, {"cpu": cpu, "memory": memory})


def pool(least: int = 2) -> NodePool:
    term = {"key": LABEL, "operator": "Exists", "minValues": least}
    return FleetBuilder().pool(requirements=[term]).build().node_pools["h100"]


def test_what_a_larger_one_holds_as_well_may_be_filled() -> None:
    small, large = kind("a", 4), kind("b", 8)
    assert shared_room(pool(), small, [small, large]) == small.allocatable
    assert shared_room(pool(), large, [small, large]) == {"cpu": 4, "memory": 8}


def test_the_others_are_those_that_lose_least() -> None:
    own, near, far = kind("a", 8), kind("b", 7), kind("c", 2)
    assert shared_room(pool(), own, [own, far, near]) == {"cpu": 7, "memory": 8}
    assert shared_room(pool(3), own, [own, far, near]) == {"cpu": 2, "memory": 8}


class CountedMachine(FamilyMachine):
    """A machine that counts how often it is asked what it holds."""

    asked = 0

    def __getattribute__(self, name: str) -> object:
        if name == "allocatable":
            CountedMachine.asked += 1
        return super().__getattribute__(name)


def test_equal_machines_of_many_zones_are_asked_once() -> None:
    """A pool of any machine has thousands of offers; each beside each took a minute to validate."""
    made = [
        CountedMachine({LABEL: f"f{n % 40}"}, {"cpu": 2 + n % 40, "memory": 8}) for _ in range(50) for n in range(40)
    ]
    assert set(map(str, shared_rooms(pool(), made))) == {str(shared_room(pool(), it, made)) for it in made[:40]}
    CountedMachine.asked = 0
    shared_rooms(pool(), made)
    assert CountedMachine.asked < 5 * len(made)


def test_where_there_are_too_few_nothing_may_be_filled() -> None:
    assert shared_room(pool(3), kind("a", 8), [kind("b", 8)]) == {}
    assert not flexible(pool(3), [kind("a", 8), kind("b", 8)])


def test_a_machine_without_the_label_has_no_value_of_it() -> None:
    assert not flexible(pool(), [kind("a", 8), FamilyMachine({}, {"cpu": 8})])


def test_so_many_pods_that_enough_others_hold_as_many() -> None:
    fits = [(kind("a", 8), 8), (kind("b", 4), 4), (kind("c", 1), 1)]
    assert [most_on_one(pool(least), fits, 10) for least in (1, 2, 3, 4)] == [8, 4, 1, 0]
    assert most_on_one(pool(2), fits, 3) == 3


@given(
    st.lists(st.builds(kind, st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(1, 4),
)
def test_whatever_fits_the_room_fits_enough_kinds(kinds: list[FamilyMachine], least: int) -> None:
    asked = pool(least)
    for own in kinds:
        room = shared_room(asked, own, kinds)
        if room:
            assert flexible(asked, [it for it in kinds if all(it.allocatable[r] >= room[r] for r in room)])
            assert all(amount <= own.allocatable[name] for name, amount in room.items())
