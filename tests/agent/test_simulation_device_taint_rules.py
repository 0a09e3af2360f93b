"""Rules by which administrators taint devices (DeviceTaintRule): placement and purchase go by them, end to end."""

from typing import Any

from providers.sim.store import LATEST
from tests.agent.scenes import G6, Scene
from tests.agent.test_simulation_dra import bearing, claiming, devices, dra, exactly, template

Obj = dict[str, Any]
BETA = "resource.k8s.io/v1beta2"


def rule(name: str = "drained", effect: str = "NoSchedule", **selected: str) -> Obj:
    taint = {"key": "example.com/drained", "effect": effect}
    spec = {"deviceSelector": selected, "taint": taint}
    return {"apiVersion": BETA, "kind": "DeviceTaintRule", "metadata": {"name": name}, "spec": spec}


def stage(**spec: Any) -> Scene:
    """A pool of machines with four GPUs, on an API server that has been told to serve the rules."""
    scene = Scene(dra(instanceTypes=[G6], **spec), release=LATEST.with_betas(BETA))
    scene.sim.submit(template("one", exactly("gpu")))
    scene.sim.submit(template("four", exactly("gpu", count=4)))
    scene.sim.submit(template("bears", bearing(exactly("gpu", count=4), key="example.com/drained")))
    return scene


def test_a_drained_device_is_for_claims_that_bear_its_taint() -> None:
    """One of four GPUs is taken out of use by hand: the machine counts as whole."""
    scene = stage(limits={"nodes": 1})
    scene.runs(claiming("a", "one"))
    [node] = scene.nodes_of("a")
    scene.sim.submit(rule(driver="gpu.nvidia.com", pool=node, device="gpu-3"))
    scene.runs(claiming("b", "one", pods=2))
    scene.sim.submit(claiming("c", "one"))
    scene.sim.advance(60)
    assert scene.state("c") == "Pending"
    assert sorted(devices(scene).values()) == [["gpu-0"], ["gpu-1"], ["gpu-2"]]
    (claim,) = scene.sim.claims().values()
    assert (claim.state, claim.cut) == ("Ready", None), "nothing is the matter with it"
    scene.sim.store.delete(scene.sim.store.resource("DeviceTaintRule", "resource.k8s.io"), "drained")
    scene.until_running("c", 120)
    assert scene.bought() == 1
    scene.settle()


def test_no_machine_is_bought_whose_devices_would_have_the_taint() -> None:
    """A rule about all devices of a driver is about those of machines to come, too."""
    scene = stage()
    scene.sim.submit(rule(driver="gpu.nvidia.com"))
    scene.sim.submit(claiming("a", "four"))
    scene.sim.advance(120)
    gang = scene.sim.gang("a")
    assert gang is not None
    assert (gang.state, scene.bought()) == ("Pending", 0)
    assert "a DeviceTaintRule gives example.com/drained" in gang.message
    scene.runs(claiming("b", "bears"))
    assert scene.bought() == 1
    scene.settle()


def test_a_rule_about_one_name_leaves_machines_to_come_with_the_other_devices() -> None:
    scene = stage()
    scene.sim.submit(rule(device="gpu-0"))
    scene.runs(claiming("a", "one", pods=3))
    assert (sorted(devices(scene).values()), scene.bought()) == ([["gpu-1"], ["gpu-2"], ["gpu-3"]], 1)
    scene.settle()


def test_a_gang_whose_device_is_to_be_left_goes_to_another() -> None:
    scene = stage()
    manifest = claiming("a", "one", pods=2)
    manifest["spec"]["backoffLimit"] = 3
    scene.runs(manifest)
    [node] = scene.nodes_of("a")
    scene.sim.submit(rule(effect="NoExecute", pool=node, device="gpu-0"))
    scene.sim.advance(30)
    scene.until_running("a", 900)
    assert sorted(devices(scene).values()) == [["gpu-1"], ["gpu-2"]]
    assert scene.bought() == 1
    scene.settle()


def test_where_the_rules_are_not_served_claims_are_as_before() -> None:
    scene = Scene(dra(instanceTypes=[G6]))
    scene.sim.submit(template("one", exactly("gpu")))
    scene.runs(claiming("a", "one"))
    scene.settle()
