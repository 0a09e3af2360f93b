"""What the server makes of a body: of which kind it must be, which fields there are, of which type.

Source: apimachinery `pkg/runtime/serializer/json`, apiserver `pkg/endpoints/handlers` (`create.go`, `patch.go`), the
words of Go's `encoding/json`; for custom kinds apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from providers.sim.store import Resource, StoreBadRequest, StoreInvalid
from providers.sim.store.errors import cause
from providers.sim.store.objects import invalid
from providers.sim.store.published import (
    SchemaFault,
    definition_of,
    definitions,
    resolved,
    validator,
    without_nothing,
)
from providers.sim.store.schema import unknown_fields

Obj = dict[str, Any]
_JSON_NAMES: Final = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NOTHING: Final = (b"null", b"{}", b"[]", b"{ }", b"[ ]")
_ROOT: Final = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class FieldCheck:
    """Decodes the objects of one request: `mode` says what becomes of fields that do not exist, `warnings` collects."""

    mode: str = "Warn"
    warnings: list[str] = field(default_factory=list)

    def of_body(self, resource: Resource, obj: Obj, raw: bytes) -> Obj:
        """The object as the server takes it from a body. BadRequest where it is another kind, or does not decode."""
        check_kind(resource, obj, raw)
        try:
            return self._decoded(resource, obj, raw)
        except _Undecodable as error:
            version, kind = resource.version, obj.get("kind", resource.kind)
            raise StoreBadRequest(
                f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {error}'
            ) from error

    def of_patched(self, resource: Resource, obj: Obj, patch: Any) -> Obj:
        """The object that a patch leaves, decoded again. Invalid, with the cause `patch`, where it does not decode."""
        try:
            _check_same_kind(resource, obj)
            return self._decoded(resource, obj, b"")
        except _Undecodable as error:
            shown = json.dumps(json.dumps(obj, separators=(",", ":")))
            fault = cause("patch", f"Invalid value: {shown}: {error}")
            raise StoreInvalid(f' "" is invalid: patch: {fault["message"]}', {"causes": [fault]}) from error

    def _decoded(self, resource: Resource, obj: Obj, raw: bytes) -> Obj:
        unknown = list(_duplicates(raw)) if raw and self.mode != "Ignore" else []
        name = "" if resource.schema is not None else definition_of(resource.api_version, resource.kind)
        if resource.schema is not None:
            unknown += [f'unknown field "{path}"' for path in unknown_fields(obj, resource.schema)]
        elif name:
            if not raw or any(mark in raw for mark in _NOTHING):
                obj = without_nothing(obj, name)
            compiled = validator(name)
            if not compiled.is_valid(obj):
                obj, found = _known_part(obj, list(compiled.iter_errors(obj)), resource.kind)
                unknown += [f'unknown field "{path}"' for path in found]
        if unknown and self.mode == "Strict":
            raise _Undecodable(f"strict decoding error: {', '.join(unknown)}")
        if self.mode == "Warn":
            self.warnings += unknown
        return obj


class _Undecodable(Exception):
    """What Go's decoder would say."""


def field_check(query: dict[str, str]) -> FieldCheck:
    """What a request wishes by its parameter `fieldValidation`."""
    return FieldCheck(query.get("fieldValidation") or "Warn")


