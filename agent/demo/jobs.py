"""The work that the demo submits: suspended Jobs and JobSets as a team would write them."""

from typing import Any

Manifest = dict[str, Any]


def training(name: str, namespace: str, priority: str, *, workers: int, gpus: int) -> Manifest:
    """A JobSet of `workers` pods with `gpus` GPUs each, all in one zone, that trains until it is told to stop."""
    pod = _pod({"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": str(gpus)})
    pod["metadata"] = {"annotations": {"muster.dev/podset-required-topology": "topology.kubernetes.io/zone"}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(name, namespace, namespace, priority),
        "spec": {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "workers",
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "parallelism": workers,
                            "completions": workers,
                            "completionMode": "Indexed",
                            "backoffLimit": 0,
                            "template": pod,
                        }
                    },
                }
            ],
        },
    }


def job(
    name: str, namespace: str, priority: str, *, pods: int, requests: dict[str, str], run_s: float | None = None
) -> Manifest:
    """A Job of `pods` equal pods; it runs for `run_s` simulated seconds, or until it is told to stop."""
    pod = _pod({"cpu": "2", "memory": "8Gi", **requests})
    if run_s is not None:
        pod["metadata"] = {"annotations": {"sim.muster.dev/run-seconds": str(run_s)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, namespace, namespace, priority),
        "spec": {"suspend": True, "parallelism": pods, "completions": pods, "backoffLimit": 0, "template": pod},
    }


def _metadata(name: str, namespace: str, queue: str, priority: str) -> Manifest:
    labels = {"muster.dev/queue": queue, "muster.dev/priority-class": priority}
    return {"name": name, "namespace": namespace, "labels": labels}


def _pod(requests: dict[str, str]) -> Manifest:
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    container = {
        "name": "main",
        "image": "registry.example.com/train:1",
        "resources": {"requests": requests, "limits": extended},
    }
    return {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 10, "containers": [container]}}
