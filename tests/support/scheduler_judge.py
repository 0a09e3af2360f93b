"""The simulated scheduler as a judge of where pods of the model stand."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.snapshot import Node, PodSet
from fleet.snapshot.constraints import PodAffinityTerm, PodSelector
from tests.conformance.karpenter.judge import node_manifest
from tests.conformance.karpenter.manifests import NAMESPACE
from tests.conformance.kubernetes.scheduler import RecordedWorld

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def refused(nodes: Mapping[str, Node], stands: Sequence[tuple[PodSet, str]]) -> list[str]:
    """Why kube-scheduler would not put pods (set, node) there, one by one; nothing if all can come.

    Who is refused is tried again as soon as another has come: pods wait for company, and for others to even out.
    """
    world = RecordedWorld()
    world.fill({"namespaces": {NAMESPACE: {}}, "nodes": [node_manifest(node) for node in nodes.values()], "pods": []})
    left = [(manifest(f"p{number:03d}", pods), node) for number, (pods, node) in enumerate(stands)]
    reasons: list[str] = []
    while left and len(reasons) < len(left):
        pod, node = left[len(reasons)]
        if why := world.bind(pod, node):
            reasons.append(f"{pod['metadata']['name']} on {node}: {'; '.join(why)}")
        else:
            del left[len(reasons)]
            reasons = []
    return reasons


def manifest(name: str, pods: PodSet) -> Obj:
    """One pod of a set as its manifest, in the judge's namespace."""
    asked = pods.constraints
    ports = [{"containerPort": it.port, "hostPort": it.port, "protocol": it.protocol} for it in asked.host_ports]
    amounts = {key: f"{value}m" if key == "cpu" else str(value) for key, value in pods.requests.items()}
    container = {"name": "c", "image": "i", "ports": ports, "resources": {"requests": amounts, "limits": amounts}}
    spread = [
        {
            "topologyKey": it.topology_key,
            "maxSkew": it.max_skew,
            "whenUnsatisfiable": "DoNotSchedule" if it.hard else "ScheduleAnyway",
            "labelSelector": _selector(it.selector),
        }
        for it in asked.spread
    ]
    affinity = {
        "podAffinity": {REQUIRED: _terms(asked.affinity)},
        "podAntiAffinity": {REQUIRED: _terms(asked.anti_affinity)},
    }
    spec = {
        "containers": [container],
        "nodeSelector": dict(pods.node_selector),
        "affinity": affinity,
        "topologySpreadConstraints": spread,
    }
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": dict(pods.labels)}, "spec": spec}


def _terms(terms: Iterable[PodAffinityTerm]) -> list[Obj]:
    return [{"topologyKey": it.topology_key, "labelSelector": _selector(it.selector)} for it in terms]


def _selector(selector: PodSelector | None) -> Obj | None:
    if selector is None:
        return None
    return {
        "matchExpressions": [{"key": it.key, "operator": it.operator, "values": list(it.values)} for it in selector]
    }
