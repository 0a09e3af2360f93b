"""For whom a machine is kept that was bought to move gangs."""

from dataclasses import replace

import pytest

from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.place import place_gang
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason
from fleet.snapshot import Gang
from fleet.snapshot.gangs import Eviction
from fleet.snapshot.lookups import holders
from tests.support.disruption import standing
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        pytest.param(Reason.DRIFTED, True, id="it left the machine that this one replaces"),
        pytest.param(Reason.PREEMPTED, False, id="it made room for a gang of its queue"),
        pytest.param(Reason.RECLAIMED, False, id="it made room for a team that took its guarantee back"),
    ],
)
def test_a_machine_is_kept_for_the_gang_it_was_bought_to_move_unless_that_gave_way(reason: Reason, kept: bool) -> None:
    """Kept for a gang that was preempted, the room would help neither: the victim came back, and so without end."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g")
    waiting = replace(gang("g"), eviction=Eviction(reason, "x", NOW - 1))
    world.gangs = {**world.gangs, waiting.uid: waiting}
    state = build_cluster_state(world.snapshot(), ())
    assert state.slots["node-new"].only_for == (frozenset({"uid-g"}) if kept else frozenset())


@pytest.mark.parametrize(("began_s", "kept"), [(-9000.0, True), (60.0, False)])
def test_a_machine_is_kept_for_the_move_it_was_bought_for_and_no_later_one(began_s: float, kept: bool) -> None:
    """Found by the fuzzer: it shut out a gang that moved together with it later, and a machine more was bought."""
    world = standing(1)
    world.machine("new", replaces=("m0",), gang="uid-g")
    ready_s = world.claims["new"].ready_at_s
    left = Eviction(Reason.DRIFTED, "x", NOW - 1, admitted_at_s=ready_s + began_s)
    waiting = replace(gang("g"), eviction=left, since_s=NOW - 1)
    world.gangs = {**world.gangs, waiting.uid: waiting}
    state = build_cluster_state(world.snapshot(), ())
    assert state.slots["node-new"].only_for == (frozenset({"uid-g"}) if kept else frozenset())


def test_a_gang_moves_to_what_was_bought_for_it_though_it_would_fit_better_elsewhere() -> None:
    """Beside others it might stand on the next machine to go: it was moved twice, and a machine too many was bought."""
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("fuller")
    world.runs(gang("other", gpu=4), ("fuller", 1))
    world.machine("new", replaces=("gone",), gang="uid-g")
    waiting = replace(gang("g", gpu=4), eviction=Eviction(Reason.DRIFTED, "x", NOW - 1))
    world.gangs = {**world.gangs, waiting.uid: waiting}
    assert places(world, waiting) == {"new": 1}
    assert places(world, replace(waiting, uid="uid-z")) == {"fuller": 1}


@pytest.mark.parametrize("shared", ["a", "b"])
def test_what_was_bought_for_it_alone_is_filled_before_what_others_move_to_as_well(shared: str) -> None:
    """Else it could take the place of the other, for whom a machine more was bought."""
    world = World(FleetBuilder().pool().team().queue().build())
    for name in ("a", "b"):
        world.machine(name, replaces=("gone",), gang="uid-g", also_for=("uid-h",) if name == shared else ())
    for name, count in (("g", 3), ("h", 1)):
        waiting = replace(gang(name, count=count, gpu=4), eviction=Eviction(Reason.DRIFTED, "x", NOW - 1))
        world.gangs = {**world.gangs, waiting.uid: waiting}
    alone = "b" if shared == "a" else "a"
    assert places(world, world.gangs["uid-g"]) == {alone: 2, shared: 1}


def places(world: World, waiting: Gang) -> dict[str, int]:
    """Where a gang is placed: claim -> pods."""
    snapshot = world.snapshot()
    state, capacity = build_cluster_state(snapshot, holders(snapshot)), build_capacity(world.fleet, snapshot)
    flavors = FleetFlavors(world.fleet, capacity.offerings, state)
    plan = place_gang(state, capacity, waiting.uid, [flavors.need(pods, ("h100",)) for pods in waiting.pod_sets])
    assert isinstance(plan, PlacementPlan)
    return {it.slot.claim: it.count for it in plan.assignments}
