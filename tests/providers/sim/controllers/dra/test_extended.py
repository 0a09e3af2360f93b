"""Pods that ask for an extended resource that a DeviceClass stands for (KEP-5004)."""

import re

from tests.providers.sim.controllers.dra.claim_world import ClaimWorld
from tests.providers.sim.controllers.world import pod_template


def test_a_pod_asks_as_ever_and_has_a_claim() -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.apply("a-gpu-as-extended-resource")
    world.pass_s(10)
    assert world.phase("as-ever") == "Running"
    (claim,) = world.all("ResourceClaim")
    meta = claim["metadata"]
    assert re.fullmatch(r"as-ever-extended-resources-[a-z0-9]{5}", meta["name"])
    assert meta["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    results = [(it["request"], it["device"]) for it in claim["status"]["allocation"]["devices"]["results"]]
    assert results == [
        ("container-0-request-0", "gpu-0"),
        ("container-0-request-0", "gpu-1"),
        ("container-1-request-0", "gpu-2"),
    ]
    told = world.the("Pod", "as-ever")["status"]["extendedResourceClaimStatus"]
    assert told["resourceClaimName"] == meta["name"]
    assert [(it["containerName"], it["resourceName"], it["requestName"]) for it in told["requestMappings"]] == [
        ("main", "nvidia.com/gpu", "container-0-request-0"),
        ("side", "nvidia.com/gpu", "container-1-request-0"),
    ]
    world.delete("Pod", "as-ever")
    world.pass_s(60)
    assert not world.all("ResourceClaim")


def test_a_slice_of_a_cut_gpu() -> None:
    world = ClaimWorld()
    world.gpu_node(mig_config="all-1g.5gb")
    world.apply("a-slice-as-extended-resource")
    world.pass_s(10)
    assert world.phase("small") == "Running"
    (claim,) = world.all("ResourceClaim")
    assert world.devices(claim["metadata"]["name"]) == ["gpu-0-mig-1g5gb-19-0"]


def test_the_device_plugin_goes_first_where_it_serves() -> None:
    world = ClaimWorld()
    world.node("plugin", labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"}, cpu="96", pods="100")
    world.pass_s(60)
    world.apply("a-gpu-as-extended-resource")
    world.pass_s(10)
    assert world.phase("as-ever") == "Running"
    assert not world.all("ResourceClaim")


def test_the_class_may_come_after_the_pod() -> None:
    world = ClaimWorld()
    world.gpu_node()
    template = pod_template(gpus=1)
    world.create("Pod", {"metadata": {"name": "early"}, "spec": template["spec"]})
    world.pass_s(5)
    assert "1 Insufficient nvidia.com/gpu" in world.why("early")
    world.apply("a-gpu-as-extended-resource")
    world.pass_s(10)
    assert world.phase("early") == "Running"


def test_every_class_has_a_resource_of_its_own() -> None:
    world = ClaimWorld()
    world.gpu_node()
    limits = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}
    containers = [{"name": "main", "image": "busybox", "resources": {"limits": limits}}]
    world.create("Pod", {"metadata": {"name": "implicit"}, "spec": {"containers": containers}})
    world.pass_s(10)
    assert world.phase("implicit") == "Running"
    assert len(world.all("ResourceClaim")) == 1


def test_more_than_there_are() -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.apply("a-gpu-as-extended-resource")
    world.pass_s(10)
    template = pod_template(gpus=6)
    world.create("Pod", {"metadata": {"name": "late"}, "spec": template["spec"]})
    world.pass_s(10)
    assert "1 cannot allocate all claims" in world.why("late")
    world.delete("Pod", "as-ever")
    world.pass_s(60)
    assert world.phase("late") == "Running"
