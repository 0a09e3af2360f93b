"""The protocol of `bench.packing` through what production decides by: a board of slots, and `place_gang` for every pod.

Production knows a node by counts: a share of one device cannot be asked for by size there, so pods that want one are
left out. Gangs of one pod come in passes of 100. Prices of a pass are by the pods that have come so far, placed or not,
as they are by a snapshot's; nobody says beforehand what will come.
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
from model.kinds import RequirementTerm
from model.labels import GPU_RESOURCE
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
    allocated: int = 0
    placed: int = 0
    slowest_s: float = 0.0

    def admit(self, pods: Sequence[Request], rule: Rule) -> None:
        """One pass over gangs that have just come."""
        came = [_gang(len(self.gangs) + number, pod) for number, pod in enumerate(pods)]
        self.gangs |= {gang.uid: gang for gang in came}
        board = ClusterState(dict(self.slots))
        supply = BuyableCapacity(Offerings(self.fleet, Catalog()), {}, {}, [], False, rule(self.fleet, self.gangs))
        for gang, pod in zip(came, pods, strict=True):
            asked_s = time.perf_counter()
            found = place_gang(board, supply, gang.uid, [Need(gang.pod_sets[0], (), {}, (), any_node=True)])
            self.slowest_s = max(self.slowest_s, time.perf_counter() - asked_s)
            if isinstance(found, PlacementPlan):
                self.placed += 1
                self.allocated += pod.gpus


def fill(trace: Trace, rule: Rule, fragmented: Measure, seed: int) -> PackingOutcome:
    """One run; `fragmented` as in `bench.packing.fill`."""
    cluster, pods = _FixedCluster(Fleet(), {node.name: _slot(node) for node in trace.nodes}, {}), arrivals(trace, seed)
    began_s = time.perf_counter()
    coming = iter(pods)
    while some := list(islice(coming, IN_A_PASS)):
        cluster.admit(some, rule)
    seconds = time.perf_counter() - began_s
    return PackingOutcome(
        seed=seed,
        pods=len(pods),
        placed=cluster.placed,
        allocated_pct=100 * WHOLE_MILLI * cluster.allocated / trace.gpu_milli,
        fragmented_pct=fragmented_pct(list(_machines(cluster.slots.values())), fragmented),
        slowest_s=cluster.slowest_s,
        seconds=seconds,
    )


def _slot(node: FreeNode) -> NodeSlot:
    free = {
        CPU: node.cpu_milli,
        MEMORY: node.memory_mib * _MIB,
        GPU_RESOURCE: len(node.devices),
        "pods": PODS_ON_A_NODE,
    }
    return NodeSlot(node.name, node.name, "", {MODEL: node.model}, (), free)


def _machines(slots: Iterable[NodeSlot]) -> Iterable[FreeNode]:
    for slot in slots:
        devices = (WHOLE_MILLI,) * slot.free[GPU_RESOURCE]
        yield FreeNode(slot.name, slot.free[CPU], slot.free[MEMORY] // _MIB, devices, slot.labels[MODEL])


def _gang(number: int, pod: Request) -> Gang:
    uid = f"pod-{number:06}"
    requests = {CPU: pod.cpu_milli, MEMORY: pod.memory_mib * _MIB} | ({GPU_RESOURCE: pod.gpus} if pod.gpus else {})
    allowed = ((RequirementTerm(key=MODEL, operator="In", values=pod.models),),) if pod.gpus and pod.models else ()
    pods = PodSet("main", 1, requests, required_affinity=allowed)
    return Gang(uid, "some", uid, JobRef("batch/v1", "Job", "some", uid, uid), "", "", 0, (pods,), 0.0)
