"""What each endpoint of an object may write, the preconditions it checks and the words of its refusals."""

from typing import Any

from providers.sim.store.errors import StoreConflict, StoreNotFound, StoreUnsupportedMediaType, cause
from providers.sim.store.listkeys import CustomShape, MergeShape, named_shape
from providers.sim.store.objects import Obj, kept_metadata, ordered
from providers.sim.store.registry import Resource

# Kinds whose status endpoint also writes labels and annotations.
_STATUS_WRITES_METADATA = frozenset({"nodes", "pods"})


def endpoint_view(resource: Resource, new: Obj, current: Obj, subresource: str) -> Obj:
    """The object that results when `new` is written over `current` through that endpoint."""
    meta = kept_metadata(new.get("metadata") or {}, current["metadata"])
    if subresource == "status":
        kept = meta if resource.key in _STATUS_WRITES_METADATA else {**current["metadata"]}
        kept |= {"managedFields": meta["managedFields"]} if "managedFields" in meta else {}
        return {**current, "metadata": kept, "status": new.get("status") or {}}
    if subresource == "ephemeralcontainers":
        added = (new.get("spec") or {}).get("ephemeralContainers") or []
        return {**current, "metadata": meta, "spec": {**current["spec"], "ephemeralContainers": added}}
    result = {**new, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    if "status" in resource.subresources:
        result.pop("status", None)
        result |= {"status": current["status"]} if "status" in current else {}
    return ordered(result)


def check_preconditions(resource: Resource, current: Obj, uid: str | None, resource_version: str | None) -> None:
    """Conflict when the caller means another object or another version of it."""
    meta = current["metadata"]
    problem = None
    if uid and uid != meta["uid"]:
        problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
    elif resource_version and resource_version != meta["resourceVersion"]:
        problem = "the object has been modified; please apply your changes to the latest version and try again"
    if problem:
        text = f'Operation cannot be fulfilled on {qualified(resource)} "{meta["name"]}": {problem}'
        raise StoreConflict(text, details(resource, meta["name"]))


def ending_faults(meta: Obj, held: Obj) -> list[dict[str, str]]:
    """An object that is being deleted takes no new finalizers."""
    added = [name for name in meta.get("finalizers") or () if name not in (held.get("finalizers") or ())]
    if not added or "deletionTimestamp" not in held:
        return []
    text = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added}"
    return [cause("metadata.finalizers", text, "FieldValueForbidden")]


def check_patchable(resource: Resource, *, strategic: bool) -> None:
    """UnsupportedMediaType for a strategic merge patch of a custom resource: there are no merge keys to go by."""
    if strategic and resource.custom:
        raise StoreUnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )


def shape_of(resource: Resource) -> MergeShape:
    """How the fields of this kind merge."""
    return named_shape(resource.kind) if resource.schema is None else CustomShape(resource.schema)


def qualified(resource: Resource) -> str:
    """`plural.group`, as messages name a resource."""
    return resource.key


def details(resource: Resource, name: str) -> dict[str, Any]:
    """`Status.details` of an object."""
    said = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in said.items() if value}


def not_found(resource: Resource, name: str) -> StoreNotFound:
    """The 404 of an object."""
    return StoreNotFound(f'{qualified(resource)} "{name}" not found', details(resource, name))
