"""What ordinary pods take of the quota of the queue that their team names, machine by machine, and what is left."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.placement.pod_quota import PodQuota, ordinary_usage
from fleet.quota.build_tree import quota_specs
from fleet.reasons import Refusal
from tests.support.fleets import GPU, FleetBuilder, amounts, foreign_pod, plain_node, pod_set
from tests.support.world import World

QUOTAS: dict[str, Any] = {"h100": {GPU: 16}, "racked": {GPU: 4, "cpu": "3"}}


def world_of(**team: Any) -> World:
    """A bought machine, `node-m0`, one that people made and a flavor names, and one of no flavor."""
    declared = FleetBuilder().pool().flavor("racked", nodeLabels={"rack": "7"})
    declared = declared.team(**{"quotas": QUOTAS, "ordinaryPodsQueue": "q"} | team).queue(flavors=("h100", "racked"))
    world = World(declared.build())
    world.machine("m0")
    for name, labels in (("racked", {"rack": "7"}), ("strange", {})):
        world.nodes[name] = plain_node(name, amounts(8), labels)
    return world


def stands(world: World, node: str, gpu: int, namespace: str = "ns", **more: Any) -> World:
    pod = foreign_pod(f"p{len(world.pods)}", node, amounts(gpu))
    world.stands(replace(pod, namespace=namespace, **more))
    return world


def taken(world: World) -> Mapping[str, int]:
    """Flavor -> GPUs that ordinary pods take of the queue's."""
    usage = ordinary_usage(world.fleet, world.snapshot()).get("q", {})
    return {flavor: amount for (flavor, resource), amount in usage.items() if resource == GPU}


@pytest.mark.parametrize(
    ("world", "gpus"),
    [
        pytest.param(stands(stands(world_of(), "node-m0", 1), "node-m0", 2), {"h100": 3}, id="of a pool"),
        pytest.param(stands(world_of(), "racked", 1), {"racked": 1}, id="of a flavor by labels"),
        pytest.param(stands(world_of(), "strange", 1), {}, id="of no flavor"),
        pytest.param(stands(world_of(), "gone", 1), {}, id="of a node that is not known"),
        pytest.param(stands(world_of(), "node-m0", 1, "elsewhere"), {}, id="in a namespace of nobody"),
        pytest.param(stands(world_of(), "node-m0", 1, daemon=True), {}, id="of a DaemonSet"),
        pytest.param(stands(world_of(), "node-m0", 1, phase="Succeeded"), {}, id="it has ended"),
        pytest.param(stands(world_of(), "node-m0", 1, deleting=True), {"h100": 1}, id="it goes, and is there still"),
        pytest.param(stands(world_of(ordinaryPodsQueue=None), "node-m0", 1), {}, id="nothing is said"),
    ],
)
def test_what_pods_take(world: World, gpus: Mapping[str, int]) -> None:
    assert taken(world) == gpus


@pytest.mark.parametrize(
    ("flavor", "gpu", "room"),
    [
        ("h100", 4, 3),
        ("h100", 5, 2),
        ("h100", 16, "needs 3 more nvidia.com/gpu of h100: asks 16, 13 available"),
        ("h100", 17, "asks 17 nvidia.com/gpu of h100; with everybody else idle there would be 16"),
        ("racked", 1, 3),
        ("", 99, 9),
    ],
)
def test_for_how_many_there_is_quota(flavor: str, gpu: int, room: int | str) -> None:
    """Three GPUs of the flavor are taken; of `racked` CPUs are counted, too."""
    world = stands(world_of(), "node-m0", 3)
    quota = PodQuota.start(world.fleet, world.snapshot(), quota_specs(world.fleet).tree())
    asked = replace(pod_set(gpu=gpu, count=9), namespace="ns")
    found = quota.room(asked, flavor)
    assert (found.message if isinstance(found, Refusal) else found) == room
    if isinstance(found, int) and flavor:
        quota.take(asked, flavor, found)
        assert isinstance(quota.room(asked, flavor), Refusal)


def test_pods_of_nobodys_namespace_go_anywhere() -> None:
    world = world_of()
    quota = PodQuota.start(world.fleet, world.snapshot(), quota_specs(world.fleet).tree())
    assert (quota.flavors("elsewhere"), quota.flavors("ns")) == (("",), ("h100", "racked"))
