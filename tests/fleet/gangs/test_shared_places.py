"""Pods with parts of a device count as more devices than a machine has, and are in nobody's place for it."""

from dataclasses import replace

import pytest

from fleet.gangs.taken_places import intruders
from fleet.snapshot.devices import ClusterDevices, MachineDevices, shared_devices
from model.index import Index
from tests.fleet.placement.test_device_allocator import WHOLE
from tests.support.fleets import foreign_pod, gang, plain_node, pod_set, small_fleet
from tests.support.world import World


@pytest.mark.parametrize(
    ("devices", "told"),
    [(WHOLE, ["p8"]), (shared_devices(Index(), WHOLE, "memory"), []), (None, ["p8"])],
)
def test_who_is_in_the_way(devices: MachineDevices | None, told: list[str]) -> None:
    world = World(small_fleet())
    node = plain_node("n1", {"nvidia.com/gpu": 8})
    pods = tuple(
        foreign_pod(f"p{n}", "n1", {"nvidia.com/gpu": 1}, controlled=True, started_at_s=9.0 + n) for n in range(9)
    )
    snapshot = replace(
        world.snapshot(),
        nodes={"n1": node},
        node_pods={"n1": pods},
        ordinary_pods={"n1": pods},
        foreign_use={"n1": {"nvidia.com/gpu": 9, "pods": 9}},
        devices=ClusterDevices({"n1": devices} if devices is not None else {}),
    )
    ran = gang("g", pod_set(gpu=1), pods_ready=True, admitted_at_s=1.0)
    assert [it.name for it in intruders(snapshot, ran, node)] == told
