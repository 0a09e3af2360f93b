"""Builders for the decision engine's inputs, so that a case reads in five lines: fleets, catalogs, gangs, claims.

Everything has a default that works with everything else: pool `h100` buys `p5.48xlarge` (eight GPUs), queue `q` of team
`t` may use it, namespace `ns` may use the queue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from fleet.catalog import InstanceOffer, InstanceType
from fleet.nodeclaims.launch import own_tags
from fleet.offerings.offerings import Offering, Offerings
from fleet.snapshot import CapacityPool, Catalog, Claim, Gang, Instance, Job, JobRef, Launch, Node, Pod, PodSet
from model import labels
from model.fleet import Fleet, default_policy, implied_flavor
from model.kinds import (
    CapacityType,
    Flavor,
    FleetPolicy,
    MigLayout,
    NodePool,
    PriorityClass,
    Queue,
    Team,
    Topology,
)
from model.pools import pool_hash
from model.quantity import Resources, canonical_resources

GPU = labels.GPU_RESOURCE
NOW = 1_800_000_000.0
"""An instant far from zero, a Friday at 08:00 UTC."""
REGION = "us-east-1"
A, B = "us-east-1a", "us-east-1b"


def amounts(gpu: int = 0, cpu: str = "1", memory: str = "1Gi", **others: int) -> Resources:
    """What one pod asks; `others` with `__` for the characters Python does not allow (`nvidia_com__mig_1g_10gb`)."""
    found: dict[str, str | float] = {"cpu": cpu, "memory": memory}
    if gpu:
        found[GPU] = gpu
    return canonical_resources(found | others)


# -- what can be bought -----------------------------------------------------------------------------------------------


def machine(
    name: str, *, gpus: int = 0, gpu: str = "", gpu_memory: int = 0, cpu: int = 192, gib: int = 1024, efa: int = 0
) -> InstanceType:
    """An instance type; a few resources are kept back for the system."""
    capacity = {"cpu": cpu * 1000, "memory": gib << 30, "pods": 100}
    own = {
        labels.INSTANCE_TYPE: name,
        labels.INSTANCE_FAMILY: name.partition(".")[0],
        labels.INSTANCE_CPU: str(cpu),
        labels.ARCH: "amd64",
        labels.OS: "linux",
    }
    if gpus:
        capacity[GPU] = gpus
        own |= {
            labels.INSTANCE_GPU_NAME: gpu,
            labels.INSTANCE_GPU_COUNT: str(gpus),
            labels.INSTANCE_GPU_MEMORY: str(gpu_memory),
        }
    if efa:
        capacity[labels.FABRIC_RESOURCE] = efa
    allocatable = {**capacity, "cpu": capacity["cpu"] - 2000, "memory": capacity["memory"] - (4 << 30)}
    return InstanceType(name, capacity, allocatable, own, gpu, gpus, gpu_memory, efa, labels.FABRIC_RESOURCE)


P5 = machine("p5.48xlarge", gpus=8, gpu="h100", gpu_memory=81920, efa=32)
P5S = machine("p5.4xlarge", gpus=1, gpu="h100", gpu_memory=81920, cpu=16, gib=256)
P4 = machine("p4d.24xlarge", gpus=8, gpu="a100", gpu_memory=40960, cpu=96, gib=1152, efa=4)
G6 = machine("g6.12xlarge", gpus=4, gpu="l4", gpu_memory=22888, cpu=48, gib=192)
M7 = machine("m7i.4xlarge", cpu=16, gib=64)
PRICES: Mapping[str, tuple[float, float]] = {
    P5.name: (98.0, 40.0),
    P5S.name: (14.0, 6.0),
    P4.name: (32.0, 12.0),
    G6.name: (4.6, 1.8),
    M7.name: (0.8, 0.3),
}
"""USD an hour on demand and spot."""


def offers(
    types: Iterable[InstanceType] = (P5, P5S, P4, G6, M7),
    zones: Iterable[str] = (A, B),
    capacity_types: Iterable[CapacityType] = ("on-demand", "spot"),
) -> tuple[InstanceOffer, ...]:
    """Every combination, at the list price."""
    places, kinds = list(zones), list(capacity_types)
    found = [
        InstanceOffer(kind, zone, ct, PRICES[kind.name][ct == "spot"])
        for kind in types
        for zone in places
        for ct in kinds
    ]
    return tuple(sorted(found, key=lambda offer: (offer.instance_type.name, offer.zone, offer.capacity_type)))


def catalog(sold: Iterable[InstanceOffer] | None = None) -> Catalog:
    """A region that sells these offers (all the standard ones by default)."""
    chosen = offers() if sold is None else tuple(sold)
    return Catalog(REGION, {o.instance_type.name: o.instance_type for o in chosen}, chosen, NOW, "test")


# -- what is declared -------------------------------------------------------------------------------------------------


def _declared(kind: type[Any], name: str, spec: Mapping[str, Any]) -> Any:
    body = {"apiVersion": "muster.dev/v1alpha1", "metadata": {"name": name}, "spec": dict(spec)}
    return kind.model_validate(body)


class FleetBuilder:
    """A fleet, declaration by declaration, in the words of the YAML files."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self._policy: FleetPolicy | None = None

    def _put(self, table: str, kind: type[Any], name: str, spec: Mapping[str, Any]) -> Self:
        self.tables.setdefault(table, {})[name] = _declared(kind, name, spec)
        return self

    def pool(self, name: str = "h100", **spec: Any) -> Self:
        """A NodePool; without conditions it buys `p5.48xlarge`."""
        if not {"instanceTypes", "instanceFamilies", "gpu", "requirements"} & spec.keys():
            spec["instanceTypes"] = [P5.name]
        return self._put("node_pools", NodePool, name, spec)

    def layout(self, name: str, **models: Any) -> Self:
        """A MigLayout: `h100_80gb=[{...groups}]`."""
        return self._put(
            "mig_layouts", MigLayout, name, {"models": {k.replace("_", "-"): v for k, v in models.items()}}
        )

    def flavor(self, name: str, **spec: Any) -> Self:
        """A Flavor of its own."""
        return self._put("flavors", Flavor, name, spec)

    def team(self, name: str = "t", quotas: Mapping[str, Any] | None = None, **spec: Any) -> Self:
        """A Team. A quota is `{resource: amount}`, or the three maps of the kind in full."""
        cells = {
            flavor: quota if "guaranteed" in quota else {"guaranteed": quota}
            for flavor, quota in ({"h100": {GPU: 16}} if quotas is None else quotas).items()
        }
        return self._put("teams", Team, name, {"namespaces": ["ns"], "quotas": cells, **spec})

    def queue(self, name: str = "q", team: str = "t", flavors: Iterable[str] = ("h100",), **spec: Any) -> Self:
        """A Queue."""
        return self._put("queues", Queue, name, {"team": team, "flavors": list(flavors), **spec})

    def priority(self, name: str, value: int, **spec: Any) -> Self:
        """A PriorityClass."""
        return self._put("priority_classes", PriorityClass, name, {"value": value, **spec})

    def topology(self, name: str, *levels: str) -> Self:
        """A Topology."""
        return self._put("topologies", Topology, name, {"levels": list(levels)})

    def policy(self, **spec: Any) -> Self:
        """The FleetPolicy."""
        self._policy = _declared(FleetPolicy, "policy", spec)
        return self

    def build(self) -> Fleet:
        """The fleet, with the flavors its pools imply."""
        tables: dict[str, Any] = {name: dict(sorted(table.items())) for name, table in self.tables.items()}
        implied = {name: implied_flavor(pool) for name, pool in tables.get("node_pools", {}).items()}
        tables["flavors"] = implied | tables.get("flavors", {})
        return replace(Fleet(**tables), policy=self._policy or default_policy())


