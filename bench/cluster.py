"""A large cluster in which nothing is to be done: 10,000 machines, 100,000 pods, 500 gangs that run, as API objects.

Half of the machines train (two pods of a gang on each, four of DaemonSets), half serve (four of DaemonSets, ten of
Deployments). Objects are as fat as real ones, `managedFields` included: about 4 KB a pod, 5 KB a node.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fleet.catalog import ImageKind
from fleet.gangs.lifecycle import new_gang
from fleet.offerings.offerings import Offering, Offerings
from fleet.reasons import Reason
from fleet.snapshot import Claim, Gang, GangState, Instance, Launch, Pin, Resolved, Snapshot
from model.fleet import Fleet
from model.labels import CLUSTER, HOSTNAME, NODE_CLAIM, PRIORITY_CLASS, QUEUE
from model.loader import load
from model.pools import pool_hash
from model.quantity import format_amount
from providers.aws.catalog import package_catalog
from providers.kube.objects import DECODERS, claim_object, claim_status, workload_object, workload_status
from providers.kube.objects.instants import format_instant
from providers.kube.objects.names import TERMINATION_FINALIZER

NODES, GANGS, NODES_A_GANG, PODS_A_NODE = 10_000, 500, 10, (6, 14)
REGION, ZONES, TEAMS = "us-east-1", ("us-east-1a", "us-east-1b", "us-east-1c"), 10
BORN_S, STARTED_S, CHECKPOINT_S = 9 * 86_400.0, 6 * 3_600.0, 900.0
"""Ages: of the machines, of the gangs' start, of their last checkpoint."""
Object = dict[str, Any]
Put = Callable[[str, Object], Object]
"""Takes a kind and an object, gives it a uid and a resourceVersion, keeps it and returns it."""

FLEET = {
    "pools.yaml": """
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: train}
spec:
  instanceTypes: [p5.48xlarge]
  zones: [us-east-1a, us-east-1b, us-east-1c]
  limits: {nodes: 5000}
---
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: serve}
spec:
  instanceTypes: [m7i.24xlarge]
  zones: [us-east-1a, us-east-1b, us-east-1c]
""",
    "policy.yaml": """
apiVersion: muster.dev/v1alpha1
kind: PriorityClass
metadata: {name: normal}
spec: {value: 100}
""",
    "teams.yaml": "---".join(
        f"""
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: team-{n}}}
spec:
  namespaces: [team-{n}]
  quotas:
    train: {{guaranteed: {{nvidia.com/gpu: 5000}}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {{name: queue-{n}}}
spec: {{team: team-{n}, flavors: [train]}}
"""
        for n in range(TEAMS)
    ),
}


def declared() -> Fleet:
    """The fleet that the cluster is in accord with."""
    return load({name: text.encode() for name, text in FLEET.items()})


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """How much of the full cluster is made; a smaller one keeps the proportions."""

    nodes: int = NODES
    gangs: int = GANGS
    nodes_a_gang: int = NODES_A_GANG

    @property
    def pods(self) -> int:
        """All pods."""
        return self.nodes // 2 * sum(PODS_A_NODE)


FULL = ClusterSize()


def fill(put: Put, now_s: float, size: ClusterSize = FULL) -> None:
    """Put every object of the cluster: nodes, claims, jobs, workloads, pods."""
    fleet = declared()
    born_s = now_s - BORN_S
    machines = [_machine(fleet, number, born_s, size) for number in range(size.nodes)]
    for gang in gangs(put, fleet, machines, now_s, size):
        put("Workload", {**workload_object(gang), "status": workload_status(gang, now_s)["status"]})
    for claim, offering in machines:
        put("NodeClaim", {**claim_object(claim), "status": claim_status(claim, now_s)["status"]})
        put("Node", _node(claim, offering, born_s))
    for number, (claim, _) in enumerate(machines):
        for pod in _standing(claim.node, number, born_s, trains=claim.node_pool == "train"):
            put("Pod", pod)


def instances(now_s: float, size: ClusterSize = FULL) -> list[Instance]:
    """The cloud's side."""
    fleet, born_s = declared(), now_s - BORN_S
    return [_instance(_machine(fleet, number, born_s, size)[0], born_s) for number in range(size.nodes)]


def resolved(kinds: Iterable[ImageKind]) -> Resolved:
    """What the names of a pool stand for: just what its machines were born with."""
    return Resolved(dict.fromkeys(kinds, _IMAGE), {f"subnet-{zone}": _GROUPS for zone in ZONES})


