"""Takes away the pods of nodes that are gone (kube-controller-manager `podgc/gc_controller.go`)."""

from providers.sim.controllers.mirror import Cluster
from providers.sim.controllers.nodework import pods_by_node
from providers.sim.controllers.objects import Obj, is_terminal, node_of
from providers.sim.controllers.podstatus import disrupted
from providers.sim.controllers.runtime import Reconciler


class PodGarbage(Reconciler[str]):
    """Pods bound to a node that has not existed for `quarantine_s` become Failed and are deleted without grace."""

    name = "podgc"

    def __init__(self, cluster: Cluster, *, quarantine_s: float = 40.0) -> None:
        super().__init__(cluster)
        self._quarantine_s = quarantine_s
        self._missing_since: dict[str, float] = {}
        self._nodes = cluster.mirror("Node")
        self._pods = pods_by_node(cluster)
        self._nodes.watch(self._on_node)
        self._pods.watch(self._on_pod)

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if (old is None) != (new is None):
            self._queue.add((new or old or {})["metadata"]["name"])

    def _on_pod(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None and node_of(new) and self._nodes.get(("", node_of(new))) is None:
            self._queue.add(node_of(new))

    def reconcile(self, key: str, now: float) -> float | None:
        """Sweep one node name; returns the end of its quarantine."""
        if self._nodes.get(("", key)) is not None:
            self._missing_since.pop(key, None)
            return None
        orphans = self._pods.by("node", key)
        if not orphans:
            self._missing_since.pop(key, None)
            return None
        due = self._missing_since.setdefault(key, now) + self._quarantine_s
        if now < due:
            return due
        for pod in orphans:
            self._sweep(pod, now)
        return None

    def _sweep(self, pod: Obj, now: float) -> None:
        if not is_terminal(pod):
            message = "PodGC: node no longer exists"
            pod = self._pods.update_status(pod, disrupted(pod, "DeletionByPodGC", message, now, phase="Failed"))
        if pod["metadata"].get("deletionGracePeriodSeconds") != 0:
            self._pods.delete(pod, grace_period_s=0)
