"""The statuses a kubelet writes, as values: (pod, times, exit code) -> status object."""

from typing import Any

from providers.sim.controllers.objects import Obj, stamp, status_of, with_condition

_READINESS = ("Ready", "ContainersReady")


def starting(pod: Obj, now: float) -> Obj:
    """Admitted: the images are pulled, the containers are made."""
    states = [_container(c, {"waiting": {"reason": "ContainerCreating"}}) for c in _containers(pod)]
    return _status(pod, now, "Pending", states, ready=False, reason="ContainersNotReady")


def running(pod: Obj, started_at: float, restarts: int, now: float) -> Obj:
    """All containers run and are ready."""
    state = {"running": {"startedAt": stamp(started_at)}}
    states = [_container(c, state, restarts=restarts, ready=True) for c in _containers(pod)]
    return _status(pod, now, "Running", states, ready=True)


def waiting(pod: Obj, started_at: float, ended_at: float, code: int, restarts: int, now: float) -> Obj:
    """The containers exited and will be restarted after a pause."""
    last = _terminated(code, started_at, ended_at)
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    states = [{**_container(c, state, restarts=restarts), "lastState": last} for c in _containers(pod)]
    return _status(pod, now, "Running", states, ready=False, reason="ContainersNotReady")


def over(pod: Obj, started_at: float, ended_at: float, code: int, restarts: int, now: float) -> Obj:
    """The containers exited for good: Succeeded with code 0, Failed with any other."""
    states = [_container(c, _terminated(code, started_at, ended_at), restarts=restarts) for c in _containers(pod)]
    reason = "PodCompleted" if code == 0 else "PodFailed"
    return _status(pod, now, "Succeeded" if code == 0 else "Failed", states, ready=False, reason=reason)


def rejected(pod: Obj, reason: str, message: str, now: float) -> Obj:
    """The kubelet did not admit the pod; it never ran."""
    return {**status_of(pod), "phase": "Failed", "reason": reason, "message": message, "startTime": stamp(now)}


def disrupted(pod: Obj, reason: str, message: str, now: float, *, phase: str | None = None) -> Obj:
    """The status with the DisruptionTarget condition of whoever takes the pod away, and a phase if it is to be over."""
    status = status_of(pod)
    conditions = with_condition(status.get("conditions") or (), now, "DisruptionTarget", "True", reason, message)
    return {**status, "conditions": conditions, **({"phase": phase} if phase else {})}


def _containers(pod: Obj) -> list[Obj]:
    return list(pod["spec"].get("containers") or ())


def _container(container: Obj, state: Obj, *, restarts: int = 0, ready: bool = False) -> Obj:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": restarts,
        "state": state,
        "lastState": {},
    }


def _terminated(code: int, started_at: float, ended_at: float) -> Obj:
    reason = "Completed" if code == 0 else "Error"
    times = {"startedAt": stamp(started_at), "finishedAt": stamp(ended_at)}
    return {"terminated": {"exitCode": code, "reason": reason, **times}}


def _status(pod: Obj, now: float, phase: str, containers: list[Obj], *, ready: bool, reason: str = "") -> Obj:
    old = status_of(pod)
    conditions: list[Any] = list(old.get("conditions") or ())
    for kind in ("PodScheduled", "Initialized"):
        conditions = with_condition(conditions, now, kind, "True")
    for kind in _READINESS:
        conditions = with_condition(conditions, now, kind, "True" if ready else "False", reason)
    return {
        **old,
        "phase": phase,
        "conditions": conditions,
        "startTime": old.get("startTime") or stamp(now),
        "containerStatuses": containers,
    }
