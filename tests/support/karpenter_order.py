"""What Karpenter's order would buy for gangs on an empty cluster, pod by pod, over the offerings of their fleet.

Each offering is a kind of machine, each gang with one pod set a class; `pod_by_pod` shares no code with the product.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.optimize.purchase import MachineKind, PodDemand, PurchaseProblem
from fleet.placement.cluster_state import PODS
from fleet.placement.inventory import build_capacity
from fleet.snapshot import Gang, Snapshot
from fleet.snapshot.affinity import admits
from model.fleet import Fleet
from model.quantity import CPU
from tests.support.purchases import pod_by_pod


@dataclass(frozen=True, slots=True)
class OrderedMachine:
    """One machine of Karpenter's order."""

    zone: str
    gpu_name: str
    usd_h: float
    gangs: Mapping[str, int]
    """Name of a gang -> its pods here."""


def ordered(gangs: Iterable[Gang], fleet: Fleet, snapshot: Snapshot) -> list[OrderedMachine]:
    """What Karpenter's order would buy for all pods of the gangs, each by itself; a pod without a place is left out."""
    supply = build_capacity(fleet, snapshot)
    offerings = {
        "/".join(map(str, it.key)): it for pool in fleet.node_pools.values() for it in supply.offerings.of(pool)
    }
    kinds = tuple(MachineKind(name, it.offer.price_usd_h, it.allocatable) for name, it in offerings.items())
    classes = []
    for gang in gangs:
        [pods] = gang.pod_sets
        able = frozenset(name for name, it in offerings.items() if admits(pods, pods.tolerations, it.labels, it.taints))
        classes.append(PodDemand(gang.job.name, {**pods.requests, PODS: 1}, able, pods.count))
    resources = {name for it in classes for name in it.requests}
    first = (CPU, "memory", *sorted(resources - {CPU, "memory"}))
    filled = [PodDemand(it.name, {**dict.fromkeys(first, 0), **it.requests}, it.kinds, it.count) for it in classes]
    found = pod_by_pod(PurchaseProblem(first, tuple(filled), kinds))
    return [
        OrderedMachine(
            offerings[kind].offer.zone,
            offerings[kind].offer.instance_type.gpu_name,
            offerings[kind].offer.price_usd_h,
            dict(pods),
        )
        for (kind, pods), machines in found.items()
        for _ in range(machines)
    ]
