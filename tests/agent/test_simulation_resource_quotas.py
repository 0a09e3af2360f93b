"""ResourceQuotas that others have made: a gang whose pods they would refuse waits, and no machine is bought for it."""

from typing import Any

import pytest

from agent.demo.jobs import Manifest
from fleet.snapshot import Gang
from providers.sim.store import PatchType
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team
from tests.agent.test_simulation_refused import events

GPUS = "requests.nvidia.com/gpu"


def quota(hard: dict[str, str], name: str = "gpus", **spec: Any) -> Manifest:
    meta = {"name": name, "namespace": "t"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **spec}}


def scene(*quotas: Manifest, **fleet: Any) -> Scene:
    made = Scene(files(pool(), team(**fleet), queue()) if fleet else simple())
    for it in quotas:
        made.sim.submit(it)
    made.sim.advance(5)
    return made


def found(it: Scene, name: str) -> Gang:
    gang = it.sim.gang(name)
    assert gang is not None
    return gang


def test_a_gang_waits_for_room_in_a_quota_and_runs_when_it_is_raised() -> None:
    it = scene(quota({GPUS: "16"}))
    it.runs(gpu_job("first", pods=1, run_s=3600))
    it.sim.submit(gpu_job("second", pods=2, run_s=3600))
    it.sim.advance(300)
    waits = found(it, "second")
    assert (waits.state, waits.reason, it.bought()) == ("Pending", "ResourceQuotaExceeded", 1)
    assert waits.message.startswith(
        f"ResourceQuota gpus of namespace t has no room for its pods: they ask 16 {GPUS}, 8 of 16 used"
    )
    assert len(events(it, "ResourceQuotaExceeded")) == 2, "on the job, and on its Workload"
    patch = {"spec": {"hard": {GPUS: "24"}}}
    it.sim.store.patch(it.sim.store.resource("ResourceQuota"), "gpus", patch, PatchType.MERGE, namespace="t")
    it.until_running("second")
    it.settle()
    assert not [event for event in it.sim.objects("Event") if event["reason"] == "FailedCreate"]


def test_jobs_of_one_moment_share_what_is_left() -> None:
    it = scene(quota({GPUS: "16"}))
    for n in range(4):
        it.sim.submit(gpu_job(f"j{n}", pods=1, run_s=900))
    it.sim.advance(600)
    assert it.bought() == 2
    assert sorted(it.state(f"j{n}") for n in range(4)) == ["Admitted", "Admitted", "Pending", "Pending"]
    it.sim.advance(1800)
    assert [it.state(f"j{n}") for n in range(4)] == ["Finished"] * 4
    assert not [event for event in it.sim.objects("Event") if event["reason"] == "FailedCreate"]


def test_pods_beside_the_queues_use_it_as_well() -> None:
    it = scene(quota({GPUS: "8"}))
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "t"}}
    it.sim.submit({**bare, "spec": {"containers": [container]}})
    it.sim.submit(gpu_job("g", pods=1))
    it.sim.advance(300)
    assert (found(it, "g").reason, it.bought()) == ("ResourceQuotaExceeded", 0)
    it.sim.store.delete(it.sim.store.resource("Pod"), "b", namespace="t")
    it.until_running("g")


def test_what_is_never_let_in_is_said() -> None:
    it = scene(quota({"limits.cpu": "4"}, "limits"))
    it.sim.submit(gpu_job("g", pods=1))
    it.sim.advance(300)
    assert (found(it, "g").reason, it.bought()) == ("ResourceQuotaExceeded", 0)
    words = "ResourceQuota limits of namespace t: pods of 'main' must specify limits.cpu for: spec.containers[0]"
    assert found(it, "g").message == words


@pytest.mark.parametrize(("name", "runs"), [("urgent", False), ("other", True)])
def test_a_quota_for_a_class_counts_its_pods_alone(name: str, runs: bool) -> None:
    terms = [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]
    it = scene(quota({GPUS: "0"}, scopeSelector={"matchExpressions": terms}))
    for each in ("urgent", "other"):
        meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": each}}
        it.sim.submit({**meta, "value": 10})
    job = gpu_job("g", pods=1)
    job["spec"]["template"]["spec"]["priorityClassName"] = name
    it.sim.submit(job)
    it.sim.advance(400)
    assert (it.sim.running("g"), found(it, "g").reason == "ResourceQuotaExceeded") == (runs, not runs)


def test_a_full_hard_fence_lets_the_more_important_gang_in() -> None:
    """It is as large as the quota of its team: a gang that may evict another has room in it once that has left."""
    preemption = {"withinQueue": "LowerPriority"}
    it = Scene()
    it.sim.store.create(it.sim.store.resource("Namespace"), {"metadata": {"name": "t"}})
    it.sim.push(files(pool(), team(hardFence=True), queue(preemption=preemption)))
    it.sim.advance(10)
    it.runs(gpu_job("low", pods=4, run_s=36000))
    urgent = gpu_job("urgent", pods=4, run_s=3600)
    urgent["metadata"]["labels"]["muster.dev/priority-class"] = "high"
    it.sim.submit(urgent)
    it.until_running("urgent")
    it.settle()
    assert it.state("low") == "Pending"
