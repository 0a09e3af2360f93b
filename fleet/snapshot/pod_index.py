"""Indexes pods by node, gang and job, kept up to date pod by pod."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from fleet.snapshot.device_claims import NO_CLAIMS, ClaimableDevices, pods_with_claims
from fleet.snapshot.nodes import Pod
from model.index import differing
from model.quantity import Resources

V = TypeVar("V")
_NOTHING: Final = object()


class PodIndex:
    """A `PodIndex` holds pods by node, gang and job, and what pods of no gang take; only changes are computed again."""

    def __init__(self) -> None:
        self.node_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.gang_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.job_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.daemon_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.repelling_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.ordinary_pods: Mapping[str, tuple[Pod, ...]] = {}
        self.waiting_pods: Mapping[str, Pod] = {}
        self.foreign_use: Mapping[str, Resources] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}
        self._by_gang: dict[str, dict[str, Pod]] = {}
        self._by_job: dict[str, dict[str, Pod]] = {}
        self._waiting: dict[str, Pod | None] = {}
        self._devices: Mapping[str, Resources] = {}
        self._claimable = NO_CLAIMS
        self._dirty_nodes: set[str] = set()
        self._dirty_jobs: set[str] = set()
        self._dirty_gangs: set[str] = set()

    def change(self, key: str, before: Pod | None, after: Pod | None) -> None:
        """Moves one pod from where it was to where it is."""
        if (devices := self._devices.get(key)) is not None:
            before, after = self._having(before, devices), self._having(after, devices)
        self._change(key, before, after)

    def claim(self, held: Mapping[str, Resources], pods: Mapping[str, Pod], claimable: ClaimableDevices) -> None:
        """Counts the claimed devices of pods as what they take: `held` by pod, of all `pods` by `namespace/name`."""
        self._claimable = claimable
        for key in differing(self._devices, held):
            if (pod := pods.get(key)) is not None:
                before, now = self._devices.get(key, {}), held.get(key, {})
                self._change(key, self._having(pod, before), self._having(pod, now))
        self._devices = held

    def _having(self, pod: Pod | None, devices: Resources) -> Pod | None:
        """Returns a pod with its claimed devices among what it takes and, of no gang, asks."""
        if pod is None or not devices:
            return pod
        more = {name: pod.requests.get(name, 0) + amount for name, amount in devices.items()}
        shape = pod.shape and pods_with_claims(pod.shape, self._claimable)
        return replace(pod, requests={**pod.requests, **more}, shape=shape)

    def _change(self, key: str, before: Pod | None, after: Pod | None) -> None:
        if (before is not None and before.waits) or (after is not None and after.waits):
            self._waiting[key] = after if after is not None and after.waits else None
        for pod, present in ((before, False), (after, True)):
            if pod is None:
                continue
            if pod.node:
                _put(self._by_node.setdefault(pod.node, {}), key, pod if present else None)
                self._dirty_nodes.add(pod.node)
            if pod.workload:
                gang = f"{pod.namespace}/{pod.workload}"
                _put(self._by_gang.setdefault(gang, {}), key, pod if present else None)
                self._dirty_gangs.add(gang)
            if pod.job_uid:
                _put(self._by_job.setdefault(pod.job_uid, {}), key, pod if present else None)
                self._dirty_jobs.add(pod.job_uid)

    def settle(self) -> None:
        """Brings the views up to date; one in which nothing has changed stays the same object."""
        if not (self._dirty_gangs or self._dirty_nodes or self._dirty_jobs or self._waiting):
            return
        gang_pods: dict[str, tuple[Pod, ...]] = {}
        node_pods: dict[str, tuple[Pod, ...]] = {}
        daemon_pods: dict[str, tuple[Pod, ...]] = {}
        repelling: dict[str, tuple[Pod, ...]] = {}
        ordinary: dict[str, tuple[Pod, ...]] = {}
        foreign_use: dict[str, Resources] = {}
        for gang in self._dirty_gangs:
            gang_pods[gang] = tuple(_sorted(self._by_gang, gang))
        for node in self._dirty_nodes:
            active = [pod for pod in _sorted(self._by_node, node) if pod.active]
            node_pods[node] = tuple(pod for pod in active if not pod.daemon)
            daemon_pods[node] = tuple(pod for pod in active if pod.daemon)
            repelling[node] = tuple(pod for pod in active if pod.constraints.anti_affinity)
            ordinary[node] = tuple(pod for pod in node_pods[node] if not pod.workload)
            foreign_use[node] = _total([pod for pod in active if not pod.workload])
        job_pods = {uid: tuple(_sorted(self._by_job, uid)) for uid in self._dirty_jobs}
        self.gang_pods = _updated(self.gang_pods, gang_pods)
        self.job_pods = _updated(self.job_pods, job_pods)
        self.node_pods = _updated(self.node_pods, node_pods)
        self.daemon_pods = _updated(self.daemon_pods, daemon_pods)
        self.repelling_pods = _updated(self.repelling_pods, repelling)
        self.ordinary_pods = _updated(self.ordinary_pods, ordinary)
        self.foreign_use = _updated(self.foreign_use, foreign_use)
        self.waiting_pods = _updated(self.waiting_pods, self._waiting)
        self._waiting = {}
        self._dirty_gangs.clear()
        self._dirty_jobs.clear()
        self._dirty_nodes.clear()


def _put(pods: dict[str, Pod], key: str, pod: Pod | None) -> None:
    if pod is None:
        pods.pop(key, None)
    else:
        pods[key] = pod


def _sorted(pods: dict[str, dict[str, Pod]], place: str) -> list[Pod]:
    """Returns the pods of one place by key; a place that has none left is removed, since most names never return."""
    found = [pod for _, pod in sorted(pods[place].items())]
    if not found:
        del pods[place]
    return found


def _updated(view: Mapping[str, V], found: Mapping[str, V | None]) -> Mapping[str, V]:
    """Returns `view` with the entries found and without those now empty; `view` itself if nothing changed."""
    changed = {key: value for key, value in found.items() if view.get(key, _NOTHING) != (value or _NOTHING)}
    if not changed:
        return view
    updated = dict(view)
    for key, value in changed.items():
        if value:
            updated[key] = value
        else:
            del updated[key]
    return updated


def _total(pods: Sequence[Pod]) -> dict[str, int]:
    total = {"pods": len(pods)} if pods else {}
    for pod in pods:
        for resource, amount in pod.requests.items():
            total[resource] = total.get(resource, 0) + amount
    return total
