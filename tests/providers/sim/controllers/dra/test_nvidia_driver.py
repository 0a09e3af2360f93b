"""What NVIDIA's driver publishes, against what real machines showed, and how it fails on demand."""

from dataclasses import replace
from typing import Any

import pytest

from providers.sim.controllers.dra.devices import announced
from providers.sim.controllers.dra.nvidia_driver import DYNAMIC, SERVED, DraOptions, read_dra_fault
from providers.sim.controllers.gpus import PhysicalGpu
from tests.providers.sim.controllers.dra.claim_world import CATALOGUE, ClaimWorld, exactly
from tests.providers.sim.controllers.world import QUICK, Obj

H100 = CATALOGUE("p5.48xlarge")
A100 = CATALOGUE("p4d.24xlarge")
assert H100 is not None
assert A100 is not None


def plain(attributes: dict[str, Obj]) -> dict[str, Any]:
    return {name: next(iter(value.values())) for name, value in attributes.items()}


def test_the_devices_of_a_p5() -> None:
    """As a p5.48xlarge announced itself on EKS (NVIDIA's evidence of conformance), but for uuid and addressingMode.

    The GPU's memory is EC2's number here; NVML tells 81559 MiB.
    """
    assert H100 is not None
    found = [gpu[0] for gpu in announced("m", H100, [PhysicalGpu()] * 8).devices]
    assert [it["name"] for it in found] == [f"gpu-{n}" for n in range(8)]
    told = plain(found[0]["attributes"])
    assert told.pop("uuid").startswith("GPU-")
    assert told == {
        "type": "gpu",
        "architecture": "Hopper",
        "brand": "Nvidia",
        "cudaComputeCapability": "9.0.0",
        "cudaDriverVersion": "13.0.0",
        "driverVersion": "580.105.8",
        "productName": "NVIDIA H100 80GB HBM3",
        "resource.kubernetes.io/pciBusID": "0000:53:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:44",
    }
    last = plain(found[7]["attributes"])
    assert (last["resource.kubernetes.io/pciBusID"], last["resource.kubernetes.io/pcieRoot"]) == (
        "0000:ca:00.0",
        "pci0000:bb",
    )
    assert found[0]["capacity"] == {"memory": {"value": "80Gi"}}


def test_instances_of_a_cut_gpu() -> None:
    assert A100 is not None
    (devices,) = announced("m", A100, [PhysicalGpu({"3g.20gb": 1, "1g.5gb": 2})]).devices
    assert [it["name"] for it in devices] == ["gpu-0-mig-1g5gb-19-4", "gpu-0-mig-1g5gb-19-5", "gpu-0-mig-3g20gb-9-0"]
    told = plain(devices[2]["attributes"])
    assert (told["type"], told["profile"], told["productName"]) == ("mig", "3g.20gb", "NVIDIA A100-SXM4-40GB")
    assert told["uuid"].startswith("MIG-")
    assert told["parentUUID"].startswith("GPU-")
    held = {name: it["value"] for name, it in devices[2]["capacity"].items()}
    assert held["memory"] == "19968Mi"
    assert [held[f"memorySlice{n}"] for n in range(4)] == ["1"] * 4
    assert "memorySlice4" not in held


def test_partitions_of_a_gpu() -> None:
    """One counter set a GPU; the whole one takes all of it, and each place of each profile its part (KEP-4815)."""
    assert H100 is not None
    found = announced("m", H100, [PhysicalGpu()] * 8, dynamic=True)
    assert [it["name"] for it in found.counters] == [f"gpu-{n}-counter-set" for n in range(8)]
    assert set(found.counters[0]["counters"]) == {
        *("multiprocessors", "copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines", "memory"),
        *(f"memory-slice-{n}" for n in range(8)),
    }
    names = [it["name"] for it in found.devices[0]]
    assert names[0] == "gpu-0"
    assert names == sorted(names)
    assert {"gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-me-20-6", "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-7g80gb-0-0"} <= set(
        names
    )
    whole, part = found.devices[0][0], found.devices[0][names.index("gpu-0-mig-3g40gb-9-4")]
    assert whole["consumesCounters"][0]["counters"] == found.counters[0]["counters"]
    consumed = part["consumesCounters"][0]["counters"]
    assert [n for n in range(8) if f"memory-slice-{n}" in consumed] == [4, 5, 6, 7]
    assert "uuid" not in part["attributes"]


