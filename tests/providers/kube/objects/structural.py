"""What an API server would refuse or silently drop, by a structural schema: the tests' own small reading of it."""

import re
from collections.abc import Iterator
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def faults(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Every reason why `value` would not be stored exactly as it is."""
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            yield f"{path}: neither integer nor string"
        return
    expected = schema["type"]
    if not isinstance(value, _TYPES[expected]) or (isinstance(value, bool) and expected != "boolean"):
        yield f"{path}: {value!r} is not a {expected}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if expected == "string":
        yield from _text_faults(schema, value, path)
    elif expected == "object":
        yield from _object_faults(schema, value, path)
    elif expected == "array":
        yield from _list_faults(schema, value, path)


def _text_faults(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield f"{path}: {value!r} is not a time"
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
        yield f"{path}: {len(value)} characters"


def _object_faults(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    yield from (f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value)
    known = schema.get("properties", {})
    for name, part in value.items():
        if name in known:
            yield from faults(known[name], part, f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from faults(schema["additionalProperties"], part, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and path != ".metadata":
            yield f"{path}.{name}: would be dropped"


def _list_faults(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    if len(value) > schema.get("maxItems", 1 << 30):
        yield f"{path}: {len(value)} items"
    for index, item in enumerate(value):
        yield from faults(schema["items"], item, f"{path}[{index}]")
    if keys := schema.get("x-kubernetes-list-map-keys"):
        names = [tuple(item.get(key) for key in keys) for item in value]
        if len(set(names)) != len(names):
            yield f"{path}: duplicate keys"
