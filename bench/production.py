"""The protocol of `bench.packing` through what production decides by: a board of slots, and `place_gang` for every pod.

Production knows a node by counts: a share of one device cannot be asked for by size there. So pods that want one are
left out; or a part of the nodes, as large as their part of what is asked for, offers every device as so many replicas
(`nvidia.com/gpu.shared`), and they ask there for as many as their share needs, rounded up. Which device of the node
they are of is up to the device plugin: here the fullest that has as many left. Where none has, the pod counts as
failed, and holds nothing.

Gangs of one pod come in passes of 100. Prices of a pass are by the pods that have come so far, placed or not, as they
are by a snapshot's; nobody says beforehand what will come.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bench.packing import PackingOutcome, Trace, arrivals, fragmented_pct
from bench.reference.fragmentation import WHOLE_MILLI, Measure, Request
from bench.reference.packer import FreeNode
from fleet.offerings.offerings import Offerings
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.free_capacity import SlotCost, no_cost
from fleet.placement.opportunity_cost import MEMORY, OpportunityCosts
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.snapshot import Catalog, Gang, JobRef, PodSet
from model.fleet import Fleet
from model.kinds import NodePool, RequirementTerm
from model.kinds.base import API_VERSION, Metadata
from model.kinds.node_pool import NodePoolSpec, ReplicaSharing, Sharing
from model.labels import GPU_RESOURCE, SHARED_GPU_RESOURCE
from model.quantity import CPU, Resources

IN_A_PASS = 100
"""Pods that come between two passes."""
PODS_ON_A_NODE = 110
POOL = "shared"
MODEL = "gpu-model"
_MIB = 2**20

Priced = Callable[[Resources], SlotCost]
Rule = Callable[[Fleet, Mapping[str, Gang]], Priced]


def _by_worth(fleet: Fleet, gangs: Mapping[str, Gang]) -> Priced:
    return OpportunityCosts(fleet, gangs, fleet.index).priced


def _by_room(_fleet: Fleet, _gangs: Mapping[str, Gang]) -> Priced:
    return lambda _requests: no_cost


RULES: Mapping[str, Rule] = {"expected-fill": _by_worth, "tightest": _by_room}
"""What production does, and what it did before: the node with the least room for such pods."""


def whole(trace: Trace) -> Trace:
    """The trace without the pods that ask for a share of a device."""
    return replace(trace, name=f"{trace.name}-whole", pods=tuple(pod for pod in trace.pods if not pod.shared))


@dataclass(slots=True)
class _FixedCluster:
    """Fixed nodes and the gangs that have come."""

    fleet: Fleet
    slots: dict[str, NodeSlot]
    gangs: dict[str, Gang]
    devices: dict[str, list[int]]
    """Node -> replicas that are free of each device."""
    replicas: int
    allocated_milli: int = 0
    placed: int = 0
    slowest_s: float = 0.0

    def admit(self, pods: Sequence[Request], rule: Rule) -> None:
        """One pass over gangs that have just come."""
        came = [_gang(len(self.gangs) + number, pod, self.replicas) for number, pod in enumerate(pods)]
        self.gangs |= {gang.uid: gang for gang in came}
        board = ClusterState(dict(self.slots))
        supply = BuyableCapacity(Offerings(self.fleet, Catalog()), {}, {}, [], False, rule(self.fleet, self.gangs))
        for gang, pod in zip(came, pods, strict=True):
            asked_s, mark = time.perf_counter(), board.mark()
            found = place_gang(board, supply, gang.uid, [Need(gang.pod_sets[0], (), {}, (), any_node=True)])
            self.slowest_s = max(self.slowest_s, time.perf_counter() - asked_s)
            if not isinstance(found, PlacementPlan):
                continue
            if self._starts(pod, found.assignments[0].slot.name):
                self.placed += 1
                self.allocated_milli += pod.total_gpu_milli
            else:
                board.undo(mark)

    def _starts(self, pod: Request, node: str) -> bool:
        """Takes the devices of a pod on its node; False where the replicas left there are of too many devices."""
        free, each = self.devices[node], _replicas(pod, self.replicas)
        fullest = sorted((left, at) for at, left in enumerate(free) if left >= each)[: pod.gpus]
        if len(fullest) < pod.gpus:
            return False
        for _, at in fullest:
            free[at] -= each
        return True


def _replicas(pod: Request, replicas: int) -> int:
    """How many replicas of each of its devices a pod asks for."""
    return -(-pod.gpu_milli * replicas // WHOLE_MILLI) if pod.shared else replicas


def fill(trace: Trace, rule: Rule, fragmented: Measure, seed: int, replicas: int = 1) -> PackingOutcome:
    """One run; `fragmented` as in `bench.packing.fill`. Every device is offered `replicas` times."""
    sharing = _shared_nodes(trace) if replicas > 1 else frozenset()
    slots = {node.name: _slot(node, replicas, shared=node.name in sharing) for node in trace.nodes}
    devices = {node.name: [replicas] * len(node.devices) for node in trace.nodes}
    cluster, pods = _FixedCluster(_fleet(replicas), slots, {}, devices, replicas), arrivals(trace, seed)
    began_s = time.perf_counter()
    coming = iter(pods)
    while some := list(islice(coming, IN_A_PASS)):
        cluster.admit(some, rule)
    seconds = time.perf_counter() - began_s
    return PackingOutcome(
        seed=seed,
        pods=len(pods),
        placed=cluster.placed,
        allocated_pct=100 * cluster.allocated_milli / trace.gpu_milli,
        fragmented_pct=fragmented_pct(list(_machines(cluster)), fragmented),
        slowest_s=cluster.slowest_s,
        seconds=seconds,
    )


def _fleet(replicas: int) -> Fleet:
    """Nodes that share their GPUs are of a fixed pool, the others of none."""
    if replicas == 1:
        return Fleet()
    sharing = Sharing(time_slicing=ReplicaSharing(replicas=replicas, rename_by_default=True))
    spec = NodePoolSpec(replicas=0, sharing=sharing)
    return Fleet(node_pools={POOL: NodePool(api_version=API_VERSION, metadata=Metadata(name=POOL), spec=spec)})


def _shared_nodes(trace: Trace) -> frozenset[str]:
    """Nodes whose GPUs are shared: evenly among all, with the part of the GPUs that pods with shares ask for."""
    wanted = sum(pod.total_gpu_milli for pod in trace.pods if pod.shared)
    part = wanted / sum(pod.total_gpu_milli for pod in trace.pods)
    chosen, seen, taken = set[str](), 0, 0
    for node in trace.nodes:
        seen += len(node.devices)
        if taken + len(node.devices) <= part * seen:
            taken += len(node.devices)
            chosen.add(node.name)
    return frozenset(chosen)


def _slot(node: FreeNode, replicas: int, *, shared: bool) -> NodeSlot:
    gpus = {SHARED_GPU_RESOURCE: len(node.devices) * replicas} if shared else {GPU_RESOURCE: len(node.devices)}
    free = {CPU: node.cpu_milli, MEMORY: node.memory_mib * _MIB, "pods": PODS_ON_A_NODE, **gpus}
    return NodeSlot(node.name, node.name, "", {MODEL: node.model}, (), free, POOL if shared else "")


def _machines(cluster: _FixedCluster) -> Iterable[FreeNode]:
    for name, slot in cluster.slots.items():
        devices = tuple(WHOLE_MILLI * left // cluster.replicas for left in cluster.devices[name])
        yield FreeNode(slot.name, slot.free[CPU], slot.free[MEMORY] // _MIB, devices, slot.labels[MODEL])


def _gang(number: int, pod: Request, replicas: int) -> Gang:
    uid = f"pod-{number:06}"
    gpus = {GPU_RESOURCE: pod.gpus} if pod.gpus else {}
    if pod.shared and replicas > 1:
        gpus = {SHARED_GPU_RESOURCE: _replicas(pod, replicas)}
    requests = {CPU: pod.cpu_milli, MEMORY: pod.memory_mib * _MIB} | gpus
    allowed = ((RequirementTerm(key=MODEL, operator="In", values=pod.models),),) if pod.gpus and pod.models else ()
    pods = PodSet("main", 1, requests, required_affinity=allowed)
    return Gang(uid, "some", uid, JobRef("batch/v1", "Job", "some", uid, uid), "", "", 0, (pods,), 0.0)
