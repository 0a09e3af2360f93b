"""Pods leave devices that get a NoExecute taint, of their driver or by a DeviceTaintRule.

Source: `pkg/controller/devicetainteviction/device_taint_eviction.go`, without the conditions of rules.
"""

from math import inf
from typing import Final

from providers.sim.controllers.dra.inventory import DeviceId, taint_rules, taints_of
from providers.sim.controllers.dra.podclaims import users_of
from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.matching import tolerates
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, instant, key_of, status_of
from providers.sim.controllers.podstatus import disrupted
from providers.sim.controllers.runtime import Reconciler

_SAID: Final = ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")


class DeviceTaintEviction(Reconciler[Key]):
    """Keys are claims."""

    name = "device-taint-eviction"

    def __init__(self, cluster: MirroredCluster) -> None:
        super().__init__(cluster)
        self._pods = cluster.mirror("Pod")
        self._claims = cluster.mirror("ResourceClaim", "resource.k8s.io")
        self._slices = cluster.mirror("ResourceSlice", "resource.k8s.io")
        self._events = EventLog(cluster, "device-taint-eviction")
        self._seen: dict[tuple[DeviceId, str], float] = {}
        self._claims.index("resource-pool", lambda claim: {(it.driver, it.pool) for it in _devices_of(claim)})
        self._slices.index("resource-pool", lambda held: [_pool_of(held)])
        self._claims.watch(self._on_claim)
        self._slices.watch(self._on_slice)
        self._rules = taint_rules(cluster)
        if self._rules is not None:
            self._rules.watch(self._on_rule)

    def _on_claim(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None and _devices_of(new):
            self._queue.add(key_of(new))

    def _on_slice(self, old: Obj | None, new: Obj | None) -> None:
        if any(device.get("taints") for held in (old, new) if held for device in held["spec"].get("devices") or ()):
            for claim in self._claims.by("resource-pool", _pool_of(new or old or {})):
                self._queue.add(key_of(claim))

    def _on_rule(self, _old: Obj | None, _new: Obj | None) -> None:
        for claim in self._claims:
            self._on_claim(None, claim)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Delete the pods of a claim whose devices nobody may use any more; returns when that will be."""
        claim = self._claims.get(key)
        if claim is None or not users_of(claim):
            return None
        leaves_at = min((self._leaves_at(claim, it, now) for it in _devices_of(claim)), default=inf)
        if now < leaves_at:
            return leaves_at if leaves_at < inf else None
        for user in users_of(claim):
            pod = self._pods.get((key[0], user["name"]))
            if pod is not None and pod["metadata"]["uid"] == user["uid"] and not being_deleted(pod):
                self._events.normal(pod, "DeviceTaintManagerEviction", "Marking for deletion", now)
                self._pods.delete(self._pods.update_status(pod, disrupted(pod, *_SAID, now)))
        return None

    def _leaves_at(self, claim: Obj, device: DeviceId, now: float) -> float:
        """When pods have to leave a device: at once, after the seconds that they tolerate, or never."""
        results = status_of(claim)["allocation"]["devices"]["results"]
        given = [it for result in results if _id_of(result) == device for it in result.get("tolerations") or ()]
        times = []
        for taint in self._taints(device):
            added = instant(taint["timeAdded"]) if taint.get("timeAdded") else now
            since = self._seen.setdefault((device, taint["key"]), added)
            suited = [it for it in given if tolerates(it, taint)]
            borne = min((it.get("tolerationSeconds", inf) for it in suited), default=0.0)
            times.append(since + max(0.0, borne))
        return min(times, default=inf)

    def _taints(self, device: DeviceId) -> list[Obj]:
        held = self._slices.by("resource-pool", (device.driver, device.pool))
        newest = max((it["spec"]["pool"]["generation"] for it in held), default=0)
        found = [
            taint
            for it in held
            if it["spec"]["pool"]["generation"] == newest
            for body in it["spec"].get("devices") or ()
            if body["name"] == device.device
            for taint in taints_of(device, body, self._rules or ())
            if taint["effect"] == "NoExecute"
        ]
        if not found:
            for known in [it for it in self._seen if it[0] == device]:
                del self._seen[known]
        return found


def _pool_of(held: Obj) -> tuple[str, str]:
    return held["spec"]["driver"], held["spec"]["pool"]["name"]


def _id_of(result: Obj) -> DeviceId:
    return DeviceId(result["driver"], result["pool"], result["device"])


def _devices_of(claim: Obj) -> list[DeviceId]:
    devices = (status_of(claim).get("allocation") or {}).get("devices") or {}
    return [_id_of(result) for result in devices.get("results") or ()]
