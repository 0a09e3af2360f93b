"""Machines with gangs on them: replaced first, moved whole, given back when it pays; and then nothing more happens."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.snapshot import GangState, Launch, NodeDisruption
from model.kinds import NEVER
from tests.support.fleets import NOW, P5, P5S, B, FleetBuilder, capacity_pool, foreign_pod, gang, pod_set
from tests.support.world import World

BOTH = [P5.name, P5S.name]
OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}]}


def decided(world: World) -> list[Action]:
    return world.disrupted()


def told(actions: list[Action]) -> dict[str, str]:
    return {
        it.claim.name: it.claim.disruption.reason for it in actions if isinstance(it, SaveClaim) and it.claim.disruption
    }


def opened(actions: list[Action]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(instance type, gang, replaces) of every claim asked for."""
    found = [claim for it in actions if isinstance(it, OpenClaims) for claim in it.claims]
    return [(claim.capacity_pool.instance_type, claim.gang, claim.replaces) for claim in found]


def declare(world: World, gpus: int = 64, **pool: Any) -> None:
    spec = {"disruption": OPEN, **pool}
    world.fleet = FleetBuilder().pool(**spec).team(quotas={"h100": {"nvidia.com/gpu": gpus}}).queue().build()


def standing(machines: int = 1, **pool: Any) -> World:
    world = World(FleetBuilder().build())
    declare(world, **pool)
    for n in range(machines):
        world.machine(f"m{n}")
    return world


CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}


# -- replaced first ---------------------------------------------------------------------------------------------------


def drifted(**pool: Any) -> World:
    """Two machines; a gang on `m0` alone, one on both; the template has changed since."""
    world = standing(2)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("narrow", gpu=4), ("m0", 1))
    declare(world, **{**CHANGED, **pool})
    return world


def test_machines_that_share_a_gang_are_replaced_together_in_one_launch_group() -> None:
    world = drifted()
    actions = decided(world)
    assert told(actions) == {}
    names = ("m0", "m1")
    assert opened(actions) == [(P5.name, "uid-narrow", names), (P5.name, "uid-wide", names)]
    launches = [claim.launch for it in actions if isinstance(it, OpenClaims) for claim in it.claims]
    assert len({it.group for it in launches}) == 1
    assert [(it.lot, it.size) for it in sorted(launches, key=lambda it: it.lot)] == [(0, 2), (1, 2)]


@pytest.mark.parametrize(
    ("pool", "change"),
    [
        pytest.param({"disruption": {"budgets": [{"nodes": 1}]}}, None, id="the budget lets one go, they go in twos"),
        pytest.param({"limits": {"nodes": 3}}, None, id="the limits let one more be bought"),
        pytest.param({}, {"do_not_disrupt": True}, id="one of the gangs must not be disturbed"),
        pytest.param({}, {"state": GangState.EVICTING}, id="one of the gangs leaves anyway"),
        pytest.param({}, {"flavors": {"main": ("gone",)}}, id="its flavor is no longer declared"),
    ],
)
def test_when_they_are_not_replaced(pool: dict[str, Any], change: dict[str, Any] | None) -> None:
    world = drifted(**pool)
    if change:
        world.gangs["uid-wide"] = replace(world.gang("wide"), **change)
    assert decided(world) == []


def test_a_pod_of_somebody_else_keeps_the_unit() -> None:
    world = drifted()
    world.stands(foreign_pod("x", "node-m1"))
    assert decided(world) == []


def test_no_replacement_can_be_had() -> None:
    world = drifted()
    world.shortages = {capacity_pool(): NOW + 60, capacity_pool(zone=B): NOW + 60}
    assert decided(world) == []


def test_a_busy_gang_is_not_moved() -> None:
    world = drifted()
    world.busy = frozenset({"gang/uid-wide"})
    assert decided(world) == []


