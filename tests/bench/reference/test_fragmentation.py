"""Fragmentation: the worth of what is free by hand, and a packer that keeps it up to date."""

from collections.abc import Mapping, Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.reference import packer as packer_module
from bench.reference.fragmentation import ExpectedFill, Request
from bench.reference.packer import FreeNode, NoRoom, PackedPlace, Packer, models, states_of

HALF, FIFTH = Request(0, 0, 1, 500), Request(0, 0, 1, 200)
ONE, TWO, EIGHT = Request(0, 0, 1), Request(0, 0, 2), Request(0, 0, 8)
ONE_OF_A, ONE_OF_BOTH = Request(0, 0, 1, models=("a",)), Request(0, 0, 1, models=("a", "b"))
THREE_TENTHS = Request(0, 0, 1, 300)
PLENTY = 1_000_000
Y, ALL_OF_X = PackedPlace("y"), PackedPlace("x", tuple(range(8)))


def node(name: str, *devices: int, cpu: int = PLENTY, memory: int = PLENTY, model: str = "a") -> FreeNode:
    return FreeNode(name, cpu, memory, devices, model)


# -- the measure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "machine", "worth"),
    [
        # With a horizon of one the run goes on with a chance of 1/2 wherever all requests fit.
        ({HALF: 1}, node("n", 499), 0),
        ({HALF: 1}, node("n", 500), 250_000),
        ({HALF: 1}, node("n", 999), 250_000),
        ({HALF: 1}, node("n", 1000), 375_000),
        ({HALF: 3}, node("n", 1000, 500), 625_000),
        ({ONE: 1}, node("n", 999, 1000), 500_000),
        # Half of the requests fit: the end comes first with a chance of 1 / (1/2 + 1).
        ({HALF: 1, ONE: 1}, node("n", 500), 166_667),
        ({HALF: 1, ONE: 1}, node("n", 1000), 416_667),
        # Two devices are one to a request for two, and its part of the mix weighs it.
        ({TWO: 1}, node("n", 1000), 0),
        ({TWO: 1}, node("n", 1000, 1000, 1000), 1_000_000),
        ({TWO: 1}, node("n", 1000, 999, 1000, 1000, 1000), 2_000_000),
        ({TWO: 1, ONE: 1}, node("n", 1000, 1000), 2 * 166_667 + 333_333),
        # What lacks CPU or memory is worth as much less as it lacks; the scarcer one counts.
        ({Request(4000, 0, 1): 1}, node("n", 1000, 1000, cpu=4000), 1_000_000),
        ({Request(4000, 0, 1): 1}, node("n", 1000, 1000, cpu=1000), 250_000),
        ({Request(0, 4000, 1): 1}, node("n", 1000, 1000, memory=1000), 250_000),
        ({Request(4000, 4000, 1): 1}, node("n", 1000, 1000, cpu=1000, memory=2000), 250_000),
        ({Request(4000, 4000, 2): 1}, node("n", 1000, 1000, 1000, 1000, cpu=7999), 1_000_000),
        ({Request(4000, 4000, 2): 1}, node("n", 1000, 1000, 1000, 1000, memory=3999), 0),
        # Requests without GPUs say nothing; those for other models are part of the mix and cannot come here.
        ({Request(9000, 9000): 7, ONE: 1}, node("n", 1000), 500_000),
        ({ONE_OF_A: 1}, node("n", 1000, model="b"), 0),
        ({ONE_OF_BOTH: 1, ONE_OF_A: 1}, node("n", 1000), 500_000),
        ({ONE_OF_BOTH: 1, ONE_OF_A: 1}, node("n", 1000, model="b"), 166_667),
        ({Request(0, 0, 2, models=("b",)): 1, ONE: 1}, node("n", 1000, 1000), 333_333),
        ({}, node("n", 1000), 0),
        ({ONE: 1}, node("n"), 0),
    ],
)  # fmt: skip
def test_worth(mix: Mapping[Request, int], machine: FreeNode, worth: int) -> None:
    measure = ExpectedFill(mix, ("a", "b"), horizon=1)
    assert measure.worth(states_of([machine], measure)).tolist() == [pytest.approx(worth, abs=3)]


