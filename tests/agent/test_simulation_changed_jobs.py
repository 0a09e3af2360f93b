"""What people change of a job while its gang runs, and jobs that name no queue: each has an effect that is told."""

from typing import Any

import pytest

from providers.sim.store import PatchType
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team


def warned(scene: Scene, reason: str) -> list[str]:
    """The Warning events of a reason on jobs."""
    return [
        event.get("note") or event["message"]
        for event in scene.sim.objects("Event")
        if event["reason"] == reason
        and event["type"] == "Warning"
        and (event.get("regarding") or event["involvedObject"])["kind"] == "Job"
    ]


def patched(scene: Scene, kind: str, name: str, patch: dict[str, Any]) -> None:
    store = scene.sim.store
    store.patch(store.resource(kind), name, patch, PatchType.MERGE, namespace="t")


@pytest.mark.parametrize(
    ("patch", "words", "after"),
    [
        (
            {"spec": {"parallelism": 3}},
            "the 1 more have no place and wait behind their gate",
            "Admitted",
        ),
        ({"spec": {"parallelism": 1}}, "those that go count as lost", ""),
        ({"metadata": {"labels": {"muster.dev/queue": "other"}}}, "its job names queue 'other'", "Admitted"),
        (
            {"metadata": {"labels": {"muster.dev/priority-class": "high"}}},
            "its job names priority class high",
            "Admitted",
        ),
    ],
    ids=["scaled up", "scaled down", "another queue", "another class"],
)
def test_a_job_that_is_changed_while_it_runs(patch: dict[str, Any], words: str, after: str) -> None:
    scene = Scene(simple())
    job = gpu_job("g", pods=2)
    job["spec"]["completions"] = 4
    scene.runs(job)
    patched(scene, "Job", "g", patch)
    scene.sim.advance(30)
    told = warned(scene, "JobChanged")
    assert len(told) == 1, "once"
    assert words in told[0]
    if after:
        assert scene.state("g") == after
        assert len(scene.nodes_of("g")) == 2


def test_a_workload_whose_queue_is_patched_is_told_of() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("g", pods=2))
    gang = scene.sim.gang("g")
    assert gang is not None
    patched(scene, "Workload", gang.workload, {"spec": {"queue": "elsewhere"}})
    scene.sim.advance(30)
    assert scene.state("g") == "Admitted"
    assert any(
        "its Workload names queue 'elsewhere', which is not declared" in it for it in warned(scene, "JobChanged")
    )


@pytest.mark.parametrize(
    ("of_team", "words"),
    [({}, "no quota counts it"), ({"ordinaryPodsQueue": "t"}, "its pods count in queue t")],
    ids=["counts nowhere", "its pods count"],
)
def test_a_job_that_names_no_queue_is_seen_and_told_once(of_team: dict[str, str], words: str) -> None:
    scene = Scene(files(pool(serves=["Gangs", "Pods"]), team(**of_team), queue()))
    job = gpu_job("free", pods=1)
    del job["metadata"]["labels"]["muster.dev/queue"]
    job["spec"]["suspend"] = False
    scene.sim.submit(job)
    scene.sim.advance(60)
    (told,) = warned(scene, "NoQueue")
    assert words in told
    assert "create it with the label muster.dev/queue" in told


def test_a_misspelt_resource_is_told_with_the_right_name() -> None:
    scene = Scene(simple())
    job = gpu_job("g", pods=1)
    for key in ("requests", "limits"):
        found = job["spec"]["template"]["spec"]["containers"][0]["resources"].get(key, {})
        if "nvidia.com/gpu" in found:
            found["nvidia.com/gpus"] = found.pop("nvidia.com/gpu")
    scene.sim.submit(job)
    scene.sim.advance(30)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert "did you mean nvidia.com/gpu?" in gang.message
    assert any("did you mean nvidia.com/gpu?" in it for it in warned(scene, str(gang.reason)))