def replaced(*ready: bool, **facts: Any) -> World:
    """The replacements of `m0` and `m1` in one launch group, each ready or on its way."""
    world = drifted()
    for n, done in enumerate(ready):
        stamps = {} if done else {"ready_at_s": 0.0}
        launch = Launch("replacements", n, 2)
        gang_uid = ("uid-narrow", "uid-wide")[n % 2]
        world.machine(f"r{n}", replaces=("m0", "m1"), gang=gang_uid, launch=launch, **{**stamps, **facts})
    return world


@pytest.mark.parametrize(
    ("ready", "facts", "goes", "buys"),
    [
        pytest.param((True, True), {}, True, 0, id="all ready: the old ones go"),
        pytest.param((True, False), {}, False, 0, id="one still on its way"),
        pytest.param((False, False), {}, False, 0, id="all on their way"),
        pytest.param(
            (False, False),
            {"disruption": NodeDisruption("InsufficientCapacityError", "x", NOW, NEVER)},
            False,
            2,
            id="all given up",
        ),
        pytest.param((False, False), {"deleting": True}, False, 2, id="all being deleted"),
        pytest.param((True,), {}, False, 1, id="one of the group was lost: what is missing is bought"),
    ],
)
def test_what_follows_from_replacements(ready: tuple[bool, ...], facts: dict[str, Any], goes: bool, buys: int) -> None:
    world = replaced(*ready, **facts)
    actions = decided(world)
    assert told(actions) == (dict.fromkeys(("m0", "m1"), "Drifted") if goes else {})
    assert len(opened(actions)) == buys


def test_two_units_in_one_pass_do_not_count_on_the_same_room() -> None:
    """Each gang alone would fit on the spare machine; only one of them does, the other's machine is bought."""
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    declare(world, **CHANGED, limits={"nodes": 4})
    world.machine("spare", emptied_at_s=NOW)
    actions = decided(world)
    assert told(actions) == {"m0": "Drifted"}
    assert opened(actions) == [(P5.name, "uid-b", ("m1",))]


def test_two_units_in_one_pass_keep_to_one_limit() -> None:
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    declare(world, **CHANGED, limits={"nodes": 3})
    assert opened(decided(world)) == [(P5.name, "uid-a", ("m0",))]


def test_expiry_insists_where_nothing_can_be_bought() -> None:
    world = standing(1, template={"expireAfter": "1h"}, limits={"nodes": 1}, disruption={"budgets": [{"nodes": 0}]})
    world.runs(gang("a"), ("m0", 1))
    assert told(decided(world)) == {"m0": "Expired"}


def test_expiry_replaces_first_where_it_can() -> None:
    world = standing(1, template={"expireAfter": "1h"}, disruption={"budgets": [{"nodes": 0}]})
    world.runs(gang("a"), ("m0", 1))
    assert opened(decided(world)) == [(P5.name, "uid-a", ("m0",))]


# -- consolidation ----------------------------------------------------------------------------------------------------

Change = Callable[[World], object]


def of_gang(**facts: Any) -> Change:
    return lambda world: world.gangs.update({"uid-g": replace(world.gang("g"), **facts)})


def small_on_large(**pool: Any) -> World:
    """A gang of one GPU alone on a machine of eight; the pool also buys machines with one. Runs for ten minutes."""
    world = standing(1, instanceTypes=BOTH, **pool)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    return world


