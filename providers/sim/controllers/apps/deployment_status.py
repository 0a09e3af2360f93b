"""What the status of a Deployment says: counts, and the conditions Available, Progressing and ReplicaFailure.

Source: `pkg/controller/deployment/progress.go`, `sync.go` (`calculateStatus`), `util/deployment_util.go`.
"""

from typing import Final

from providers.sim.controllers.apps.rollout import (
    DeploymentWork,
    RolloutSets,
    asked_of,
    has_progressed,
    is_complete,
    seen_of,
)
from providers.sim.controllers.mirror import InformerCache
from providers.sim.controllers.objects import Obj, condition_of, instant, stamp, status_of
from providers.sim.store import ApiError

_AVAILABLE: Final = "NewReplicaSetAvailable"
_TIMED_OUT: Final = "ProgressDeadlineExceeded"
_PAUSED: Final = "DeploymentPaused"


def failing_create(made: Obj, error: ApiError) -> str:
    """The message of a ReplicaSet that could not be made."""
    return f'Failed to create new replica set "{made["metadata"]["name"]}": {error.message}'


class ProgressWriter:
    """Writes the status of Deployments."""

    def __init__(self, deployments: InformerCache) -> None:
        self._deployments = deployments

    def found(self, deployment: Obj, work: DeploymentWork, new: Obj, now: float, *, created: bool = False) -> Obj:
        """The Deployment once its status tells that there is a ReplicaSet for its template."""
        if work.deadline_s is None or (condition_of(deployment, "Progressing") is not None and not created):
            return deployment
        reason, verb = ("NewReplicaSetCreated", "Created") if created else ("FoundNewReplicaSet", "Found")
        text = f'{verb} new replica set "{new["metadata"]["name"]}"'
        return self._with(deployment, "Progressing", "True", reason, text, now)

    def failed(self, deployment: Obj, work: DeploymentWork, message: str, now: float) -> None:
        """No ReplicaSet could be made for the template."""
        if work.deadline_s is not None:
            self._with(deployment, "Progressing", "False", "ReplicaSetCreateError", message, now)

    def collided(self, deployment: Obj) -> None:
        """The name of the new ReplicaSet is taken."""
        status = status_of(deployment)
        count = (status.get("collisionCount") or 0) + 1
        self._deployments.update_status(deployment, {**status, "collisionCount": count})

    def note_pause(self, deployment: Obj, work: DeploymentWork, now: float) -> Obj:
        """The Deployment once its status tells whether it is paused: the deadline does not run meanwhile."""
        held = condition_of(deployment, "Progressing") or {}
        if work.deadline_s is None or held.get("reason") == _TIMED_OUT:
            return deployment
        if work.paused and held.get("reason") != _PAUSED:
            return self._with(deployment, "Progressing", "Unknown", _PAUSED, "Deployment is paused", now)
        if not work.paused and held.get("reason") == _PAUSED:
            reason, text = "DeploymentResumed", "Deployment is resumed"
            return self._with(deployment, "Progressing", "Unknown", reason, text, now)
        return deployment

    def write(
        self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float, *, progress: bool = True
    ) -> float | None:
        """Write what is new; returns when the deadline for progress is over. `progress`: judge that as well."""
        status = _counts(deployment, sets)
        conditions = _set(status_of(deployment).get("conditions") or [], *_availability(work, status), now)
        status["conditions"] = conditions
        if progress:
            self._progress(deployment, work, sets, status, now)
        refused = next((c for one in sets.all if (c := condition_of(one, "ReplicaFailure"))), None)
        status["conditions"] = [c for c in status["conditions"] if refused or c["type"] != "ReplicaFailure"]
        if refused is not None:
            said = ("ReplicaFailure", refused["status"], refused["reason"], refused["message"])
            status["conditions"] = _set(status["conditions"], *said, now)
        status = {field: value for field, value in status.items() if value}
        if status != status_of(deployment):
            deployment = self._deployments.update_status(deployment, status)
        return _deadline(deployment, work, status, now)

    def _progress(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, status: Obj, now: float) -> None:
        held = condition_of(deployment, "Progressing")
        complete = status["replicas"] == status["updatedReplicas"] and (held or {}).get("reason") == _AVAILABLE
        if work.deadline_s is None:
            status["conditions"] = [c for c in status["conditions"] if c["type"] != "Progressing"]
        if work.deadline_s is None or complete:
            return
        subject = f'ReplicaSet "{sets.new["metadata"]["name"]}"' if sets.new is not None else ""
        subject = subject or f'Deployment "{deployment["metadata"]["name"]}"'
        generation = deployment["metadata"]["generation"]
        if is_complete(work, status, generation):
            said = ("True", _AVAILABLE, f"{subject} has successfully progressed.")
        elif has_progressed(deployment, status):
            said = ("True", "ReplicaSetUpdated", f"{subject} is progressing.")
            status["conditions"] = _refreshed(status["conditions"], now)
        elif _timed_out(held, work, now):
            said = ("False", _TIMED_OUT, f"{subject} has timed out progressing.")
        else:
            return
        status["conditions"] = _set(status["conditions"], "Progressing", *said, now)

    def _with(self, deployment: Obj, kind: str, state: str, reason: str, message: str, now: float) -> Obj:
        status = status_of(deployment)
        conditions = _set(status.get("conditions") or [], kind, state, reason, message, now)
        return self._deployments.update_status(deployment, {**status, "conditions": conditions})


