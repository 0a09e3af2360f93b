"""The `scale` subresource: an autoscaling/v1 Scale read from, and written back into, an object."""

from typing import Any

from providers.sim.store.errors import StoreBadRequest, StoreNotFound, cause
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.registry import Resource


def read_scale(resource: Resource, obj: Obj) -> Obj:
    """The Scale of `obj`. NotFound when the resource does not scale."""
    spec_path, status_path, selector_path = _paths(resource)
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    scale: Obj = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": _read(obj, spec_path) or 0},
        "status": {"replicas": _read(obj, status_path) or 0},
    }
    selector = _read(obj, selector_path) if selector_path else None
    if selector is None and isinstance((obj.get("spec") or {}).get("selector"), dict):
        labels = obj["spec"]["selector"].get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if selector:
        scale["status"]["selector"] = selector
    return scale


def written_scale(resource: Resource, obj: Obj, scale: Obj) -> Obj:
    """`obj` with the replicas a Scale asks for. Invalid when negative, BadRequest when there are none."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise StoreBadRequest(f"spec.replicas is not a number: {replicas!r}")
    if replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid(resource, obj["metadata"]["name"], cause("spec.replicas", text))
    return _written(obj, _paths(resource)[0].strip(".").split("."), replicas)


def _paths(resource: Resource) -> tuple[str, str, str]:
    if resource.scale_paths is None:
        raise StoreNotFound(f"the server could not find the scale of {resource.plural}")
    return resource.scale_paths


def _read(obj: Obj, path: str) -> Any:
    value: Any = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _written(node: Obj, path: list[str], value: Any) -> Obj:
    below = value if len(path) == 1 else _written(node.get(path[0]) or {}, path[1:], value)
    return {**node, path[0]: below}