@pytest.mark.parametrize(
    ("pool", "change", "moves"),
    [
        pytest.param({}, None, True, id="a cheaper machine does"),
        pytest.param({"disruption": {**OPEN, "consolidationPolicy": "WhenEmpty"}}, None, False, id="WhenEmpty"),
        pytest.param({"replicas": 1}, None, False, id="a fixed pool"),
        pytest.param({"disruption": {**OPEN, "consolidateAfter": "10m"}}, None, True, id="quiet for long enough"),
        pytest.param({"disruption": {**OPEN, "consolidateAfter": "11m"}}, None, False, id="not quiet for long enough"),
        pytest.param(
            {"disruption": {"budgets": [{"nodes": 0, "reasons": ["Underutilized"]}]}}, None, False, id="budget"
        ),
        pytest.param(
            {"disruption": {"budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}}, None, True, id="other budget"
        ),
        pytest.param({"limits": {"nodes": 1}}, None, False, id="no room to buy first"),
        pytest.param({}, of_gang(do_not_disrupt=True), False, id="must not be disturbed"),
        pytest.param({}, of_gang(state=GangState.RESERVED), False, id="has not started"),
        pytest.param({}, lambda w: w.stands(foreign_pod("x", "node-m0")), False, id="a pod of somebody else"),
        pytest.param({}, lambda w: setattr(w, "busy", frozenset({"gang/uid-g"})), False, id="busy gang"),
        # a saving of 84 USD/h for four hours is 336 USD; the machine costs 98 USD/h
        pytest.param({}, of_gang(admitted_at_s=NOW - 3.4 * 3600), True, id="333 USD of work lost"),
        pytest.param({}, of_gang(admitted_at_s=NOW - 3.5 * 3600), False, id="343 USD of work lost"),
        pytest.param(
            {}, of_gang(admitted_at_s=NOW - 9 * 3600, last_checkpoint_s=NOW - 60), True, id="a checkpoint saves it"
        ),
        pytest.param(
            {}, of_gang(admitted_at_s=NOW - 9e5, checkpoint_interval_s=6.8 * 3600), True, id="half an interval is lost"
        ),
        pytest.param(
            {}, of_gang(admitted_at_s=NOW - 9e5, checkpoint_interval_s=7 * 3600), False, id="half a longer interval"
        ),
    ],
)
def test_replacing_by_a_cheaper_machine(pool: dict[str, Any], change: Change | None, moves: bool) -> None:
    world = small_on_large(**pool)
    if change:
        change(world)
    actions = decided(world)
    assert told(actions) == {}
    assert opened(actions) == ([(P5S.name, "uid-g", ("m0",))] if moves else [])


def test_a_gang_that_needs_the_large_machine_keeps_it() -> None:
    world = standing(1, instanceTypes=BOTH)
    world.runs(gang("g", gpu=8), ("m0", 1), admitted_at_s=NOW - 600)
    assert decided(world) == []


def test_two_cheaper_machines_for_one_are_not_bought() -> None:
    world = standing(1, instanceTypes=BOTH)
    world.runs(gang("g", count=2, gpu=1), ("m0", 2), admitted_at_s=NOW - 600)
    assert decided(world) == []


@pytest.mark.parametrize(
    ("capacity_types", "own", "moves"),
    [(["spot"], "spot", False), (["spot", "on-demand"], "on-demand", True), (["on-demand", "spot"], "spot", True)],
)
def test_spot_is_not_traded_for_cheaper_spot(capacity_types: list[str], own: Any, moves: bool) -> None:
    world = World(FleetBuilder().build())
    declare(world, instanceTypes=BOTH, capacityTypes=capacity_types)
    world.machine("m0", capacity_type=own)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    assert bool(opened(decided(world))) is moves


def test_what_fits_elsewhere_goes_there() -> None:
    world = standing(2)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=4), (f"m{n}", 1), admitted_at_s=NOW - 600)
    assert list(told(decided(world)).values()) == ["Underutilized"]


def test_what_does_not_fit_elsewhere_stays() -> None:
    world = standing(2)
    for n in range(2):
        world.runs(gang(f"g{n}", gpu=5), (f"m{n}", 1), admitted_at_s=NOW - 600)
    assert decided(world) == []


def test_a_cheaper_machine_that_is_ready_takes_over() -> None:
    world = small_on_large()
    world.machine("new", kind=P5S.name, replaces=("m0",), gang="uid-g")
    [save] = decided(world)
    assert isinstance(save, SaveClaim)
    assert told([save]) == {"m0": "Underutilized"}
    assert save.claim.disruption
    assert save.claim.disruption.message == "a cheaper machine is ready, saving 84.00 USD/h"