# -- machines ---------------------------------------------------------------------------------------------------------

_IMAGE, _GROUPS = "ami-bench", ("sg-bench",)
_offerings: dict[tuple[str, str], Offering] = {}


def _offering(fleet: Fleet, pool: str, zone: str) -> Offering:
    if (pool, zone) not in _offerings:
        catalog = package_catalog(REGION).catalog
        for offering in Offerings(fleet, catalog).of(fleet.node_pools[pool]):
            _offerings[pool, offering.offer.zone] = offering
    return _offerings[pool, zone]


def _machine(fleet: Fleet, number: int, born_s: float, size: ClusterSize) -> tuple[Claim, Offering]:
    trains = number < size.nodes // 2
    offering = _offering(fleet, "train" if trains else "serve", ZONES[number % len(ZONES)])
    claim = Claim(
        name=f"{offering.pool.name}-{number:05}",
        uid="",
        node_pool=offering.pool.name,
        pool_hash=pool_hash(offering.pool),
        capacity_pool=offering.offer.pool_key,
        price_usd_h=offering.offer.price_usd_h,
        launch=Launch(f"group-{number // 10:04}", 0, 10),
        created_at_s=born_s,
        resources=offering.allocatable,
        instance_id=f"i-{number:017x}",
        node=f"ip-10-{number >> 14}-{number >> 7 & 127}-{number & 127}.ec2.internal",
        launched_at_s=born_s,
        registered_at_s=born_s,
        ready_at_s=born_s,
    )
    return claim, offering


def _instance(claim: Claim, born_s: float) -> Instance:
    where = claim.capacity_pool
    tags = {CLUSTER: "bench", "muster.dev/launch-group": claim.launch.group}
    return Instance(
        claim.instance_id,
        where.instance_type,
        where.zone,
        where.capacity_type,
        "running",
        born_s,
        tags,
        claim.node,
        image=_IMAGE,
        subnet=f"subnet-{where.zone}",
        security_groups=_GROUPS,
    )


def _node(claim: Claim, offering: Offering, born_s: float) -> Object:
    amounts = {name: format_amount(name, amount) for name, amount in offering.allocatable.items() if amount}
    own = {HOSTNAME: claim.node, NODE_CLAIM: claim.name, "beta.kubernetes.io/os": "linux"}
    born = format_instant(born_s)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": claim.node,
            "creationTimestamp": born,
            "labels": {**offering.labels, **own},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "csi.volume.kubernetes.io/nodeid": "{}"},
            "finalizers": [TERMINATION_FINALIZER],
            "managedFields": _MANAGED,
        },
        "spec": {"providerID": f"aws:///{offering.offer.zone}/{claim.instance_id}"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {"type": kind, "status": status, "lastHeartbeatTime": born, "lastTransitionTime": born, "reason": kind}
                for kind, status in (
                    ("MemoryPressure", "False"),
                    ("DiskPressure", "False"),
                    ("PIDPressure", "False"),
                    ("Ready", "True"),
                )
            ],
            "addresses": [{"type": "Hostname", "address": claim.node}],
            "nodeInfo": {"kubeletVersion": "v1.34.1", "operatingSystem": "linux", "architecture": "amd64"},
            "images": _IMAGES,
        },
    }


# -- gangs ------------------------------------------------------------------------------------------------------------


def gangs(
    put: Put, fleet: Fleet, machines: list[tuple[Claim, Offering]], now_s: float, size: ClusterSize
) -> Iterator[Gang]:
    """Puts the jobs and the pods of the gangs and hands over the gangs."""
    for number in range(size.gangs):
        team = f"team-{number % TEAMS}"
        claims = [claim for claim, _ in machines[number * size.nodes_a_gang : (number + 1) * size.nodes_a_gang]]
        job = put("Job", _job(team, f"train-{number:03}", f"queue-{number % TEAMS}", now_s, 2 * size.nodes_a_gang))
        gang = new_gang(fleet, Snapshot(now_s=now_s - STARTED_S), DECODERS["batch", "Job"](json.dumps(job).encode()))
        yield replace(
            gang,
            state=GangState.ADMITTED,
            reason=Reason.RUNNING,
            message="all pods are ready",
            flavors={"main": ("train",)},
            pins=tuple(sorted(Pin("main", claim.node, claim.name, 2) for claim in claims)),
            quota_reserved_at_s=now_s - STARTED_S,
            admitted_at_s=now_s - STARTED_S,
            pods_ready=True,
        )
        for index in range(2 * size.nodes_a_gang):
            node = claims[index // 2].node
            name = f"{job['metadata']['name']}-{index}-{(number * 7919 + index) % 99991:05}"
            put("Pod", _pod(team, name, node, now_s - STARTED_S, _gang_pod(gang.workload, job, node)))


def _job(namespace: str, name: str, queue: str, now_s: float, size: int) -> Object:
    started = format_instant(now_s - STARTED_S)
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {"restartPolicy": "Never", "containers": [_container("train", _GANG_REQUESTS)]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": started,
            "labels": {QUEUE: queue, PRIORITY_CLASS: "normal"},
            "annotations": {"muster.dev/last-checkpoint-time": format_instant(now_s - CHECKPOINT_S)},
            "managedFields": _MANAGED,
        },
        "spec": {"suspend": False, "parallelism": size, "completions": size, "template": template},
        "status": {"active": size, "ready": size, "startTime": started},
    }


