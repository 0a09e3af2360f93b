"""Takes away pods that nobody will end: a look every 20 s (kube-controller-manager `podgc/gc_controller.go`)."""

from collections.abc import Iterator

from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.nodework import pods_by_node
from providers.sim.controllers.objects import Key, Obj, being_deleted, is_terminal, is_true, key_of, node_of
from providers.sim.controllers.podstatus import disrupted
from providers.sim.store import StoreNotFound

_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_PERIOD_S = 20.0
_ROUNDING_S = 0.001


class PodGarbage:
    """Ends pods whose node is gone, and pods on their way out that have none or one that is out of service.

    A node has to be gone for `quarantine_s`. It looks at `phase_s` and every twenty seconds from there (UTC epoch
    seconds), so a pod waits up to twenty seconds more.
    """

    name = "podgc"

    def __init__(self, cluster: MirroredCluster, *, quarantine_s: float = 40.0, phase_s: float = 0.0) -> None:
        self._cluster = cluster
        self._quarantine_s = quarantine_s
        self._phase_s = phase_s
        self._missing_since: dict[str, float] = {}
        self._names: set[str] = set()
        self._unbound: dict[Key, None] = {}
        self._next: float | None = None
        self._nodes = cluster.mirror("Node")
        self._pods = pods_by_node(cluster)
        self._nodes.watch(self._on_node)
        self._pods.watch(self._on_pod)

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        if new is None or _is_out_of_service(new):
            self._names.add(name)

    def _on_pod(self, _old: Obj | None, new: Obj | None) -> None:
        if new is None:
            return
        if not node_of(new):
            if being_deleted(new):
                self._unbound[key_of(new)] = None
        elif node_of(new) not in self._names and self._nodes.get(("", node_of(new))) is None:
            self._names.add(node_of(new))

    def step(self, now: float) -> float | None:
        """Look around, when it is time and there is something to look at; returns when it will look next."""
        self._cluster.sync()
        if not self._names and not self._unbound:
            self._next = None
            return None
        if self._next is None:
            self._next = self._look_after(now)
        if now >= self._next:
            self._look(now)
            self._next = self._look_after(now + _PERIOD_S / 2)
        return self._next

    def _look_after(self, now: float) -> float:
        periods = -(-(now - self._phase_s) // _PERIOD_S)
        return self._phase_s + periods * _PERIOD_S

    def _look(self, now: float) -> None:
        for name in sorted(self._names):
            node = self._nodes.get(("", name))
            if node is not None:
                self._missing_since.pop(name, None)
                for pod in self._leaving(name) if _is_out_of_service(node) and not is_true(node, "Ready") else ():
                    self._end(pod, now, "")
            elif now >= self._missing_since.setdefault(name, now) + self._quarantine_s - _ROUNDING_S:
                for pod in self._pods.by("node", name):
                    self._end(pod, now, "PodGC: node no longer exists")
            if node is None and not self._pods.by("node", name):
                self._missing_since.pop(name, None)
        self._names = {name for name in self._names if self._pods.by("node", name) and self._needs_care(name)}
        for unbound in map(self._pods.get, self._unbound):
            if unbound is not None and being_deleted(unbound) and not node_of(unbound):
                self._end(unbound, now, "")
        self._unbound.clear()

    def _needs_care(self, name: str) -> bool:
        node = self._nodes.get(("", name))
        return node is None or _is_out_of_service(node)

    def _leaving(self, node: str) -> Iterator[Obj]:
        return (pod for pod in self._pods.by("node", node) if being_deleted(pod))

    def _end(self, pod: Obj, now: float, why: str) -> None:
        """Say that it failed, then delete it without grace; the phase is what owners count by."""
        try:
            if not is_terminal(pod):
                status = {**pod["status"], "phase": "Failed"}
                if why:
                    status = disrupted(pod, "DeletionByPodGC", why, now, phase="Failed")
                pod = self._pods.update_status(pod, status)
            if pod["metadata"].get("deletionGracePeriodSeconds") != 0:
                self._pods.delete(pod, grace_period_s=0)
        except StoreNotFound:
            return


def _is_out_of_service(node: Obj) -> bool:
    return any(taint["key"] == _OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())
