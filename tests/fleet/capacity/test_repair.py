"""Machines whose node has fallen silent: replaced one by one, left alone when a whole pool is silent at once."""

from dataclasses import replace

import pytest

from fleet.actions import SaveClaim
from fleet.capacity import lifecycle
from model.kinds import REPAIRS
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


def test_other_pools_do_not_count() -> None:
    world = World(FleetBuilder().pool().pool("other").team().queue().build())
    for n in range(4):
        world.machine(f"a{n}")
        world.machine(f"b{n}", pool="other")
    assert set(repaired(silent(world, "a0", "b0", "b1"))) == {"a0"}
