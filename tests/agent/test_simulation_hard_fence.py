"""A hard fence in the life of a cluster: it is kept, left to others and taken away, and nothing passes beside it."""

from typing import Any

import pytest

from agent.demo.jobs import Manifest
from agent.simulation import Moment
from providers.kube.objects import HARD_FENCE
from providers.sim.store import PatchType, StoreForbidden
from tests.agent.scenes import Nurse, Scene, doc, files, gpu_job, pool, queue, team

GPU = "requests.nvidia.com/gpu"
POOL = pool(serves=["Gangs", "Pods"])


def fleet(fenced: bool = True, **spec: Any) -> dict[str, str]:
    return files(POOL, team(hardFence=fenced, **spec), queue())


def scene(**spec: Any) -> Scene:
    made = Scene()
    make_namespace(made, "t")
    made.sim.push(fleet(**spec))
    made.sim.advance(10)
    return made


def make_namespace(scene: Scene, name: str) -> None:
    scene.sim.store.create(scene.sim.store.resource("Namespace"), {"metadata": {"name": name}})


def fences(scene: Scene) -> dict[str, dict[str, str]]:
    """Namespace -> the bounds of its fence."""
    quotas = [it for it in scene.sim.objects("ResourceQuota") if it["metadata"]["name"] == HARD_FENCE]
    return {it["metadata"]["namespace"]: it["spec"].get("hard", {}) for it in quotas}


def edit(scene: Scene, patch: dict[str, Any]) -> None:
    quotas = scene.sim.store.resource("ResourceQuota")
    scene.sim.store.patch(quotas, HARD_FENCE, patch, PatchType.MERGE, namespace="t", field_manager="kubectl-edit")


def made_by_others(scene: Scene, hard: dict[str, str]) -> None:
    body = {"metadata": {"name": HARD_FENCE}, "spec": {"hard": hard}}
    quotas = scene.sim.store.resource("ResourceQuota")
    scene.sim.store.create(quotas, body, namespace="t", field_manager="kubectl-create")


