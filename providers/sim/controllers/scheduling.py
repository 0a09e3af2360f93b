"""What the scheduler compares: nodes as it sees them, pending pods, and how the one ranks for the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from providers.sim.controllers.filters.bound_pods import hard_constraints, host_ports, required_terms
from providers.sim.controllers.matching import Taint
from providers.sim.controllers.objects import Key, Obj, is_true, labels_of
from providers.sim.controllers.occupancy import allocatable_of
from providers.sim.store.podrequests import Amounts

NOT_READY: Taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNSCHEDULABLE: Taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
REPELLING = frozenset({"NoSchedule", "NoExecute"})
"""The effects of taints that keep new pods away."""


@dataclass(frozen=True, slots=True)
class SchedulableNode:
    """The part of a node that scheduling looks at; equal views need no new attempt."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Amounts
    cordoned: bool = False

    @classmethod
    def of(cls, node: Obj) -> "SchedulableNode":
        """The view of a node; what is unready or cordoned counts as tainted, whether anybody tainted it or not."""
        taints = [*(node["spec"].get("taints") or ())]
        keys = {taint["key"] for taint in taints}
        if not is_true(node, "Ready") and not keys & {NOT_READY["key"], "node.kubernetes.io/unreachable"}:
            taints.append(NOT_READY)  # the node lifecycle controller would; this one does not depend on it
        cordoned = bool(node["spec"].get("unschedulable"))
        if cordoned and UNSCHEDULABLE["key"] not in keys:
            taints.append(UNSCHEDULABLE)
        return cls(node["metadata"]["name"], labels_of(node), tuple(taints), allocatable_of(node), cordoned)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pending pod; equal signatures fit the same nodes, equal `own` parts of them the same nodes by themselves."""

    key: Key
    order: tuple[int, int, Key]
    own: str
    signature: str
    wanted: Amounts
    depends_on: frozenset[str]
    """What else decides.

    The `pods` that stand and what they want, `company` (one pod more may help), `volumes`, `claims` of devices.
    """
    extended: frozenset[str] = frozenset()
    """Resources that it has by a claim where a node's device plugin does not offer them."""

    def wanted_on(self, allocatable: Amounts) -> Amounts:
        """What it takes of a node's own."""
        if not self.extended:
            return self.wanted
        return {name: n for name, n in self.wanted.items() if name not in self.extended or allocatable.get(name)}


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


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


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
    return _text(parts)


NOTHING: frozenset[str] = frozenset()


def dependencies_of(spec: Obj) -> frozenset[str]:
    """What a pod's place depends on beside the node and what is left on it."""
    found: set[str] = set()
    affinity = bool(spec.get("affinity"))
    if hard_constraints(spec) or (affinity and required_terms(spec, "podAffinity")):
        found.update(("pods", "company"))
    elif host_ports(spec) or (affinity and required_terms(spec, "podAntiAffinity")):
        found.add("pods")
    if "volumes" in spec and any("persistentVolumeClaim" in v or "ephemeral" in v for v in spec["volumes"] or ()):
        found.add("volumes")
    if spec.get("resourceClaims"):
        found.add("claims")
    return frozenset(found) if found else NOTHING


def identity_of(pod: Obj, depends_on: frozenset[str]) -> str:
    """What decides where a pod fits beside its own signature, as text."""
    if not depends_on:
        return ""
    spec, metadata = pod["spec"], pod["metadata"]
    ports = [
        container.get("ports") for field in ("containers", "initContainers") for container in spec.get(field) or ()
    ]
    parts = (metadata.get("namespace"), metadata.get("labels"), spec.get("affinity"), ports)
    volumes = (spec.get("volumes"), metadata["name"]) if "volumes" in depends_on else ()
    claims = (spec.get("resourceClaims"), metadata["uid"]) if "claims" in depends_on else ()
    return _text((*parts, spec.get("topologySpreadConstraints"), *volumes, *claims))


def fullness(wanted: Amounts, allocatable: Amounts, used: Amounts) -> int:
    """How full the node would be, summed over the resources asked for (MostAllocated), in millionths."""
    total = 0
    for name, amount in wanted.items():
        capacity = allocatable.get(name, 0)
        if capacity:
            total += 1_000_000 * (used.get(name, 0) + amount) // capacity
    return total