def check_kind(resource: Resource, obj: Obj, raw: bytes) -> None:
    """BadRequest where a body says another kind or version than its URL; custom kinds must say both."""
    version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    if resource.custom and not (version and kind):
        missing = "Kind" if not kind else "apiVersion"
        text = raw.decode(errors="replace")
        short = f"{text[:30]} ..." if len(text) > 30 else text
        raise StoreBadRequest(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object '{missing}' is missing in "
            f"'{text}' ({short})"
        )
    if version and version != resource.api_version:
        raise StoreBadRequest(
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
    if kind and kind != resource.kind:
        if resource.custom:
            name = str((obj.get("metadata") or {}).get("name", ""))
            raise invalid(resource, name, cause("kind", f'Invalid value: "{kind}": must be {resource.kind}'))
        raise StoreBadRequest(
            f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"{_another_kind(resource, {'apiVersion': resource.api_version, **obj})}"
        )


def _check_same_kind(resource: Resource, obj: Obj) -> None:
    if (obj.get("apiVersion"), obj.get("kind")) != (resource.api_version, resource.kind):
        raise _Undecodable(_another_kind(resource, obj))


def _another_kind(resource: Resource, obj: Obj) -> str:
    version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    if definition_of(str(version), str(kind)):
        package = "core" if not resource.group else resource.group.partition(".")[0]
        return f"converting (v1.{kind}) to ({package}.{resource.kind}): unknown conversion"
    scheme = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
    return f'no kind "{kind}" is registered for version "{version}" in scheme "{scheme}"'


def _known_part(obj: Obj, faults: Sequence[SchemaFault], kind: str) -> tuple[Obj, list[str]]:
    """The object without the fields that are not in its schema, and their paths. _Undecodable for anything worse."""
    worse = [fault for fault in faults if type(fault.kind).__name__ != "AdditionalProperties"]
    if worse:
        raise _Undecodable(_told(min(worse, key=lambda fault: _position(obj, fault.instance_path)), kind))
    found: list[tuple[tuple[int, ...], str]] = []
    for fault in faults:
        path = list(fault.instance_path)
        for name in fault.kind.unexpected:
            obj = _without(obj, [*path, name])
            found.append((_position(fault.instance, []), _dotted([*path, name])))
    return obj, sorted(text for _, text in found)


def _without(value: Any, path: Sequence[str | int]) -> Any:
    first, rest = path[0], path[1:]
    if isinstance(value, list):
        return [_without(item, rest) if i == first else item for i, item in enumerate(value)]
    if not rest:
        return {key: below for key, below in value.items() if key != first}
    return {key: _without(below, rest) if key == first else below for key, below in value.items()}


def _position(obj: Any, path: Sequence[str | int]) -> tuple[int, ...]:
    """Where in the document a path is: Go tells of the first thing it cannot read."""
    found = []
    for step in path:
        if isinstance(obj, dict):
            found.append(list(obj).index(str(step)))
            obj = obj[step]
        elif isinstance(step, int):
            found.append(step)
            obj = obj[step]
    return tuple(found)


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _told(fault: SchemaFault, kind: str) -> str:
    """The words of Go's decoder for a value that does not fit."""
    rule, value = type(fault.kind).__name__, fault.instance
    if rule == "Pattern":
        return _QUANTITY
    if rule == "Format":
        return f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
    names = [str(step) for step in fault.schema_path]
    holder = max((i for i, step in enumerate(names) if step.startswith("io.k8s.")), default=-1)
    struct = names[holder].rpartition(".")[2] if holder >= 0 else kind
    schema: Any = definitions().get(names[holder], {})
    for step in names[holder + 1 : -1]:
        schema = schema[step] if isinstance(schema, dict) and step in schema else {}
    path = [step for step in fault.instance_path if isinstance(step, str)]
    if "additionalProperties" in names[holder:]:
        path = path[:-1]
    given = _JSON_NAMES.get(type(value), "value")
    if isinstance(value, float) or rule in ("Maximum", "Minimum"):
        given = f"number {value}"
    return f"json: cannot unmarshal {given} into Go struct field {struct}.{'.'.join(path)} of type {_go_type(schema)}"


def _go_type(schema: Any) -> str:
    body = resolved(schema) if isinstance(schema, dict) else {}
    match body.get("type"):
        case "integer":
            return str(body.get("format", "int32"))
        case "boolean":
            return "bool"
        case "string":
            return "string"
        case "array":
            return f"[]{_go_type(body.get('items') or {})}"
        case "object" if isinstance(body.get("additionalProperties"), dict):
            return f"map[string]{_go_type(body['additionalProperties'])}"
        case _:
            reference = schema.get("$ref", "") if isinstance(schema, dict) else ""
            return f"v1.{reference.rpartition('.')[2]}" if reference else "v1.Object"


class _Members(dict[str, Any]):
    """A JSON object that remembers which of its names came twice."""

    twice: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> _Members:
    found = _Members(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        found.twice = tuple(dict.fromkeys(name for i, name in enumerate(names) if name in names[:i]))
    return found


def _duplicates(raw: bytes) -> Iterator[str]:
    """The fields that a JSON body gives twice."""
    try:
        yield from _twice(json.loads(raw, object_pairs_hook=_members), "")
    except (ValueError, RecursionError):
        return  # YAML, or no JSON at all, which others tell


def _twice(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _twice(item, f"{path}[{i}]")
    if isinstance(value, _Members):
        yield from (f'duplicate field "{f"{path}.{name}".lstrip(".")}"' for name in value.twice)
        for key, below in value.items():
            yield from _twice(below, f"{path}.{key}".lstrip("."))