def small_fleet(**pool: Any) -> Fleet:
    """One pool, one team with sixteen GPUs, one queue."""
    return FleetBuilder().pool(**pool).team().queue().build()


# -- what is observed -------------------------------------------------------------------------------------------------


def pod_set(name: str = "main", count: int = 1, gpu: int = 8, requests: Resources | None = None, **more: Any) -> PodSet:
    """`count` equal pods."""
    return PodSet(name, count, amounts(gpu) if requests is None else requests, **more)


def gang(
    name: str = "g",
    *pod_sets: PodSet,
    count: int = 1,
    gpu: int = 8,
    queue: str = "q",
    namespace: str = "ns",
    priority: int = 0,
    priority_class: str = "",
    created_s: float = NOW - 600,
    **more: Any,
) -> Gang:
    """A pending gang of one job; `count` pods of `gpu` GPUs unless pod sets are given."""
    return Gang(
        uid=f"uid-{name}",
        namespace=namespace,
        workload=f"job-{name}",
        job=JobRef("batch/v1", "Job", namespace, name, f"uid-{name}"),
        queue=queue,
        priority_class=priority_class,
        priority=priority,
        pod_sets=pod_sets or (pod_set(count=count, gpu=gpu),),
        created_at_s=created_s,
        since_s=created_s,
        **more,
    )


def job_of(gang: Gang, *, suspended: bool = True, **more: Any) -> Job:
    """The job a gang was made of."""
    return Job(
        ref=gang.job,
        resource_version="1",
        queue=gang.queue,
        priority_class=gang.priority_class,
        suspended=suspended,
        pod_sets=gang.pod_sets,
        created_at_s=gang.created_at_s,
        **more,
    )


