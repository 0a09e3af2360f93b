"""Work of every kind as a team would write it, and definitions that let a store hold it."""

from collections.abc import Mapping
from typing import Any

from providers.kube.objects.jobs import KINDS, JobKind
from providers.kube.objects.paths import POD_GROUPS
from providers.kube.resources import ResourcePath
from providers.sim.store import Store

Obj = dict[str, Any]
USERS = {"key": "mine", "operator": "Exists"}


def pod(gpus: int = 8, *, gated: bool = False, **metadata: Any) -> Obj:
    """A pod template."""
    container = {
        "name": "main",
        "image": "registry.example.com/train:1",
        "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": str(gpus)}},
    }
    spec: Obj = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 10, "containers": [container]}
    spec["tolerations"] = [USERS]
    if gated:
        spec["schedulingGates"] = [{"name": "muster.dev/placement"}]
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def lasting(template: Obj, seconds: float | None) -> Obj:
    """A template whose pods succeed after so long; None: never."""
    if seconds is None:
        return template
    return {**template, "metadata": {"annotations": {"sim.muster.dev/run-seconds": str(seconds)}}}


def group_pod(
    name: str, total: int = 2, *, group: str = "g", gated: bool = True, run_s: float | None = None, namespace: str = "t"
) -> Obj:
    """A plain pod of a group, on queue `t`."""
    template = lasting(pod(gated=gated), run_s)
    labels = {"muster.dev/queue": "t", "muster.dev/priority-class": "normal", "muster.dev/pod-group-name": group}
    notes = {**(template.get("metadata") or {}).get("annotations", {}), "muster.dev/pod-group-total-count": str(total)}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]}


def _replica(count: int | None = None, gpus: int = 8) -> Obj:
    return {**({} if count is None else {"replicas": count}), "template": pod(gpus)}


def _cluster(workers: int = 2) -> Obj:
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": pod(1)},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": workers, "template": pod()}],
    }


def _job(parallelism: int) -> Obj:
    return {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed", "template": pod()}


SPECS: Mapping[tuple[str, str], Obj] = {
    ("batch", "Job"): {"suspend": True, **_job(4)},
    ("jobset.x-k8s.io", "JobSet"): {
        "suspend": True,
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": _job(1)}},
            {"name": "workers", "replicas": 2, "template": {"spec": _job(3)}},
        ],
    },
    ("kubeflow.org", "PyTorchJob"): {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {"Worker": _replica(3), "Master": _replica()},
    },
    ("kubeflow.org", "TFJob"): {
        "runPolicy": {"suspend": True, "cleanPodPolicy": "None"},
        "tfReplicaSpecs": {"Worker": _replica(2), "PS": _replica(1, gpus=1), "Chief": _replica(1)},
    },
    ("kubeflow.org", "XGBoostJob"): {
        "runPolicy": {"suspend": True},
        "xgbReplicaSpecs": {"Master": _replica(1), "Worker": _replica(2)},
    },
    ("kubeflow.org", "PaddleJob"): {"runPolicy": {"suspend": True}, "paddleReplicaSpecs": {"Worker": _replica(2)}},
    ("kubeflow.org", "JAXJob"): {"runPolicy": {"suspend": True}, "jaxReplicaSpecs": {"Worker": _replica(2)}},
    ("kubeflow.org", "MPIJob"): {
        "runPolicy": {"suspend": True},
        "slotsPerWorker": 8,
        "mpiReplicaSpecs": {"Worker": _replica(2), "Launcher": _replica(1, gpus=1)},
    },
    ("ray.io", "RayCluster"): {"suspend": True, **_cluster()},
    ("ray.io", "RayJob"): {
        "suspend": True,
        "entrypoint": "python train.py",
        "rayClusterSpec": _cluster(),
        "submitterPodTemplate": pod(1),
    },
    ("trainer.kubeflow.org", "TrainJob"): {"suspend": True, "runtimeRef": {"name": "torch"}},
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): {
        "replicas": 2,
        "leaderWorkerTemplate": {"size": 3, "leaderTemplate": pod(1), "workerTemplate": pod()},
    },
    ("batch.volcano.sh", "Job"): {
        "minAvailable": 3,
        "tasks": [
            {"name": "ps", "replicas": 1, "minAvailable": 1, "template": pod(1, gated=True)},
            {"name": "worker", "replicas": 4, "minAvailable": 2, "template": pod(gated=True)},
        ],
    },
    ("apps", "StatefulSet"): {
        "replicas": 3,
        "serviceName": "train",
        "selector": {"matchLabels": {"app": "train"}},
        "template": pod(labels={"app": "train"}),
    },
}
"""API group and kind -> the specification of a held job of that kind."""
POD_SETS: Mapping[tuple[str, str], list[tuple[str, int]]] = {
    ("batch", "Job"): [("main", 4)],
    ("jobset.x-k8s.io", "JobSet"): [("driver", 1), ("workers", 6)],
    ("kubeflow.org", "PyTorchJob"): [("master", 1), ("worker", 3)],
    ("kubeflow.org", "TFJob"): [("chief", 1), ("ps", 1), ("worker", 2)],
    ("kubeflow.org", "XGBoostJob"): [("master", 1), ("worker", 2)],
    ("kubeflow.org", "PaddleJob"): [("worker", 2)],
    ("kubeflow.org", "JAXJob"): [("worker", 2)],
    ("kubeflow.org", "MPIJob"): [("launcher", 1), ("worker", 2)],
    ("ray.io", "RayCluster"): [("head", 1), ("gpu", 2)],
    ("ray.io", "RayJob"): [("head", 1), ("gpu", 2), ("submitter", 1)],
    ("trainer.kubeflow.org", "TrainJob"): [],
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): [("leader", 2), ("worker", 4)],
    ("batch.volcano.sh", "Job"): [("ps", 1), ("worker", 4)],
    ("apps", "StatefulSet"): [("main", 3)],
}
"""What each of `SPECS` asks for, as far as the object itself says it."""


def manifest(kind: JobKind, name: str = "train", namespace: str = "default", **spec: Any) -> Obj:
    """A held job of that kind, on queue `t`."""
    labels = {"muster.dev/queue": "t", "muster.dev/priority-class": "normal"}
    return {
        "apiVersion": kind.path.api_version(),
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {**SPECS[kind.group_kind], **spec},
    }


def definition(path: ResourcePath, kind: str) -> Obj:
    """A definition that takes whatever is written, as those of operators do for the parts that matter here."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": path.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"plural": path.plural, "kind": kind, "singular": path.plural[:-1]}
    return {
        "metadata": {"name": str(path)},
        "spec": {"group": path.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def install(store: Store, *kinds: JobKind) -> None:
    """Let the store serve these kinds (all of them, where none is given), unless it does."""
    for kind in kinds or KINDS:
        if store.served(kind.path.group, kind.path.version, kind.path.plural) is None:
            store.create(store.resource("CustomResourceDefinition"), definition(kind.path, kind.kind))


def install_pod_groups(store: Store) -> None:
    """Let the store serve Volcano's PodGroups."""
    store.create(store.resource("CustomResourceDefinition"), definition(POD_GROUPS, "PodGroup"))
