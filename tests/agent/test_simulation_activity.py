"""Deactivation, run time, admission checks and pods that end early, on a cluster in virtual time."""

from typing import Any

import pytest

from providers.sim.store import PatchType
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team

Obj = dict[str, Any]


def workload(scene: Scene, body: Obj, subresource: str = "", manager: str = "") -> None:
    """A write to the Workload of job `g`: by hand, or under somebody's field manager."""
    store, gang = scene.sim.store, scene.sim.gang("g")
    assert gang is not None
    kind = PatchType.APPLY if manager else PatchType.MERGE
    ref = {"apiVersion": "muster.dev/v1alpha1", "kind": "Workload"} if manager else {}
    metadata = {"metadata": {"name": gang.workload, "namespace": gang.namespace}} if manager else {}
    store.patch(
        store.resource("Workload"),
        gang.workload,
        {**ref, **metadata, **body},
        kind,
        namespace=gang.namespace,
        subresource=subresource,
        field_manager=manager or "kubectl",
        force=bool(manager),
    )


def activate(scene: Scene, active: bool) -> None:
    workload(scene, {"spec": {"active": active}})


def answer(scene: Scene, name: str, state: str, **more: Any) -> None:
    body = {"status": {"admissionChecks": [{"name": name, "state": state, **more}]}}
    workload(scene, body, "status", f"check-{name}")


def reason(scene: Scene) -> str:
    gang = scene.sim.gang("g")
    return gang.reason if gang else ""


def test_a_gang_is_stopped_and_started_by_hand() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g", pods=2))
    activate(scene, False)
    scene.until(lambda: reason(scene) == "Deactivated" and scene.state("g") == "Pending", 300)
    assert scene.sim.objects("Job")[0]["spec"]["suspend"] is True
    scene.settle(600)
    assert reason(scene) == "Deactivated"
    activate(scene, True)
    scene.until_running("g")
    scene.settle(30)


@pytest.mark.parametrize("writes", [None, *range(1, 13)])
def test_a_gang_that_has_run_its_time_is_deactivated_whatever_dies_meanwhile(writes: int | None) -> None:
    """The agent dies after so many writes from the moment on that its time is over."""
    scene = Scene(simple())
    manifest = gpu_job("g")
    manifest["metadata"].setdefault("annotations", {})["muster.dev/max-run-time"] = "10m"
    scene.runs(manifest)
    gang = scene.sim.gang("g")
    assert gang is not None
    scene.sim.advance(gang.admitted_at_s + 595 - scene.sim.now_s)
    assert scene.sim.running("g")
    if writes is not None:
        scene.sim.crash_at(scene.sim.writes + writes, "after")
        scene.until(lambda: not scene.sim.alive, 300)
        scene.sim.restart()
    scene.until(lambda: reason(scene) == "Deactivated" and scene.state("g") == "Pending", 300)
    found = scene.sim.gang("g")
    assert found is not None
    assert (found.active, found.evictions, found.ran_before_s) == (False, 1, 0.0)
    activate(scene, True)
    scene.until_running("g")


def checked() -> Scene:
    return Scene(files(pool(), team(), queue(admissionChecks=["licence"])))


def test_a_gang_waits_for_its_check_on_machines_of_its_own() -> None:
    scene = checked()
    scene.sim.submit(gpu_job("g"))
    scene.until(lambda: reason(scene) == "WaitingForAdmissionChecks")
    scene.settle(120)
    assert scene.bought() == 1
    answer(scene, "licence", "Ready")
    scene.until_running("g")
    scene.settle(30)


def test_a_check_that_wants_another_try_is_asked_again() -> None:
    scene = checked()
    scene.sim.submit(gpu_job("g"))
    scene.until(lambda: reason(scene) == "WaitingForAdmissionChecks")
    answer(scene, "licence", "Retry", message="no seat", requeueAfterSeconds=300)
    scene.until_state("g", "Pending", 30)
    scene.sim.advance(280)
    assert reason(scene) == "BackOff"
    scene.until(lambda: reason(scene) == "WaitingForAdmissionChecks")
    (raw,) = scene.sim.objects("Workload")
    assert raw["status"]["admissionChecks"] == [{"name": "licence", "state": "Pending"}]
    answer(scene, "licence", "Ready")
    scene.until_running("g")


def test_one_that_is_rejected_stays_out() -> None:
    scene = checked()
    scene.sim.submit(gpu_job("g"))
    scene.until(lambda: reason(scene) == "WaitingForAdmissionChecks")
    answer(scene, "licence", "Rejected", message="not for you")
    scene.until(lambda: reason(scene) == "Deactivated", 60)
    (raw,) = scene.sim.objects("Workload")
    assert raw["spec"]["active"] is False
    assert "not for you" in raw["status"]["message"]


def test_the_priority_of_its_pods_and_its_boost_are_seen() -> None:
    scene = Scene(files(pool(), team(), queue()))
    store = scene.sim.store
    store.create(
        store.resource("PriorityClass", "scheduling.k8s.io"),
        {"metadata": {"name": "serving"}, "value": 700, "preemptionPolicy": "Never"},
    )
    manifest = gpu_job("g")
    del manifest["metadata"]["labels"]["muster.dev/priority-class"]
    manifest["metadata"].setdefault("annotations", {})["muster.dev/priority-boost"] = "5"
    manifest["spec"]["template"]["spec"]["priorityClassName"] = "serving"
    scene.runs(manifest)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.priority, gang.preempts) == (700, False)
    snapshot = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    assert snapshot.gangs[gang.uid].effective_priority == 705
    assert "t" in snapshot.namespaces


def test_the_next_gang_starts_where_pods_have_ended_for_good() -> None:
    """Three completions, two at once: after the first two there is one left, and room for somebody else."""
    scene = Scene(files(pool(limits={"nodes": 1}), team(), queue()))
    manifest = gpu_job("g", pods=2, gpus=4, run_s=200)
    manifest["spec"]["completions"] = 3
    scene.runs(manifest)
    scene.sim.submit(gpu_job("h", gpus=4))
    scene.sim.advance(100)
    assert scene.state("h") == "Pending"
    scene.until_running("h", 200)
    assert scene.state("g") == "Admitted"
    assert scene.nodes_of("g") == scene.nodes_of("h")
    scene.until_state("g", "Finished")
    scene.settle(60)
