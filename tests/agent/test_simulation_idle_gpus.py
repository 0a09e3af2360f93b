"""Idle GPUs of a machine are cut beside the work on its others, where dcgm-exporter tells which they are."""

import pytest

from agent.inbox import GpusRead
from fleet.snapshot.gpus import GpuRecord
from providers.dcgm import read_scrape
from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.gpus import PhysicalGpu
from providers.sim.controllers.mig_manager import read_mig_fault
from tests.agent.scenes import P4DE, B, Manifest, Scene, files, job, layout, pool, queue, team

READ_EVERY_S = 30.0


class Exporters:
    """Stands for the HTTP server of the simulated exporters: what they say is read where they say it."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []

    def opened(self) -> int:
        self.texts.append(None)
        return len(self.texts)

    def say(self, port: int, text: str | None) -> None:
        self.texts[port - 1] = text


class ReadScene(Scene):
    """A scene whose agent has asked the exporters every half minute."""

    def __init__(self, fleet: dict[str, str], *, tells: bool = True) -> None:
        super().__init__(options=SimulationOptions(dcgm_delay_s=15.0))
        exporters = self.sim.world.exporters
        assert exporters is not None
        self.exporters, self.tells = Exporters(), tells
        exporters.server = self.exporters  # type: ignore[assignment]
        self.record = GpuRecord(3600.0)
        self.sim.push(fleet)
        self.sim.advance(1)

    def read(self, for_s: float) -> None:
        for _ in range(round(for_s / READ_EVERY_S)):
            self.sim.advance(READ_EVERY_S)
            if self.tells:
                texts = [read_scrape(it.encode(), "here") for it in self.exporters.texts if it is not None]
                scrapes = {it.readings[0].node: it for it in texts if it.readings}
                self.record.take(scrapes, self.sim.clock.now())
                heard = GpusRead(self.record.uses, self.record.faults, holders=self.record.holders)
                self.sim.seats[0].process.inbox.append(heard)


def fleet(*, beside: bool = True) -> dict[str, str]:
    slices = {"nvidia.com/mig-3g.40gb": 64, "nvidia.com/mig-1g.10gb": 224}
    mig = {"layouts": ["thick", "thin"], "recutIdleGpus": beside}
    return files(
        pool("mig", (P4DE,), zones=[B], sharing={"mig": mig}, limits={"nodes": 1}),
        layout("thick", **{"3g_40gb": 2}),
        layout("thin", **{"1g_10gb": 7}),
        team(quotas={"mig": slices}),
        queue(flavors=("mig",)),
    )


def slices(name: str, profile: str, pods: int, run_s: float | None = None) -> Manifest:
    return job(name, "t", "normal", pods=pods, requests={f"nvidia.com/mig-{profile}": "1"}, run_s=run_s)


def pods_of(scene: Scene, name: str) -> set[str]:
    return {it["metadata"]["uid"] for it in scene.sim.objects("Pod") if it["metadata"]["name"].startswith(name)}


def test_one_idle_gpu_is_cut_beside_the_work_and_that_work_goes_on() -> None:
    scene = ReadScene(fleet())
    scene.sim.submit(slices("thick", "3g.40gb", 6))
    scene.read(600)
    assert scene.state("thick") == "Admitted"
    before = pods_of(scene, "thick")
    scene.sim.submit(slices("thin", "1g.10gb", 5))
    scene.read(300)
    assert scene.state("thin") == "Admitted"
    (node,) = (it for it in scene.sim.objects("Node"))
    offered = {name: int(it) for name, it in node["status"]["allocatable"].items() if "nvidia.com/mig" in name}
    assert offered == {"nvidia.com/mig-3g.40gb": 14, "nvidia.com/mig-1g.10gb": 7}
    assert node["metadata"]["labels"]["nvidia.com/mig.config"].startswith("mixed-")
    assert pods_of(scene, "thick") == before, "nobody had to leave"
    (claim,) = scene.sim.objects("NodeClaim")
    assert [dict(it) for it in claim["status"]["gpuCuts"]].count({"1g.10gb": 7}) == 1
    assert "cut" not in claim["status"]


@pytest.mark.parametrize(("beside", "tells"), [(False, True), (True, False)])
def test_without_leave_or_readings_a_busy_machine_stays_as_it_is(beside: bool, tells: bool) -> None:
    scene = ReadScene(fleet(beside=beside), tells=tells)
    scene.sim.submit(slices("thick", "3g.40gb", 6))
    scene.read(600)
    scene.sim.submit(slices("thin", "1g.10gb", 5))
    scene.read(600)
    assert (scene.state("thick"), scene.state("thin")) == ("Admitted", "Pending")


def test_where_that_fails_the_machine_is_as_it_was_and_its_work_never_stops() -> None:
    scene = ReadScene(fleet())
    scene.sim.submit(slices("thick", "3g.40gb", 6))
    scene.read(600)
    before = pods_of(scene, "thick")
    (node,) = (it["metadata"]["name"] for it in scene.sim.objects("Node"))
    scene.sim.mig_manager.cause(read_mig_fault({"node": node, "fail": 20}))
    scene.sim.submit(slices("thin", "1g.10gb", 5))
    scene.read(900)
    (claim,) = scene.sim.objects("NodeClaim")
    status = claim["status"]
    assert (status["state"], status.get("gpuCuts"), status.get("cut")) == ("Ready", None, None)
    assert status["layout"].startswith("thick-")
    assert [it["what"] for it in status["history"]] == ["RecutFailed"]
    assert scene.state("thin") == "Pending"
    assert pods_of(scene, "thick") == before
    scene.sim.mig_manager.cause(read_mig_fault({"node": node, "fail": 0}))
    scene.read(3600)
    assert scene.state("thin") == "Admitted", "it is tried again after an hour"
    assert pods_of(scene, "thick") == before


def test_where_half_of_it_fails_the_work_on_the_other_gpus_goes_on() -> None:
    """One of two idle GPUs is cut anew and the other is not, and cannot be cut back: nobody leaves for that."""
    scene = ReadScene(fleet())
    scene.sim.submit(slices("thick", "3g.40gb", 12, run_s=3000))
    scene.read(600)
    before = pods_of(scene, "thick")
    (name,) = (it["metadata"]["name"] for it in scene.sim.objects("Node"))
    manager = scene.sim.mig_manager
    manager.cause(read_mig_fault({"node": name, "fail": 1000}))
    scene.sim.submit(slices("thin", "1g.10gb", 9))
    scene.read(120)
    (node,) = scene.sim.objects("Node")
    gpus = list(manager._hardware.of(node))
    idle = next(n for n, holders in enumerate(holders_of(scene, name)) if not holders)
    gpus[idle] = PhysicalGpu({"1g.10gb": 7})
    manager._hardware.cut(node, tuple(gpus))
    scene.read(1500)
    assert pods_of(scene, "thick") == before
    assert scene.state("thick") == "Admitted"
    assert [it["what"] for it in scene.sim.objects("NodeClaim")[0]["status"]["history"]] == ["RecutFailed"]
    scene.read(3600)
    assert scene.state("thick") == "Finished"
    assert scene.state("thin") == "Admitted", "the machine was given up when nobody was left on it"


def holders_of(scene: ReadScene, node: str) -> tuple[frozenset[str], ...]:
    return scene.record.holders[node].pods


def test_when_all_have_left_the_machine_is_cut_as_a_whole_again() -> None:
    scene = ReadScene(fleet())
    scene.sim.submit(slices("thick", "3g.40gb", 6, run_s=1500))
    scene.read(600)
    scene.sim.submit(slices("thin", "1g.10gb", 5, run_s=1500))
    scene.read(2400)
    assert (scene.state("thick"), scene.state("thin")) == ("Finished", "Finished")
    scene.sim.submit(slices("more", "3g.40gb", 16))
    scene.read(300)
    assert scene.state("more") == "Admitted"
    (claim,) = scene.sim.objects("NodeClaim")
    assert claim["status"]["layout"].startswith("thick-")
    assert "gpuCuts" not in claim["status"]
