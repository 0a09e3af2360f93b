"""Object metadata: what the server stamps, keeps and refuses to change."""

import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from providers.sim.store.errors import StoreBadRequest, StoreInvalid, cause
from providers.sim.store.naming import (
    annotation_faults,
    dns_label,
    dns_subdomain,
    invalid_value,
    label_faults,
    qualified_name,
)
from providers.sim.store.registry import Resource

Obj = dict[str, Any]

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery pkg/util/rand: no vowels, no look-alikes
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
_METADATA_FORM: dict[str, type] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "resourceVersion": str,
    "uid": str,
    "labels": dict,
    "annotations": dict,
    "finalizers": list,
    "ownerReferences": list,
    "managedFields": list,
}
_OBJECT_FORM: dict[str, type] = {"spec": dict, "status": dict, "data": dict, "stringData": dict}
_OMITTED_WHEN_EMPTY = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/%]+")
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_RBAC = "rbac.authorization.k8s.io"


@lru_cache(maxsize=16)
def timestamp(now_s: float) -> str:
    """UTC epoch seconds as RFC 3339 with whole seconds, as `metadata` has it."""
    return datetime.fromtimestamp(int(now_s), UTC).isoformat()[:19] + "Z"


class Identities:
    """Unique ids and name suffixes, from a seed and a counter: the same run gives the same ids."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._count = 0

    def _digest(self) -> bytes:
        self._count += 1
        return hashlib.blake2b(b"%d:%d" % (self._seed, self._count), digest_size=16).digest()

    def uid(self) -> str:
        """A version 4 shaped UUID."""
        h = self._digest().hex()
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"

    def suffix(self) -> str:
        """Five characters for `generateName`."""
        return "".join(_SUFFIX_ALPHABET[byte % len(_SUFFIX_ALPHABET)] for byte in self._digest()[:5])


def invalid(resource: Resource, name: str, *causes: dict[str, str]) -> StoreInvalid:
    """The 422 for an object with these faults, worded as the real server words it."""
    told = list(dict.fromkeys(f"{c['field']}: {c['message']}" for c in causes))
    text = f"[{', '.join(told)}]" if len(told) > 1 else told[0]
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": list(causes)}
    return StoreInvalid(f'{kind} "{name}" is invalid: {text}', details)


def checked_type(resource: Resource, obj: Any) -> Obj:
    """`obj` if it is an object of the right kind and version; both may be left out. BadRequest otherwise."""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata", {}), dict):
        raise StoreBadRequest("the body is not a Kubernetes object")
    _check_form("metadata", obj.get("metadata") or {}, _METADATA_FORM)
    if resource.schema is None:
        _check_form("", obj, _OBJECT_FORM)
    for field, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if obj.get(field, expected) != expected:
            given, wanted = (
                f"{obj.get('apiVersion')}, Kind={obj.get('kind')}",
                f"{resource.api_version}, Kind={resource.kind}",
            )
            raise StoreBadRequest(f"{given} does not match {wanted}")
    return obj


def _check_form(path: str, value: Obj, form: dict[str, type]) -> None:
    for field, expected in form.items():
        if value.get(field) is not None and not isinstance(value[field], expected):
            where = f"{path}.{field}".lstrip(".")
            raise StoreBadRequest(
                f"cannot unmarshal {type(value[field]).__name__} into {where}, which is a {expected.__name__}"
            )


def checked_namespace(resource: Resource, obj: Obj, namespace: str) -> str:
    """The namespace an object goes to, from the request or the object; BadRequest when they differ or none is given."""
    held = obj.get("metadata", {}).get("namespace") or ""
    if not resource.namespaced:
        if held or namespace:
            raise StoreBadRequest(f"{resource.plural} are not namespaced")
        return ""
    if held and namespace and held != namespace:
        raise StoreBadRequest("the namespace of the provided object does not match the namespace sent on the request")
    if not (held or namespace):
        raise StoreBadRequest("an empty namespace may not be set during creation")
    return namespace or held


def name_faults(resource: Resource, name: str) -> list[dict[str, str]]:
    """What is wrong with an object name (validation/name.go of apimachinery)."""
    if not name:
        return [cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")]
    if resource.kind in ("Namespace", "Service"):
        reasons = dns_label(name)
    elif resource.group == _RBAC:
        reasons = () if _PATH_SEGMENT.fullmatch(name) else ("may not be '.' or '..', or contain '/' or '%'",)
    else:
        reasons = dns_subdomain(name)
    return list(invalid_value("metadata.name", name, reasons))


def metadata_faults(metadata: Obj) -> list[dict[str, str]]:
    """What is wrong with labels, annotations, owner references and finalizers."""
    faults: list[dict[str, str]] = []
    if metadata.get("labels"):
        faults += label_faults(metadata["labels"], "metadata.labels")
    if metadata.get("annotations"):
        faults += annotation_faults(metadata["annotations"], "metadata.annotations")
    for i, owner in enumerate(metadata.get("ownerReferences") or ()):
        faults += [
            cause(f"metadata.ownerReferences[{i}].{part}", "Required value: must not be empty", "FieldValueRequired")
            for part in ("apiVersion", "kind", "name", "uid")
            if not owner.get(part)
        ]
    if sum(1 for owner in metadata.get("ownerReferences") or () if owner.get("controller")) > 1:
        faults.append(
            cause("metadata.ownerReferences", "Invalid value: only one reference can have Controller set to true")
        )
    if metadata.get("finalizers"):
        faults += _finalizer_faults(metadata["finalizers"])
    return faults


def _finalizer_faults(finalizers: list[Any]) -> Iterator[dict[str, str]]:
    path = "metadata.finalizers"
    for i, name in enumerate(finalizers):
        reasons = qualified_name(str(name))
        yield from invalid_value(path, name, reasons)
        if not reasons and "/" not in str(name) and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield cause(f"{path}[{i}]", f'Invalid value: "{name}": {text}')
    if {"orphan", "foregroundDeletion"} <= set(map(str, finalizers)):
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        yield cause(path, f"Invalid value: {json.dumps(finalizers, separators=(',', ':'))}: {text}")


def copied(value: Any) -> Any:
    """A deep copy as plain JSON, so that no caller shares structure with the store."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise StoreBadRequest(f"not JSON: {error}") from error