@pytest.mark.parametrize(
    ("mig", "names"),
    [(False, {"gpu-0"}), (True, {"gpu-0-mig-1g5gb-19-0", "gpu-0-mig-7g40gb-0-0"})],
)
def test_an_a100_is_offered_as_its_mode_is(mig: bool, names: set[str]) -> None:
    """MIG does not go on and off without a reset before Hopper."""
    assert A100 is not None
    (devices,) = announced("m", A100, [PhysicalGpu({}) if mig else PhysicalGpu()], dynamic=True).devices
    found = {it["name"] for it in devices}
    assert names <= found
    assert ("gpu-0" in found) == (not mig)


def test_only_nodes_with_the_label_are_served() -> None:
    world = ClaimWorld()
    world.node("plain", labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"}, cpu="96")
    world.gpu_node("served")
    assert {it["spec"]["nodeName"] for it in world.all("ResourceSlice")} == {"served"}
    assert world.the("Node", "plain")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu" not in world.the("Node", "served")["status"]["allocatable"]
    world.label("Node", "served", **{SERVED: None})
    world.pass_s(5)
    assert not world.all("ResourceSlice")


def test_classes_are_there_from_the_beginning() -> None:
    world = ClaimWorld()
    world.settle()
    names = {it["metadata"]["name"] for it in world.all("DeviceClass")}
    assert {"gpu.nvidia.com", "mig.nvidia.com", "compute-domain-default-channel.nvidia.com"} <= names


def test_slices_are_the_nodes_own() -> None:
    world = ClaimWorld()
    world.gpu_node()
    (held,) = [it for it in world.all("ResourceSlice") if it["spec"]["driver"] == "gpu.nvidia.com"]
    owner = world.the("Node", "n1")["metadata"]["uid"]
    assert [it["uid"] for it in held["metadata"]["ownerReferences"]] == [owner]
    assert held["spec"]["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    world.delete("ResourceSlice", held["metadata"]["name"])
    world.pass_s(5)
    assert len(world.slices()) == 1  # published again
    world.delete("Node", "n1")
    world.pass_s(5)
    assert not world.slices()


def test_the_driver_publishes_anew_after_a_cut() -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.label("Node", "n1", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.pass_s(100)
    assert world.the("Node", "n1")["metadata"]["labels"]["nvidia.com/mig.config.state"] == "success"
    (held,) = world.slices()
    assert len(held["devices"]) == 56
    assert held["pool"]["generation"] == 2
    world.template("slice", exactly("gpu", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '1g.5gb'"))
    world.pod_from("small", "slice")
    world.pass_s(5)
    assert world.devices_of("small") == {"gpu": ["gpu-0-mig-1g5gb-19-0"]}


def test_claimed_gpus_are_not_cut() -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.template("one-gpu", exactly())
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    world.label("Node", "n1", **{"nvidia.com/mig.config": "all-1g.5gb"})
    world.pass_s(100)
    assert world.the("Node", "n1")["metadata"]["labels"]["nvidia.com/mig.config.state"] == "failed"
    world.pass_s(30)
    assert [it["name"] for it in world.slices()[0]["devices"]] == [f"gpu-{n}" for n in range(8)]


def test_slices_on_demand() -> None:
    """Whole GPUs and slices of the same machine, as they are asked for: what one takes the others do not get."""
    world = ClaimWorld()
    world.gpu_node(kind="p5.4xlarge", dynamic=True)
    parts = world.slices()
    assert [("sharedCounters" in it, len(it.get("devices", ()))) for it in parts] == [(True, 0), (False, 26)]
    profile = "device.attributes['gpu.nvidia.com'].profile == '{}'"
    world.template("three", exactly("gpu", "mig.nvidia.com", profile.format("3g.40gb")))
    world.template("whole", exactly())
    for name in ("a", "b"):
        world.pod_from(name, "three")
    world.pass_s(5)
    assert world.devices_of("a") == {"gpu": ["gpu-0-mig-3g40gb-9-0"]}
    assert world.devices_of("b") == {"gpu": ["gpu-0-mig-3g40gb-9-4"]}
    world.pod_from("c", "whole")
    world.pass_s(5)
    assert "1 cannot allocate all claims" in world.why("c")
    for name in ("a", "b"):
        world.delete("Pod", name)
    world.pass_s(60)
    assert world.devices_of("c") == {"gpu": ["gpu-0"]}


def test_demand_of_slices_ends_a_static_cut() -> None:
    """The driver destroys instances that it did not make: the two do not mix on a node."""
    world = ClaimWorld()
    world.gpu_node(mig_config="all-1g.5gb")
    world.pass_s(100)
    world.label("Node", "n1", **{DYNAMIC: "true"})
    world.pass_s(60)
    devices = [device["name"] for part in world.slices() for device in part.get("devices", ())]
    assert "gpu-0-mig-7g40gb-0-0" in devices


def test_gpus_for_several_claims() -> None:
    """`--consumable-shares=2`."""
    world = ClaimWorld(replace(QUICK, dra=DraOptions(consumable_shares="2")))
    world.gpu_node(kind="g6.xlarge")
    world.template("share", exactly())
    for name in ("a", "b", "c"):
        world.pod_from(name, "share")
    world.pass_s(10)
    assert [world.phase(name) for name in ("a", "b", "c")] == ["Running", "Running", "Pending"]


# -- faults ------------------------------------------------------------------------------------------------------------


def cause(world: ClaimWorld, **fault: Any) -> None:
    driver = world.sim.dra_driver
    assert driver is not None
    driver.cause(read_dra_fault({"node": "n1", **fault}))


@pytest.fixture
def world() -> ClaimWorld:
    made = ClaimWorld()
    made.gpu_node()
    made.template("one-gpu", exactly())
    return made


def test_preparations_fail(world: ClaimWorld) -> None:
    cause(world, fail=2)
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    assert world.phase("worker") == "Pending"
    (said,) = world.events("FailedPrepareDynamicResources")
    assert said.startswith(
        "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for"
    )
    world.pass_s(30)
    assert world.phase("worker") == "Running"


def test_a_driver_that_is_gone(world: ClaimWorld) -> None:
    cause(world, silent=True)
    world.pod_from("worker", "one-gpu")
    world.pass_s(15)
    (said,) = world.events("FailedPrepareDynamicResources")
    assert said.endswith("prepare dynamic resources: DRA driver gpu.nvidia.com is not registered")
    cause(world, silent=False)
    world.pass_s(30)
    assert world.phase("worker") == "Running"


def test_a_driver_that_announces_nothing(world: ClaimWorld) -> None:
    cause(world, withdraw=True)
    world.pass_s(5)
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    assert "1 cannot allocate all claims" in world.why("worker")
    cause(world, withdraw=False)
    world.pass_s(15)
    assert world.phase("worker") == "Running"


def test_an_unhealthy_device(world: ClaimWorld) -> None:
    cause(world, taint="gpu-0")
    world.pass_s(5)
    world.pod_from("worker", "one-gpu")
    world.pass_s(5)
    assert world.devices_of("worker") == {"gpu": ["gpu-1"]}


def test_pods_leave_a_device_that_became_unhealthy(world: ClaimWorld) -> None:
    """At once, unless their claim tolerates it: for ever, or for some seconds."""
    tolerated = {"key": "gpu.nvidia.com/unhealthy", "operator": "Exists", "effect": "NoExecute"}
    world.claim("none", exactly())
    world.claim("some", exactly(tolerations=[{**tolerated, "tolerationSeconds": 30}]))
    world.claim("ever", exactly(tolerations=[tolerated]))
    left: dict[str, list[bool]] = {}
    for claim in ("none", "some", "ever"):
        world.pod_with("worker", claim)
        world.pass_s(5)
        (device,) = world.devices(claim)
        cause(world, taint=device)
        for seconds in (10, 40):
            world.pass_s(seconds)
            left.setdefault(claim, []).append(world.get("Pod", "worker") is None)
        if world.get("Pod", "worker") is not None:
            world.delete("Pod", "worker")
        cause(world, taint="")
        world.pass_s(60)
    assert left == {"none": [True, True], "some": [False, True], "ever": [False, False]}
    assert world.events("DeviceTaintManagerEviction") == ["Marking for deletion"] * 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"node": "n1"}, "give node and one of fail, silent, withdraw, taint, not node"),
        ({"node": "n1", "fail": -1}, "fail cannot be -1"),
        ({"node": "n1", "taint": "GPU 0"}, "taint cannot be 'GPU 0'"),
        ({"node": "n2", "fail": 1}, "no node 'n2' with the DRA driver"),
    ],
)
def test_faults_that_there_are_not(world: ClaimWorld, body: dict[str, object], said: str) -> None:
    driver = world.sim.dra_driver
    assert driver is not None
    with pytest.raises(ValueError, match=said):
        driver.cause(read_dra_fault(body))
