"""What happens to nodes that fall silent or turn unready, and to the pods on tainted nodes.

After kube-controller-manager `node_lifecycle_controller.go` and `tainteviction/taint_eviction.go`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.matching import tolerates
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler, pods_by_node
from providers.sim.controllers.objects import (
    Obj,
    being_deleted,
    condition_of,
    is_terminal,
    is_true,
    node_of,
    stamp,
    status_of,
    with_condition,
)
from providers.sim.controllers.podstatus import disrupted

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_BY_READINESS: Mapping[str, tuple[str, ...]] = {"True": (), "False": (NOT_READY,), "Unknown": (UNREACHABLE,)}
_OURS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE})


@dataclass(frozen=True, slots=True)
class LifecycleOptions:
    """`grace_s`: silence until a node counts as unreachable (node-monitor-grace-period).

    It counts from the first look after the node fell silent; there is one every `monitor_s` seconds, at `phase_s` (UTC
    epoch seconds) among others.
    """

    grace_s: float = 50.0
    monitor_s: float = 5.0
    phase_s: float = 0.0

    def lost_at(self, silent_since: float) -> float:
        """When a node counts as unreachable."""
        looks = -(-(silent_since - self.phase_s) // self.monitor_s)
        return self.phase_s + looks * self.monitor_s + self.grace_s


class NodeLifecycle(NodeReconciler):
    """Conditions of silent nodes, the taints that follow from conditions and cordons, eviction by NoExecute taints."""

    name = "node-lifecycle"

    def __init__(self, cluster: MirroredCluster, health: NodeHealth, options: LifecycleOptions | None = None) -> None:
        super().__init__(cluster, health)
        self._options = options or LifecycleOptions()
        self._tainted_at: dict[tuple[str, str, str], float] = {}
        self._pods = pods_by_node(cluster)
        self._pods.watch(self._on_pod)

    def forget(self, node: Obj) -> None:
        """A node that comes back under the same name starts without taints."""
        for gone in [known for known in self._tainted_at if known[0] == node["metadata"]["name"]]:
            del self._tainted_at[gone]

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None and node_of(new) and (old is None or old["spec"] != new["spec"]):
            self._queue.add(node_of(new))

    def reconcile(self, key: str, now: float) -> float | None:
        """Bring one node's condition and taints up to date and take away the pods they drive out."""
        node = self._nodes.get(("", key))
        if node is None:
            return None
        lost_at = self._lost_at(key)
        if lost_at <= now and _readiness(node) != "Unknown":
            self._nodes.update_status(node, _unknown(node, now))
            self._mark_unready(key, now)
            return now
        taints = self._taints(node, now)
        if taints != (node["spec"].get("taints") or []):
            spec = {field: value for field, value in node["spec"].items() if field != "taints"}
            self._nodes.update({**node, "spec": {**spec, "taints": taints} if taints else spec})
            return now
        wake = min(self._evict(node, now), lost_at if lost_at > now else inf)
        return None if wake == inf else wake

    def _lost_at(self, name: str) -> float:
        """When the silence of a node has lasted too long; infinite for a node that reports."""
        since = self._health.since(name)
        return inf if since is None or self._health.of(name).reports else self._options.lost_at(since)

    def _taints(self, node: Obj, now: float) -> list[Obj]:
        old = list(node["spec"].get("taints") or ())
        wanted = {(key, effect) for key in _BY_READINESS[_readiness(node)] for effect in ("NoSchedule", "NoExecute")}
        if node["spec"].get("unschedulable"):
            wanted.add((UNSCHEDULABLE, "NoSchedule"))
        kept = [taint for taint in old if taint["key"] not in _OURS or (taint["key"], taint["effect"]) in wanted]
        present = {(taint["key"], taint["effect"]) for taint in kept}
        added = [
            {"key": key, "effect": effect, "timeAdded": stamp(now)}
            for key, effect in sorted(wanted)
            if (key, effect) not in present
        ]
        return [*kept, *added]

    def _mark_unready(self, node: str, now: float) -> None:
        """Nobody knows whether the pods of a node that fell silent are ready: they count as not."""
        for pod in self._pods.by("node", node):
            if is_true(pod, "Ready"):
                conditions = with_condition(status_of(pod)["conditions"], now, "Ready", "False")
                self._pods.update_status(pod, {**status_of(pod), "conditions": conditions})

    # Eviction by taints

    def _evict(self, node: Obj, now: float) -> float:
        """Delete the pods whose time on this node is up; the instant the next one's is."""
        taints = [taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute"]
        self._remember(node["metadata"]["name"], taints, now)
        wake = inf
        for pod in self._pods.by("node", node["metadata"]["name"]) if taints else ():
            said = disrupted(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", now)
            if is_terminal(pod) or (being_deleted(pod) and said == status_of(pod)):
                continue
            leaves_at = self._leaves_at(pod, node["metadata"]["name"], taints)
            if leaves_at <= now:
                self._pods.delete(self._pods.update_status(pod, said))
            else:
                wake = min(wake, leaves_at)
        return wake

    def _leaves_at(self, pod: Obj, node: str, taints: list[Obj]) -> float:
        leaves_at = inf
        for taint in taints:
            since = self._tainted_at[node, taint["key"], taint.get("value") or ""]
            leaves_at = min(leaves_at, since + _stay_s(pod, taint))
        return leaves_at

    def _remember(self, node: str, taints: list[Obj], now: float) -> None:
        """Since when each taint is there: when it was first seen."""
        seen = [(node, taint["key"], taint.get("value") or "") for taint in taints]
        for gone in [known for known in self._tainted_at if known[0] == node and known not in seen]:
            del self._tainted_at[gone]
        for key in seen:
            self._tainted_at.setdefault(key, now)


def _stay_s(pod: Obj, taint: Mapping[str, Any]) -> float:
    """How long this pod tolerates this taint: the shortest of the tolerations that match it.

    That pods stay five minutes on an unreachable node comes from the tolerations admission gives every pod.
    """
    matching = [t for t in pod["spec"].get("tolerations") or () if tolerates(t, taint)]
    if not matching:
        return 0.0
    limits = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
    return max(0.0, float(min(limits))) if limits else inf


def _readiness(node: Obj) -> str:
    condition = condition_of(node, "Ready")
    return "False" if condition is None else str(condition["status"])


def _unknown(node: Obj, now: float) -> Obj:
    conditions = list(status_of(node).get("conditions") or ())
    message = "Kubelet stopped posting node status."
    for kind in [condition["type"] for condition in conditions] or ["Ready"]:
        conditions = with_condition(conditions, now, kind, "Unknown", "NodeStatusUnknown", message)
    return {**status_of(node), "conditions": conditions}
