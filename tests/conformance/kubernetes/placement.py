"""The same worlds and pods as in `scheduler`, answered by the placement that the agent runs.

The world is filled as there. Its objects are read by the agent's decoders, and each node is asked for its obstacles. A
node that is cordoned is asked like others: kube-scheduler goes by the taint, and so do the rows.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from fleet.placement.feasibility import obstacles
from fleet.placement.inventory import build_cluster_state
from fleet.placement.plan import Need
from fleet.placement.pod_filter import pod_filter
from fleet.snapshot import PodSet, Snapshot
from fleet.snapshot.pod_index import PodIndex
from fleet.snapshot.volumes import Volumes
from providers.kube.objects.nodes import decode_node
from providers.kube.objects.pod_templates import PodOrigin, PodTemplate, pod_set_of
from providers.kube.objects.pods import decode_pod
from providers.kube.objects.surroundings import decode_namespace
from providers.kube.objects.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_storage_class,
    decode_volume_claim,
)
from providers.sim.store import ApiError
from tests.conformance.cases import Case, Result
from tests.conformance.kubernetes.scheduler import RecordedWorld, knows_why

Obj = dict[str, Any]
ANSWERS = frozenset({"feasible", "why", "refused"})
DECLINED: Mapping[str, str] = {}
_BARE = ("Insufficient ", "Too many pods", "pod has unbound", "persistentvolumeclaim ")
"""How the reasons begin that are not of `node(s)`."""


def run(case: Case) -> Obj:
    """The nodes on which the agent would put the pod, and why not on the others, in kube-scheduler's words."""
    world = RecordedWorld()
    world.fill(case)
    try:
        pod = world.create("Pod", case["pod"])
    except ApiError as error:
        return {"refused": {"status": error.code, "message": error.message}}
    world.settle_volumes()
    asked = pod_set_from(pod)
    if asked.unsupported:
        return {"unsupported": [f"{it.path}: {it.words}" for it in asked.unsupported]}
    state = build_cluster_state(observed(world, but=pod["metadata"]["name"]), ())
    need = Need(asked, (), {}, (), any_node=True)
    rules = pod_filter(state.neighbours, asked)
    found = {name: obstacles(need, rules, slot) for name, slot in sorted(state.slots.items())}
    why = {
        name: [_said(words) for it in those for words in it.words.split("; ")] for name, those in found.items() if those
    }
    return {"feasible": [name for name, those in found.items() if not those], "why": why}


def same(case: Case, got: object) -> bool:
    """The same nodes, and the same cause for every other one; or the same refusal."""
    if not isinstance(got, dict):
        return False
    if "unsupported" in got:
        return case.get("reason") == "SchedulingGated" and all("schedulingGates" in it for it in got["unsupported"])
    if "refused" in case or "refused" in got:
        return bool(case.get("refused") == got.get("refused"))
    return bool(sorted(case["feasible"]) == got["feasible"] and knows_why(case, got))


def table(results: Sequence[Result]) -> list[str]:
    """A line a family."""
    counts: dict[str, Counter[bool]] = {}
    for result in results:
        counts.setdefault(result.id.partition("-")[0], Counter())[result.passed] += 1
    total = Counter({True: sum(it.passed for it in results), False: sum(not it.passed for it in results)})
    rows = [(name, count[True], count[False]) for name, count in [*counts.items(), ("all", total)]]
    return [
        f"{'family':<9}{'passed':>12}{'failed':>12}",
        *(f"{name:<9}{good:>12}{bad:>12}" for name, good, bad in rows),
    ]


def _said(words: str) -> str:
    return words if words.startswith(_BARE) else f"node(s) {words}"


def pod_set_from(pod: Obj) -> PodSet:
    """A pending pod as a pod set of one."""
    template = msgspec.json.decode(json.dumps(pod), type=PodTemplate)
    return pod_set_of("p", 1, template, {}, PodOrigin(pod["metadata"]["namespace"], made=True))


def observed(world: RecordedWorld, *, but: str) -> Snapshot:
    """What the agent sees of a world, without the pod in question."""
    index = PodIndex()
    for raw in _listed(world, "Pod"):
        pod = decode_pod(raw)
        if pod.name != but:
            index.change(pod.key, None, pod)
    index.settle()
    nodes = (replace(decode_node(raw), ready=True, unschedulable=False) for raw in _listed(world, "Node"))
    namespaces = (decode_namespace(raw) for raw in _listed(world, "Namespace"))
    return Snapshot(
        0.0,
        nodes={node.name: node for node in nodes},
        node_pods=index.node_pods,
        ordinary_pods=index.ordinary_pods,
        daemon_pods=index.daemon_pods,
        repelling_pods=index.repelling_pods,
        foreign_use=index.foreign_use,
        namespaces={it.name: it.labels for it in namespaces},
        volumes=_volumes(world),
    )


def _listed(world: RecordedWorld, kind: str) -> Iterator[bytes]:
    for obj in world.store.list(world.store.resource(kind)):
        yield json.dumps(obj).encode()


def _volumes(world: RecordedWorld) -> Volumes:
    claims = map(decode_volume_claim, _listed(world, "PersistentVolumeClaim"))
    volumes = map(decode_persistent_volume, _listed(world, "PersistentVolume"))
    classes = map(decode_storage_class, _listed(world, "StorageClass"))
    limits = map(decode_csi_node, _listed(world, "CSINode"))
    return Volumes(
        {it.key: it for it in claims},
        {it.name: it for it in volumes},
        {it.name: it for it in classes},
        {it.node: it.limits for it in limits},
    )
