"""Pods that follow others onto their machine: one or several leaders of a gang, room for all, and what is refused."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.placement.cluster_state import NodeSlot
from fleet.placement.followers import place_company
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Refusal
from fleet.snapshot import Node, PodSet
from fleet.snapshot.constraints import PodConstraints, PodHostPort
from tests.fleet.placement.test_constrained import HOST, other, pods, term, world
from tests.fleet.placement.test_place import PlacementRig, rig
from tests.support.checker import before, faults
from tests.support.fleets import A, amounts
from tests.support.scheduler_judge import refused

APART = (term(HOST, "leader"),)


def leaders(count: int = 1, gpu: int = 1, *, apart: bool = False, name: str = "leader") -> PodSet:
    return pods(PodConstraints(anti_affinity=APART if apart else ()), count, gpu, name, "leader")


def followers(count: int, gpu: int = 1, *, of: str = "leader", name: str = "worker", apart: bool = False) -> PodSet:
    alike = (term(HOST, name),) if apart else ()
    return pods(PodConstraints(affinity=(term(HOST, of),), anti_affinity=alike), count, gpu, name, name)


def ask(made: PlacementRig, *sets: PodSet) -> PlacementPlan | Refusal:
    """What is found; a refusal leaves everything as it was."""
    needs = [made.need(it) for it in sets]
    standing = before(made.board)
    found = place_company(made.board, made.supply, "uid-g", needs)
    if isinstance(found, Refusal):
        assert before(made.board) == standing
    else:
        assert faults(found, needs, standing, "uid-g") == []
    return found


def stands(found: PlacementPlan | Refusal) -> dict[str, list[tuple[str, int]]]:
    """Machine -> (pod set, pods) on it."""
    assert isinstance(found, PlacementPlan), found
    machines: dict[str, list[tuple[str, int]]] = {}
    for it in found.assignments:
        machines.setdefault(it.slot.claim if it.slot.node else it.slot.name, []).append((it.pod_set, it.count))
    return {name: sorted(there) for name, there in machines.items()}


def with_free(**gpus: int) -> PlacementRig:
    """Machines of eight GPUs with so many of them free."""
    made = world(*((name, A) for name in gpus))
    for name, free in gpus.items():
        made.stands(other(f"p-{name}", made.claims[name].node, amounts(8 - free)))
    return rig(made, may_buy=False)


def test_a_leader_goes_where_its_followers_have_room() -> None:
    """By itself it would go to the machine with a single free GPU."""
    found = ask(with_free(m0=1, m1=4), followers(3), leaders())
    assert stands(found) == {"m1": [("leader", 1), ("worker", 3)]}


@pytest.mark.parametrize(
    ("free", "sets", "expected"),
    [
        pytest.param(
            {"m0": 4, "m1": 4},
            (leaders(2, apart=True), followers(6)),
            {"m0": [("leader", 1), ("worker", 3)], "m1": [("leader", 1), ("worker", 3)]},
            id="evenly",
        ),
        pytest.param(
            {"m0": 1, "m1": 7},
            (leaders(2, apart=True), followers(6)),
            {"m0": [("leader", 1)], "m1": [("leader", 1), ("worker", 6)]},
            id="all beside one",
        ),
        pytest.param(
            {"m0": 2, "m1": 3, "m2": 6},
            (leaders(3, apart=True), followers(8)),
            {
                "m0": [("leader", 1), ("worker", 1)],
                "m1": [("leader", 1), ("worker", 2)],
                "m2": [("leader", 1), ("worker", 5)],
            },
            id="as there is room",
        ),
        pytest.param(
            {"m0": 3, "m1": 3, "m2": 8},
            (leaders(2, apart=True), followers(2, 2, apart=True)),
            {"m0": [("leader", 1), ("worker", 1)], "m1": [("leader", 1), ("worker", 1)]},
            id="each beside its own",
        ),
        pytest.param(
            {"m0": 2, "m1": 6},
            (leaders(), followers(3, of="leader"), followers(2, of="worker", name="helper")),
            {"m1": [("helper", 2), ("leader", 1), ("worker", 3)]},
            id="followers of followers",
        ),
        pytest.param(
            {"m0": 2, "m1": 5},
            (leaders(), followers(2), followers(2, name="helper")),
            {"m1": [("helper", 2), ("leader", 1), ("worker", 2)]},
            id="two sets of followers",
        ),
        pytest.param(
            {"m0": 4, "m1": 5},
            (leaders(1, 2, name="a"), leaders(1, 1, name="b"), followers(5)),
            {"m0": [("b", 1), ("worker", 2)], "m1": [("a", 1), ("worker", 3)]},
            id="leaders of two sets",
        ),
        pytest.param(
            {"m0": 3, "m1": 6},
            (
                pods(PodConstraints(affinity=(term(HOST, "x"),)), 3, 1, "one"),
                pods(PodConstraints(affinity=(term(HOST, "x"),)), 3, 1, "two"),
            ),
            {"m1": [("one", 3), ("two", 3)]},
            id="two sets that gather",
        ),
    ],
)
def test_who_stands_beside_whom(
    free: dict[str, int], sets: tuple[PodSet, ...], expected: dict[str, list[tuple[str, int]]]
) -> None:
    assert stands(ask(with_free(**free), *sets)) == expected


def test_one_machine_is_bought_for_a_leader_and_its_followers() -> None:
    found = ask(rig(world()), followers(4), leaders(gpu=2))
    assert stands(found) == {"new/0/0": [("leader", 1), ("worker", 4)]}


def test_what_leaders_and_followers_need_is_bought_where_it_costs_least() -> None:
    """Nine GPUs do not fit on one machine: two are bought, a leader on each."""
    found = ask(rig(world()), followers(6), leaders(3))
    machines = stands(found)
    assert sum(count for there in machines.values() for _, count in there) == 9
    assert len(machines) == 2
    assert all(there[0][0] == "leader" for there in machines.values())


def test_a_port_of_a_follower_keeps_it_off_a_machine() -> None:
    made = world(("m0", A), ("m1", A))
    port = PodConstraints(affinity=(term(HOST, "leader"),), host_ports=(PodHostPort(80),))
    taken = PodConstraints(host_ports=(PodHostPort(80),))
    made.stands(other("p", made.claims["m0"].node, {}, constraints=taken))
    found = ask(rig(made, may_buy=False), leaders(), pods(port, 1, 1, "worker", "worker"))
    assert set(stands(found)) == {"m1"}


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (
            (leaders(), followers(8)),
            "spec.affinity.podAffinity keeps pods of worker on machines of leader, and none found have room for all",
        ),
        (
            (followers(1, of="b", name="a"), followers(1, of="a", name="b")),
            "spec.affinity.podAffinity: pods of a and b wait for each other",
        ),
        (
            (followers(1), leaders(name="other", gpu=8)),
            "spec.affinity.podAffinity keeps pods of worker on machines of other, and none found have room for all",
        ),
        (
            (followers(1, of="somebody"),),
            "spec.affinity.podAffinity keeps pods of worker on machines of pods that are not of this gang",
        ),
    ],
    ids=["no room", "a circle", "no room beside it", "nobody there"],
)
def test_the_refusal_names_the_field(sets: tuple[PodSet, ...], words: str) -> None:
    found = ask(rig(world(("m0", A))), *sets)
    assert isinstance(found, Refusal)
    assert words in found.message


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_a_place_is_found_wherever_there_is_one(free: list[int], leading: int, following: int, gpus: int) -> None:
    """Leaders keep apart, so that each takes a machine; the roomiest ones hold the most followers."""
    made = with_free(**{f"m{n}": gpus for n, gpus in enumerate(free)})
    sets = leaders(leading, apart=True), followers(following, gpus)
    found = ask(made, *sets)
    rooms = sorted(((left - 1) // gpus for left in free if left), reverse=True)
    assert isinstance(found, PlacementPlan) == (len(rooms) >= leading and sum(rooms[:leading]) >= following)


KINDS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.sampled_from(["leader", "s0", "s1"]))


@given(st.integers(1, 3), st.booleans(), st.lists(KINDS, min_size=1, max_size=2), st.lists(st.integers(0, 8)))
def test_the_judge_accepts_whatever_is_found(
    leading: int, apart: bool, following: list[tuple[int, int, bool, str]], free: list[int]
) -> None:
    """The simulated scheduler binds the pods where the plan has them, on machines that stand and on new ones."""
    made = with_free(**{f"m{n}": gpus for n, gpus in enumerate(free[:4])})
    made.supply.may_buy = True
    more = [
        followers(count, gpus, of=of, name=f"s{n}", apart=alone) for n, (count, gpus, alone, of) in enumerate(following)
    ]
    sets = {it.name: it for it in (leaders(leading, apart=apart), *more)}
    found = ask(made, *sets.values())
    if isinstance(found, PlacementPlan):
        taken: dict[NodeSlot, Counter[str]] = {it.slot: Counter(it.slot.free) for it in found.assignments}
        stands = [(sets[it.pod_set], it.slot) for it in found.assignments for _ in range(it.count)]
        for pod, slot in stands:
            taken[slot].update({"pods": 1, **pod.requests})
        nodes = {slot.name.replace("/", "-"): slot for slot in taken}
        judged = {name: node(slot, name, taken[slot]) for name, slot in nodes.items()}
        assert refused(judged, [(pod, slot.name.replace("/", "-")) for pod, slot in stands]) == []


def node(slot: NodeSlot, name: str, allocatable: Mapping[str, int]) -> Node:
    """A slot as the node it is, or will be, without the pods of the plan."""
    carried = {**slot.labels, HOST: name}
    return Node(name, name, "", carried, (), allocatable, ready=True, unschedulable=False, created_at_s=0.0)
