"""Small readings of Kubernetes objects that several controllers share."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

Obj = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster scope) and name."""

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


def key_of(obj: Obj) -> Key:
    """The key of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


@lru_cache(maxsize=1024)
def stamp(instant_s: float) -> str:
    """UTC epoch seconds as RFC 3339 with whole seconds."""
    return datetime.fromtimestamp(int(instant_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def instant(text: str) -> float:
    """The UTC epoch seconds of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()


def labels_of(obj: Obj) -> dict[str, str]:
    """The labels, never None."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    """The annotations, never None."""
    return obj["metadata"].get("annotations") or {}


def status_of(obj: Obj) -> Obj:
    """The status, never None."""
    return obj.get("status") or {}


def being_deleted(obj: Obj) -> bool:
    """Whether deletion was asked for and something still holds the object."""
    return obj["metadata"].get("deletionTimestamp") is not None


def controller_of(obj: Obj, kind: str) -> tuple[Key, str] | None:
    """Key and uid of the owner of this kind that controls the object."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == kind:
            return (obj["metadata"].get("namespace") or "", owner["name"]), owner["uid"]
    return None


def controlled_by(owner: Obj, api_version: str, kind: str) -> list[Obj]:
    """The `ownerReferences` of something `owner` controls."""
    return [
        {
            "apiVersion": api_version,
            "kind": kind,
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def condition_of(obj: Obj, kind: str) -> Obj | None:
    """The condition of that type, if the object has one."""
    for condition in status_of(obj).get("conditions") or ():
        if condition["type"] == kind:
            return dict(condition)
    return None


def is_true(obj: Obj, kind: str) -> bool:
    """Whether the condition of that type stands at True."""
    condition = condition_of(obj, kind)
    return condition is not None and condition["status"] == "True"


def with_condition(
    conditions: Iterable[Obj], now: float, kind: str, status: str, reason: str = "", message: str = ""
) -> list[Obj]:
    """`conditions` with one set; `lastTransitionTime` moves only when its status changes. Order is kept."""
    fresh: Obj = {"type": kind, "status": status, "lastTransitionTime": stamp(now)}
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    result, found = [], False
    for old in conditions:
        if old["type"] != kind:
            result.append(old)
            continue
        found = True
        if old["status"] == status:
            fresh["lastTransitionTime"] = old.get("lastTransitionTime", fresh["lastTransitionTime"])
        rest = {field: value for field, value in old.items() if field not in ("reason", "message")}
        result.append(old if _says_the_same(old, fresh) else {**rest, **fresh})
    return result if found else [*result, fresh]


def _says_the_same(old: Obj, fresh: Obj) -> bool:
    return all(old.get(field) == fresh.get(field) for field in ("status", "reason", "message"))


def is_terminal(pod: Obj) -> bool:
    """Whether the pod succeeded or failed."""
    return status_of(pod).get("phase") in TERMINAL_PHASES


def is_active(pod: Obj) -> bool:
    """Whether the pod counts as active for its Job: neither over nor on its way out."""
    return not is_terminal(pod) and not being_deleted(pod)


def node_of(pod: Obj) -> str:
    """The node a pod is bound to, or the empty string."""
    return pod["spec"].get("nodeName") or ""
