"""What real nodes report replaces what was computed: the smallest of a kind, for a while."""

from dataclasses import replace

import pytest

from fleet.offerings.allocatable import DAY_S, KEPT_DAYS, DiscoveredCapacity, measure
from fleet.offerings.offerings import offerings_now
from fleet.snapshot import Snapshot
from model.pools import pool_hash
from model.quantity import Resources
from tests.support.fleets import GPU, NOW, P5, P5S, A, small_fleet
from tests.support.world import World

GIB = 1 << 30


def standing(*memories_gib: int, **claim: float) -> World:
    world = World(small_fleet())
    for number, memory in enumerate(memories_gib):
        made = world.machine(f"m{number}", **claim)
        node = world.nodes[made.node]
        world.nodes[made.node] = replace(node, allocatable={**node.allocatable, "memory": memory * GIB})
    return world


def kind(world: World) -> tuple[str, str]:
    return P5.name, pool_hash(world.fleet.node_pools["h100"])


def seen(world: World) -> Resources:
    return measure(world.claims, world.nodes).get(kind(world), {})


def test_the_smallest_counts() -> None:
    assert seen(standing(1900, 1880, 1890))["memory"] == 1880 * GIB


def test_devices_are_not_measured() -> None:
    assert GPU not in seen(standing(1900))


@pytest.mark.parametrize("how", ["young", "unready", "gone"])
def test_only_nodes_that_are_well_say_anything(how: str) -> None:
    world = standing(1900, **({"ready_at_s": 0.0} if how == "young" else {}))
    (node,) = world.nodes.values()
    if how == "unready":
        world.nodes[node.name] = replace(node, ready=False)
    if how == "gone":
        world.nodes.clear()
    assert seen(world) == {}


def memory_of(snapshot: Snapshot, world: World, name: str = P5.name) -> int:
    found = offerings_now(world.fleet, snapshot).of(world.fleet.node_pools["h100"])
    return next(it.allocatable["memory"] for it in found if it.offer.instance_type.name == name and it.offer.zone == A)


def test_offerings_are_what_was_measured() -> None:
    world = standing(1900)
    computed = memory_of(world.snapshot(), world)
    experience = DiscoveredCapacity()
    experience.learn(world.claims, world.nodes, NOW)
    corrected = memory_of(replace(world.snapshot(), measured=experience.view), world)
    assert corrected != computed
    assert corrected == 1900 * GIB


def test_another_template_or_type_is_another_kind() -> None:
    world = standing(1900)
    experience = DiscoveredCapacity()
    experience.learn(world.claims, world.nodes, NOW)
    other = World(small_fleet(template={"userData": "echo"}, instanceTypes=[P5.name, P5S.name]))
    snapshot = replace(other.snapshot(), measured=experience.view)
    assert memory_of(snapshot, other) == memory_of(other.snapshot(), other)
    assert memory_of(snapshot, other, P5S.name) == memory_of(other.snapshot(), other, P5S.name)


def test_what_was_seen_long_ago_is_forgotten_and_what_has_not_changed_stays_the_same_object() -> None:
    experience, small, large = DiscoveredCapacity(), standing(1800), standing(1900)
    experience.learn(small.claims, small.nodes, NOW)
    view = experience.view
    experience.learn(large.claims, large.nodes, NOW + DAY_S)
    assert experience.view is view
    experience.learn({}, {}, NOW + (KEPT_DAYS - 1) * DAY_S)
    assert experience.view is view
    experience.learn({}, {}, NOW + KEPT_DAYS * DAY_S)
    assert experience.view[kind(large)]["memory"] == 1900 * GIB
    experience.learn({}, {}, NOW + (KEPT_DAYS + 1) * DAY_S)
    assert experience.view == {}
