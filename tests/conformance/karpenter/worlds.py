"""A row as the agent sees it: a catalogue, a fleet, a snapshot; and what its deciders make of it in time."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from fleet.catalog import InstanceOffer, InstanceType
from fleet.plan.simulated_run import simulate
from fleet.snapshot import CapacityPool, Catalog, Node, Pod, Snapshot
from fleet.snapshot.pod_index import PodIndex
from model import labels
from model.fleet import Fleet
from model.loader import load
from model.problem import InvalidFleet
from providers.kube.objects.pods import decode_pod
from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import NAMESPACE, Declined, Given, Obj, only, repository

NOW_S = 1_800_000_000.0
SETTLED_S = 1_800.0
"""Machines have joined by then, and pods are bound; nothing is disrupted."""
_TYPE_WORDS = frozenset({"name", "arch", "os", "capacity", "overhead", "offerings", "labels", "resources"})
_OFFER_WORDS = frozenset({"capacity_type", "zone", "price", "available"})
_LINUX = "linux"
_TABLES = ("node_pods", "daemon_pods", "repelling_pods", "ordinary_pods", "waiting_pods", "foreign_use")
_OWNER: Obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-r", "controller": True}
"""What rows leave out where they do not say otherwise: somebody makes a pod anew."""


def types_of(given: Any, folder: Path) -> list[Given]:
    """The machine types of a row as they are written: a list, or a catalogue `minus` what is taken out of it."""
    if isinstance(given, list):
        return given
    name, _, without = (given if isinstance(given, str) else given["catalog"]).partition(" minus ")
    words = frozenset(without.split()) - {"in"}
    found = ({**each, "offerings": _left(each, words)} for each in _catalogs(folder)[name])
    return [each for each in found if each["offerings"]]


def _left(given: Given, words: frozenset[str]) -> list[Given]:
    said = {given.get("arch"), *given.get("os", ())}
    return [it for it in given["offerings"] if not words or not words <= said | {it["zone"], it["capacity_type"]}]


@cache
def _catalogs(folder: Path) -> Any:
    return json.loads((folder / "catalogs.json").read_text("utf-8"))["catalogs"]


def catalog_of(types: Iterable[Given]) -> Catalog:
    """What is sold. A type that runs several systems is sold with Linux, as one machine has one image."""
    offers = [offer for each in types for offer in _offers(each)]
    sold = tuple(sorted(offers, key=lambda it: (it.instance_type.name, it.zone, it.capacity_type)))
    return Catalog("test", {it.instance_type.name: it.instance_type for it in sold}, sold, NOW_S, "rows")


def _offers(given: Given) -> list[InstanceOffer]:
    only("instance type", given, _TYPE_WORDS)
    machine, offers = _machine(given), []
    for each in given["offerings"]:
        only("offering", each, _OFFER_WORDS)
        if each["capacity_type"] == "reserved":
            raise Declined("offering: reserved")
        offers.append(InstanceOffer(machine, each["zone"], each["capacity_type"], each["price"]))
    return offers


def shortages_of(types: Iterable[Given]) -> dict[CapacityPool, float]:
    """What is not available now, nor for as long as a run lasts."""
    return {
        CapacityPool(it["capacity_type"], each["name"], it["zone"]): NOW_S + 1e6
        for each in types
        for it in each["offerings"]
        if not it.get("available", True)
    }


def _machine(given: Given) -> InstanceType:
    capacity, overhead = amounts(given.get("capacity", {})), amounts(given.get("overhead", {}))
    systems = given.get("os") or [_LINUX]
    own = {
        labels.INSTANCE_TYPE: given["name"],
        labels.ARCH: given.get("arch", "amd64"),
        labels.OS: _LINUX if _LINUX in systems else systems[0],
        **given.get("labels", {}),
    }
    left = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
    gpus = capacity.get(labels.GPU_RESOURCE, 0)
    return InstanceType(given["name"], capacity, left, own, gpu_count=gpus)


def fleet_of(pools: Sequence[Given], reservations: Iterable[str] = (), overlays: Iterable[Obj] = ()) -> Fleet:
    """The declarations, read as the agent reads a repository. What it refuses declines the row."""
    try:
        return load(repository(pools, reservations, overlays))
    except InvalidFleet as refused:
        raise Declined(f"loader: {str(refused)[:160]}") from refused


@dataclass(slots=True)
class AgentWorld:
    """A cluster that the agent runs; `asked` keeps what each pod says, by its name."""

    catalog: Catalog
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    shortages: Mapping[CapacityPool, float] = field(default_factory=dict)
    asked: dict[str, Obj] = field(default_factory=dict)
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(NOW_S, namespaces={NAMESPACE: {}}))
    strangers: frozenset[str] = frozenset()
    """Pods that stood before and belong to nobody here."""
    newest: frozenset[str] = frozenset()
    """The pods of the last step."""

    def stand(self, name: str, carried: Mapping[str, str], room: Mapping[str, int]) -> None:
        """A node that nobody here has bought."""
        said = {labels.HOSTNAME: name, **carried}
        self.nodes[name] = Node(
            name, f"uid-{name}", "", said, (), dict(room), ready=True, unschedulable=False, created_at_s=NOW_S - 9000
        )

    def bound(self, manifest: Obj, node: str) -> None:
        """A pod that runs on a node and belongs to nobody here."""
        self.run(manifest, node, started_at_s=0.0)
        self.strangers |= {manifest["metadata"]["name"]}

    def run(self, manifest: Obj, node: str, *, started_at_s: float) -> None:
        """A pod that runs on a node."""
        own = {key: manifest["metadata"][key] for key in ("name", "namespace", "labels")}
        self.asked[own["name"]] = {"metadata": own, "spec": manifest["spec"]}
        pod = decode_pod(json.dumps(running_pod(manifest, node)).encode())
        self.pods.append(replace(pod, started_at_s=started_at_s))

    def play(self, pools: Sequence[Given], manifests: Sequence[Obj]) -> None:
        """Let the deciders run on pods that wait until all is at rest."""
        self.newest = frozenset(each["metadata"]["name"] for each in manifests)
        self.settle(fleet_of(pools), manifests)

    def settle(self, fleet: Fleet, manifests: Sequence[Obj], horizon_s: float = SETTLED_S) -> None:
        """The same with a fleet that is read already."""
        self.snapshot = self.seen(manifests)
        run = simulate(fleet, self.snapshot, horizon_s=horizon_s)
        if run.failed:
            raise run.failed[0].error
        if run.given_up_after_s is not None:
            raise RuntimeError(f"the run did not come to rest: {run.actions[-1].action}")
        self.snapshot = run.end

    def seen(self, manifests: Sequence[Obj]) -> Snapshot:
        """What deciders see, with these pods waiting."""
        now = self.snapshot
        known = [*(pod for pods in now.node_pods.values() for pod in pods), *now.waiting_pods.values()]
        pods = {pod.key: pod for pod in (*self.pods, *known)}
        self.pods = []
        for each in manifests:
            self.asked[each["metadata"]["name"]] = each
            pod = replace(decode_pod(json.dumps(waiting_pod(each)).encode()), waits_since_s=now.now_s)
            pods[pod.key] = pod
        nodes = {**self.nodes, **now.nodes}
        index = PodIndex()
        for key, pod in pods.items():
            index.change(key, None, pod)
        index.settle()
        there: Obj = {name: getattr(index, name) for name in _TABLES} | {"nodes": nodes, "catalog": self.catalog}
        return replace(now, shortages=self.shortages, instances_at_s=now.now_s, **there)

    def delete(self, names: Iterable[str]) -> None:
        """Pods that are deleted, with what made them."""
        gone = set(names)
        stood = self.snapshot.node_pods.items()
        keep = {node: tuple(pod for pod in pods if self.name_of(pod) not in gone) for node, pods in stood}
        self.snapshot = replace(self.snapshot, node_pods=keep)

    # -- looking at it --

    def name_of(self, pod: Pod) -> str:
        """The name that a pod was asked for by: one that was made anew has a number behind it."""
        name = pod.name
        while name not in self.asked:
            name = name.rpartition("-")[0]
        return name

    def places(self) -> dict[str, str]:
        """Pod -> node, of all that run."""
        found = (pod for pods in self.snapshot.node_pods.values() for pod in pods if pod.node)
        return {self.name_of(pod): pod.node for pod in found}

    def cost_usd_h(self) -> float:
        """What the machines cost that the agent has."""
        return sum(it.price_usd_h for it in self.snapshot.claims.values() if it.instance_id and not it.deleting)

    def bought(self) -> list[str]:
        """The machines that the agent has."""
        return sorted(str(it.capacity_pool) for it in self.snapshot.claims.values() if not it.deleting)

    def waits(self) -> dict[str, str]:
        """Pod -> why it waits."""
        known = ((pod, self.snapshot.pod_verdicts.get(pod.uid)) for pod in self.snapshot.waiting_pods.values())
        return {self.name_of(pod): f"{it.reason}: {it.message}" if it else "" for pod, it in known}


def waiting_pod(manifest: Obj) -> Obj:
    """A pod that kube-scheduler has found no place for."""
    meta = manifest["metadata"]
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "metadata": {"uid": f"uid-{meta['name']}", "ownerReferences": [_OWNER], **meta},
        "spec": manifest["spec"],
        "status": {"phase": "Pending", "conditions": [said]},
    }


def running_pod(manifest: Obj, node: str) -> Obj:
    """The same pod, once it stands."""
    meta = manifest["metadata"]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "metadata": {"uid": f"uid-{meta['name']}", "ownerReferences": [_OWNER], **meta},
        "spec": {**manifest["spec"], "nodeName": node},
        "status": {**ready, **manifest.get("status", {})},
    }
