"""What falls due next: until then, deciders that were silent stay silent, and then they have something to do."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleet.replay.deadlines import next_turn_s
from tests.support.fleets import NOW, gang, small_fleet
from tests.support.world import World

Scene = Callable[[World], None]


def _never_joins(world: World) -> None:
    world.waits(gang("g"))
    while not world.instances:
        world.pass_once(boot=False)


def _node_fails(world: World) -> None:
    world.machine("m")
    world.runs(gang("g"), ("m", 1))
    world.nodes["node-m"] = replace(world.nodes["node-m"], ready=False, ready_changed_at_s=NOW)


def _pods_start_late(world: World) -> None:
    world.machine("m", emptied_at_s=0.0)
    world.runs(gang("g"), ("m", 1))
    world.gangs["uid-g"] = replace(world.gang("g"), pods_ready=False, admitted_at_s=NOW)
    world.pods = {uid: replace(pod, ready=False) for uid, pod in world.pods.items()}


def _runs_for_as_long_as_it_may(world: World) -> None:
    world.machine("m", emptied_at_s=0.0)
    world.runs(gang("g", max_run_s=7200.0), ("m", 1))


def _batch_is_open(world: World) -> None:
    world.waits(gang("g", created_s=NOW))


def _falls_idle(world: World) -> None:
    world.machine("m", emptied_at_s=NOW - 10)


SCENES: dict[str, Scene] = {
    "a machine never joins": _never_joins,
    "a node is not ready": _node_fails,
    "pods are late": _pods_start_late,
    "a gang has run for as long as it may": _runs_for_as_long_as_it_may,
    "a batch of single pods is open": _batch_is_open,
    "a machine falls idle": _falls_idle,
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_deciders_are_silent_until_something_falls_due(scene: Scene) -> None:
    world = World(small_fleet(disruption={"consolidateAfter": "5m"}))
    scene(world)
    for _ in range(20):
        if not world.pass_once(boot=False):
            break
    due_s = next_turn_s(world.fleet, world.snapshot())
    assert due_s < NOW + 86_400
    for at_s in (world.now_s + (due_s - world.now_s) / 2, due_s - 0.01):
        world.now_s = at_s
        assert world.pass_once(boot=False) == []
    for _ in range(3):  # several looks may be due before one that changes something
        world.now_s = next_turn_s(world.fleet, world.snapshot())
        if world.pass_once(boot=False):
            return
    raise AssertionError("nothing came of what was due")


def test_a_world_at_rest_waits_for_nothing() -> None:
    world = World(small_fleet())
    assert next_turn_s(world.fleet, world.snapshot()) == float("inf")
