"""What people change of a job while its gang runs, and jobs that name no queue: each has an effect that is told."""

from typing import Any

import pytest

from fleet.explain.gang_notes import gang_notes
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


def used(scene: Scene) -> dict[str, int]:
    """GPUs that each Queue's status shows as used."""
    return {
        it["metadata"]["name"]: sum(
            int(one["used"]) for one in it["status"].get("usage", ()) if "gpu" in one["resource"]
        )
        for it in scene.sim.objects("Queue")
    }


@pytest.mark.parametrize("named", ["elsewhere", "other", "same", ""])
def test_a_gang_counts_where_it_was_admitted_whatever_queue_its_workload_is_patched_to(named: str) -> None:
    """That of another team, one without its flavor, its team's second, one that is not declared, none."""
    queues = (queue(), queue("same", team="t"), queue("other", flavors=("a100",), team="u"))
    pools = (pool(), pool("a100"))
    others = team("u", quotas={"a100": {"nvidia.com/gpu": 8}}, namespaces=["u"])
    scene = Scene(files(*pools, team(), others, *queues))
    scene.runs(gpu_job("g", pods=2))
    before = used(scene)
    assert before == {"t": 16, "same": 0, "other": 0}
    gang = scene.sim.gang("g")
    assert gang is not None
    patched(scene, "Workload", gang.workload, {"spec": {"queue": named}})
    scene.sim.advance(400)
    assert scene.state("g") == "Admitted"
    assert used(scene) == before
    words = f"the queue of its Workload was changed to {named!r} while it runs: it counts in 't' until it ends"
    assert sum(words in it for it in warned(scene, "JobChanged")) == 1, "once"
    patched(scene, "Workload", gang.workload, {"spec": {"active": False}})
    scene.sim.advance(120)
    requeued = scene.sim.gang("g")
    assert requeued is not None
    assert (requeued.queue, requeued.patched_queue) == ("t", None), "made anew as its job says"
    assert sum(used(scene).values()) == (16 if scene.state("g") == "Admitted" else 0)


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


def test_a_misspelt_annotation_keeps_a_job_waiting_until_it_is_mended() -> None:
    scene = Scene(simple())
    job = gpu_job("g", pods=1)
    job["metadata"].setdefault("annotations", {})["muster.dev/max-runtime"] = "2h"
    scene.sim.submit(job)
    scene.sim.advance(30)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, gang.reason) == ("Pending", "UnsupportedConstraint")
    assert "metadata.annotations[muster.dev/max-runtime]" in gang.message
    assert "did you mean muster.dev/max-run-time?" in gang.message
    patched(scene, "Job", "g", {"metadata": {"annotations": {"muster.dev/max-runtime": None}}})
    scene.until_running("g", 600)
    patched(scene, "Job", "g", {"metadata": {"annotations": {"muster.dev/max-runtime": "2h"}}})
    scene.sim.advance(30)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert scene.state("g") == "Admitted"
    (note,) = [
        it
        for it in gang_notes(scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset()), gang)
        if it.startswith("unread: ")
    ]
    assert "muster.dev/max-runtime" in note


@pytest.mark.parametrize("dies_after", [None, 1, 2])
@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_is_changed_while_it_waits_keeps_what_it_has_been_through(
    dies_after: int | None, *, held: bool
) -> None:
    """Evicted once, it asks for less than before, while it waits or while machines are bought for it.

    The agent may die after each write of the change: status, then specification.
    """
    scene = Scene(simple(limits={"nodes": 1}))
    scene.runs(gpu_job("g"))
    scene.sim.advance(500)
    scene.runs(gpu_job("urgent", priority="high"))
    scene.until(lambda: scene.state("g") == "Pending")
    before = scene.sim.gang("g")
    assert before is not None
    assert before.evictions == 1
    assert before.ran_before_s > 400
    if held:
        scene.sim.push(simple(limits={"nodes": 2}))
        scene.until_state("g", "QuotaReserved")
    if dies_after:
        scene.sim.crash_at(scene.sim.writes + dies_after, "after")
    patched(
        scene, "Job", "g", {"spec": {"parallelism": 1}, "metadata": {"labels": {"muster.dev/priority-class": "high"}}}
    )
    scene.sim.advance(20)
    scene.sim.restart()
    scene.sim.advance(20)
    after = scene.sim.gang("g")
    assert after is not None
    assert (after.priority_class, after.priority) == ("high", 1000)
    assert (after.evictions, after.ran_before_s, after.workload_uid) == (1, before.ran_before_s, before.workload_uid)
    (shown,) = (it for it in scene.sim.objects("Workload") if it["metadata"]["name"] == after.workload)
    assert shown["metadata"]["labels"]["muster.dev/priority-class"] == "high"
    scene.sim.push(simple(limits={"nodes": 2}))
    scene.until_running("g", 900)
    scene.settle()
