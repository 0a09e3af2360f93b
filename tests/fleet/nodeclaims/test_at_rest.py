"""A machine at rest is asked only whether it is empty, and says what it would say if everything were asked."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.fence import Decided
from fleet.nodeclaims import lifecycle
from fleet.snapshot import MachineEvent, Node, NodeCondition, NodeDisruption, Snapshot
from fleet.snapshot.affinity import FOR_GANGS, RECUTTING, UNREGISTERED
from model import labels
from model.fleet import Fleet
from model.index import Index
from model.kinds import NEVER
from tests.support.fleets import NOW, gang, small_fleet
from tests.support.world import World

OF_NODES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"ready": False, "ready_changed_at_s": NOW - 1000},
    {"ready": False, "ready_changed_at_s": NOW - 1},
    {"deleting": True},
    {"has_finalizer": False},
    {"taints": (FOR_GANGS,)},
    {"taints": (UNREGISTERED,)},
    {"taints": (RECUTTING,)},
    {"conditions": {"GpuFailed": NodeCondition("True", NOW - 10)}},
    {"conditions": {"GpuFailed": NodeCondition("True", NOW - 1000)}},
    {"conditions": {"MemoryPressure": NodeCondition("False", NOW - 1000)}},
    {"labels": {labels.MIG_CONFIG: "all-1g.10gb"}},
)
OF_CLAIMS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"emptied_at_s": 0.0},
    {"emptied_at_s": 0.0},
    {"node_ready": False},
    {"disruption": NodeDisruption("Empty", "idle", NOW - 5, NEVER)},
    {"gpu_conditions": (MachineEvent(NOW - 9, "GpuFailed", ""),)},
    {"recut_at_s": NOW - 1},
    {"layout": "other"},
    {"instance_id": "i-elsewhere"},
    {"node": "node-m0"},
)


@st.composite
def machines(draw: st.DrawFn) -> World:
    """A few machines, some with work, of which something may be the matter."""
    world = World(small_fleet())
    for number in range(draw(st.integers(1, 4))):
        claim = world.machine(f"m{number}")
        if draw(st.booleans()):
            world.runs(gang(f"g{number}"), (claim.name, 1))
        node = world.nodes[f"node-m{number}"]
        world.nodes[node.name] = replace(node, **draw(st.sampled_from(OF_NODES)))
        world.claims[claim.name] = replace(claim, **draw(st.sampled_from(OF_CLAIMS)))
    return world


def steps(fleet: Fleet, snapshot: Snapshot) -> list[Decided]:
    return lifecycle.decide_among(fleet, snapshot, snapshot.claims.values())


@settings(max_examples=200, deadline=None)
@given(st.lists(machines(), min_size=1, max_size=3))
def test_a_machine_at_rest_says_what_it_would_say_if_all_were_asked(worlds: list[World]) -> None:
    fleet, index = small_fleet(), Index()  # what is known goes on from world to world, and so do nodes that are equal
    known: list[Node] = []
    for world in worlds:
        nodes = {name: next((old for old in known if old == node), node) for name, node in world.nodes.items()}
        known += nodes.values()
        seen = replace(world.snapshot(), index=index, nodes=nodes)
        with patch.object(lifecycle._ReadyMachines, "rests", lambda *_asked: False):
            asked = steps(fleet, seen)
        assert steps(fleet, seen) == asked


def test_of_a_well_machine_nothing_else_is_asked() -> None:
    world = World(small_fleet())
    world.machine("m0")
    world.machine("m1", emptied_at_s=0.0)
    world.machine("m2", node={"deleting": True})
    with patch.object(lifecycle, "_attended", return_value=iter(())) as attended:
        found = steps(world.fleet, world.snapshot())
    assert [it.claim.name for it in found] == ["m1"]  # type: ignore[union-attr]
    assert [call.args[2].name for call in attended.call_args_list] == ["m2"]