@pytest.mark.parametrize(
    "wrong",
    [
        (-1, 0, 1, 1000), (0, -1, 1, 1000), (0, 0, -1, 1000), (0, 0, 1, 0), (0, 0, 1, 1001), (0, 0, 2, 500),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError):
        Request(*wrong)


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mix", "nodes", "asked", "place"),
    [
        # A gap that little else fits goes first, an empty device last.
        ({HALF: 1, FIFTH: 1}, [node("x", 1000), node("y", 500), node("z", 300)], FIFTH, PackedPlace("z", (0,))),
        ({HALF: 1, FIFTH: 1}, [node("x", 1000, 200), node("y", 500)], FIFTH, PackedPlace("x", (1,))),
        # What leaves a remainder of use beats a tighter fit that leaves one of none.
        ({THREE_TENTHS: 1}, [node("x", 600), node("y", 500)], FIFTH, PackedPlace("y", (0,))),
        ({HALF: 1, THREE_TENTHS: 1}, [node("x", 500), node("y", 600)], THREE_TENTHS, PackedPlace("y", (0,))),
        # A whole node is kept for those who need all of it.
        ({ONE: 8, EIGHT: 1}, [node("x", *[1000] * 8), node("y", *[1000] * 7)], ONE, PackedPlace("y", (0,))),
        ({ONE: 8, EIGHT: 1}, [node("x", *[1000] * 8), node("y", *[1000] * 7)], EIGHT, ALL_OF_X),
        # GPUs keep the CPU and the memory they need.
        ({Request(8, 8, 1): 1}, [node("x", 1000, cpu=8), node("y", 1000, cpu=16)], Request(8, 0), Y),
        ({Request(8, 8, 1): 1}, [node("x", 1000, memory=8), node("y", 1000, memory=16)], Request(0, 8), Y),
        ({Request(8, 8, 1): 1}, [node("x", 1000, cpu=8), node("y", cpu=8, model="")], Request(8, 0), Y),
        # Where nothing but one kind can run, that kind goes.
        ({ONE_OF_A: 9, ONE: 1}, [node("x", 1000), node("y", 1000, model="b")], ONE, PackedPlace("y", (0,))),
        # Equals: the lowest name, the fullest device, the lowest index.
        ({HALF: 1}, [node("y", 1000), node("x", 1000)], HALF, PackedPlace("x", (0,))),
        ({}, [node("x", 1000, 500, 500)], HALF, PackedPlace("x", (1,))),
        ({}, [node("x", 1000, 0, 1000, 1000)], TWO, PackedPlace("x", (0, 2))),
        # Nowhere.
        ({}, [node("x", 400, 400, 400)], HALF, None),
        ({}, [node("x", 1000, 999)], TWO, None),
        ({}, [node("x", 1000, cpu=7), node("y", 1000, memory=7)], Request(8, 8, 1), None),
        ({}, [node("x", 1000)], Request(0, 0, 1, models=("b",)), None),
        ({}, [node("x")], Request(0, 0, 0, models=("b",)), PackedPlace("x")),
        ({}, [node("x")], ONE, None),
        ({}, [node("x")], HALF, None),
        ({}, [], ONE, None),
    ],
)  # fmt: skip
def test_choose(mix: Mapping[Request, int], nodes: list[FreeNode], asked: Request, place: PackedPlace | None) -> None:
    packer = Packer(nodes, ExpectedFill(mix, models(nodes)))
    assert packer.choose(asked) == place
    assert packer.choose(asked) == place


def test_take_and_give() -> None:
    packer = Packer([node("x", 1000, 700, cpu=8, memory=8)], ExpectedFill({}, ["a"]))
    packer.take(Request(3, 2, 1, 600), PackedPlace("x", (1,)))
    assert packer.machines() == [FreeNode("x", 5, 6, (1000, 100), "a")]
    packer.give(Request(3, 2, 1, 600), PackedPlace("x", (1,)))
    assert packer.machines() == [FreeNode("x", 8, 8, (1000, 700), "a")]


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        (HALF, PackedPlace("x", (1,))),
        (HALF, PackedPlace("y", (0,))),
        (HALF, PackedPlace("x")),
        (HALF, PackedPlace("x", (2,))),
        (HALF, PackedPlace("x", (-1,))),
        (TWO, PackedPlace("x", (0, 0))),
        (Request(9, 0), PackedPlace("x")),
        (Request(0, 9), PackedPlace("x")),
        (Request(0, 0, 1, models=("b",)), PackedPlace("x", (0,))),
    ],
)
def test_what_cannot_be_taken_changes_nothing(asked: Request, place: PackedPlace) -> None:
    packer = Packer([node("x", 1000, 400, cpu=8, memory=8)], ExpectedFill({}, ["a"]))
    with pytest.raises(NoRoom):
        packer.take(asked, place)
    assert packer.machines() == [node("x", 1000, 400, cpu=8, memory=8)]


def test_what_was_never_taken_cannot_be_given_back() -> None:
    packer = Packer([node("x", 1000)], ExpectedFill({}, ["a"]))
    with pytest.raises(NoRoom):
        packer.give(HALF, PackedPlace("x", (0,)))


