"""What the kubelet reports of its node: Ready some seconds after it came, a report every five minutes, or nothing."""

from dataclasses import dataclass

from providers.sim.controllers.health import NodeHealth, NodeState
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import NodeReconciler
from providers.sim.controllers.objects import (
    Obj,
    being_deleted,
    condition_of,
    instant,
    stamp,
    status_of,
    with_condition,
)

_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


@dataclass(frozen=True, slots=True)
class HeartbeatOptions:
    """`ready_delay_s`: node creation to Ready; `report_interval_s`: between reports (nodeStatusReportFrequency)."""

    ready_delay_s: float = 10.0
    report_interval_s: float = 300.0


class Heartbeats(NodeReconciler):
    """Writes the conditions of every node that reports."""

    name = "heartbeat"

    def __init__(self, cluster: MirroredCluster, health: NodeHealth, options: HeartbeatOptions | None = None) -> None:
        super().__init__(cluster, health)
        self._options = options or HeartbeatOptions()

    def forget(self, node: Obj) -> None:
        """Nothing is remembered: all there is to know stands in the node."""

    def reconcile(self, key: str, now: float) -> float | None:
        """Report on one node; returns when its next report is due."""
        node = self._nodes.get(("", key))
        health = self._health.of(key)
        if node is None or being_deleted(node) or not health.reports:
            return None
        ready = condition_of(node, "Ready")
        if not _has_been_ready(ready):
            born = instant(node["metadata"]["creationTimestamp"]) + self._options.ready_delay_s
            if now < born:
                return born
        wanted = "True" if health is NodeState.WELL else "False"
        due = _last_report(ready) + self._options.report_interval_s
        if ready is not None and ready["status"] == wanted and now < due:
            return due
        self._report(node, wanted, now)
        return now + self._options.report_interval_s

    def _report(self, node: Obj, ready: str, now: float) -> None:
        conditions = list(status_of(node).get("conditions") or ())
        for kind, (reason, message) in _PRESSURES.items():
            conditions = with_condition(conditions, now, kind, "False", reason, message)
        reason, message = ("KubeletReady", "kubelet is posting ready status")
        if ready == "False":
            reason, message = ("KubeletNotReady", self._health.why(node["metadata"]["name"]))
        conditions = with_condition(conditions, now, "Ready", ready, reason, message)
        beat = stamp(now)
        reported = [{**c, "lastHeartbeatTime": beat} if c["type"] in (*_PRESSURES, "Ready") else c for c in conditions]
        self._nodes.update_status(node, {**status_of(node), "conditions": reported})


def _has_been_ready(ready: Obj | None) -> bool:
    """A node that was registered but never ready carries no heartbeat yet."""
    return ready is not None and (ready["status"] == "True" or "lastHeartbeatTime" in ready)


def _last_report(ready: Obj | None) -> float:
    return instant(ready["lastHeartbeatTime"]) if ready and ready.get("lastHeartbeatTime") else float("-inf")