def offering(
    fleet: Fleet, sold: Catalog, pool: str, kind: str, zone: str, capacity_type: CapacityType, layout: str = ""
) -> Offering:
    """The one offering of a pool with these properties; the first layout when none is named."""
    found = [
        it
        for it in sorted(Offerings(fleet, sold).of(fleet.node_pools[pool]), key=lambda it: it.layout_rank)
        if (it.offer.instance_type.name, it.offer.zone, it.offer.capacity_type) == (kind, zone, capacity_type)
        and (not layout or it.layout == layout)
    ]
    assert found, f"pool {pool} cannot buy {kind} in {zone} as {capacity_type}"
    return found[0]


def claim_of(it: Offering, name: str, **more: Any) -> Claim:
    """A claim of this offering: an intent, unless `more` says otherwise."""
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}",
        "node_pool": it.pool.name,
        "pool_hash": pool_hash(it.pool),
        "capacity_pool": it.offer.pool_key,
        "price_usd_h": it.offer.price_usd_h,
        "list_usd_h": it.offer.list_usd_h,
        "launch": Launch(f"group-{name}", 0, 1),
        "created_at_s": NOW - 7200,
        "resources": it.allocatable,
        "layout": it.layout,
    }
    return Claim(name=name, **defaults | more)


def ready_claim(it: Offering, name: str, *, at_s: float = NOW - 7000, **more: Any) -> Claim:
    """A claim whose machine has been ready, and idle, since `at_s`."""
    stamps = {"launched_at_s": at_s, "registered_at_s": at_s, "ready_at_s": at_s, "emptied_at_s": at_s}
    facts: dict[str, Any] = {"instance_id": f"i-{name}", "node": f"node-{name}", **stamps}
    return claim_of(it, name, **facts | more)


def instance_of(claim: Claim, **more: Any) -> Instance:
    """The cloud's side of a claim."""
    where = claim.capacity_pool
    facts: dict[str, Any] = {
        "id": claim.instance_id,
        "instance_type": where.instance_type,
        "zone": where.zone,
        "capacity_type": where.capacity_type,
        "state": "running",
        "launched_at_s": claim.launched_at_s,
        "tags": own_tags(claim, "default"),
        "reservation": where.reservation,
    }
    return Instance(**facts | more)


def node_of(claim: Claim, it: Offering, **more: Any) -> Node:
    """The cluster's side of a claim, as it is once everything is well."""
    name = claim.node or f"node-{claim.name}"
    carried = {
        **it.labels,
        labels.HOSTNAME: name,
        labels.NODE_CLAIM: claim.name,
        labels.MIG_CONFIG_STATE: "success" if claim.layout else "",
    }
    facts: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "provider_id": f"aws:///{it.offer.zone}/{claim.instance_id}",
        "labels": {key: value for key, value in carried.items() if value},
        "taints": it.taints,
        "allocatable": dict(it.allocatable),
        "ready": True,
        "unschedulable": False,
        "created_at_s": claim.launched_at_s,
        "ready_changed_at_s": claim.launched_at_s,
        "has_finalizer": True,
    }
    return Node(**facts | more)


def plain_node(name: str, allocatable: Resources, carried: Mapping[str, str] | None = None, **more: Any) -> Node:
    """A node that nobody bought through us."""
    facts: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "provider_id": "",
        "labels": {labels.HOSTNAME: name, **(carried or {})},
        "taints": (),
        "allocatable": {"pods": 100, **allocatable},
        "ready": True,
        "unschedulable": False,
        "created_at_s": NOW - 9000,
    }
    return Node(**facts | more)


def foreign_pod(name: str, node: str, requests: Resources | None = None, **more: Any) -> Pod:
    """A running pod that belongs to no gang."""
    return Pod(f"uid-{name}", "other", name, node, "Running", amounts() if requests is None else requests, **more)


def gang_pod(gang: Gang, name: str, pod_set: str = "main", node: str = "", **more: Any) -> Pod:
    """A pod of a gang: gated and pending until a node is given. Its label `job-name` is that of its job."""
    facts: dict[str, Any] = {"phase": "Running", "ready": True} if node else {"phase": "Pending", "gated": True}
    facts["labels"] = (("job-name", gang.job.name),)
    return replace(
        Pod(
            f"uid-{name}", gang.namespace, name, node, "Pending", gang.pod_set(pod_set).requests, gang.workload, pod_set
        ),
        **facts | more,
    )


def capacity_pool(kind: str = P5.name, zone: str = A, capacity_type: CapacityType = "on-demand") -> CapacityPool:
    """What runs short together."""
    return CapacityPool(capacity_type, kind, zone)
