"""What people change of a job while its gang runs, and jobs that name no queue: each has an effect that is told."""

from typing import Any

import pytest

from agent.gang_answer import in_no_queue, in_no_queue_lines
from fleet.explain.gang_notes import gang_notes
from fleet.quota.without_queue import left_without_queue
from providers.sim.store import PatchType
from providers.sim.store.errors import StoreInvalid
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


_FIXED: dict[str, tuple[Any, str]] = {
    "priority": (5, "change the class of the job"),
    "preempts": (False, "change the class of the job"),
    "createdAt": ("2020-01-01T00:00:00Z", "of one job, and as old as that"),
}
_AS_THE_JOB_SAYS: dict[str, Any] = {
    "queue": "other",
    "priorityClass": None,
    "podSets": [{"name": "main", "count": 1, "requests": {"cpu": "1"}}],
}


def one_that_runs_and_one_that_waits() -> Scene:
    scene = Scene(files(pool(), team(), queue(), queue("other", team="t")))
    scene.runs(gpu_job("g", pods=2))
    scene.sim.submit(gpu_job("h", pods=4))
    scene.sim.advance(30)
    assert [scene.state(name) for name in "gh"] == ["Admitted", "Pending"]
    return scene


def workload_of(scene: Scene, name: str) -> str:
    gang = scene.sim.gang(name)
    assert gang is not None
    return gang.workload


@pytest.mark.parametrize("field", _FIXED)
def test_what_orders_a_gang_cannot_be_patched(field: str) -> None:
    """Neither of one that runs nor of one that waits: the API server refuses it, and says what to do."""
    scene = one_that_runs_and_one_that_waits()
    value, words = _FIXED[field]
    for name in "gh":
        with pytest.raises(StoreInvalid, match=words):
            patched(scene, "Workload", workload_of(scene, name), {"spec": {field: value}})


@pytest.mark.parametrize("field", _AS_THE_JOB_SAYS)
def test_what_a_gang_is_charged_by_is_what_its_job_says(field: str) -> None:
    """Of one that runs the API server refuses it, and says what to do; one that waits is written as its job says."""
    scene = one_that_runs_and_one_that_waits()
    patch = {"spec": {field: _AS_THE_JOB_SAYS[field]}}
    with pytest.raises(StoreInvalid, match="only active can be changed: change the job"):
        patched(scene, "Workload", workload_of(scene, "g"), patch)
    store, waiting = scene.sim.store, workload_of(scene, "h")
    before = store.get(store.resource("Workload"), waiting, namespace="t")["spec"]
    patched(scene, "Workload", waiting, patch)
    assert store.get(store.resource("Workload"), waiting, namespace="t")["spec"] != before
    scene.sim.advance(30)
    assert store.get(store.resource("Workload"), waiting, namespace="t")["spec"] == before
    patched(scene, "Workload", workload_of(scene, "g"), {"spec": {"active": False}})
    scene.until_state("g", "Pending")


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


@pytest.mark.parametrize("in_a_team", [True, False])
@pytest.mark.parametrize(
    ("moved", "words"),
    [
        ("annotations", "it says metadata.annotations[muster.dev/queue], which counts for nothing: no annotation"),
        ("template", "it says pods of main: metadata.labels[muster.dev/queue], which counts for nothing: no label"),
    ],
)
def test_a_job_that_names_its_queue_in_the_wrong_place_is_told_the_right_one(
    moved: str, words: str, *, in_a_team: bool
) -> None:
    scene = Scene(files(pool(), team(namespaces=["t" if in_a_team else "u"]), queue()))
    job = gpu_job("free", pods=1)
    name = {"muster.dev/queue": job["metadata"]["labels"].pop("muster.dev/queue")}
    if moved == "annotations":
        job["metadata"].setdefault("annotations", {}).update(name)
    else:
        job["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(name)
    job["spec"]["suspend"] = False
    scene.sim.submit(job)
    scene.sim.advance(60)
    (told,) = warned(scene, "NoQueue")
    assert words in told
    assert told.endswith("it is a label of the job")
    snapshot = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    (left,) = left_without_queue(snapshot, "free")
    (line,) = [it for it in in_no_queue_lines(in_no_queue(left, snapshot, "t")) if it.startswith("  unread: ")]
    assert "[muster.dev/queue]: no " in line


def test_a_wish_in_the_wrong_place_keeps_a_job_waiting() -> None:
    """That all pods share a zone is said of pods: on the job it was ignored."""
    scene = Scene(simple())
    job = gpu_job("g", pods=2)
    zone = {"muster.dev/podset-required-topology": "topology.kubernetes.io/zone"}
    job["metadata"].setdefault("annotations", {}).update(zone)
    scene.sim.submit(job)
    scene.sim.advance(30)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, gang.reason) == ("Pending", "UnsupportedConstraint")
    assert gang.message.endswith("it is an annotation of the pod template")


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
