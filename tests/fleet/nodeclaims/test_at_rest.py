"""A machine at rest is not asked what is to be done about it: it would say nothing."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.nodeclaims import lifecycle
from fleet.snapshot import MachineEvent, NodeCondition, NodeDisruption
from fleet.snapshot.affinity import FOR_GANGS, RECUTTING, UNREGISTERED
from model import labels
from model.index import Index
from model.kinds import NEVER, Taint
from tests.support.fleets import NOW, gang, small_fleet
from tests.support.world import World

FOR_GPUS = Taint(key="nvidia.com/gpu", effect="NoSchedule")
"""What most nodes with GPUs carry for good."""
OF_NODES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"ready": False, "ready_changed_at_s": NOW - 1000},
    {"ready": False, "ready_changed_at_s": NOW - 1},
    {"deleting": True},
    {"has_finalizer": False},
    {"taints": (FOR_GPUS,)},
    {"taints": (FOR_GANGS,)},
    {"taints": (UNREGISTERED,)},
    {"taints": (RECUTTING,)},
    {"conditions": {"GpuFailed": NodeCondition("False", NOW - 10)}},
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


@settings(max_examples=200, deadline=None)
@given(st.lists(machines(), min_size=1, max_size=3))
def test_of_a_machine_at_rest_there_is_nothing_to_say(worlds: list[World]) -> None:
    index = Index()  # views go on from world to world
    for world in worlds:
        seen = replace(world.snapshot(), index=index)
        asked = lifecycle.decide_among(world.fleet, seen, seen.claims.values())
        assert lifecycle.decide(world.fleet, seen)[: len(asked)] == asked


def test_a_well_machine_is_not_asked() -> None:
    """Nor is one whose node has taints that stay, as most with GPUs have."""
    world = World(small_fleet())
    world.machine("m0")
    world.machine("m1", emptied_at_s=0.0)
    world.machine("m2", node={"deleting": True})
    world.machine("m3", node={"taints": (FOR_GPUS,)})
    with patch.object(lifecycle, "_ready", return_value=iter(())) as asked:
        lifecycle.decide(world.fleet, world.snapshot())
    assert [call.args[2].name for call in asked.call_args_list] == ["m1", "m2"]