def _counts(deployment: Obj, sets: RolloutSets) -> Obj:
    every, held = sets.all, status_of(deployment)
    available = seen_of(every, "availableReplicas")
    new = [] if sets.new is None else [sets.new]
    counts = {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": seen_of(every, "replicas"),
        "updatedReplicas": seen_of(new, "replicas"),
        "readyReplicas": seen_of(every, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, asked_of(every) - available),
    }
    collisions = {"collisionCount": held["collisionCount"]} if held.get("collisionCount") else {}
    return {**counts, **collisions}


def _availability(work: DeploymentWork, status: Obj) -> tuple[str, str, str, str]:
    if status["availableReplicas"] >= work.least_available:
        text = "Deployment has minimum availability."
        return "Available", "True", "MinimumReplicasAvailable", text
    return "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def _set(conditions: list[Obj], kind: str, state: str, reason: str, message: str, now: float) -> list[Obj]:
    """`conditions` with one of them set; one that stands so already, with that reason, is left as it is."""
    held = next((c for c in conditions if c["type"] == kind), None)
    if held is not None and (held["status"], held.get("reason")) == (state, reason):
        return conditions
    same = held is not None and held["status"] == state
    fresh = {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp(now),
        "lastTransitionTime": held["lastTransitionTime"] if held is not None and same else stamp(now),
    }
    return [*(c for c in conditions if c["type"] != kind), fresh]


def _refreshed(conditions: list[Obj], now: float) -> list[Obj]:
    """The deadline for progress begins anew."""
    fresh = {"lastUpdateTime": stamp(now), "reason": ""}
    return [{**c, **fresh} if c["type"] == "Progressing" else c for c in conditions]


def _timed_out(held: Obj | None, work: DeploymentWork, now: float) -> bool:
    if held is None or work.deadline_s is None or held.get("reason") == _AVAILABLE:
        return False
    return held.get("reason") == _TIMED_OUT or instant(held["lastUpdateTime"]) + work.deadline_s < now


def _deadline(deployment: Obj, work: DeploymentWork, status: Obj, now: float) -> float | None:
    held = next((c for c in status.get("conditions") or () if c["type"] == "Progressing"), None)
    if work.deadline_s is None or held is None or held["reason"] in (_TIMED_OUT, _PAUSED, _AVAILABLE):
        return None
    if is_complete(work, status, deployment["metadata"]["generation"]):
        return None
    return max(now, instant(held["lastUpdateTime"]) + work.deadline_s) + 1