@pytest.mark.parametrize("nodes", [[node("x"), node("x")], [node("x", model="b")]], ids=["twice", "strange"])
def test_nodes_that_make_no_sense(nodes: list[FreeNode]) -> None:
    with pytest.raises(ValueError):
        Packer(nodes, ExpectedFill({}, ["a"]))


# -- invariants -------------------------------------------------------------------------------------------------------

MIXES: tuple[dict[Request, int], ...] = (
    {},
    {HALF: 2, FIFTH: 1, ONE: 3},
    {Request(3, 4, 1, 800): 5, Request(11, 20, 1): 9, Request(20, 30, 2): 2, Request(4, 8, 1, 150, ("b",)): 1},
)
machines = st.lists(
    st.builds(
        FreeNode,
        st.just(""),
        st.integers(0, 60),
        st.integers(0, 60),
        st.lists(st.sampled_from([0, 150, 190, 500, 1000, 1000]), max_size=4).map(tuple),
        st.sampled_from(["a", "b"]),
    ),
    max_size=6,
).map(lambda found: [FreeNode(f"n{at}", *_free(it)) for at, it in enumerate(found)])
cpu_and_memory = st.sampled_from([0, 3, 11])
requests = st.one_of(
    st.builds(Request, cpu_and_memory, cpu_and_memory, st.just(1), st.sampled_from([50, 150, 200, 500, 800])),
    st.builds(Request, cpu_and_memory, cpu_and_memory, st.integers(0, 3), models=st.sampled_from([(), ("b",)])),
)


def _free(machine: FreeNode) -> tuple[int, int, tuple[int, ...], str]:
    return machine.cpu_milli, machine.memory_mib, machine.devices, machine.model


@cache
def measure_of(mix: int) -> ExpectedFill:
    return ExpectedFill(MIXES[mix], ("a", "b"))


def fill(packer: Packer, asked: Sequence[Request]) -> list[tuple[Request, PackedPlace]]:
    taken = []
    for request in asked:
        if (place := packer.choose(request)) is not None:
            packer.take(request, place)
            taken.append((request, place))
    return taken


@given(machines, st.lists(st.tuples(requests, st.booleans()), max_size=15), st.sampled_from(range(len(MIXES))))
def test_kept_up_to_date_is_as_good_as_made_anew(
    nodes: list[FreeNode], asked: list[tuple[Request, bool]], mix: int
) -> None:
    packer, taken = Packer(nodes, measure_of(mix)), []
    for request, gives in asked:
        place = packer.choose(request)
        fresh = Packer(packer.machines(), measure_of(mix))
        assert place == fresh.choose(request)
        assert packer.ranks(request).tolist() == fresh.ranks(request).tolist()
        if place is not None:
            packer.take(request, place)
            taken.append((request, place))
        if gives and taken:
            packer.give(*taken.pop(0))


@given(machines, st.lists(requests, max_size=15), st.lists(requests, max_size=5), st.sampled_from(range(len(MIXES))))
def test_undone_is_as_if_never_done(
    nodes: list[FreeNode], asked: list[Request], probes: list[Request], mix: int
) -> None:
    packer = Packer(nodes, measure_of(mix))
    before = packer.machines(), [packer.choose(probe) for probe in probes]
    for request, place in reversed(fill(packer, asked)):
        packer.give(request, place)
    assert (packer.machines(), [packer.choose(probe) for probe in probes]) == before


@given(st.data(), machines, st.lists(requests, max_size=15), st.sampled_from(range(len(MIXES))))
def test_the_order_in_which_nodes_are_told_changes_nothing(
    data: st.DataObject, nodes: list[FreeNode], asked: list[Request], mix: int
) -> None:
    shuffled = data.draw(st.permutations(nodes))
    assert fill(Packer(nodes, measure_of(mix)), asked) == fill(Packer(shuffled, measure_of(mix)), asked)


@given(machines, st.lists(requests, max_size=15))
def test_bounds_on_memory_change_nothing(nodes: list[FreeNode], asked: list[Request]) -> None:
    kept = fill(Packer(nodes, measure_of(2)), asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packer_module, "KEPT", 1)
        patch.setattr(packer_module, "_BLOCK", 2)
        assert fill(Packer(nodes, measure_of(2)), asked) == kept


@given(machines, st.lists(requests, max_size=15), st.sampled_from([0, 1]))
def test_what_is_left_is_never_worth_more_where_only_gpus_count(
    nodes: list[FreeNode], asked: list[Request], mix: int
) -> None:
    packer, measure = Packer(nodes, measure_of(mix)), measure_of(mix)
    worth = measure.worth(states_of(packer.machines(), measure))
    fill(packer, asked)
    assert (measure.worth(states_of(packer.machines(), measure)) <= worth).all()
