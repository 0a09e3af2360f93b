"""Machines whose node has fallen silent: replaced one by one, left alone when a whole pool is silent at once."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fleet.actions import SaveClaim
from fleet.nodeclaims import lifecycle
from fleet.nodeclaims.repair import look_again_s, too_many
from fleet.snapshot import NodeCondition, NodeDisruption
from model.kinds import NEVER, REPAIRS, Repair
from tests.support.fleets import NOW, FleetBuilder, small_fleet
from tests.support.world import World

REPAIR_AFTER_S = REPAIRS[0].after


def silent(world: World, *names: str, for_s: float = REPAIR_AFTER_S) -> World:
    for name in names:
        node = world.nodes[f"node-{name}"]
        world.nodes[node.name] = replace(node, ready=False, ready_changed_at_s=NOW - for_s)
    return world


def pool_of(machines: int) -> World:
    world = World(small_fleet())
    for n in range(machines):
        world.machine(f"m{n:02}")
    return world


def repaired(world: World) -> dict[str, tuple[str, float]]:
    """Claim -> reason and deadline of what the pass tells to leave."""
    return {
        action.claim.name: (action.claim.disruption.reason, action.claim.disruption.deadline_s)
        for action in lifecycle.decide(world.fleet, world.snapshot())
        if isinstance(action, SaveClaim) and action.claim.disruption
    }


@pytest.mark.parametrize(("for_s", "goes"), [(REPAIR_AFTER_S - 1, False), (REPAIR_AFTER_S, True)])
def test_a_silent_machine_is_replaced_after_five_minutes_and_nobody_on_it_is_waited_for(
    for_s: float, goes: bool
) -> None:
    world = silent(pool_of(3), "m00", for_s=for_s)
    assert repaired(world) == ({"m00": ("NodeFailures", NOW)} if goes else {})


@pytest.mark.parametrize(
    ("machines", "lost", "goes"),
    [
        pytest.param(1, 1, 1, id="the only one"),
        pytest.param(4, 1, 1, id="one is never too many"),
        pytest.param(4, 2, 0, id="half of a small pool"),
        pytest.param(10, 2, 2, id="a fifth"),
        pytest.param(10, 3, 0, id="more than a fifth"),
    ],
)
def test_a_silent_pool_is_not_a_matter_of_machines(machines: int, lost: int, goes: int) -> None:
    world = silent(pool_of(machines), *(f"m{n:02}" for n in range(lost)))
    assert len(repaired(world)) == goes


@pytest.mark.parametrize(
    ("status", "for_s", "goes"),
    [
        pytest.param("Unknown", REPAIR_AFTER_S, True, id="its kubelet has gone silent"),
        pytest.param("Unknown", REPAIR_AFTER_S - 1, False, id="not for long"),
        pytest.param("False", REPAIR_AFTER_S, False, id="it says that it is not ready yet"),
    ],
)
def test_a_machine_that_falls_silent_before_it_is_ready_is_not_waited_for(
    status: str, for_s: float, goes: bool
) -> None:
    """It was kept, and billed, until its initialisation timed out after half an hour; nothing runs on it."""
    world = silent(pool_of(3), "m00", "m01", "m02", for_s=for_s)
    for name in ("m00", "m01", "m02"):
        node = world.nodes[f"node-{name}"]
        world.nodes[node.name] = replace(node, conditions={"Ready": NodeCondition(status, NOW - for_s)})
        world.claims[name] = replace(world.claims[name], registered_at_s=NOW - 600, ready_at_s=0.0)
    assert len(repaired(world)) == (3 if goes else 0)


BAD = "AcceleratedHardwareReady"


def complaining(world: World, *names: str, for_s: float, condition: str = BAD, status: str = "False") -> World:
    for name in names:
        node = world.nodes[f"node-{name}"]
        world.nodes[node.name] = replace(node, conditions={condition: NodeCondition(status, NOW - for_s)})
    return world


@pytest.mark.parametrize(
    ("repair", "condition", "status", "for_s", "goes"),
    [
        pytest.param(None, BAD, "False", 600, True, id="its GPUs"),
        pytest.param(None, BAD, "False", 599, False, id="its GPUs, not for long"),
        pytest.param(None, BAD, "True", 9999, False, id="its GPUs are well"),
        pytest.param(None, BAD, "Unknown", 9999, False, id="nobody knows"),
        pytest.param(None, "KernelReady", "False", 1800, True, id="its kernel"),
        pytest.param(None, "Else", "False", 9999, False, id="nobody minds"),
        pytest.param([{"condition": "Else", "after": "5m"}], "Else", "False", 300, True, id="this pool minds"),
        pytest.param([{"condition": "Bad", "statuses": ["True"], "after": "5m"}], "Bad", "True", 300, True, id="bad"),
        pytest.param([], BAD, "False", 9999, False, id="never"),
    ],
)
def test_other_complaints(repair: Any, condition: str, status: str, for_s: float, goes: bool) -> None:
    declared = {} if repair is None else {"repair": repair}
    world = World(small_fleet(**declared))
    for n in range(6):
        world.machine(f"m{n:02}")
    complaining(world, "m00", for_s=for_s, condition=condition, status=status)
    assert repaired(world) == ({"m00": ("NodeFailures", NOW)} if goes else {})


def test_repair_asks_neither_budgets_nor_annotations() -> None:
    world = complaining(World(small_fleet(disruption={"budgets": [{"nodes": 0}]})), for_s=0)
    world.machine("m0")
    complaining(world, "m0", for_s=600)
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], do_not_disrupt="true")
    assert list(repaired(world)) == ["m0"]


@pytest.mark.parametrize(("deadline_s", "now"), [(NEVER, True), (NOW + 60, True), (NOW - 5, False)])
def test_a_drain_of_a_machine_that_is_not_well_ends_now(deadline_s: float, now: bool) -> None:
    world = complaining(pool_of(6), "m00", for_s=600)
    leaves = NodeDisruption("Drifted", "x", NOW - 99, deadline_s)
    world.claims["m00"] = replace(world.claims["m00"], deleting=True, disruption=leaves)
    assert repaired(world) == ({"m00": ("Drifted", NOW)} if now else {})


@pytest.mark.parametrize(("bad", "machines", "closed"), [(1, 1, False), (2, 10, False), (3, 10, True), (3, 11, False)])
def test_a_fifth_rounded_up(bad: int, machines: int, closed: bool) -> None:
    assert too_many(bad, machines) is closed


@pytest.mark.parametrize(
    ("for_s", "wait_s"), [({"A": 0, "B": 0}, 60.0), ({"A": 50}, 10.0), ({"A": 61, "B": 20}, 100.0), ({}, inf)]
)
def test_when_to_look_again(for_s: dict[str, float], wait_s: float) -> None:
    policies = [Repair(condition="A", after=60.0), Repair(condition="B", after=120.0)]
    conditions = {name: NodeCondition("False", NOW - since) for name, since in for_s.items()}
    assert look_again_s(policies, conditions, NOW) == wait_s


def test_other_pools_do_not_count() -> None:
    world = World(FleetBuilder().pool().pool("other").team().queue().build())
    for n in range(4):
        world.machine(f"a{n}")
        world.machine(f"b{n}", pool="other")
    assert set(repaired(silent(world, "a0", "b0", "b1"))) == {"a0"}
