"""What each endpoint of an object may write, the preconditions it checks and the words of its refusals."""

from collections.abc import Callable
from typing import Any

from providers.sim.store.errors import (
    StoreAlreadyExists,
    StoreBadRequest,
    StoreConflict,
    StoreForbidden,
    StoreNotFound,
    StoreUnknownError,
    StoreUnsupportedMediaType,
    cause,
)
from providers.sim.store.listkeys import MergeShape, named_shape
from providers.sim.store.objects import (
    Obj,
    checked_namespace,
    checked_type,
    invalid,
    kept_metadata,
    metadata_faults,
    name_faults,
    new_metadata,
    ordered,
)
from providers.sim.store.podupdate import resized_pod
from providers.sim.store.published import definition_of, published_shape
from providers.sim.store.registry import Resource

# Kinds whose status may be given at creation.
_STATUS_ON_CREATE = frozenset({"nodes", "namespaces"})
# Kinds whose status endpoint also writes labels and annotations.
_STATUS_WRITES_METADATA = frozenset({"nodes", "pods"})


def fresh_view(resource: Resource, new: Obj, name: str, namespace: str, *, uid: Callable[[], str], now: str) -> Obj:
    """The object that a creation makes of `new`. Invalid where its name or metadata are."""
    given = new.get("metadata") or {}
    if problems := [*name_faults(resource, name), *metadata_faults(given)]:
        raise invalid(resource, name, *problems)
    meta = new_metadata(given, name=name, namespace=namespace, uid=uid(), now=now, generations=resource.generations)
    result = {**new, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    if "status" in resource.subresources and resource.key not in _STATUS_ON_CREATE:
        result.pop("status", None)
    return result


def mutated_view(resource: Resource, new: Obj, seen: Obj, current: Obj | None) -> Obj:
    """What policies have made of the object that they have `seen`: of another kind, place or identity it must not be.

    BadRequest or Invalid otherwise. One that is new may have another name.
    """
    if new is seen:
        return seen
    was, meta = seen["metadata"], checked_type(resource, new).get("metadata") or {}
    checked_namespace(resource, new, was.get("namespace") or "")
    if current is None:
        held = was.get("namespace") or ""
        return fresh_view(
            resource, new, meta.get("name") or "", held, uid=lambda: was["uid"], now=was["creationTimestamp"]
        )
    if meta.get("name") != was["name"]:
        fault = cause("metadata.name", f'Invalid value: "{meta.get("name")}": field is immutable')
        raise invalid(resource, was["name"], fault)
    check_same_uid(resource, current, new)
    return endpoint_view(resource, new, current, "")


def endpoint_view(resource: Resource, new: Obj, current: Obj, subresource: str) -> Obj:
    """The object that results when `new` is written over `current` through that endpoint."""
    meta = kept_metadata(new.get("metadata") or {}, current["metadata"])
    if subresource == "status":
        kept = meta if resource.key in _STATUS_WRITES_METADATA else {**current["metadata"]}
        kept |= {"managedFields": meta["managedFields"]} if "managedFields" in meta else {}
        return {**current, "metadata": kept, "status": new.get("status") or {}}
    if subresource == "resize":
        return resized_pod(resource, {**new, "metadata": {**current["metadata"]}}, current)
    if subresource == "ephemeralcontainers":
        added = (new.get("spec") or {}).get("ephemeralContainers") or []
        return {**current, "metadata": meta, "spec": {**current["spec"], "ephemeralContainers": added}}
    result = {**new, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    if "status" in resource.subresources:
        result.pop("status", None)
        result |= {"status": current["status"]} if "status" in current else {}
    return ordered(result)


# Kinds that a PUT creates where there is none (AllowCreateOnUpdate).
CREATED_BY_UPDATE = frozenset(
    {
        "endpoints",
        "events",
        "events.events.k8s.io",
        "leases.coordination.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "services",
    }
)


def check_name(meta: Obj, name: str) -> None:
    """BadRequest when the object carries another name than its URL."""
    if meta.get("name", name) != name:
        raise StoreBadRequest(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")


def check_same_uid(resource: Resource, current: Obj, new: Obj) -> None:
    """Invalid when a patch changes the uid."""
    uid = (new.get("metadata") or {}).get("uid")
    if uid and uid != current["metadata"]["uid"]:
        fault = cause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
        raise invalid(resource, current["metadata"]["name"], fault, fault)


def check_preconditions(resource: Resource, current: Obj, uid: str | None, resource_version: str | None) -> None:
    """Conflict when the caller means another object or another version of it."""
    meta = current["metadata"]
    problem = None
    if resource_version and not resource_version.isdecimal():
        raise StoreUnknownError(f'strconv.ParseUint: parsing "{resource_version}": invalid syntax')
    if uid and uid != meta["uid"]:
        group = f"{resource.group}/" if resource.custom else ""
        place = "/".join(filter(None, (f"{group}{resource.plural}", meta.get("namespace"), meta["name"])))
        problem = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        )
    elif resource_version not in (None, "", "0", meta["resourceVersion"]):
        problem = "the object has been modified; please apply your changes to the latest version and try again"
    if problem:
        text = f'Operation cannot be fulfilled on {qualified(resource)} "{meta["name"]}": {problem}'
        raise StoreConflict(text, details(resource, meta["name"]))


def check_delete_preconditions(resource: Resource, current: Obj, uid: str | None, resource_version: str | None) -> None:
    """Conflict when the caller means to delete another object or another version of it (`rest.BeforeDelete`)."""
    meta = current["metadata"]
    if uid and uid != meta["uid"]:
        word, asked, held = "UID", uid, meta["uid"]
        end = "The object might have been deleted and then recreated"
    elif resource_version and resource_version != meta["resourceVersion"]:
        word, asked, held = "ResourceVersion", resource_version, meta["resourceVersion"]
        end = "The object might have been modified"
    else:
        return
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    problem = f"the {word} in the precondition ({asked}) does not match the {word} in record ({held}). {end}"
    told = {"name": meta["name"], "group": resource.group, "kind": resource.kind}
    said = {key: value for key, value in told.items() if value}
    raise StoreConflict(f'Operation cannot be fulfilled on {kind} "{meta["name"]}": {problem}', said)


def ending_faults(meta: Obj, held: Obj) -> list[dict[str, str]]:
    """An object that is being deleted takes no new finalizers."""
    added = [name for name in meta.get("finalizers") or () if name not in (held.get("finalizers") or ())]
    if not added or "deletionTimestamp" not in held:
        return []
    told = "no new finalizers can be added if the object is being deleted, found new finalizers"
    text = f"Forbidden: {told} {_go_texts(added)}"
    return [cause("metadata.finalizers", text, "FieldValueForbidden")]


def _go_texts(texts: list[str]) -> str:
    """A list of texts as Go prints it."""
    return "[]string{" + ", ".join(f'"{text}"' for text in texts) + "}"


def check_patchable(resource: Resource, *, strategic: bool) -> None:
    """UnsupportedMediaType for a strategic merge patch of a custom resource: there are no merge keys to go by."""
    if strategic and resource.custom:
        raise StoreUnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )


def shape_of(resource: Resource) -> MergeShape:
    """How the fields of this kind merge."""
    if resource.shape is not None:
        return resource.shape
    name = definition_of(resource.api_version, resource.kind)
    return published_shape(name) if name else named_shape(resource.kind)


def qualified(resource: Resource) -> str:
    """`plural.group`, as messages name a resource."""
    return resource.key


def details(resource: Resource, name: str) -> dict[str, Any]:
    """`Status.details` of an object."""
    said = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in said.items() if value}


def namespace_ends(resource: Resource, namespace: str, name: str) -> StoreForbidden:
    """The 403 of an object that is to be made in a namespace that is being deleted."""
    told = cause("metadata.namespace", f"namespace {namespace} is being terminated", "NamespaceTerminating")
    return StoreForbidden(
        f'{qualified(resource)} "{name}" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated",
        {**details(resource, name), "causes": [told]},
    )


def already_exists(resource: Resource, name: str, held: Obj) -> StoreAlreadyExists:
    """The 409 of a name that is taken, perhaps by an object that is on its way out."""
    ending = "object is being deleted: " if "deletionTimestamp" in held["metadata"] else ""
    return StoreAlreadyExists(f'{ending}{qualified(resource)} "{name}" already exists', details(resource, name))


def not_found(resource: Resource, name: str) -> StoreNotFound:
    """The 404 of an object."""
    return StoreNotFound(f'{qualified(resource)} "{name}" not found', details(resource, name))
