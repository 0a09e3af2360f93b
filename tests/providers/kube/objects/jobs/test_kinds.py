"""Objects of every kind -> what they ask for and how far they are."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import ANY_NUMBER, Hold, Job, JobResult, Numbering, PodSet
from fleet.snapshot.constraints import EphemeralClaim
from providers.kube.objects import DECODERS
from providers.kube.objects.jobs import BY_GROUP_KIND, KINDS, JobKind
from providers.kube.objects.names import ASKED
from tests.support.work import POD_SETS, SPECS, manifest, pod

CREATED = "2027-01-15T08:00:00Z"
Obj = dict[str, Any]


def named(kind: JobKind) -> str:
    return ".".join(kind.group_kind[::-1])


def of(group: str, kind: str) -> JobKind:
    return BY_GROUP_KIND[group, kind]


def read(kind: JobKind, raw: Obj) -> Job:
    meta = {"uid": "u", "resourceVersion": "5", "creationTimestamp": CREATED, **raw["metadata"]}
    return DECODERS[kind.group_kind](msgspec.json.encode({**raw, "metadata": meta}))


def shape(job: Job) -> list[tuple[str, int]]:
    return [(one.name, one.count) for one in job.pod_sets]


def test_there_is_a_sample_of_every_kind() -> None:
    assert set(SPECS) == set(POD_SETS) == set(BY_GROUP_KIND)
    assert len({kind.path for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_a_held_job(kind: JobKind) -> None:
    job = read(kind, manifest(kind))
    assert shape(job) == POD_SETS[kind.group_kind]
    assert (job.queue, job.priority_class, job.owner_uid) == ("t", "normal", "")
    assert job.suspended is (kind.kind != "LeaderWorkerSet")
    assert (job.ref.api_version, job.ref.kind, job.ref.uid) == (kind.path.api_version(), kind.kind, "u")
    assert (job.created_at_s, job.resource_version) == (1_800_000_000.0, "5")
    assert (job.result, job.ready_pods, job.active_pods, job.deleting) == (None, 0, 0, False)
    assert all(one.requests["nvidia.com/gpu"] in {1, 8} for one in job.pod_sets)
    assert [one.tolerations[0].key for one in job.pod_sets] == ["mine"] * len(job.pod_sets)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_what_everybody_may_say(kind: JobKind) -> None:
    raw = manifest(kind)
    raw["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "p"}
    raw["metadata"]["annotations"] = {
        "volcano.sh/last-checkpoint-time": CREATED,
        "muster.dev/checkpoint-interval": "10m",
        "muster.dev/do-not-disrupt": "true",
    }
    raw["metadata"]["deletionTimestamp"] = CREATED
    job = read(kind, raw)
    assert (job.queue, job.priority_class) == ("q", "p")
    assert (job.last_checkpoint_s, job.checkpoint_interval_s, job.do_not_disrupt) == (1_800_000_000.0, 600.0, "true")
    assert job.deleting


@pytest.mark.parametrize("kind", [kind for kind in KINDS if POD_SETS[kind.group_kind]], ids=named)
def test_a_template_may_forbid_disruption(kind: JobKind) -> None:
    raw: Obj = msgspec.json.decode(msgspec.json.encode(manifest(kind)))
    kind.roles(raw)[-1].template.setdefault("metadata", {})["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    assert read(kind, raw).do_not_disrupt


OWNED = [(owner, BY_GROUP_KIND[child]) for owner in KINDS for child in sorted(owner.owns)]


@pytest.mark.parametrize(("owner", "kind"), OWNED, ids=named)
def test_what_a_job_makes_is_its_own_affair(owner: JobKind, kind: JobKind) -> None:
    raw = manifest(kind)
    reference = {"apiVersion": owner.path.api_version(), "kind": owner.kind, "name": "x", "uid": "o"}
    raw["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    assert (read(kind, raw).queue, read(kind, raw).owner_uid) == ("", "o")
    raw["metadata"]["ownerReferences"] = [reference]
    assert (read(kind, raw).queue, read(kind, raw).owner_uid) == ("t", "")


def condition(kind: str, status: str = "True") -> Obj:
    return {"conditions": [{"type": kind, "status": status, "lastTransitionTime": CREATED}]}


RAN, FELL = JobResult.SUCCEEDED, JobResult.FAILED
ENDS: list[tuple[str, str, Obj, JobResult | None]] = [
    ("batch", "Job", condition("Complete"), RAN),
    ("batch", "Job", condition("Failed"), FELL),
    ("jobset.x-k8s.io", "JobSet", condition("Completed"), RAN),
    *(("kubeflow.org", kind, condition("Succeeded"), RAN) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "MPIJob")),
    ("kubeflow.org", "PyTorchJob", condition("Failed"), FELL),
    ("kubeflow.org", "PyTorchJob", condition("Succeeded", "False"), None),
    ("kubeflow.org", "PyTorchJob", condition("Running"), None),
    ("ray.io", "RayJob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": CREATED}, RAN),
    ("ray.io", "RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed", "endTime": CREATED}, FELL),
    ("ray.io", "RayJob", {"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete", "endTime": CREATED}, FELL),
    ("ray.io", "RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"}, None),
    ("ray.io", "RayJob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Running"}, None),
    ("ray.io", "RayCluster", {"state": "failed"}, None),
    ("trainer.kubeflow.org", "TrainJob", condition("Complete"), RAN),
    ("trainer.kubeflow.org", "TrainJob", condition("Failed"), FELL),
    ("trainer.kubeflow.org", "TrainJob", condition("Suspended"), None),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", condition("Available"), None),
    ("batch.volcano.sh", "Job", {"state": {"phase": "Completed", "lastTransitionTime": CREATED}}, RAN),
    ("batch.volcano.sh", "Job", {"state": {"phase": "Terminated", "lastTransitionTime": CREATED}}, FELL),
    ("batch.volcano.sh", "Job", {"state": {"phase": "Aborted"}}, None),
    ("batch.volcano.sh", "Job", {"state": {"phase": "Running"}}, None),
]


@pytest.mark.parametrize(("group", "kind", "status", "result"), ENDS)
def test_how_it_ended(group: str, kind: str, status: Obj, result: JobResult | None) -> None:
    job = read(of(group, kind), {**manifest(of(group, kind)), "status": status})
    assert (job.result, job.finished_at_s) == (result, 1_800_000_000.0 if result else 0.0)


COUNTS: list[tuple[str, str, Obj, tuple[int, int]]] = [
    ("batch", "Job", {"ready": 2, "active": 3}, (2, 3)),
    ("jobset.x-k8s.io", "JobSet", {"replicatedJobsStatus": [{"name": "workers", "ready": 1, "active": 2}]}, (3, 6)),
    ("kubeflow.org", "PyTorchJob", {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"active": 2}}}, (0, 3)),
    ("kubeflow.org", "MPIJob", {"replicaStatuses": {"Launcher": {}, "Worker": None}}, (0, 0)),
    (
        "ray.io",
        "RayCluster",
        {
            "readyWorkerReplicas": 2,
            "availableWorkerReplicas": 2,
            "conditions": [{"type": "HeadPodReady", "status": "True"}],
        },
        (3, 2),
    ),
    ("ray.io", "RayJob", {"rayClusterStatus": {"availableWorkerReplicas": 2}}, (0, 2)),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"readyReplicas": 1, "replicas": 2}, (3, 6)),
    ("batch.volcano.sh", "Job", {"running": 3}, (0, 0)),
]


@pytest.mark.parametrize(("group", "kind", "status", "expected"), COUNTS)
def test_pods_by_its_status(group: str, kind: str, status: Obj, expected: tuple[int, int]) -> None:
    job = read(of(group, kind), {**manifest(of(group, kind)), "status": status})
    assert (job.ready_pods, job.active_pods) == expected


def ray(**group: Any) -> Obj:
    return {"workerGroupSpecs": [{"groupName": "gpu", "template": pod(), **group}]}


ASKS: list[tuple[str, str, Obj, list[tuple[str, int]]]] = [
    ("ray.io", "RayCluster", ray(replicas=2, numOfHosts=4), [("head", 1), ("gpu", 8)]),
    ("ray.io", "RayCluster", ray(minReplicas=3), [("head", 1), ("gpu", 3)]),
    ("ray.io", "RayCluster", ray(replicas=1, minReplicas=3), [("head", 1), ("gpu", 3)]),
    ("ray.io", "RayCluster", ray(replicas=9, maxReplicas=3), [("head", 1), ("gpu", 3)]),
    ("ray.io", "RayCluster", ray(), [("head", 1), ("gpu", 0)]),
    ("ray.io", "RayCluster", ray(replicas=2, suspend=True), [("head", 1), ("gpu", 0)]),
    ("ray.io", "RayJob", {"submitterPodTemplate": None}, [("head", 1), ("gpu", 2)]),
    ("ray.io", "RayJob", {"submissionMode": "HTTPMode"}, [("head", 1), ("gpu", 2)]),
    ("ray.io", "RayJob", {"submissionMode": "K8sJobMode"}, [("head", 1), ("gpu", 2), ("submitter", 1)]),
    (
        "kubeflow.org",
        "MPIJob",
        {"mpiReplicaSpecs": {"Worker": {"template": pod()}, "Launcher": {"template": pod()}}},
        [("launcher", 1), ("worker", 0)],
    ),
    (
        "kubeflow.org",
        "TFJob",
        {"tfReplicaSpecs": {"Zoo": {"template": pod()}, "Worker": {"template": pod()}}},
        [("worker", 1), ("zoo", 1)],
    ),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"workerTemplate": pod()}},
        [("worker", 2)],
    ),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": 4, "workerTemplate": pod()}},
        [("worker", 8)],
    ),
    (
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"leaderTemplate": pod(), "workerTemplate": pod()}},
        [("leader", 2)],
    ),
    ("batch.volcano.sh", "Job", {"tasks": [{"template": pod(gated=True)}]}, [("task0", 1)]),
]


@pytest.mark.parametrize(("group", "kind", "spec", "expected"), ASKS)
def test_what_it_asks_for(group: str, kind: str, spec: Obj, expected: list[tuple[str, int]]) -> None:
    assert shape(read(of(group, kind), manifest(of(group, kind), **spec))) == expected


UNMANAGED: list[tuple[str, str, Obj]] = [
    ("ray.io", "RayJob", {"clusterSelector": {"ray.io/cluster": "shared"}}),
    ("batch.volcano.sh", "Job", {"tasks": [{"template": pod(gated=True)}, {"template": pod()}]}),
    ("batch.volcano.sh", "Job", {"tasks": []}),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"replicas": 0}),
]


@pytest.mark.parametrize(("group", "kind", "spec"), UNMANAGED)
def test_what_cannot_be_held_is_left_alone(group: str, kind: str, spec: Obj) -> None:
    assert read(of(group, kind), manifest(of(group, kind), **spec)).queue == ""


def test_a_held_leader_worker_set_asks_for_what_its_user_did() -> None:
    kind = of("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
    raw = manifest(kind, replicas=0)
    raw["metadata"]["annotations"] = {ASKED: '{"/spec/replicas":2}'}
    job = read(kind, raw)
    assert (job.suspended, job.queue, shape(job)) == (True, "t", [("leader", 2), ("worker", 4)])
    raw["metadata"]["annotations"] = {ASKED: "nonsense"}
    assert read(kind, raw).queue == ""


def test_what_is_held_pod_by_pod_says_so() -> None:
    held = {kind.group_kind for kind in KINDS if kind.hold is Hold.PODS}
    assert held == {("batch.volcano.sh", "Job"), ("apps", "StatefulSet")}
    kind = of("batch.volcano.sh", "Job")
    sets: tuple[PodSet, ...] = read(kind, manifest(kind)).pod_sets
    assert [(one.name, one.core) for one in sets] == [("ps", 1), ("worker", 2)]


def test_only_what_every_cluster_has_must_be_served() -> None:
    assert [kind.group_kind for kind in KINDS if not kind.optional] == [("batch", "Job"), ("apps", "StatefulSet")]


@pytest.mark.parametrize(
    ("spec", "status", "read_as"),
    [
        ({}, {}, Numbering(0)),
        ({"podManagementPolicy": "OrderedReady"}, {}, Numbering(0)),
        ({"podManagementPolicy": "Parallel"}, {}, Numbering(0, one_by_one=False)),
        ({"ordinals": {"start": 5}}, {}, Numbering(5)),
        ({}, {"updateRevision": "r2", "observedGeneration": 7}, Numbering(0, revision="r2")),
        ({}, {"updateRevision": "r1", "observedGeneration": 6}, Numbering(0)),
        (
            {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "gp3"}}]},
            {},
            Numbering(0, claims=(EphemeralClaim("data", "gp3"),)),
        ),
    ],
)
def test_how_the_pods_of_a_stateful_set_are_numbered(spec: Obj, status: Obj, read_as: Numbering) -> None:
    kind = of("apps", "StatefulSet")
    raw = {**manifest(kind, **spec), "status": status}
    raw["metadata"]["generation"] = 7
    assert read(kind, raw).numbering == read_as


@pytest.mark.parametrize(
    ("spec", "replicas", "queue"),
    [
        ({}, 3, "t"),
        ({"replicas": 0}, 0, "t"),
        ({"replicas": None}, 1, "t"),
        ({"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}, 3, "t"),
        ({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": ""}}]}, 3, ""),
        ({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"volumeName": "v"}}]}, 3, ""),
        ({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"selector": {"matchLabels": {}}}}]}, 3, ""),
        ({"template": pod(labels={"muster.dev/pod-group-name": "g"})}, 3, ""),
        ({"template": pod(labels={"kueue.x-k8s.io/pod-group-name": "g"})}, 3, ""),
        ({"template": pod(annotations={"scheduling.k8s.io/group-name": "g"})}, 3, ""),
    ],
)
def test_which_stateful_sets_are_one_gang(spec: Obj, replicas: int, queue: str) -> None:
    kind = of("apps", "StatefulSet")
    job = read(kind, manifest(kind, **spec))
    assert (job.queue, shape(job), job.restarts) == (queue, [("main", replicas)], {"main": ANY_NUMBER})
