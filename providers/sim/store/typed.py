"""Whether what is applied fits the schema: server-side apply knows every field, its type and the keys of its lists.

Source: structured-merge-diff v4 `typed/validate.go`, `typed/helpers.go`; the words are its own.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from providers.sim.store.endpoints import check_name
from providers.sim.store.errors import StoreBadRequest, StoreUnknownError
from providers.sim.store.objects import Obj
from providers.sim.store.published import definition_of, resolved
from providers.sim.store.registry import Resource

Schema = dict[str, Any]
_META: Final[Schema] = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
_TEXT: Final[Schema] = {"type": "string"}


def check_applied(resource: Resource, applied: Any, name: str) -> None:
    """BadRequest where what is applied is no object of the kind, UnknownError where it does not fit the schema."""
    if not isinstance(applied, dict):
        raise StoreBadRequest("error decoding YAML: the body is not an object")
    version, kind = applied.get("apiVersion") or "", applied.get("kind") or ""
    if (version, kind) != (resource.api_version, resource.kind):
        shown = version if "/" in version else f"/{version}"
        raise StoreBadRequest(f"invalid object type: {shown}, Kind={kind}")
    meta = applied.get("metadata") or {}
    if isinstance(meta, dict):
        check_name(meta, name)
        if meta.get("managedFields"):
            raise StoreBadRequest("metadata.managedFields must be nil")
    check_typed(resource, applied)


def check_typed(resource: Resource, applied: Obj) -> None:
    """UnknownError (500, as upstream) with everything in which `applied` does not fit the schema of its kind."""
    schema = _root(resource)
    if schema is None:
        return
    found = list(_typed(applied, schema, ""))
    if found:
        meta = applied.get("metadata") or {}
        where = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}"
        group_version = resource.api_version if resource.group else f"/{resource.version}"
        kind = f"{where}; {group_version}, Kind={resource.kind}"
        raise StoreUnknownError(f"failed to create typed patch object ({kind}): {found[0]}")


def _root(resource: Resource) -> Schema | None:
    if resource.schema is None:
        name = definition_of(resource.api_version, resource.kind)
        return {"$ref": f"#/$defs/{name}"} if name else None
    known = {**(resource.schema.get("properties") or {}), "apiVersion": _TEXT, "kind": _TEXT, "metadata": _META}
    return {**resource.schema, "properties": known}


def _typed(value: Any, schema: Schema, path: str) -> Iterator[str]:
    words = {**resolved(schema), **schema} if "$ref" in schema else schema
    if value is None or words.get("x-kubernetes-int-or-string"):
        return
    match words.get("type"):
        case "object":
            yield from _typed_map(value, words, path)
        case "array":
            yield from _typed_list(value, words, path)
        case kind:
            yield from _typed_scalar(value, kind, path)


def _typed_map(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected map, got {_shown(value)}"
        return
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    free = not known and not isinstance(extra, dict)
    for key, below in value.items():
        child = known.get(key) or (extra if isinstance(extra, dict) else None)
        if type(below) is str and child is not None and child.get("type") == "string":
            continue  # the most common answer
        if child is not None:
            yield from _typed(below, child, f"{path}.{key}")
        elif not (free or extra is True or schema.get("x-kubernetes-preserve-unknown-fields")):
            yield f"{path}.{key}: field not declared in schema"


def _typed_list(value: Any, schema: Schema, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_shown(value)}"
        return
    keys = schema.get("x-kubernetes-list-map-keys") if schema.get("x-kubernetes-list-type") == "map" else None
    seen: list[Any] = []
    for i, item in enumerate(value):
        if keys and not isinstance(item, dict):
            yield f"{path}: element {i}: associative list with keys may not have non-map elements"
            continue
        here, mark = f"{path}[{i}]", item
        if keys:
            mark = {key: item[key] for key in keys if key in item}
            here = f"{path}[{','.join(f'{key}={json.dumps(held)}' for key, held in mark.items())}]"
        if mark in seen and (keys or schema.get("x-kubernetes-list-type") == "set"):
            shown = here.removeprefix(path) if keys else f"[={json.dumps(item)}]"
            yield f"{path}: duplicate entries for key {shown}"
        seen.append(mark)
        yield from _typed(item, schema.get("items") or {}, here)


def _typed_scalar(value: Any, kind: Any, path: str) -> Iterator[str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("integer", "number") and not number:
        yield f"{path}: expected numeric (int or float), got {_go_name(value)}"
    elif kind == "string" and not isinstance(value, str):
        yield f"{path}: expected string, got &value.valueUnstructured{{Value:{_shown(value)}}}"
    elif kind == "boolean" and not isinstance(value, bool):
        yield f"{path}: expected boolean, got {_go_name(value)}"


def _go_name(value: Any) -> str:
    names = {bool: "bool", int: "int64", float: "float64", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), "string")


def _shown(value: Any) -> str:
    return json.dumps(value)
