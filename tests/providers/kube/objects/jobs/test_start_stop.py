"""Start and stop of every kind on a store, which refuses patches that do not fit the object."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import StartJob, StopJob
from fleet.snapshot import Hold, Job, JobRef, PodSet
from model.kinds import Toleration
from providers.clock import VirtualClock
from providers.kube.objects import DECODERS, StaleObject, prepare_patch, start_patch, stop_patch
from providers.kube.objects.jobs import BY_GROUP_KIND, KINDS, JobKind
from providers.kube.objects.jobs.asked import restored
from providers.kube.objects.jobs.trainer import MANAGER
from providers.kube.objects.names import ADDITIONS, ASKED
from providers.sim.store import PatchType, Store, StoreConflict
from tests.providers.kube.objects.values import tolerations, unhurried
from tests.support.work import USERS, install, manifest

Obj = dict[str, Any]
GPU = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
WIRE = {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"}
SWITCHED = [kind for kind in KINDS if kind.hold is Hold.SWITCH]
TEMPLATED = [kind for kind in SWITCHED if not kind.shaped_below]


def named(kind: JobKind) -> str:
    return kind.kind


class StartStopWorld:
    """A store with one held job in it."""

    def __init__(self, kind: JobKind, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        self.kind = kind
        self.store = Store(VirtualClock())
        install(self.store, kind)
        self.resource = self.store.resource(kind.kind, kind.path.group)
        body = manifest(kind, **spec)
        if annotations:
            body["metadata"]["annotations"] = annotations
        self.store.create(self.resource, body)
        self.stop()
        self.held = self.raw

    @property
    def raw(self) -> Obj:
        return self.store.get(self.resource, "train", "default")

    @property
    def job(self) -> Job:
        return DECODERS[self.kind.group_kind](msgspec.json.encode(self.raw))

    def action(self, *added: Toleration, pod_sets: Sequence[PodSet] | None = None) -> StartJob:
        job = self.job
        sets = tuple(job.pod_sets if pod_sets is None else pod_sets)
        flavors = {one.name: added for one in sets}
        return StartJob(job.ref, job.resource_version, "gang", "job-train", flavors, sets)

    def patch(self, operations: list[Obj], subresource: str = "") -> None:
        if operations:
            self.store.patch(
                self.resource, "train", operations, PatchType.JSON, namespace="default", subresource=subresource
            )

    def start(self, *added: Toleration, pod_sets: Sequence[PodSet] | None = None) -> None:
        first = prepare_patch(self.action(*added, pod_sets=pod_sets), self.raw)
        if first is not None:
            self.patch(first.operations, first.subresource)
        self.patch(start_patch(self.action(*added, pod_sets=pod_sets), self.raw))

    def stop(self) -> None:
        self.patch(stop_patch(StopJob(self.job.ref, "gang"), self.raw))

    def status(self, **status: Any) -> None:
        self.patch([{"op": "add", "path": "/status", "value": status}], "status")


def noted(raw: Obj) -> dict[str, str]:
    return {key: text for key, text in (raw["metadata"].get("annotations") or {}).items() if key in {ADDITIONS, ASKED}}


@pytest.mark.parametrize("kind", TEMPLATED, ids=named)
def test_started_pods_come_gated_labelled_and_tolerating(kind: JobKind) -> None:
    world = StartStopWorld(kind)
    assert world.job.suspended
    world.start(GPU)
    assert not world.job.suspended
    for role in kind.roles(world.raw):
        labels, spec = role.template["metadata"]["labels"], role.template["spec"]
        assert (labels["muster.dev/workload"], labels["muster.dev/pod-set"]) == ("job-train", role.name)
        assert spec["schedulingGates"] == [{"name": "muster.dev/placement"}]
        assert spec["tolerations"] == [USERS, WIRE]


@pytest.mark.parametrize("kind", TEMPLATED, ids=named)
def test_a_stop_gives_back_what_the_user_wrote(kind: JobKind) -> None:
    world = StartStopWorld(kind)
    world.start(GPU)
    assert world.raw["spec"] != world.held["spec"]
    world.stop()
    world.stop()  # a Job's template can only be changed once it is suspended
    assert world.raw["spec"] == world.held["spec"]
    assert noted(world.raw) == noted(world.held)


@pytest.mark.parametrize("kind", SWITCHED, ids=named)
def test_twice_is_once(kind: JobKind) -> None:
    world = StartStopWorld(kind)
    sets = (PodSet("node", 2, {}),) if kind.shaped_below else None
    world.start(GPU, pod_sets=sets)
    version = world.raw["metadata"]["resourceVersion"]
    world.start(GPU, pod_sets=sets)
    assert world.raw["metadata"]["resourceVersion"] == version
    world.stop()
    world.stop()
    assert stop_patch(StopJob(world.job.ref, "gang"), world.raw) == []
    assert world.job.suspended


@pytest.mark.parametrize("kind", SWITCHED, ids=named)
def test_one_that_slipped_through_is_not_started_but_held(kind: JobKind) -> None:
    world = StartStopWorld(kind)
    change = kind.resume(world.raw, ())
    world.patch(change.operations)
    assert not world.job.suspended
    with pytest.raises(StaleObject):
        start_patch(world.action(GPU, pod_sets=(PodSet("node", 2, {}),)), world.raw)
    world.stop()
    assert world.job.suspended
    assert world.job.pod_sets == read(kind, world.held).pod_sets


def read(kind: JobKind, raw: Obj) -> Job:
    return DECODERS[kind.group_kind](msgspec.json.encode(raw))


@pytest.mark.parametrize("kind", SWITCHED, ids=named)
def test_decided_on_another_object_or_version(kind: JobKind) -> None:
    world = StartStopWorld(kind)
    action = world.action(GPU, pod_sets=(PodSet("node", 2, {}),))
    other = JobRef(action.job.api_version, action.job.kind, "default", "train", "other")
    for stale in (replace(action, job=other), replace(action, resource_version="1")):
        with pytest.raises(StaleObject):
            start_patch(stale, world.raw)
    with pytest.raises(StaleObject):
        stop_patch(StopJob(other, "gang"), world.raw)
    patch = start_patch(action, world.raw)
    world.patch([{"op": "add", "path": "/metadata/labels/x", "value": "y"}])
    with pytest.raises(StoreConflict):
        world.patch(patch)


@unhurried
@given(kind=st.sampled_from(TEMPLATED), runs=st.lists(st.lists(tolerations, max_size=2), min_size=1, max_size=3))
def test_any_number_of_runs_leaves_what_the_user_wrote(kind: JobKind, runs: list[list[Toleration]]) -> None:
    world = StartStopWorld(kind)
    asked = world.job.pod_sets
    for added in runs:
        world.start(*added)
        assert world.job.pod_sets == asked
        if kind.kind == "Job":
            world.status(startTime="2027-01-15T08:00:00Z")
        for role in kind.roles(world.raw):
            assert role.template["spec"]["tolerations"][0] == USERS
            assert len(role.template["spec"]["tolerations"]) == 1 + len(set(added))
        world.stop()
        assert (world.job.pod_sets, world.job.suspended) == (asked, True)


# -- what is special --------------------------------------------------------------------------------------------------

JOB, LWS, TRAIN = (
    BY_GROUP_KIND[key]
    for key in (
        ("batch", "Job"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("trainer.kubeflow.org", "TrainJob"),
    )
)
FEWEST = {"kueue.x-k8s.io/job-min-parallelism": "2"}
EQUAL = {**FEWEST, "muster.dev/job-completions-equal-parallelism": "true"}


@pytest.mark.parametrize(
    ("annotations", "spec", "completions"),
    [(FEWEST, {}, 4), (EQUAL, {}, 2), (EQUAL, {"completions": 8}, 8), (EQUAL, {"completionMode": "NonIndexed"}, 4)],
)
def test_a_job_admitted_with_fewer_pods(annotations: dict[str, str], spec: Obj, completions: int) -> None:
    world = StartStopWorld(JOB, annotations, **spec)
    asked_for = world.raw["spec"]["completions"]
    (main,) = world.job.pod_sets
    assert (main.count, main.min_count) == (4, 2)
    world.start(GPU, pod_sets=[replace(main, count=2)])
    assert (world.raw["spec"]["parallelism"], world.raw["spec"]["completions"]) == (2, completions)
    assert world.job.pod_sets == (main,), "it still says what its user asked for"
    world.status(startTime="2027-01-15T08:00:00Z")
    world.stop()
    assert (world.raw["spec"]["parallelism"], world.raw["spec"]["completions"]) == (4, asked_for)
    assert ASKED not in noted(world.raw)
    world.start(GPU)
    assert world.raw["spec"]["parallelism"] == 4


def test_a_job_shrunk_twice_remembers_the_first_wish() -> None:
    world = StartStopWorld(JOB, FEWEST)
    (main,) = world.job.pod_sets
    world.start(pod_sets=[replace(main, count=3)])
    world.patch([{"op": "replace", "path": "/spec/suspend", "value": True}])
    world.start(pod_sets=[replace(main, count=2)])
    assert (world.raw["spec"]["parallelism"], world.job.pod_sets[0].count) == (2, 4)
    world.patch([{"op": "replace", "path": "/spec/suspend", "value": True}])
    world.start()
    assert (world.raw["spec"]["parallelism"], noted(world.raw)) == (4, {})


@pytest.mark.parametrize("text", ['{"/metadata/generation":1}', '{"/spec/replicas":-1}', '{"/spec/replicas":"2"}', "["])
def test_a_record_that_is_not_ours_has_nothing_written(text: str) -> None:
    world = StartStopWorld(LWS)
    world.patch([{"op": "add", "path": f"/metadata/annotations/{ASKED.replace('/', '~1')}", "value": text}])
    assert restored(world.raw) == []
    assert world.job.queue == ""


def test_a_leader_worker_set_is_held_at_no_replicas() -> None:
    world = StartStopWorld(LWS)
    assert (world.raw["spec"]["replicas"], noted(world.raw)) == (0, {ASKED: '{"/spec/replicas":2}'})
    world.start(GPU)
    assert world.raw["spec"]["replicas"] == 2
    assert ASKED not in noted(world.raw)


def test_a_held_leader_worker_set_may_be_resized() -> None:
    world = StartStopWorld(LWS)
    world.patch([{"op": "replace", "path": "/spec/replicas", "value": 5}])
    assert not world.job.suspended
    world.stop()
    assert [(one.name, one.count) for one in world.job.pod_sets] == [("leader", 5), ("worker", 10)]


NODE = PodSet("node", 2, {}, tolerations=(Toleration(key="mine", operator="Exists"),))


def test_a_train_job_is_patched_before_it_is_resumed() -> None:
    theirs = {"manager": "example.com/x", "trainingRuntimeSpec": {}}
    world = StartStopWorld(TRAIN, runtimePatches=[theirs])
    first = prepare_patch(world.action(GPU, pod_sets=[NODE]), world.raw)
    assert first is not None
    world.patch(first.operations, first.subresource)
    assert world.raw["spec"]["suspend"] is True
    kept, ours = world.raw["spec"]["runtimePatches"]
    assert (kept, ours["manager"]) == (theirs, MANAGER)
    template = ours["trainingRuntimeSpec"]["template"]
    (job,) = template["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]
    assert (job["name"], pod["spec"]["tolerations"]) == ("node", [{"operator": "Exists", "key": "mine"}, WIRE])
    assert pod["metadata"]["labels"] == {"muster.dev/workload": "job-train", "muster.dev/pod-set": "node"}
    assert msgspec.json.decode(template["metadata"]["annotations"][ADDITIONS]) == {"node": [WIRE]}
    assert prepare_patch(world.action(GPU, pod_sets=[NODE]), world.raw) is None
    changes = [op["path"] for op in start_patch(world.action(GPU, pod_sets=[NODE]), world.raw)]
    assert changes == ["/metadata/resourceVersion", "/spec/suspend"]


def test_a_train_job_in_another_flavor_has_its_patch_replaced() -> None:
    world = StartStopWorld(TRAIN)
    world.start(GPU, pod_sets=[NODE])
    world.status(jobsStatus=[{"name": "node", "active": 1}])
    world.stop()
    assert len(world.raw["spec"]["runtimePatches"]) == 1, "its jobs still end"
    world.start(pod_sets=[NODE])
    (ours,) = world.raw["spec"]["runtimePatches"]
    assert "metadata" not in ours["trainingRuntimeSpec"]["template"]
    world.status(jobsStatus=[{"name": "node", "active": 0}])
    world.stop()
    world.stop()
    assert "runtimePatches" not in world.raw["spec"]
