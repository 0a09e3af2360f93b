"""Start and stop against the rules of the API, as the store enforces them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import StartJob, StopJob
from fleet.snapshot import Job, JobRef
from model.kinds import Toleration
from providers.clock import VirtualClock
from providers.kube.objects import DECODERS, StaleObject, kind_of, prepare_patch, start_patch, stop_patch
from providers.sim.store import PatchType, Resource, Store, StoreConflict
from tests.providers.kube.objects.values import tolerations, unhurried

GPU = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
SPOT = Toleration(key="spot", operator="Equal", value="true", effect="NoSchedule")
USERS = {"key": "mine", "operator": "Exists"}


class JobPatchWorld:
    """A store with one suspended job in it."""

    def __init__(self, kind: str, pod_template: dict[str, Any]) -> None:
        self.store = Store(VirtualClock())
        self.resource: Resource = self.store.resource(kind)
        template = {
            "metadata": pod_template.get("metadata"),
            "spec": {"restartPolicy": "Never", **pod_template["spec"]},
        }
        template = {key: value for key, value in template.items() if value is not None}
        inner = {"parallelism": 2, "completions": 2, "template": template}
        spec = (
            inner
            if kind == "Job"
            else {"replicatedJobs": [{"name": n, "template": {"spec": inner}} for n in ("a", "b")]}
        )
        body = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"suspend": True, **spec}}
        self.store.create(self.resource, body)
        self.original = self.raw

    @property
    def raw(self) -> dict[str, Any]:
        return self.store.get(self.resource, "train", "default")

    @property
    def ref(self) -> JobRef:
        meta = self.raw["metadata"]
        return JobRef(self.raw["apiVersion"], self.raw["kind"], "default", "train", meta["uid"])

    @property
    def pod_sets(self) -> list[str]:
        return ["main"] if self.raw["kind"] == "Job" else ["a", "b"]

    def decoded(self) -> Job:
        return DECODERS[kind_of(self.ref).group_kind](msgspec.json.encode(self.raw))

    def templates(self, raw: dict[str, Any]) -> list[dict[str, Any]]:
        if raw["kind"] == "Job":
            return [raw["spec"]["template"]]
        return [job["template"]["spec"]["template"] for job in raw["spec"]["replicatedJobs"]]

    def start_action(self, *added: Toleration) -> StartJob:
        version = self.raw["metadata"]["resourceVersion"]
        return StartJob(self.ref, version, "gang", "job-train", dict.fromkeys(self.pod_sets, added))

    def stop_action(self) -> StopJob:
        return StopJob(self.ref, "gang")

    def patch(self, operations: list[dict[str, Any]], subresource: str = "") -> None:
        if operations:
            self.store.patch(
                self.resource, "train", operations, PatchType.JSON, namespace="default", subresource=subresource
            )

    def start(self, *added: Toleration) -> None:
        first = prepare_patch(self.start_action(*added), self.raw)
        if first is not None:
            self.patch(first.operations, first.subresource)
        self.patch(start_patch(self.start_action(*added), self.raw))

    def stop(self) -> None:
        self.patch(stop_patch(self.stop_action(), self.raw))

    def run(self) -> None:
        """What the job controller does once the job is not suspended; what it clears later is still there."""
        status = [{"op": "add", "path": "/status", "value": {"startTime": "2027-01-15T08:00:00Z"}}]
        self.patch(status, "status")


@pytest.fixture(params=["Job", "JobSet"])
def world(request: pytest.FixtureRequest) -> JobPatchWorld:
    return JobPatchWorld(
        request.param,
        {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"tolerations": [USERS], "containers": [{"name": "c", "image": "i"}]},
        },
    )


def test_start_appends_and_unsuspends(world: JobPatchWorld) -> None:
    world.start(GPU)
    assert world.raw["spec"]["suspend"] is False
    for name, template in zip(world.pod_sets, world.templates(world.raw), strict=True):
        labels = template["metadata"]["labels"]
        assert (labels["app"], labels["muster.dev/workload"], labels["muster.dev/pod-set"]) == ("x", "job-train", name)
        assert template["spec"]["schedulingGates"] == [{"name": "muster.dev/placement"}]
        assert template["spec"]["tolerations"] == [
            USERS,
            {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"},
        ]


def test_start_twice_is_start_once(world: JobPatchWorld) -> None:
    action = world.start_action(GPU)
    world.patch(start_patch(action, world.raw))
    assert start_patch(action, world.raw) == []
    assert start_patch(world.start_action(GPU), world.raw) == []


def test_stop_twice_is_stop_once(world: JobPatchWorld) -> None:
    world.start(GPU)
    world.run()
    world.stop()
    assert world.raw["spec"]["suspend"] is True
    assert stop_patch(world.stop_action(), world.raw) == []


def test_stop_gives_a_jobset_its_template_back() -> None:
    world = JobPatchWorld("JobSet", {"spec": {"tolerations": [USERS], "containers": [{"name": "c", "image": "i"}]}})
    world.start(GPU, SPOT)
    world.stop()
    held = [template["spec"] for template in world.templates(world.original)]
    assert [template["spec"] for template in world.templates(world.raw)] == held
    assert "muster.dev/template-additions" not in world.raw["metadata"].get("annotations", {})


def test_stop_before_the_first_run_gives_a_job_its_template_back(world: JobPatchWorld) -> None:
    world.start(GPU)
    world.patch([{"op": "replace", "path": "/spec/suspend", "value": True}])
    world.stop()
    for template, was in zip(world.templates(world.raw), world.templates(world.original), strict=True):
        assert template["spec"] == was["spec"]
        assert template["metadata"]["labels"] == was["metadata"]["labels"]


def test_second_run_in_another_flavor(world: JobPatchWorld) -> None:
    world.start(GPU, SPOT)
    world.run()
    world.stop()
    world.start(GPU)
    assert world.raw["spec"]["suspend"] is False
    for template in world.templates(world.raw):
        assert [one["key"] for one in template["spec"]["tolerations"]] == ["mine", "nvidia.com/gpu"]
        assert template["spec"]["schedulingGates"] == [{"name": "muster.dev/placement"}]


def test_second_run_in_the_same_flavor_needs_no_template_change() -> None:
    world = JobPatchWorld("Job", {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    world.start(GPU)
    world.run()
    world.stop()
    assert prepare_patch(world.start_action(GPU), world.raw) is None
    assert [op["path"] for op in start_patch(world.start_action(GPU), world.raw)] == [
        "/metadata/resourceVersion",
        "/spec/suspend",
    ]


def test_what_a_job_asks_for_is_what_the_user_wrote(world: JobPatchWorld) -> None:
    """Whatever stands in the template after a stop: a gang must not be taken for another one."""
    asked = world.decoded().pod_sets
    world.start(GPU, SPOT)
    world.run()
    world.stop()
    assert world.decoded().pod_sets == asked
    assert [one.key for one in asked[0].tolerations] == ["mine"]


def test_a_toleration_the_user_has_is_neither_doubled_nor_taken(world: JobPatchWorld) -> None:
    mine = Toleration(key="mine", operator="Exists")
    world.start(mine, GPU)
    assert [one["key"] for one in world.templates(world.raw)[0]["spec"]["tolerations"]] == ["mine", "nvidia.com/gpu"]
    world.run()
    world.stop()
    world.start()
    assert [one["key"] for one in world.templates(world.raw)[0]["spec"]["tolerations"]] == ["mine"]


def test_gates_of_others_stay() -> None:
    gates = [{"name": "example.com/quota"}]
    world = JobPatchWorld("JobSet", {"spec": {"schedulingGates": gates, "containers": [{"name": "c", "image": "i"}]}})
    world.start()
    assert world.templates(world.raw)[0]["spec"]["schedulingGates"] == [*gates, {"name": "muster.dev/placement"}]
    world.stop()
    assert world.templates(world.raw)[0]["spec"]["schedulingGates"] == gates


def test_a_change_in_between_is_a_conflict(world: JobPatchWorld) -> None:
    patch = start_patch(world.start_action(GPU), world.raw)
    world.patch([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}])
    with pytest.raises(StoreConflict):
        world.patch(patch)


@pytest.mark.parametrize(
    "change", [{"resource_version": "1"}, {"job": JobRef("batch/v1", "Job", "default", "train", "other")}]
)
def test_decided_on_another_object(world: JobPatchWorld, change: dict[str, Any]) -> None:
    with pytest.raises(StaleObject):
        start_patch(replace(world.start_action(GPU), **change), world.raw)


def test_a_second_run_decided_on_an_older_version_does_not_touch_the_status() -> None:
    world = JobPatchWorld("Job", {"spec": {"containers": [{"name": "c", "image": "i"}]}})
    world.start(GPU, SPOT)
    world.run()
    world.stop()
    action = world.start_action(GPU)
    assert prepare_patch(action, world.raw)
    with pytest.raises(StaleObject):
        prepare_patch(replace(action, resource_version="1"), world.raw)


def test_a_stop_of_a_replaced_job_is_refused(world: JobPatchWorld) -> None:
    with pytest.raises(StaleObject):
        stop_patch(StopJob(replace(world.ref, uid="other"), "gang"), world.raw)


def test_a_job_that_runs_without_our_gate_is_not_ours_to_start(world: JobPatchWorld) -> None:
    world.patch([{"op": "replace", "path": "/spec/suspend", "value": False}])
    with pytest.raises(StaleObject):
        start_patch(world.start_action(GPU), world.raw)


@pytest.mark.parametrize("text", ["]", "[]", '{"main": [1]}', '{"main": [{"key": 1}], "a": [{"key": 1}]}'])
def test_a_record_that_cannot_be_read_takes_nothing_from_the_user(world: JobPatchWorld, text: str) -> None:
    world.patch([{"op": "add", "path": "/metadata/annotations", "value": {"muster.dev/template-additions": text}}])
    assert [one.key for one in world.decoded().pod_sets[0].tolerations] == ["mine"]
    world.start(GPU)
    assert [one["key"] for one in world.templates(world.raw)[0]["spec"]["tolerations"]] == ["mine", "nvidia.com/gpu"]


@unhurried
@given(
    runs=st.lists(st.lists(tolerations, max_size=3), min_size=1, max_size=4), kind=st.sampled_from(("Job", "JobSet"))
)
def test_any_number_of_runs_leaves_what_the_user_wrote(runs: list[list[Toleration]], kind: str) -> None:
    world = JobPatchWorld(kind, {"spec": {"tolerations": [USERS], "containers": [{"name": "c", "image": "i"}]}})
    asked = world.decoded().pod_sets
    for added in runs:
        world.start(*added)
        assert world.decoded().pod_sets == asked
        world.run()
        for template in world.templates(world.raw):
            held = template["spec"]["tolerations"]
            assert held[0] == USERS
            assert len(held) == 1 + len(set(added))
            assert template["spec"]["schedulingGates"] == [{"name": "muster.dev/placement"}]
        world.stop()
        assert world.decoded().pod_sets == asked
