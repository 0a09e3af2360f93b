"""How many lost pods the owner of each kind makes anew: whoever is not sure to loses its gang as a whole."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.snapshot import ANY_NUMBER, Job
from fleet.snapshot.works import works
from model.index import Index
from providers.kube.objects.jobs import BY_GROUP_KIND, KINDS, JobKind
from tests.providers.kube.objects.jobs.test_kinds import named, of, read
from tests.support.work import SPECS, manifest, pod

Obj = dict[str, Any]
IGNORE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAIL = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}
COUNT = {"action": "Count", "onExitCodes": {"operator": "In", "values": [2]}}
LWS, VOLCANO = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), ("batch.volcano.sh", "Job")


def restarts(kind: JobKind, spec: Obj | None = None, status: Obj | None = None) -> dict[str, int]:
    return dict(read(kind, {**manifest(kind, **(spec or {})), **({"status": status} if status else {})}).restarts)


@pytest.mark.parametrize(
    ("spec", "failed", "left"),
    [
        ({}, 0, 6),
        ({}, 4, 2),
        ({}, 9, 0),
        ({"backoffLimit": 0}, 0, 0),
        ({"backoffLimit": 3}, 1, 2),
        ({"backoffLimitPerIndex": 2}, 0, 2),
        ({"backoffLimitPerIndex": 2}, 1, 1),
        ({"backoffLimitPerIndex": 9, "backoffLimit": 3}, 1, 2),
        ({"backoffLimit": 0, "podFailurePolicy": {"rules": [IGNORE]}}, 0, ANY_NUMBER),
        ({"backoffLimit": 0, "podFailurePolicy": {"rules": [COUNT, IGNORE, FAIL]}}, 7, ANY_NUMBER),
        ({"podFailurePolicy": {"rules": [FAIL, IGNORE]}}, 0, 0),
        ({"podFailurePolicy": {"rules": [COUNT]}}, 0, 6),
    ],
)
def test_a_job(spec: Obj, failed: int, left: int) -> None:
    """What is gone counts as failed; which exit code a lost pod would have had nobody can say."""
    found = restarts(of("batch", "Job"), spec, {"failed": failed} if failed else None)
    assert found == ({"main": left} if left else {})


ENDS = {"maxRestarts": 2, "rules": [{"name": "r", "action": "FailJobSet"}]}


@pytest.mark.parametrize(
    ("limits", "policy", "used", "left"),
    [
        ((None, 0), {}, 0, {"driver": 6}),
        ((0, 0), {}, 0, {}),
        ((0, 0), {"maxRestarts": 2}, 1, {"driver": ANY_NUMBER, "workers": ANY_NUMBER}),
        ((0, 1), {"maxRestarts": 2}, 2, {"workers": 1}),
        ((0, 0), ENDS, 0, {}),
    ],
)
def test_a_job_set(limits: tuple[int | None, int], policy: Obj, used: int, left: dict[str, int]) -> None:
    """It starts again as a whole, or its jobs stand the loss by themselves."""
    kind = of("jobset.x-k8s.io", "JobSet")
    jobs = []
    for one, limit in zip(SPECS[kind.group_kind]["replicatedJobs"], limits, strict=True):
        spec = {**one["template"]["spec"], **({} if limit is None else {"backoffLimit": limit})}
        jobs.append({**one, "template": {"spec": spec}})
    assert restarts(kind, {"replicatedJobs": jobs, "failurePolicy": policy}, {"restartsCountTowardsMax": used}) == left


@pytest.mark.parametrize(
    ("policies", "limit", "left"),
    [
        (("OnFailure", "ExitCode"), None, {"worker": ANY_NUMBER, "master": ANY_NUMBER}),
        (("OnFailure", "Always"), 3, {"worker": 3, "master": 3}),
        (("OnFailure", "Never"), None, {}),
        (("OnFailure", None), None, {}),
        (("OnFailure", "OnFailure"), 0, {}),
    ],
)
def test_a_job_of_kubeflow(policies: tuple[str, str | None], limit: int | None, left: dict[str, int]) -> None:
    types = ("Worker", "Master")
    specs = {
        name: {"replicas": 1, "template": pod(), **({"restartPolicy": policy} if policy else {})}
        for name, policy in zip(types, policies, strict=True)
    }
    run = {"suspend": True, **({} if limit is None else {"backoffLimit": limit})}
    kind = of("kubeflow.org", "PyTorchJob")
    assert restarts(kind, {"pytorchReplicaSpecs": specs, "runPolicy": run}) == left


def test_the_launcher_of_an_mpi_job_ends_with_its_workers() -> None:
    specs = {name: {"template": pod(), "restartPolicy": "OnFailure"} for name in ("Launcher", "Worker")}
    assert restarts(of("kubeflow.org", "MPIJob"), {"mpiReplicaSpecs": specs}) == {}


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_workers_of_ray_come_and_go_and_the_head_does_not(kind: str) -> None:
    assert restarts(of("ray.io", kind)) == {"gpu": ANY_NUMBER}


def test_groups_of_leader_and_workers_always_come_back() -> None:
    assert restarts(BY_GROUP_KIND[LWS]) == {"leader": ANY_NUMBER, "worker": ANY_NUMBER}


def policy(action: str, **event: Any) -> Obj:
    return {"policies": [{"action": action, **event}]}


@pytest.mark.parametrize(
    ("spec", "task", "retries", "left"),
    [
        ({}, {}, 0, set()),
        (policy("RestartJob", event="PodEvicted"), {}, 0, {"ps", "worker"}),
        (policy("RestartJob", events=["PodFailed", "PodEvicted"]), {}, 2, {"ps", "worker"}),
        (policy("RestartJob", event="*"), {}, 3, set()),
        ({**policy("RestartJob", event="*"), "maxRetry": 5}, {}, 3, {"ps", "worker"}),
        (policy("RestartJob", event="PodFailed"), {}, 0, set()),
        (policy("AbortJob", event="PodEvicted"), policy("RestartTask", event="PodEvicted"), 0, {"worker"}),
        (policy("RestartJob", event="PodEvicted"), policy("AbortJob", event="*"), 0, {"ps"}),
    ],
)
def test_a_volcano_job(spec: Obj, task: Obj, retries: int, left: set[str]) -> None:
    """Where a policy hears of evicted pods, that of the task before that of the job."""
    ps, worker = SPECS[VOLCANO]["tasks"]
    found = restarts(BY_GROUP_KIND[VOLCANO], {**spec, "tasks": [ps, {**worker, **task}]}, {"retryCount": retries})
    assert found == dict.fromkeys(sorted(left), ANY_NUMBER)


def test_a_recipe_stands_what_the_set_made_of_it_stands() -> None:
    train = read(of("trainer.kubeflow.org", "TrainJob"), manifest(of("trainer.kubeflow.org", "TrainJob")))
    kind = of("jobset.x-k8s.io", "JobSet")
    below: Job = read(kind, manifest(kind, failurePolicy={"maxRestarts": 1}))
    owned = {below.ref.uid + "x": replace(below, owner_uid=train.ref.uid)}
    assert works(Index(), {train.ref.uid: train, **owned}, {})[train.ref.uid].restarts == below.restarts


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize(("says", "read_as"), [("Replace", "Replace"), ("Evict", "Evict"), ("perhaps", ""), ("", "")])
def test_every_job_may_say_it_for_itself(kind: JobKind, says: str, read_as: str) -> None:
    raw = manifest(kind)
    raw["metadata"]["annotations"] = {"muster.dev/on-node-failure": says}
    assert read(kind, raw).on_node_failure == read_as
