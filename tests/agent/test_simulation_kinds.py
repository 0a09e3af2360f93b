"""Work of other people's kinds from submission to its end, in virtual time, with what their operators do."""

from collections.abc import Callable
from typing import Any

import pytest

from providers.kube.objects.jobs import BY_GROUP_KIND, JobKind
from tests.agent.scenes import P5, Scene, doc, files, gpu_job, pool, queue, simple, team
from tests.support.operators import Operator, leader_worker, pytorch, ray, trainer, volcano
from tests.support.work import group_pod, install, install_pod_groups, lasting, manifest, pod

Obj = dict[str, Any]

JOB, JOB_SET, PYTORCH, RAY_JOB, TRAIN, LWS, VOLCANO = (
    BY_GROUP_KIND[key]
    for key in (
        ("batch", "Job"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kubeflow.org", "PyTorchJob"),
        ("ray.io", "RayJob"),
        ("trainer.kubeflow.org", "TrainJob"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("batch.volcano.sh", "Job"),
    )
)
RAY_CLUSTER = BY_GROUP_KIND["ray.io", "RayCluster"]


def stage(*operators: Operator, kinds: tuple[JobKind, ...], fleet: Any = None) -> Scene:
    """A scene whose cluster serves these kinds."""
    scene = Scene(more=operators)
    install(scene.sim.store, *kinds)
    for operator in operators:
        operator.sim = scene.sim
    scene.sim.push(fleet or simple())
    scene.sim.advance(1)
    return scene


def torch(name: str = "g", *, suspend: bool = True, run_s: float | None = None, workers: int = 1, **labels: str) -> Obj:
    template = lasting(pod(), run_s)
    specs = {"Master": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    body = manifest(PYTORCH, name, "t", runPolicy={"suspend": suspend}, pytorchReplicaSpecs=specs)
    body["metadata"]["labels"] |= labels
    return body


def pinned(scene: Scene) -> list[str]:
    """Pods that carry the mark of a gang, have a node and no gate."""
    return sorted(
        it["metadata"]["name"]
        for it in scene.sim.objects("Pod")
        if it["metadata"].get("labels", {}).get("muster.dev/workload")
        and it["spec"].get("nodeName")
        and it["spec"]["nodeSelector"]["kubernetes.io/hostname"]
        and not it["spec"].get("schedulingGates")
    )


def test_a_pytorch_job_from_its_queue_to_its_end() -> None:
    scene = stage(pytorch(), kinds=(PYTORCH,))
    scene.runs(torch(run_s=60))
    assert pinned(scene) == ["g-master-0", "g-worker-0"]
    assert scene.bought() == 2
    scene.until_state("g", "Finished")
    scene.sim.delete(torch())
    scene.until(lambda: not scene.sim.machines() and not scene.sim.objects("Workload"), 900)
    scene.settle(60)


def test_one_that_slipped_through_is_suspended_and_waits_its_turn() -> None:
    scene = stage(pytorch(), kinds=(PYTORCH,))
    scene.runs(torch(suspend=False))
    assert pinned(scene) == ["g-master-0", "g-worker-0"]
    scene.settle()


def test_a_gang_of_another_kind_is_evicted_whole_and_comes_back() -> None:
    small = files(pool(limits={"nodes": 2}), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue())
    scene = stage(pytorch(), kinds=(PYTORCH,), fleet=small)
    scene.runs(torch())
    scene.runs(gpu_job("urgent", pods=2, priority="high", run_s=120))
    assert scene.state("g") in {"Pending", "Evicting"}
    assert scene.sim.object("PyTorchJob", "g", "t")["spec"]["runPolicy"]["suspend"] is True  # type: ignore[index]
    scene.until_running("g", 900)
    scene.settle()
    assert scene.laws.evictions["g"] == 1


def test_a_ray_job_is_one_gang_with_its_cluster() -> None:
    scene = stage(*ray(), kinds=(RAY_JOB, RAY_CLUSTER))
    scene.runs(manifest(RAY_JOB, "g", "t", submitterPodTemplate=None))
    assert set(scene.sim.gangs()) == {"g"}
    assert [gang.job.kind for gang in scene.sim.gangs().values()] == ["RayJob"]
    assert len(scene.sim.objects("Workload")) == 1, "its cluster, with the same label, is no gang of its own"
    assert pinned(scene) == ["g-gpu-0", "g-gpu-1", "g-head"]
    scene.settle()


def test_a_train_job_is_one_gang_with_its_job_set() -> None:
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": lasting(pod(), 60)}
    scene = stage(trainer([{"name": "node", "replicas": 1, "template": {"spec": spec}}]), kinds=(TRAIN,))
    scene.runs(manifest(TRAIN, "g", "t"))
    assert [gang.job.kind for gang in scene.sim.gangs().values()] == ["TrainJob"]
    assert len(pinned(scene)) == 2
    scene.until_state("g", "Finished")
    scene.settle()


def test_a_train_job_stopped_and_started_is_the_same_gang() -> None:
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod()}
    runtime = [{"name": "node", "replicas": 1, "template": {"spec": spec}}]
    small = files(pool(limits={"nodes": 2}), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue())
    scene = stage(trainer(runtime), kinds=(TRAIN,), fleet=small)
    scene.runs(manifest(TRAIN, "g", "t"))
    uid = scene.sim.objects("Workload")[0]["metadata"]["uid"]
    scene.runs(gpu_job("urgent", pods=2, priority="high", run_s=120))
    scene.until_running("g", 900)
    scene.settle()
    assert uid in {it["metadata"]["uid"] for it in scene.sim.objects("Workload")}


def test_a_leader_worker_set_is_held_at_no_replicas_until_its_turn() -> None:
    scene = stage(leader_worker(), kinds=(LWS,))
    of = {"size": 2, "leaderTemplate": pod(1), "workerTemplate": pod(4)}
    scene.runs(manifest(LWS, "g", "t", leaderWorkerTemplate=of))
    assert pinned(scene) == ["g-0", "g-0-1", "g-1", "g-1-1"]
    scene.settle()


def vc_job(name: str = "g", *, run_s: float | None = None, workers: int = 1, least: int | None = None) -> Obj:
    template = lasting(pod(gated=True), run_s)
    tasks = [{"name": "w", "replicas": workers, "template": template}]
    return manifest(VOLCANO, name, "t", tasks=tasks, minAvailable=workers if least is None else least)


def test_a_volcano_job_has_its_pods_held_one_by_one() -> None:
    scene = stage(volcano(), kinds=(VOLCANO,))
    scene.sim.submit(vc_job(run_s=60, workers=2))
    scene.sim.advance(1)
    held = scene.sim.objects("Pod")
    assert [it["spec"]["schedulingGates"] for it in held] == [[{"name": "muster.dev/placement"}]] * 2
    assert not any("muster.dev/workload" in it["metadata"]["labels"] for it in held)
    scene.until_running("g")
    assert pinned(scene) == ["g-w-0", "g-w-1"]
    scene.until_state("g", "Finished")
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 900)
    scene.settle(60)


def test_an_evicted_volcano_job_waits_behind_its_gates() -> None:
    small = files(pool(limits={"nodes": 2}), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue())
    scene = stage(volcano(), kinds=(VOLCANO,), fleet=small)
    scene.sim.submit(vc_job(workers=2))
    scene.until_running("g")
    scene.runs(gpu_job("urgent", pods=2, priority="high", run_s=120))
    assert pinned(scene) == sorted(it for it in pinned(scene) if it.startswith("urgent"))
    assert len([it for it in scene.sim.objects("Pod") if it["metadata"]["name"].startswith("g-")]) == 2
    scene.until_running("g", 900)
    scene.settle()


def test_what_is_beyond_the_core_joins_where_room_is_left_and_leaves_first() -> None:
    small = files(pool(limits={"nodes": 3}), team(quotas={"h100": {"nvidia.com/gpu": 24}}), queue())
    scene = stage(volcano(), kinds=(VOLCANO,), fleet=small)

    def own() -> int:
        return len([it for it in pinned(scene) if it.startswith("g-")])

    scene.runs(gpu_job("big", pods=2, run_s=200))
    scene.sim.submit(vc_job(workers=3, least=1))
    scene.until_running("g")
    assert own() == 1
    scene.until(lambda: own() == 3, 900)
    scene.runs(gpu_job("late", run_s=60))
    assert (own(), scene.laws.evictions["g"]) == (2, 0)
    scene.until(lambda: own() == 3, 900)
    scene.settle()


def test_a_job_that_runs_with_fewer_pods_is_started_and_charged_with_these() -> None:
    small = files(pool(limits={"nodes": 3}), team(quotas={"h100": {"nvidia.com/gpu": 24}}), queue())
    scene = Scene(small)
    whole = gpu_job("whole", pods=4)
    whole["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    scene.runs(whole)
    (job,) = scene.sim.objects("Job")
    (workload,) = scene.sim.objects("Workload")
    assert (job["spec"]["parallelism"], len(pinned(scene))) == (3, 3)
    assert workload["status"]["admitted"] == [{"podSet": "main", "count": 3}]
    assert workload["spec"]["podSets"][0]["count"] == 4
    scene.sim.restart()
    scene.settle()
    scene.runs(gpu_job("urgent", pods=2, priority="high", run_s=60))
    scene.until_running("whole", 900)
    assert len(pinned(scene)) >= 3
    scene.settle()


# -- plain pods -------------------------------------------------------------------------------------------------------


def test_plain_pods_are_a_gang_once_all_of_them_are_there() -> None:
    scene = Scene(simple())
    scene.sim.submit(group_pod("a", run_s=60))
    scene.settle(60)
    assert not scene.sim.gangs()
    scene.sim.submit(group_pod("b", run_s=60))
    scene.until_running("g")
    assert pinned(scene) == ["a", "b"]
    (workload,) = scene.sim.objects("Workload")
    assert workload["spec"]["job"]["kind"] == "PodGroup"
    assert "ownerReferences" not in workload["metadata"]
    scene.until_state("g", "Finished")
    scene.sim.delete(group_pod("a"))
    scene.sim.delete(group_pod("b"))
    scene.until(lambda: not scene.sim.objects("Workload") and not scene.sim.machines(), 900)
    scene.settle(60)


def test_too_many_plain_pods_and_the_youngest_goes() -> None:
    scene = Scene(simple())
    for name in ("a", "b", "c"):
        scene.sim.submit(group_pod(name))
        scene.sim.advance(2)
    scene.until_running("g")
    assert pinned(scene) == ["a", "b"]
    assert [it["metadata"]["name"] for it in scene.sim.objects("Pod")] == ["a", "b"]
    scene.settle()


def test_a_plain_pod_without_the_gate_does_not_run_past_the_queue() -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("first", run_s=30))
    scene.sim.submit(group_pod("a", total=1, gated=False))
    scene.until(lambda: not [it for it in scene.sim.objects("Pod") if it["metadata"]["name"] == "a"], 120)
    scene.settle(60)


def test_an_evicted_plain_group_is_gone_and_its_replacement_queues_anew() -> None:
    small = files(pool(limits={"nodes": 1}), team(quotas={"h100": {"nvidia.com/gpu": 8}}), queue())
    scene = Scene(small)
    scene.sim.submit(group_pod("a", total=1))
    scene.until_running("g")
    scene.runs(gpu_job("urgent", priority="high", run_s=60))
    assert pinned(scene) == sorted(it for it in pinned(scene) if it.startswith("urgent"))
    scene.until(lambda: "g" not in scene.sim.gangs(), 60)
    scene.sim.submit(group_pod("a2", total=1))
    scene.until_running("g", 900)
    assert pinned(scene)[0] == "a2"
    scene.settle()


def drifting_group(**annotations: str) -> Scene:
    """A plain group that has run while its pool was changed."""
    free = doc("FleetPolicy", "fleet", guardRails={"maxPercentRemoved": 100, "maxNodesRemoved": 9})
    scene = Scene(files(pool(), team(), queue(), free))
    for name in ("a", "b"):
        body = group_pod(name)
        body["metadata"]["annotations"] |= annotations
        scene.sim.submit(body)
    scene.until_running("g")
    scene.sim.push(files(pool(template={"labels": {"new": "yes"}}), team(), queue(), free))
    scene.sim.advance(1800)
    return scene


def test_a_plain_group_that_nobody_would_make_anew_is_not_moved() -> None:
    """Its machines had drifted: it was stopped for good, and nobody had asked for that."""
    scene = drifting_group()
    assert scene.sim.running("g")
    assert pinned(scene) == ["a", "b"]
    assert scene.laws.evictions == {}


def test_a_plain_group_that_says_it_comes_back_is_moved() -> None:
    scene = drifting_group(**{"muster.dev/on-node-failure": "Replace"})
    assert scene.laws.evictions == {"g": 1}
    assert pinned(scene) == []


def test_pods_of_a_pod_group_start_when_enough_are_there() -> None:
    scene = Scene(simple())
    install_pod_groups(scene.sim.store)
    group = {"metadata": {"name": "g", "namespace": "t"}, "spec": {"minMember": 2}}
    for name in ("a", "b"):
        body = group_pod(name)
        body["metadata"]["labels"].pop("muster.dev/pod-group-name")
        body["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        scene.sim.submit(body)
        if name == "a":
            scene.sim.store.create(scene.sim.store.resource("PodGroup"), group)
            scene.settle(30)
            assert not scene.sim.gangs()
    scene.until_running("g")
    assert pinned(scene) == ["a", "b"]
    scene.settle()


# -- kinds that come and go -------------------------------------------------------------------------------------------


def test_a_kind_that_is_installed_later_is_seen() -> None:
    operator = pytorch()
    scene = stage(operator, kinds=(JOB_SET,))
    scene.runs(gpu_job("g0"))
    install(scene.sim.store, PYTORCH)
    scene.runs(torch())
    scene.settle()


def two_pods(**more: Any) -> Obj:
    return {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod(), **more}


WORK: dict[str, tuple[Callable[[], list[Operator]], tuple[JobKind, ...], list[Obj]]] = {
    "a switch": (lambda: [pytorch()], (PYTORCH,), [torch()]),
    "no replicas": (
        lambda: [leader_worker()],
        (LWS,),
        [manifest(LWS, "g", "t", leaderWorkerTemplate={"size": 1, "workerTemplate": pod()})],
    ),
    "two writes": (
        lambda: [trainer([{"name": "node", "replicas": 1, "template": {"spec": two_pods()}}])],
        (TRAIN,),
        [manifest(TRAIN, "g", "t")],
    ),
    "pod by pod": (lambda: [volcano()], (VOLCANO,), [vc_job(workers=2)]),
    "plain pods": (list, (), [group_pod("a"), group_pod("b")]),
}


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("moment", [0, 12, 24, 36, *range(42, 52)])
def test_a_crash_between_any_two_writes_neither_loses_nor_doubles_a_pod(kind: str, moment: int) -> None:
    operators, kinds, manifests = WORK[kind]
    scene = stage(*operators(), kinds=kinds or (JOB,))
    for body in manifests:
        scene.sim.submit(body)
    scene.sim.crash_at(scene.sim.writes + moment, "after" if moment % 2 else "before")
    scene.sim.advance(240)
    if not scene.sim.alive:
        scene.sim.restart()
    scene.until_running("g", 900)
    assert len(pinned(scene)) == 2
    assert scene.bought(P5) == 2
    scene.settle()
