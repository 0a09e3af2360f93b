"""The patch formats, and the strategic merge patch: one that knows which lists are keyed, with its `$` directives.

Source: apimachinery `pkg/util/strategicpatch/patch.go` and the API conventions' strategic-merge-patch document.
"""

from enum import Enum
from typing import Any

from providers.sim.store.endpoints import check_patchable, shape_of
from providers.sim.store.errors import StoreBadRequest
from providers.sim.store.jsonpatch import json_patch, merge_patch
from providers.sim.store.listkeys import MergeShape
from providers.sim.store.objects import Obj
from providers.sim.store.registry import Resource

_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _DELETE_SCALARS = "$setElementOrder/", "$deleteFromPrimitiveList/"


class PatchType(Enum):
    """The four patch formats, by media type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


def patched(resource: Resource, base: Obj, patch: Any, patch_type: PatchType) -> Any:
    """`base` as `patch` leaves it, in the format that it has; StoreBadRequest where it has another."""
    check_patchable(resource, strategic=patch_type is PatchType.STRATEGIC)
    if patch_type is PatchType.JSON:
        return json_patch(base, patch)
    if not isinstance(patch, dict):
        raise StoreBadRequest("a merge patch is an object")
    return (
        merge_patch(base, patch) if patch_type is PatchType.MERGE else strategic_merge(base, patch, shape_of(resource))
    )


def strategic_merge(target: dict[str, Any], patch: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    """`target` with `patch` applied, as a built-in kind of that shape merges. BadRequest for a malformed directive."""
    if not isinstance(patch, dict):
        raise StoreBadRequest("a strategic merge patch is an object")
    return _merge_map(target, patch, shape)


def _merge_map(target: dict[str, Any], patch: dict[str, Any], shape: MergeShape) -> dict[str, Any]:
    match patch.get(_PATCH):
        case "replace":
            return {key: _plain(value) for key, value in patch.items() if key != _PATCH and value is not None}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise StoreBadRequest(f"unknown $patch directive {other!r}")
    result = _retained(target, patch)
    for key, value in patch.items():
        if not key.startswith("$"):
            _merge_field(result, key, value, shape.child(key))
        elif key.startswith(_DELETE_SCALARS):
            field = key.removeprefix(_DELETE_SCALARS)
            result[field] = [item for item in result.get(field) or [] if item not in value]
    for key, order in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            result[field] = _ordered(result.get(field) or [], order, shape.child(field).strategic_key)
    return result


def _retained(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    kept = patch.get(_RETAIN)
    if kept is None:
        return dict(target)
    if not isinstance(kept, list):
        raise StoreBadRequest("$retainKeys is a list of field names")
    return {key: value for key, value in target.items() if key in kept}


def _merge_field(result: dict[str, Any], key: str, value: Any, shape: MergeShape) -> None:
    if value is None:
        result.pop(key, None)
    elif isinstance(value, dict) and isinstance(result.get(key), dict):
        result[key] = _merge_map(result[key], value, shape)
    elif isinstance(value, list):
        result[key] = _merge_list(result.get(key) or [], value, shape)
    elif isinstance(value, dict):
        result[key] = _merge_map({}, value, shape)
    else:
        result[key] = value


def _merge_list(target: list[Any], patch: list[Any], shape: MergeShape) -> list[Any]:
    if any(isinstance(item, dict) and item.get(_PATCH) == "replace" and len(item) == 1 for item in patch):
        return _plain_items([item for item in patch if item != {_PATCH: "replace"}])
    if shape.is_set:
        return [*target, *(item for item in dict.fromkeys(patch) if item not in target)]
    key = shape.strategic_key
    if key is None or not all(isinstance(item, dict) for item in (*target, *patch)):
        return _plain_items(patch)
    return _merge_keyed(target, patch, key, shape)


def _merge_keyed(target: list[Any], patch: list[Any], key: str, shape: MergeShape) -> list[Any]:
    result = list(target)
    for item in patch:
        if key not in item:
            raise StoreBadRequest(f"map: {item!r} does not contain declared merge key: {key}")
        at = next((i for i, held in enumerate(result) if held.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            result = [held for held in result if held.get(key) != item[key]]
        elif at is None:
            result.append(_merge_map({}, item, shape.item()))
        else:
            result[at] = _merge_map(result[at], item, shape.item())
    return result


def _ordered(items: list[Any], order: list[Any], key: str | None) -> list[Any]:
    """Items in the order the patch gives; those it does not name keep their place behind their predecessor."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    named = sorted((i for i in items if identity(i) in wanted), key=lambda i: wanted.index(identity(i)))
    result: list[Any] = list(named)
    for position, item in enumerate(items):
        if identity(item) not in wanted:
            before = [identity(i) for i in items[:position]]
            at = max((result.index(held) + 1 for held in result if identity(held) in before[-1:]), default=0)
            result.insert(at, item)
    return result


def _plain(value: Any) -> Any:
    """A patch value as data: directives inside a freshly added part mean nothing and are dropped."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if not k.startswith("$") and v is not None}
    return _plain_items(value) if isinstance(value, list) else value


def _plain_items(items: list[Any]) -> list[Any]:
    return [_plain(item) for item in items if not (isinstance(item, dict) and item.get(_PATCH) == "delete")]