def test_machines_that_are_tried_one_by_one_do_not_count_on_the_same_room() -> None:
    """Each gang alone would fit beside the one that may not move; the zone keeps the plan for many away."""
    world = standing(3)
    for n in range(3):
        wide = pod_set("main", 2, gpu=2, required_topology="kubernetes.io/hostname")
        world.runs(gang(f"g{n}", wide, do_not_disrupt=n == 2), (f"m{n}", 2), admitted_at_s=NOW - 600)
    assert list(told(decided(world))) in (["m0"], ["m1"])


# -- all the way, and then quiet --------------------------------------------------------------------------------------


def quiet(world: World, rounds: int = 10) -> None:
    """Nothing changes any more, also when time passes (but less than anything expires in)."""
    for _ in range(rounds):
        world.now_s += 30
        assert world.pass_once() == []


def test_a_drifted_machine_is_replaced_and_its_gang_moves_in() -> None:
    world = drifted()
    actions = world.settle_down()
    assert set(world.claims).isdisjoint({"m0", "m1"})
    assert [(it.state, it.reason, it.evictions) for it in world.gangs.values()] == [
        (GangState.ADMITTED, "PodsReady", 1)
    ] * 2
    assert len([it for it in actions if isinstance(it, OpenClaims)]) == 1, "the replacements are what the gangs move to"
    assert all(node.labels.get("a") == "b" for node in world.nodes.values())
    quiet(world)


def test_consolidation_to_a_cheaper_machine_runs_to_its_end() -> None:
    world = small_on_large()
    world.settle_down()
    [left] = world.claims.values()
    assert left.capacity_pool.instance_type == P5S.name
    assert world.gang("g").reason == "PodsReady"
    quiet(world)


def test_consolidation_onto_what_stands_runs_to_its_end() -> None:
    world = standing(3)
    for n in range(3):
        world.runs(gang(f"g{n}", gpu=2 + n), (f"m{n}", 1), admitted_at_s=NOW - 600)
    for _ in range(4):
        world.settle_down()
        world.now_s += 120
    world.settle_down()
    assert sum(it.price_usd_h for it in world.claims.values()) == 2 * 98
    assert all(it.reason == "PodsReady" for it in world.gangs.values())
    quiet(world)


def test_replacements_that_cannot_be_had_are_not_asked_for_again_and_again() -> None:
    """The cloud has none: the gang keeps its machine, and there is one attempt a shortage."""
    world = standing(1)
    world.runs(gang("g"), ("m0", 1))
    declare(world, **CHANGED)
    world.sold_out = {capacity_pool(), capacity_pool(zone=B)}
    for _ in range(40):
        world.pass_once()
        world.now_s += 5
    assert world.gang("g").reason == "PodsReady"
    assert world.gang("g").evictions == 0
    assert len(world.launches) == 2 * 2, "each zone once, and once more after the shortage is over"


def test_idle_machines_go_and_then_nothing_happens() -> None:
    world = standing(4)
    world.settle_down()
    assert not world.claims
    quiet(world)


def test_a_machine_that_goes_in_this_pass_is_no_place_to_move_to() -> None:
    """The idle machine goes; the gang whose work would fit on it stays where it is."""
    world = standing(2, limits={"nodes": 2})
    world.runs(gang("g"), ("m0", 1), admitted_at_s=NOW - 600)
    assert told(decided(world)) == {"m1": "Empty"}


def test_a_gang_is_not_moved_from_one_drifted_machine_to_another() -> None:
    world = standing(2)
    world.runs(gang("a", gpu=2), ("m0", 1))
    world.runs(gang("b", gpu=2), ("m1", 1))
    declare(world, **CHANGED)
    assert opened(decided(world)) == [(P5.name, "uid-a", ("m0",)), (P5.name, "uid-b", ("m1",))]