# -- pods -------------------------------------------------------------------------------------------------------------


def _container(image: str, requests: dict[str, str]) -> Object:
    return {
        "name": "main",
        "image": f"registry.test/{image}:1",
        "command": ["python", "-m", image],
        "env": [{"name": f"VARIABLE_{n}", "value": f"value-of-variable-{n}"} for n in range(10)],
        "resources": {
            "requests": requests,
            "limits": {name: amount for name, amount in requests.items() if "/" in name},
        },
        "volumeMounts": [{"name": f"volume-{n}", "mountPath": f"/mnt/{n}"} for n in range(4)],
        "terminationMessagePath": "/dev/termination-log",
    }


_GANG_REQUESTS = {"cpu": "94", "memory": "900Gi", "nvidia.com/gpu": "4"}
_OWNED: Object = {f"f:field-{n}": {".": {}, "f:name": {}, "f:value": {}} for n in range(26)}
_MANAGED = [
    {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": _OWNED}
    for manager in ("kube-controller-manager", "kubelet")
]
_IMAGES = [{"names": [f"registry.test/image-{n}:1"], "sizeBytes": 100_000_000 + n} for n in range(20)]
_DAEMONS = [(f"daemon-{n}", _container(f"daemon-{n}", {"cpu": "100m", "memory": "200Mi"})) for n in range(4)]
_SERVICES = [(f"service-{n}", _container(f"service-{n}", {"cpu": "9", "memory": f"{4 + n}Gi"})) for n in range(10)]
_TRAINING = _container("train", _GANG_REQUESTS)


@dataclass(frozen=True, slots=True)
class _Kind:
    container: Object
    labels: dict[str, str]
    owner: Object
    selector: dict[str, str]


def _gang_pod(workload: str, job: Object, node: str) -> _Kind:
    meta = job["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
    own = {"muster.dev/workload": workload, "muster.dev/pod-set": "main", "job-name": meta["name"]}
    return _Kind(_TRAINING, own, owner, {HOSTNAME: node})


def _standing(node: str, number: int, born_s: float, *, trains: bool) -> Iterator[Object]:
    """Pods of no gang on one node."""
    for name, container in _DAEMONS:
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": f"uid-{name}", "controller": True}
        kind = _Kind(container, {"app": name}, owner, {})
        yield _pod("kube-system", f"{name}-{number:05}", node, born_s, kind)
    for index, (name, container) in enumerate(() if trains else _SERVICES):
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"uid-{name}", "controller": True}
        kind = _Kind(container, {"app": name, "version": f"v{(number + index) % 40}"}, owner, {})
        yield _pod("serving", f"{name}-{number:05}", node, born_s, kind)


def _pod(namespace: str, name: str, node: str, started_s: float, kind: _Kind) -> Object:
    started = format_instant(started_s)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": started,
            "labels": kind.labels,
            "annotations": {"kubernetes.io/psp": "restricted", "prometheus.io/scrape": "true"},
            "ownerReferences": [kind.owner],
            "managedFields": _MANAGED,
        },
        "spec": {
            "nodeName": node,
            "nodeSelector": kind.selector,
            "containers": [kind.container],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "terminationGracePeriodSeconds": 30,
            "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(4)],
        },
        "status": {
            "phase": "Running",
            "startTime": started,
            "podIP": "10.0.0.1",
            "qosClass": "Burstable",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": started}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": started}}}
            ],
        },
    }
