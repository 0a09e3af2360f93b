"""Pods that claim parts of one GPU (consumable capacity) get quota, machines and their parts, end to end."""

from typing import Any

from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.dra.nvidia_driver import DraOptions
from tests.agent.scenes import G6, Scene, files, pool, queue, team
from tests.agent.test_simulation_dra import claiming, devices, exactly, template

Obj = dict[str, Any]


def shared_by(way: str, *, told: bool = True, gpus: int = 32, **spec: Any) -> dict[str, str]:
    """A pool of machines with four L4 whose devices several claims may have."""
    shares: Any = int(way) if way.isdecimal() else way
    dra = {"consumableShares": shares} if told else {}
    more = {"types": (G6,), "sharing": {"dra": dra}} | spec
    return files(pool("l4", **more), team(quotas={"l4": {"nvidia.com/gpu": gpus}}), queue(flavors=("l4",)))


def scene_of(way: str, fleet: dict[str, str], **more: Any) -> Scene:
    return Scene(fleet, options=SimulationOptions(dra=DraOptions(consumable_shares=way)), **more)


def part(memory: str = "", **requests: str) -> Obj:
    """A request for part of a GPU."""
    asked = exactly("gpu")
    wanted = ({"memory": memory} if memory else {}) | requests
    asked["exactly"] |= {"capacity": {"requests": wanted}} if wanted else {}
    return asked


def test_two_pods_with_10_gib_each_share_one_gpu() -> None:
    scene = scene_of("memory", shared_by("memory"))
    scene.sim.submit(template("part", part("10Gi")))
    scene.runs(claiming("a", "part", pods=2))
    assert list(devices(scene).values()) == [["gpu-0"], ["gpu-0"]]
    assert scene.bought() == 1
    scene.runs(claiming("b", "part", pods=6))
    assert sorted(name for names in devices(scene).values() for name in names) == [f"gpu-{n // 2}" for n in range(8)]
    assert scene.bought() == 1
    scene.runs(claiming("c", "part"))
    assert scene.bought() == 2
    scene.settle()