def client_metadata(metadata: Obj) -> Obj:
    """The fields a client may set; empty collections are left out, as in the JSON of the real ObjectMeta."""
    return {
        key: value
        for key, value in metadata.items()
        if key not in _SERVER_OWNED and (value or key not in _OMITTED_WHEN_EMPTY)
    }


def new_metadata(metadata: Obj, *, name: str, namespace: str, uid: str, now: str, generations: bool) -> Obj:
    """The metadata of a fresh object; whatever the client said of server-owned fields is dropped."""
    kept = client_metadata(metadata)
    kept.pop("resourceVersion", None)
    kept["name"] = name
    if namespace:
        kept["namespace"] = namespace
    kept["uid"] = uid
    kept["creationTimestamp"] = now
    if generations:
        kept["generation"] = 1
    return kept


def kept_metadata(new: Obj, old: Obj) -> Obj:
    """The metadata of a replaced object: the client's, but server-owned fields as stored."""
    kept = client_metadata(new)
    kept["name"] = old["name"]
    if "namespace" in old:
        kept["namespace"] = old["namespace"]
    kept.update({key: old[key] for key in _SERVER_OWNED if key in old})
    kept["resourceVersion"] = old["resourceVersion"]
    if old.get("generateName"):
        kept["generateName"] = old["generateName"]
    return kept


def ordered(obj: Obj) -> Obj:
    """The object with `apiVersion`, `kind` and `metadata` first, the order people read."""
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "metadata": obj["metadata"],
        **{key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")},
    }


def same_but_metadata(a: Obj, b: Obj, *ignored: str) -> bool:
    """Whether two objects differ only in metadata and the `ignored` fields, which do not count generations."""
    skip = {"metadata", "apiVersion", "kind", *ignored}
    return {k: v for k, v in a.items() if k not in skip} == {k: v for k, v in b.items() if k not in skip}
