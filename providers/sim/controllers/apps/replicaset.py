"""The ReplicaSet controller (kube-controller-manager `replicaset/replica_set.go`)."""

from collections import Counter
from dataclasses import dataclass
from math import floor, log2

from providers.sim.controllers.apps.base import AppsController, available_at, is_available, pod_from, replicas_of
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    condition_of,
    controller_of,
    instant,
    is_active,
    is_true,
    labels_of,
    node_of,
    stamp,
    status_of,
)
from providers.sim.store import ApiError, StoreConflict, StoreNotFound

_BURST = 500
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")


@dataclass(frozen=True, slots=True)
class _RefusedPods:
    """Pods that the API server would not create or delete."""

    reason: str
    error: ApiError


class ReplicaSetController(AppsController):
    """Keeps as many active pods as each ReplicaSet asks for."""

    name = "replicaset"
    kind = "ReplicaSet"
    component = "replicaset-controller"

    def reconcile(self, key: Key, now: float) -> float | None:
        """Add or take away pods of one ReplicaSet, and count them."""
        replica_set = self._objects.get(key)
        if replica_set is None:
            return None
        pods = [pod for pod in self._claimed(replica_set, self._pods) if is_active(pod)]
        refused = None if being_deleted(replica_set) else self._manage(replica_set, pods, now)
        self._say(replica_set, pods, refused, now)
        if refused is not None:
            raise refused.error
        return available_at(pods, float(replica_set["spec"].get("minReadySeconds") or 0), now)

    def _manage(self, replica_set: Obj, pods: list[Obj], now: float) -> _RefusedPods | None:
        """What the API server refused, if anything; it is tried again later."""
        surplus = len(pods) - replicas_of(replica_set)
        try:
            if surplus < 0:
                self._create(replica_set, min(-surplus, _BURST), now)
            elif surplus > 0:
                self._delete(replica_set, pods, min(surplus, _BURST), now)
        except (StoreConflict, StoreNotFound):
            raise  # somebody wrote in between
        except ApiError as error:
            reason, doing = ("FailedCreate", "creating") if surplus < 0 else ("FailedDelete", "deleting")
            self._events.warning(replica_set, reason, f"Error {doing}: {error.message}", now)
            return _RefusedPods(reason, error)
        return None

    def _create(self, replica_set: Obj, missing: int, now: float) -> None:
        for _ in range(missing):
            pod = self._pods.create(pod_from(replica_set, replica_set["spec"]["template"]))
            self._events.normal(replica_set, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}", now)

    def _delete(self, replica_set: Obj, pods: list[Obj], surplus: int, now: float) -> None:
        near = Counter(node_of(pod) for pod in self._relatives(replica_set) if is_active(pod))
        for pod in sorted(pods, key=lambda pod: worth_of(pod, near[node_of(pod)], now))[:surplus]:
            self._pods.delete(pod)
            self._events.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}", now)

    def _relatives(self, replica_set: Obj) -> list[Obj]:
        """The pods of all ReplicaSets of the same Deployment."""
        owner = controller_of(replica_set, "Deployment")
        sets = [one for one in self._objects if owner is not None and controller_of(one, "Deployment") == owner] or [
            replica_set
        ]
        return [pod for one in sets for pod in self._pods.by("controller", one["metadata"]["uid"])]

    def _say(self, replica_set: Obj, pods: list[Obj], refused: _RefusedPods | None, now: float) -> None:
        spec = replica_set["spec"]
        template = (spec["template"].get("metadata") or {}).get("labels") or {}
        min_ready_s = float(spec.get("minReadySeconds") or 0)
        counts = (
            len(pods),
            sum(template.items() <= labels_of(pod).items() for pod in pods),
            sum(is_true(pod, "Ready") for pod in pods),
            sum(is_available(pod, min_ready_s, now) for pod in pods),
        )
        old = status_of(replica_set)
        told = {name: count for name, count in zip(_COUNTS, counts, strict=True) if count or name == "replicas"}
        generation = replica_set["metadata"]["generation"]
        status = {**told, "observedGeneration": generation, **_failed(replica_set, refused, now)}
        if status != old:
            self._objects.update_status(replica_set, status)


def _failed(replica_set: Obj, refused: _RefusedPods | None, now: float) -> Obj:
    """The conditions of the status: that something was refused, as long as it is."""
    if refused is None:
        return {}
    held = condition_of(replica_set, "ReplicaFailure")
    fresh = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": refused.reason,
        "message": refused.error.message,
        "lastTransitionTime": stamp(now),
    }
    return {"conditions": [held or fresh]}


def worth_of(pod: Obj, near: int, now: float) -> tuple[object, ...]:
    """Which pod goes first when there are too many, smallest first (`ActivePodsWithRanks`).

    `near`: how many pods of the same Deployment stand on its node. Of two that differ by age alone the younger goes,
    unless they are about as old (powers of two of seconds): then their uids decide.
    """
    status, meta = status_of(pod), pod["metadata"]
    ready = condition_of(pod, "Ready") or {}
    is_ready = ready.get("status") == "True"
    restarts = max((one.get("restartCount") or 0 for one in status.get("containerStatuses") or ()), default=0)
    return (
        bool(node_of(pod)),
        _PHASES.get(status.get("phase") or "Pending", 2),
        is_ready,
        _cost(pod),
        -near,
        _age_rank(instant(ready["lastTransitionTime"]), now) if is_ready else 0,
        -restarts,
        _age_rank(instant(meta["creationTimestamp"]), now),
        meta["uid"],
    )


def _age_rank(since: float, now: float) -> int:
    return floor(log2(now - since)) if now - since >= 1 else -1


def _cost(pod: Obj) -> int:
    text = annotations_of(pod).get(_DELETION_COST, "0")
    return int(text) if text.removeprefix("-").isdecimal() else 0
