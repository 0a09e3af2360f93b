"""Pods that run have the labels, and ask what, their gang was planned with."""

from typing import Any

import msgspec

from agent.demo.jobs import Manifest
from providers.kube.objects import decode_pod
from tests.agent.scenes import Scene, gpu_job, gpu_jobset, simple

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def apart(*keys: str) -> dict[str, Any]:
    """Pods that keep apart from those with the same values of these labels, and spread by zone if they can."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "matchLabelKeys": list(keys)}
    spread = {
        "topologyKey": "topology.kubernetes.io/zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "train"}},
        "matchLabelKeys": list(keys),
    }
    affinity = {"podAntiAffinity": {REQUIRED: [term]}}
    return {"affinity": affinity, "topologySpreadConstraints": [spread]}


def as_planned(scene: Scene, manifest: Manifest, template: Manifest, *keys: str) -> None:
    template["spec"] |= apart(*keys)
    template.setdefault("metadata", {}).setdefault("labels", {})["app"] = "train"
    scene.runs(manifest)
    gang = scene.sim.gang(manifest["metadata"]["name"])
    assert gang is not None
    (pods,) = gang.pod_sets
    assert not pods.unsupported
    found = [decode_pod(msgspec.json.encode(it)) for it in scene.sim.objects("Pod", gang.namespace)]
    ours = [pod for pod in found if pod.workload == gang.workload]
    assert len(ours) == pods.count
    for pod in ours:
        assert pod.constraints == pods.constraints
        assert set(pods.labels) < set(pod.labels), "and those that a start adds"
    assert len(gang.pins) == pods.count, "each on a node of its own"


def test_pods_of_a_job() -> None:
    manifest = gpu_job("g", pods=2)
    as_planned(Scene(simple()), manifest, manifest["spec"]["template"], "app", "batch.kubernetes.io/job-name")


def test_pods_of_a_job_set() -> None:
    manifest = gpu_jobset("g", workers=2)
    (replicated,) = manifest["spec"]["replicatedJobs"]
    template = replicated["template"]["spec"]["template"]
    as_planned(Scene(simple()), manifest, template, "jobset.sigs.k8s.io/jobset-name")
