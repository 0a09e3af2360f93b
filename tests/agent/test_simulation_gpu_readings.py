"""Readings of GPUs through the whole agent: idle gangs are named and stopped, machines with bad GPUs are replaced."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent.inbox import GpusRead
from fleet.snapshot.gpus import ComplaintKind, GpuComplaint, GpuReading, GpuRecord, GpuScrape
from tests.agent.scenes import P5, Scene, files, gpu_job, pool, queue, team

EVERY_S = 30.0


class Read:
    """A scene whose agent reads exporters: of each pod that runs, how active its GPUs are."""

    def __init__(self, **of_queue: Any) -> None:
        self.scene = Scene(files(pool(), team(), queue(**of_queue)))
        self.record = GpuRecord(3600.0)
        self.active: Mapping[str, float] = {}
        """Job -> how active; of others nothing is read."""
        self.xids: dict[str, int] = {}
        """Node -> error on its first GPU."""

    def read(self) -> None:
        scrapes: dict[str, GpuScrape] = {}
        for pod in self.scene.sim.objects("Pod"):
            node, name = pod["spec"].get("nodeName", ""), pod["metadata"]["name"]
            active = next((it for job, it in self.active.items() if name.startswith(job)), None)
            if not node or active is None or pod["status"].get("phase") != "Running":
                continue
            readings = tuple(
                GpuReading(node, f"{node}-{n}", "", "", "NVIDIA H100 80GB HBM3", "t", name, active, 900.0, 80000.0)
                for n in range(8)
            )
            xid = self.xids.get(node)
            complaints = (GpuComplaint(f"{node}-0", ComplaintKind.XID, xid),) if xid else ()
            scrapes[node] = GpuScrape(readings, complaints)
        self.record.take(scrapes, self.scene.sim.clock.now())
        self.scene.sim.brain.hear(GpusRead(self.record.uses, self.record.faults))

    def pass_s(self, seconds: float) -> None:
        for _ in range(int(seconds / EVERY_S)):
            self.read()
            self.scene.sim.advance(EVERY_S)

    def workload(self, name: str) -> Any:
        (found,) = [it for it in self.scene.sim.objects("Workload") if it["spec"]["job"]["name"] == name]
        return found

    def conditions(self, name: str) -> Mapping[str, str]:
        return {it["type"]: it["message"] for it in self.workload(name)["status"]["conditions"]}


def running(**of_queue: Any) -> Read:
    made = Read(**of_queue)
    made.scene.runs(gpu_job("g", gpus=8))
    return made


def test_a_gang_that_does_nothing_is_named_and_no_more_when_it_works() -> None:
    made = running(idleGpus={"after": "10m"})
    made.active = {"g": 0.0}
    made.pass_s(540)
    assert "GpusIdle" not in made.conditions("g")
    made.pass_s(180)
    assert made.conditions("g")["GpusIdle"] == (
        "It has done nothing with any of its 8 GPUs or slices for 10m or longer"
    )
    assert made.workload("g")["status"]["idleGpus"]["idle"] == 8
    made.active = {"g": 0.7}
    made.pass_s(60)
    assert "GpusIdle" not in made.conditions("g")
    assert made.scene.sim.running("g")
    made.scene.laws.check(settled=True)


def test_a_queue_may_have_it_stopped_and_its_machine_goes_back() -> None:
    made = running(idleGpus={"after": "10m", "action": "Stop"})
    made.active = {"g": 0.0}
    made.pass_s(840)
    assert made.workload("g")["spec"]["active"] is False
    assert made.workload("g")["status"]["reason"] == "Deactivated"
    assert "IdleGPUs: it has done nothing with any of its 8 GPUs" in made.workload("g")["status"]["message"]
    made.scene.settle(600)
    assert made.scene.sim.machines() == []


@pytest.mark.parametrize(
    "active",
    [
        pytest.param({"g": 0.3}, id="one that works"),
        pytest.param({}, id="one of which nothing is read"),
    ],
)
def test_nobody_else_is_stopped(active: Mapping[str, float]) -> None:
    made = running(idleGpus={"after": "10m", "action": "Stop"})
    made.active = active
    made.pass_s(1800)
    assert made.scene.sim.running("g")
    assert "GpusIdle" not in made.conditions("g")


def test_readings_that_stop_stop_nobody() -> None:
    made = running(idleGpus={"after": "10m", "action": "Stop"})
    made.active = {"g": 0.0}
    made.pass_s(480)
    made.active = {}
    made.pass_s(1800)
    assert made.scene.sim.running("g")


def test_a_machine_whose_gpu_has_failed_is_replaced_and_says_so() -> None:
    made = running()
    made.active = {"g": 0.9}
    made.pass_s(60)
    (node,) = made.scene.nodes_of("g")
    made.xids = {node: 31}
    made.pass_s(300)
    (claim,) = made.scene.sim.objects("NodeClaim")
    assert [it["what"] for it in claim["status"]["history"]] == ["GpuFault"]
    assert made.scene.bought(P5) == 1, "a fault of the program"
    made.xids = {node: 79}
    made.read()
    made.scene.sim.advance(EVERY_S)
    (claim,) = made.scene.sim.objects("NodeClaim")
    conditions = {it["type"]: it["message"] for it in claim["status"]["conditions"] if it["status"] == "True"}
    assert conditions["GpuFailed"] == f"{node}-0: XID 79"
    made.pass_s(90)
    events = [it["message"] for it in made.scene.sim.objects("Event") if it["reason"] == "NodeFailures"]
    assert any(it.endswith(f"has been True for 1 min: {node}-0: XID 79") for it in events)
    made.scene.until_running("g")
    assert made.scene.bought(P5) == 2
    assert node not in made.scene.nodes_of("g")
    made.scene.laws.check(settled=True)
