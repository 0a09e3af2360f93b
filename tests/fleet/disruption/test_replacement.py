"""Machines with gangs on them: replaced first, moved whole, and then nothing more happens."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims
from fleet.snapshot import GangState, Launch, NodeDisruption
from model.kinds import NEVER
from tests.support.disruption import CHANGED, at_rest, opened, standing, told, within
from tests.support.fleets import NOW, P5, B, capacity_pool, foreign_pod, gang
from tests.support.world import World


def drifted(**pool: Any) -> World:
    """Two machines; a gang on `m0` alone, one on both; the template has changed since."""
    world = standing(2)
    world.runs(gang("wide", count=2, gpu=4), ("m0", 1), ("m1", 1))
    world.runs(gang("narrow", gpu=4), ("m0", 1))
    within(world, **{**CHANGED, **pool})
    return world


def test_machines_that_share_a_gang_are_replaced_together_in_one_launch_group() -> None:
    world = drifted()
    actions = world.disrupted()
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
    assert world.disrupted() == []


def test_a_pod_of_somebody_else_keeps_the_unit() -> None:
    world = drifted()
    world.stands(foreign_pod("x", "node-m1"))
    assert world.disrupted() == []


def test_no_replacement_can_be_had() -> None:
    world = drifted()
    world.shortages = {capacity_pool(): NOW + 60, capacity_pool(zone=B): NOW + 60}
    assert world.disrupted() == []


def test_a_busy_gang_is_not_moved() -> None:
    world = drifted()
    world.busy = frozenset({"gang/uid-wide"})
    assert world.disrupted() == []


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
    actions = world.disrupted()
    assert told(actions) == (dict.fromkeys(("m0", "m1"), "Drifted") if goes else {})
    assert len(opened(actions)) == buys


def test_two_units_in_one_pass_do_not_count_on_the_same_room() -> None:
    """Each gang alone would fit on the spare machine; only one of them does, the other's machine is bought."""
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    within(world, **CHANGED, limits={"nodes": 4})
    world.machine("spare", emptied_at_s=NOW)
    actions = world.disrupted()
    assert told(actions) == {"m0": "Drifted"}
    assert opened(actions) == [(P5.name, "uid-b", ("m1",))]


def test_two_units_in_one_pass_keep_to_one_limit() -> None:
    world = standing(2)
    world.runs(gang("a"), ("m0", 1))
    world.runs(gang("b"), ("m1", 1))
    within(world, **CHANGED, limits={"nodes": 3})
    assert opened(world.disrupted()) == [(P5.name, "uid-a", ("m0",))]


def test_a_gang_is_not_moved_from_one_drifted_machine_to_another() -> None:
    world = standing(2)
    world.runs(gang("a", gpu=2), ("m0", 1))
    world.runs(gang("b", gpu=2), ("m1", 1))
    within(world, **CHANGED)
    assert opened(world.disrupted()) == [(P5.name, "uid-a", ("m0",)), (P5.name, "uid-b", ("m1",))]


def test_a_drifted_machine_is_replaced_and_its_gang_moves_in() -> None:
    world = drifted()
    actions = world.settle_down()
    assert set(world.claims).isdisjoint({"m0", "m1"})
    assert [(it.state, it.reason, it.evictions) for it in world.gangs.values()] == [
        (GangState.ADMITTED, "PodsReady", 1)
    ] * 2
    assert len([it for it in actions if isinstance(it, OpenClaims)]) == 1, "the replacements are what the gangs move to"
    assert all(node.labels.get("a") == "b" for node in world.nodes.values())
    at_rest(world)


def test_replacements_that_cannot_be_had_are_not_asked_for_again_and_again() -> None:
    """The cloud has none: the gang keeps its machine, and there is one attempt a shortage."""
    world = standing(1)
    world.runs(gang("g"), ("m0", 1))
    within(world, **CHANGED)
    world.sold_out = {capacity_pool(), capacity_pool(zone=B)}
    for _ in range(40):
        world.pass_once()
        world.now_s += 5
    assert world.gang("g").reason == "PodsReady"
    assert world.gang("g").evictions == 0
    assert len(world.launches) == 2 * 2, "each zone once, and once more after the shortage is over"
