"""The protocol of `bench.packing` through what production decides by: a board of slots, and `place_gang` for every pod.

Production knows a node by counts: a share of one device cannot be asked for by size there. So pods that want one are
left out; or fixed pools offer each of their GPUs so many times (`nvidia.com/gpu.shared`), and a pod asks for one
replica, of those pools whose replicas are no smaller than its share. One and not several, because nobody gives several
replicas of one GPU to a pod: the device plugin spreads them over GPUs, or refuses them (`failRequestsGreaterThanOne`).
A pod whose share no pool offers asks for a whole GPU.

A pool has as many GPUs as its pods ask for by their part of all, and it takes the machines with the most cores a GPU:
where several pods share a GPU, each wants its cores beside it.

Gangs of one pod come in passes of 100. Prices of a pass are by the pods that have come so far, placed or not, as they
are by a snapshot's; nobody says beforehand what will come.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bench.packing import PackingOutcome, Trace, arrivals, fragmented_pct, replicas_for
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
from model.gpu_sharing import plugin_config_name
from model.kinds import NodePool, RequirementTerm
from model.kinds.base import API_VERSION, Metadata
from model.kinds.node_pool import NodePoolSpec, ReplicaSharing, Sharing
from model.labels import DEVICE_PLUGIN_CONFIG, GPU_RESOURCE, SHARED_GPU_RESOURCE
from model.quantity import CPU, Resources

IN_A_PASS = 100
"""Pods that come between two passes."""
PODS_ON_A_NODE = 110
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
    replicas: Mapping[str, int]
    """Node -> how often each of its GPUs is offered."""
    allocated_milli: int = 0
    held_milli: int = 0
    placed: int = 0
    slowest_s: float = 0.0

    def admit(self, pods: Sequence[Request], rule: Rule, offered: Sequence[int]) -> None:
        """One pass over gangs that have just come."""
        came = [_gang(len(self.gangs) + number, pod, offered) for number, pod in enumerate(pods)]
        self.gangs |= {gang.uid: gang for gang in came}
        board = ClusterState(dict(self.slots))
        supply = BuyableCapacity(Offerings(self.fleet, Catalog()), {}, {}, [], False, rule(self.fleet, self.gangs))
        for gang, pod in zip(came, pods, strict=True):
            asked_s = time.perf_counter()
            found = place_gang(board, supply, gang.uid, [Need(gang.pod_sets[0], (), {}, (), any_node=True)])
            self.slowest_s = max(self.slowest_s, time.perf_counter() - asked_s)
            if isinstance(found, PlacementPlan):
                self.placed += 1
                self.allocated_milli += pod.total_gpu_milli
                self.held_milli += pod.gpus * WHOLE_MILLI // self.replicas[found.assignments[0].slot.name]


def fill(trace: Trace, rule: Rule, fragmented: Measure, seed: int, offered: Sequence[int] = ()) -> PackingOutcome:
    """One run; `fragmented` as in `bench.packing.fill`. `offered`: how often pools offer their GPUs."""
    replicas = pooled(trace, offered)
    slots = {node.name: _slot(node, replicas[node.name]) for node in trace.nodes}
    cluster, pods = _FixedCluster(_fleet(offered), slots, {}, replicas), arrivals(trace, seed)
    began_s = time.perf_counter()
    coming = iter(pods)
    while some := list(islice(coming, IN_A_PASS)):
        cluster.admit(some, rule, offered)
    seconds = time.perf_counter() - began_s
    return PackingOutcome(
        seed=seed,
        pods=len(pods),
        placed=cluster.placed,
        allocated_pct=100 * cluster.allocated_milli / trace.gpu_milli,
        held_pct=100 * cluster.held_milli / trace.gpu_milli,
        fragmented_pct=fragmented_pct([_left(node, cluster) for node in trace.nodes], fragmented),
        slowest_s=cluster.slowest_s,
        seconds=seconds,
    )


def pooled(trace: Trace, offered: Sequence[int]) -> Mapping[str, int]:
    """Node -> how often its GPUs are offered: pools whose pods want the most cores a GPU choose first."""
    wanted, cpu_milli = Counter[int](), Counter[int]()
    for pod in trace.pods:
        if pod.gpus:
            times = replicas_for(pod, offered)
            wanted[times] += pod.gpus * WHOLE_MILLI // times
            cpu_milli[times] += pod.cpu_milli
    part = trace.gpu_milli / wanted.total()
    left = {times: wanted[times] * part for times in wanted if times > 1}
    order = sorted(left, key=lambda times: (-cpu_milli[times] / wanted[times], times))
    found = dict.fromkeys((node.name for node in trace.nodes), 1)
    for node in sorted(filter(_gpus, trace.nodes), key=lambda node: (-node.cpu_milli / _gpus(node), node.name)):
        has = WHOLE_MILLI * _gpus(node)
        if (times := next((it for it in order if has <= left[it]), 1)) > 1:
            found[node.name], left[times] = times, left[times] - has
    return found


def _gpus(node: FreeNode) -> int:
    return len(node.devices)


def _sharing(times: int) -> Sharing:
    return Sharing(
        time_slicing=ReplicaSharing(replicas=times, rename_by_default=True, fail_requests_greater_than_one=True)
    )


def _pool(times: int) -> str:
    return f"shared-by-{times}"


def _fleet(offered: Sequence[int]) -> Fleet:
    """Nodes that share their GPUs are of fixed pools, the others of none."""
    pools = {}
    for times in offered:
        spec = NodePoolSpec(replicas=0, sharing=_sharing(times))
        pools[_pool(times)] = NodePool(api_version=API_VERSION, metadata=Metadata(name=_pool(times)), spec=spec)
    return Fleet(node_pools=pools)


def _slot(node: FreeNode, times: int) -> NodeSlot:
    carried, gpus, pool = {MODEL: node.model}, {GPU_RESOURCE: _gpus(node)}, ""
    if times > 1:
        carried[DEVICE_PLUGIN_CONFIG] = plugin_config_name(_sharing(times))
        gpus, pool = {SHARED_GPU_RESOURCE: _gpus(node) * times}, _pool(times)
    free = {CPU: node.cpu_milli, MEMORY: node.memory_mib * _MIB, "pods": PODS_ON_A_NODE, **gpus}
    return NodeSlot(node.name, node.name, "", carried, (), free, pool)


def _left(node: FreeNode, cluster: _FixedCluster) -> FreeNode:
    """What is free on a node; of replicas as many on every GPU, as the device plugin spreads those it gives."""
    slot, times = cluster.slots[node.name], cluster.replicas[node.name]
    free, gpus = slot.free.get(SHARED_GPU_RESOURCE if times > 1 else GPU_RESOURCE, 0), _gpus(node)
    devices = tuple((free + at) // gpus * WHOLE_MILLI // times for at in range(gpus))
    return FreeNode(node.name, slot.free[CPU], slot.free[MEMORY] // _MIB, devices, node.model)


def _gang(number: int, pod: Request, offered: Sequence[int]) -> Gang:
    uid, times = f"pod-{number:06}", replicas_for(pod, offered)
    requests = {CPU: pod.cpu_milli, MEMORY: pod.memory_mib * _MIB} | _gpus_asked(pod, times)
    terms = []
    if pod.gpus and pod.models:
        terms.append(RequirementTerm(key=MODEL, operator="In", values=pod.models))
    if times > 1:
        large_enough = tuple(plugin_config_name(_sharing(it)) for it in sorted(offered) if it <= times)
        terms.append(RequirementTerm(key=DEVICE_PLUGIN_CONFIG, operator="In", values=large_enough))
    pods = PodSet("main", 1, requests, required_affinity=(tuple(terms),) if terms else ())
    return Gang(uid, "some", uid, JobRef("batch/v1", "Job", "some", uid, uid), "", "", 0, (pods,), 0.0)


def _gpus_asked(pod: Request, times: int) -> dict[str, int]:
    if not pod.gpus:
        return {}
    return {SHARED_GPU_RESOURCE: 1} if times > 1 else {GPU_RESOURCE: pod.gpus}