def bare_pod(name: str = "bare", gpus: int = 8) -> Manifest:
    amounts = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "i", "resources": {"limits": amounts}}
    meta = {"name": name, "namespace": "t"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


def condition(scene: Scene, kind: str) -> dict[str, Any]:
    return next((it for it in scene.sim.sync()["conditions"] if it["type"] == kind), {})


def test_pods_beside_the_queue_are_refused_what_gangs_are_given() -> None:
    it = scene()
    assert fences(it) == {"t": {GPU: "32"}}
    it.runs(gpu_job("gang", pods=4))
    with pytest.raises(StoreForbidden) as refused:
        it.sim.submit(bare_pod())
    assert refused.value.message == (
        f'pods "bare" is forbidden: exceeded quota: {HARD_FENCE}, requested: {GPU}=8, used: {GPU}=32, limited: {GPU}=32'
    )
    it.sim.submit(bare_pod("no-gpu", gpus=0))
    it.settle(60, settled=False)
    assert it.sim.running("gang")


def test_a_job_in_no_queue_gets_no_more_than_the_fence() -> None:
    it = scene()
    passes = gpu_job("passes", pods=6, run_s=3000)
    del passes["metadata"]["labels"]["muster.dev/queue"]
    passes["spec"]["suspend"] = False
    it.sim.submit(passes)
    it.sim.advance(600)
    (job,) = it.sim.objects("Job")
    assert job["status"]["active"] == 4
    told = [event["message"] for event in it.sim.objects("Event") if event["reason"] == "FailedCreate"]
    assert told
    assert all(f"exceeded quota: {HARD_FENCE}" in words for words in told)
    assert it.bought() == 4


@pytest.mark.parametrize(
    "patch", [{"spec": {"hard": {GPU: "99"}}}, {"spec": {"hard": {GPU: None}}}, {"spec": {"hard": None}}]
)
def test_a_bound_that_is_changed_by_hand_is_put_back(patch: dict[str, Any]) -> None:
    it = scene()
    edit(it, patch)
    it.sim.advance(5)
    assert fences(it) == {"t": {GPU: "32"}}
    it.settle()


def test_bounds_and_labels_of_others_stay() -> None:
    it = scene()
    edit(it, {"metadata": {"labels": {"who": "me"}}, "spec": {"hard": {"pods": "9", GPU: "1"}}})
    it.sim.advance(5)
    assert fences(it) == {"t": {GPU: "32", "pods": "9"}}
    (quota,) = it.sim.objects("ResourceQuota")
    assert quota["metadata"]["labels"]["who"] == "me"
    it.sim.push(fleet(fenced=False))
    it.sim.advance(10)
    assert fences(it) == {"t": {"pods": "9"}}
    it.settle()


def test_one_that_is_deleted_is_written_again() -> None:
    it = scene()
    it.sim.store.delete(it.sim.store.resource("ResourceQuota"), HARD_FENCE, namespace="t")
    it.sim.advance(5)
    assert fences(it) == {"t": {GPU: "32"}}


def test_it_follows_what_is_declared() -> None:
    it = scene()
    make_namespace(it, "u")
    it.sim.push(fleet(quotas={"h100": {"nvidia.com/gpu": 8, "cpu": 96}}, namespaces=["t", "u", "none"]))
    it.sim.advance(10)
    hard = {GPU: "8", "requests.cpu": "96"}
    assert fences(it) == {"t": hard, "u": hard}
    make_namespace(it, "none")
    it.sim.advance(5)
    assert fences(it) == {"t": hard, "u": hard, "none": hard}
    it.sim.push(fleet(namespaces=["u"]))
    it.sim.advance(10)
    assert fences(it) == {"u": {GPU: "32"}}


NO_MORE = {
    "not fenced any more": fleet(fenced=False),
    "not the team's namespace any more": fleet(namespaces=["elsewhere"]),
    "no team any more": files(POOL, doc("Team", "u", namespaces=["u"], quotas={}), queue(team="u")),
}


@pytest.mark.parametrize("name", NO_MORE)
def test_it_goes_when_it_is_not_declared_any_more(name: str) -> None:
    it = scene()
    assert fences(it) == {"t": {GPU: "32"}}
    it.sim.push(NO_MORE[name])
    it.sim.advance(10)
    assert fences(it) == {}
    it.settle()


def test_one_that_somebody_else_made_is_left_and_told_of() -> None:
    it = Scene()
    make_namespace(it, "t")
    made_by_others(it, {GPU: "4"})
    it.sim.push(fleet())
    it.sim.advance(120)
    assert fences(it) == {"t": {GPU: "4"}}
    told = condition(it, "WriteRefused")
    assert (told["status"], told["reason"]) == ("True", "Conflict")
    assert "namespace/t: writing its ResourceQuota is refused" in told["message"]
    assert 'conflict with "kubectl-create"' in told["message"]
    (event,) = [event for event in it.sim.objects("Event") if event["reason"] == "WriteRefused"]
    assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Namespace", "t")
    it.sim.push(fleet(fenced=False))
    it.sim.advance(60)
    assert fences(it) == {"t": {GPU: "4"}}, "what is somebody else's is never taken away"
    it.sim.push(fleet())
    it.sim.store.delete(it.sim.store.resource("ResourceQuota"), HARD_FENCE, namespace="t")
    it.sim.advance(120)
    assert fences(it) == {"t": {GPU: "32"}}
    assert not condition(it, "WriteRefused")


def test_a_namespace_that_goes_is_let_go() -> None:
    it = scene()
    held = {"metadata": {"name": "x", "finalizers": ["example.com/stays"]}}
    it.sim.store.create(it.sim.store.resource("ConfigMap"), held, namespace="t")
    it.sim.store.delete(it.sim.store.resource("Namespace"), "t")
    it.sim.advance(300)
    assert fences(it) == {}
    assert not condition(it, "WriteRefused")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_agent_that_dies_at_every_other_write_keeps_it_and_takes_it_away(moment: Moment) -> None:
    nurse = Nurse(every=2, moment=moment)
    it = Scene(more=[nurse])
    nurse.sim = it.sim
    make_namespace(it, "t")
    nurse.light()
    it.sim.push(fleet())
    it.until(lambda: fences(it) == {"t": {GPU: "32"}})
    it.sim.push(fleet(fenced=False))
    it.until(lambda: not fences(it))
    assert nurse.deaths > 1


def test_two_pushes_in_a_row_leave_what_the_second_says() -> None:
    it = scene()
    it.sim.push(fleet(fenced=False))
    it.sim.push(fleet(quotas={"h100": {"nvidia.com/gpu": 16}}))
    it.sim.advance(10)
    assert fences(it) == {"t": {GPU: "16"}}
