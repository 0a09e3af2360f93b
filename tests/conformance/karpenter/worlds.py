"""A row as the agent sees it: a catalogue, a fleet, a snapshot; and what its deciders make of it in time."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from fleet.plan.simulated_run import simulate
from fleet.snapshot import CapacityPool, Catalog, Gang, InstanceOffer, InstanceType, Job, JobRef, Node, Pod, Snapshot
from fleet.snapshot.pod_index import PodIndex
from model import labels
from model.fleet import Fleet
from model.loader import load
from model.problem import InvalidFleet
from providers.kube.objects.pod_templates import PodOrigin, PodTemplate, pod_set_of
from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import NAMESPACE, QUEUE, Declined, Given, Obj, only, repository

NOW_S = 1_800_000_000.0
SETTLED_S = 1_800.0
"""Machines have joined by then, and pods are bound; nothing is disrupted."""
_TYPE_WORDS = frozenset({"name", "arch", "os", "capacity", "overhead", "offerings", "labels", "resources"})
_OFFER_WORDS = frozenset({"capacity_type", "zone", "price", "available"})
_LINUX = "linux"


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


def fleet_of(pools: Sequence[Given], resources: Iterable[str], reservations: Iterable[str] = ()) -> Fleet:
    """The declarations, read as the agent reads a repository. What it refuses declines the row."""
    try:
        return load(repository(pools, resources, reservations))
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
        """A pod that runs on such a node."""
        asked = _pod_set(manifest)
        name = manifest["metadata"]["name"]
        self.asked[name] = manifest
        self.strangers |= {name}
        self.pods.append(
            Pod(
                f"uid-{name}",
                NAMESPACE,
                name,
                node,
                "Running",
                asked.requests,
                ready=True,
                labels=asked.labels,
                constraints=asked.constraints,
            )
        )

    def play(self, pools: Sequence[Given], manifests: Sequence[Obj]) -> None:
        """Let the deciders run on pods that wait, each a gang of its own, until all is at rest."""
        self.newest = frozenset(each["metadata"]["name"] for each in manifests)
        self.settle(fleet_of(pools, resources_of(manifests)), manifests)

    def settle(self, fleet: Fleet, manifests: Sequence[Obj], horizon_s: float = SETTLED_S) -> None:
        """The same with a fleet that is read already."""
        self.snapshot = self._asking(manifests)
        run = simulate(fleet, self.snapshot, horizon_s=horizon_s)
        if run.failed:
            raise run.failed[0].error
        self.snapshot = run.end

    def _asking(self, manifests: Sequence[Obj]) -> Snapshot:
        now = self.snapshot
        gangs, jobs = dict(now.gangs), dict(now.jobs)
        for each in manifests:
            gang, job = gang_of(each, now.now_s)
            self.asked[gang.job.name] = each
            gangs[gang.uid], jobs[gang.uid] = gang, job
        index = PodIndex()
        standing = {pod.key: pod for pods in (*now.node_pods.values(), *now.gang_pods.values()) for pod in pods}
        for pod in (*standing.values(), *(it for it in self.pods if it.key not in standing)):
            index.change(pod.key, None, pod)
        index.settle()
        tables = ("gang_pods", "job_pods", "node_pods", "daemon_pods", "repelling_pods", "ordinary_pods", "foreign_use")
        there: Obj = {name: getattr(index, name) for name in tables}
        there |= {"nodes": {**self.nodes, **now.nodes}, "gangs": gangs, "jobs": jobs, "catalog": self.catalog}
        return replace(now, shortages=self.shortages, instances_at_s=now.now_s, **there)

    def delete(self, names: Iterable[str]) -> None:
        """Pods that are deleted, with what made them."""
        gone = {f"uid-{name}" for name in names}
        lost = {it.workload for uid, it in self.snapshot.gangs.items() if uid in gone}
        stood = self.snapshot.node_pods.items()
        keep = {node: tuple(pod for pod in pods if pod.workload not in lost) for node, pods in stood}
        of_gangs = {key: pods for key, pods in self.snapshot.gang_pods.items() if key.partition("/")[2] not in lost}
        gangs = {uid: it for uid, it in self.snapshot.gangs.items() if uid not in gone}
        jobs = {uid: it for uid, it in self.snapshot.jobs.items() if uid not in gone}
        self.snapshot = replace(self.snapshot, node_pods=keep, gang_pods=of_gangs, gangs=gangs, jobs=jobs)

    # -- looking at it --

    def places(self) -> dict[str, str]:
        """Pod -> node, of all that run; a pod of a gang goes by the name it was asked for."""
        of_gang = {it.workload: it.job.name for it in self.snapshot.gangs.values()}
        found = (pod for pods in self.snapshot.node_pods.values() for pod in pods if pod.node)
        return {of_gang.get(pod.workload, pod.name): pod.node for pod in found}

    def cost_usd_h(self) -> float:
        """What the machines cost that the agent has."""
        return sum(it.price_usd_h for it in self.snapshot.claims.values() if it.instance_id and not it.deleting)

    def bought(self) -> list[str]:
        """The machines that the agent has."""
        return sorted(str(it.capacity_pool) for it in self.snapshot.claims.values() if not it.deleting)

    def waits(self) -> dict[str, str]:
        """Pod -> why it waits."""
        running = self.places()
        known = self.snapshot.gangs.values()
        return {it.job.name: f"{it.reason}: {it.message}" for it in known if it.job.name not in running}


def resources_of(manifests: Iterable[Obj]) -> set[str]:
    """What pods ask for."""
    return {name for each in manifests for name in each["spec"]["containers"][0]["resources"]["requests"]}


def _pod_set(manifest: Obj) -> Any:
    template = msgspec.json.decode(json.dumps(manifest), type=PodTemplate)
    return pod_set_of("main", 1, template, {}, PodOrigin(NAMESPACE, made=True))


def gang_of(manifest: Obj, now_s: float) -> tuple[Gang, Job]:
    """A pod that waits, as a gang of its own with its job."""
    name, asked = manifest["metadata"]["name"], _pod_set(manifest)
    ref = JobRef("batch/v1", "Job", NAMESPACE, name, f"uid-{name}")
    job = Job(ref, "1", QUEUE, "", suspended=True, pod_sets=(asked,), created_at_s=now_s)
    return Gang(ref.uid, NAMESPACE, f"job-{name}", ref, QUEUE, "", 0, (asked,), now_s, since_s=now_s), job
