"""Object metadata: what the server stamps, keeps and refuses to change."""

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from providers.sim.store.errors import StoreBadRequest, StoreInvalid, cause
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
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/%]+")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?", re.ASCII)
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?", re.ASCII)
_RBAC = "rbac.authorization.k8s.io"


@lru_cache(maxsize=16)
def timestamp(now_s: float) -> str:
    """UTC epoch seconds as RFC 3339 with whole seconds, as `metadata` has it."""
    return datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    faults = ", ".join(f"{c['field']}: {c['message']}" for c in causes)
    text = f"[{faults}]" if len(causes) > 1 else faults
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
        raise StoreBadRequest(
            "the namespace of the provided object does not match the namespace sent on the request "
            f"({held} against {namespace})"
        )
    if not (held or namespace):
        raise StoreBadRequest("an empty namespace may not be set during creation")
    return namespace or held


def name_faults(resource: Resource, name: str) -> list[dict[str, str]]:
    """What is wrong with an object name (validation/name.go of apimachinery)."""
    if not name:
        return [cause("metadata.name", "Required value: name or generateName is required", "FieldValueRequired")]
    limit = 63 if resource.kind in ("Namespace", "Service") else 253
    pattern = _DNS_LABEL if limit == 63 else _PATH_SEGMENT if resource.group == _RBAC else _DNS_SUBDOMAIN
    if len(name) > limit:
        return [cause("metadata.name", f"Invalid value: must be no more than {limit} characters")]
    if not pattern.fullmatch(name):
        text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'"
        return [
            cause("metadata.name", f'Invalid value: "{name}": {text}, and must start and end with one of the former')
        ]
    return []


@lru_cache(maxsize=65536)
def _label_ok(key: str, value: str | None) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    if not name or len(name) > 63 or not _LABEL_NAME.fullmatch(name):
        return False
    return value is None or (len(value) <= 63 and bool(_LABEL_VALUE.fullmatch(value)))


def metadata_faults(metadata: Obj) -> list[dict[str, str]]:
    """What is wrong with labels, annotations, owner references and finalizers."""
    faults = []
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str) or not _label_ok(key, value):
            faults.append(cause("metadata.labels", f"Invalid value: {value!r}: not a valid label ({key})"))
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str) or not _label_ok(key, None):
            faults.append(cause("metadata.annotations", f"Invalid value: {key!r}: not a valid annotation"))
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
    return faults


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
