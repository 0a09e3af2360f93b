"""Keeps the status of ResourceQuotas, by which the API server judges new pods (`resourcequota/` of its controllers)."""

from math import inf

from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, key_of, status_of
from providers.sim.controllers.runtime import Reconciler
from providers.sim.store.podrequests import add_amounts
from providers.sim.store.resourcequota import counts, gone_at, hard_of, shown, usage_of


class ResourceQuotas(Reconciler[Key]):
    """Counts what the pods of a namespace take; keys are quotas.

    The API server adds new pods itself. This takes back what has ended, and puts a changed bound in force.
    """

    name = "resource-quotas"

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._quotas = cluster.mirror("ResourceQuota")
        self._pods = cluster.mirror("Pod")
        for mirror in (self._pods, self._quotas):
            mirror.index("namespace", lambda obj: (obj["metadata"]["namespace"],))
        self._quotas.watch(self._on_quota)
        self._pods.watch(self._on_pod)

    def _on_quota(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(key_of(new))

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        if old is not None and new is not None and gone_at(old) == gone_at(new):
            return
        for quota in self._quotas.by("namespace", (new or old or {})["metadata"]["namespace"]):
            self._queue.add(key_of(quota))

    def reconcile(self, key: Key, now: float) -> float | None:
        """Count one quota anew; returns when the next of its pods is given up that should have ended."""
        quota = self._quotas.get(key)
        if quota is None or being_deleted(quota):
            return None
        hard = hard_of(quota, "spec")
        pods = [pod for pod in self._pods.by("namespace", key[0]) if counts(quota, pod)]
        used = dict.fromkeys(hard, 0)
        for pod in pods:
            add_amounts(used, {name: it for name, it in usage_of(pod, now).items() if name in hard})
        status = {"hard": shown(hard), "used": shown(used)} if hard else {}
        if status != status_of(quota):
            self._quotas.update_status(quota, status)
        ends = min((gone_at(pod) for pod in pods if gone_at(pod) > now), default=inf)
        return None if ends == inf else ends
