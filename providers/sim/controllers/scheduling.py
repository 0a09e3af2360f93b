"""What the scheduler compares: nodes as it sees them, pending pods, and how the one ranks for the other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from providers.sim.controllers.matching import Taint
from providers.sim.controllers.objects import Key, Obj, is_true, labels_of
from providers.sim.controllers.occupancy import Amounts, allocatable_of

NOT_READY: Taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNSCHEDULABLE: Taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class SchedulableNode:
    """The part of a node that scheduling looks at; equal views need no new attempt."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts

    @classmethod
    def of(cls, node: Obj) -> "SchedulableNode":
        """The view of a node; what is unready or cordoned counts as tainted, whether anybody tainted it or not."""
        taints = [*(node["spec"].get("taints") or ())]
        keys = {taint["key"] for taint in taints}
        if not is_true(node, "Ready") and not keys & {NOT_READY["key"], "node.kubernetes.io/unreachable"}:
            taints.append(NOT_READY)  # the node lifecycle controller would; this one does not depend on it
        if node["spec"].get("unschedulable") and UNSCHEDULABLE["key"] not in keys:
            taints.append(UNSCHEDULABLE)
        return cls(node["metadata"]["name"], labels_of(node), tuple(taints), allocatable_of(node))


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pending pod; equal signatures fit the same nodes."""

    key: Key
    order: tuple[int, int, Key]
    signature: str
    wanted: Amounts


@dataclass(slots=True)
class Ranking:
    """The nodes for one signature, fullest first, as of a state of the cluster.

    A pod bound to the first makes it fuller still, so it stays first until it no longer fits: a gang of equal pods is
    placed with one look at the nodes.
    """

    signature: str
    changes: int
    views: Sequence[SchedulableNode]
    position: int = 0


def signature_of(pod: Obj, wanted: Amounts) -> str:
    """What decides where a pod fits, as text."""
    spec = pod["spec"]
    affinity = (spec.get("affinity") or {}).get("nodeAffinity")
    parts: tuple[Any, ...] = (
        spec.get("nodeSelector"),
        affinity,
        spec.get("tolerations"),
        sorted(wanted.items()),
    )
    return json.dumps(parts, sort_keys=True)


def fullness(wanted: Amounts, allocatable: Amounts, used: Amounts) -> int:
    """How full the node would be, summed over the resources asked for (MostAllocated), in millionths."""
    total = 0
    for name, amount in wanted.items():
        capacity = allocatable.get(name, 0)
        if capacity:
            total += 1_000_000 * (used.get(name, 0) + amount) // capacity
    return total
