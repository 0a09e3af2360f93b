"""The simulated dcgm-exporter: a pod on each GPU node that answers like the real one, shares by annotation, faults."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.snapshot.gpus import ComplaintKind, GpuScrape
from providers.dcgm import DcgmError, scrape
from providers.sim.controllers.dcgm_exporter import DcgmExporters, read_gpu_trouble
from providers.sim.controllers.gpus import PhysicalGpu
from tests.providers.sim.controllers.world import QUICK, ControllerWorld

NAMESPACE = "gpu-operator"


class ExportedWorld(ControllerWorld):
    def __init__(self) -> None:
        super().__init__(replace(QUICK, dcgm_delay_s=10.0, mig=replace(QUICK.mig, config_map=(NAMESPACE, "x"))))
        assert self.sim.exporters is not None
        self.exporters: DcgmExporters = self.sim.exporters
        self.store.create(self.store.resource("Namespace"), {"metadata": {"name": NAMESPACE}})

    def url(self) -> str:
        (pod,) = self.pods(app="nvidia-dcgm-exporter")
        (port,) = pod["spec"]["containers"][0]["ports"]
        return f"http://{pod['status']['podIP']}:{port['containerPort']}/metrics"

    def told(self) -> GpuScrape:
        return scrape(self.url())

    def cause(self, **body: Any) -> None:
        self.exporters.cause(read_gpu_trouble({"node": "i-1.ec2.internal", **body}))
        self.pass_s(1)


@pytest.fixture
def world() -> Iterator[ExportedWorld]:
    made = ExportedWorld()
    with made.exporters.server:
        made.machine("i-1")
        made.pass_s(60)
        yield made


def holder(world: ExportedWorld, name: str, resource: str, amount: int, notes: Mapping[str, str]) -> None:
    limits = {resource: str(amount)}
    containers = [{"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}]
    world.pod(name, notes=dict(notes), containers=containers, nodeName="i-1.ec2.internal")
    world.pass_s(5)


def test_an_idle_node_tells_of_each_of_its_gpus(world: ExportedWorld) -> None:
    told = world.told()
    assert len(told.readings) == 8
    assert {it.pod for it in told.readings} == {""}
    assert {it.model for it in told.readings} == {"NVIDIA A100-SXM4-40GB"}
    assert told.complaints == ()


def test_a_pod_does_with_its_gpus_what_its_annotations_say(world: ExportedWorld) -> None:
    notes = {"gpu-active": "0.25", "gpu-memory-mib": "1000"}
    holder(world, "a", "nvidia.com/gpu", 3, notes)
    holder(world, "b", "nvidia.com/gpu", 1, {"gpu-active": "none"})
    mine = [it for it in world.told().readings if it.pod == "a"]
    assert [(it.active, it.used_mib, it.free_mib) for it in mine] == [(0.25, 1000.0, 39960.0)] * 3
    (other,) = [it for it in world.told().readings if it.pod == "b"]
    assert other.active == 0.9
    assert other.gpu not in {it.gpu for it in mine}
    before = {it.gpu for it in mine}
    world.delete("Pod", "b", grace_period_s=0)
    world.pass_s(5)
    assert {it.gpu for it in world.told().readings if it.pod == "a"} == before, "nobody moves"
    assert not any(it.pod == "b" for it in world.told().readings)


def test_a_node_that_is_cut_tells_of_each_slice(world: ExportedWorld) -> None:
    world.sim.hardware.cut(world.the("Node", "i-1.ec2.internal"), (PhysicalGpu({"3g.20gb": 2}), *[PhysicalGpu()] * 7))
    world.sim.health.look_again()
    world.pass_s(90)
    holder(world, "a", "nvidia.com/mig-3g.20gb", 1, {"gpu-active": "0.5"})
    told = world.told().readings
    assert sorted(it.profile for it in told) == [""] * 7 + ["3g.20gb"] * 2
    (mine,) = [it for it in told if it.pod == "a"]
    assert (mine.profile, mine.instance, mine.active) == ("3g.20gb", "1", 0.5)


@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        ({"xid": 79}, ComplaintKind.XID, 79),
        ({"ecc": 2}, ComplaintKind.UNCORRECTABLE_ECC, 2),
        ({"remap": "failed"}, ComplaintKind.ROW_REMAP_FAILURE, 1),
        ({"remap": "pending"}, ComplaintKind.ROW_REMAP_PENDING, 1),
        ({"health": 20}, ComplaintKind.HEALTH, 20),
    ],
)
def test_faults_are_told_of_until_they_are_taken_back(
    world: ExportedWorld, fault: dict[str, Any], kind: ComplaintKind, code: int
) -> None:
    world.cause(gpu=3, **fault)
    (found,) = world.told().complaints
    assert (found.kind, found.code) == (kind, code)
    world.cause(gpu=3, **{name: "none" if name == "remap" else 0 for name in fault})
    assert world.told().complaints == ()


def test_an_exporter_may_fall_silent(world: ExportedWorld) -> None:
    world.cause(silent=True)
    with pytest.raises(DcgmError, match="503"):
        world.told()
    world.cause(silent=False)
    assert world.told().readings


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"node": "x"}, "give node, gpu"),
        ({"node": "x", "xid": 79, "ecc": 1}, "give node, gpu"),
        ({"node": "x", "melt": 1}, "melt"),
        ({"node": "x", "xid": -1}, "xid cannot be -1"),
        ({"node": "x", "xid": True}, "xid cannot be True"),
        ({"node": "x", "remap": "yes"}, "remap cannot be 'yes'"),
        ({"node": "x", "gpu": "0", "xid": 1}, "give node, gpu"),
        ({"node": "nobody", "xid": 79}, "no node 'nobody'"),
        ({"node": "i-1.ec2.internal", "gpu": 8, "xid": 79}, "a GPU 8"),
    ],
)
def test_what_cannot_be_caused(world: ExportedWorld, body: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        world.exporters.cause(read_gpu_trouble(body))


def test_a_machine_that_is_gone_takes_its_exporter_along(world: ExportedWorld) -> None:
    url = world.url()
    world.machines.set("i-1", state="terminated")
    world.pass_s(300)
    assert world.get("Node", "i-1.ec2.internal") is None
    with pytest.raises(DcgmError):
        scrape(url)
    assert world.pods(app="nvidia-dcgm-exporter") == []
