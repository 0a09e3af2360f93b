"""Structural schemas of custom resources: prune what is unknown, fill in defaults, validate.

Source: apiextensions-apiserver `pkg/apiserver/schema` (pruning, defaulting), OpenAPI v3 as it restricts it.
CEL rules (`x-kubernetes-validations`) are asked in `celrules`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from providers.sim.store.errors import cause

_ROOT_FIELDS = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_FORMATS: dict[str, str] = {
    "date": r"\d{4}-\d\d-\d\d",
    "date-time": r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    "byte": r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?",
    "duration": r"0|-?(?:[0-9]+(?:\.[0-9]+)?\s*(?i:[nuµm]?s|m|h|d|w|(?:nano|micro|milli)(?:s(?:ec(?:ond)?s?)?)?"
    r"|sec(?:ond)?s?|min(?:ute)?s?|h(?:ou)?rs?|days?|w(?:ee)?ks?)\s*)+",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"((25[0-5]|2[0-4]\d|1?\d?\d)(\.(?!$)|$)){4}",
}
_ANYTHING: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}
_MOST_SOUND = 512
"""Most values of a field that are remembered."""
_encode = msgspec.json.Encoder().encode
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "not"})
_OF_TEXT = frozenset({"maxLength", "minLength", "pattern", "format"})
Schema = dict[str, Any]
Fault = dict[str, str]


def schema_faults(schema: Any, path: str) -> Iterator[Fault]:
    """What keeps a schema from being used: an unknown type, a broken pattern, a part that is no schema."""
    if not isinstance(schema, dict):
        yield cause(path, "Invalid value: must be a schema")
        return
    if schema.get("type", "object") not in _TYPES:
        yield cause(f"{path}.type", f'Unsupported value: "{schema["type"]}"', "FieldValueNotSupported")
    try:
        _pattern(schema.get("pattern") or "")
    except (re.error, TypeError) as error:
        yield cause(f"{path}.pattern", f"Invalid value: must be a valid regular expression: {error}")
    parts = {f"properties[{name}]": below for name, below in (schema.get("properties") or {}).items()}
    parts |= {word: schema[word] for word in ("items", "not") if word in schema}
    if isinstance(schema.get("additionalProperties"), dict):
        parts["additionalProperties"] = schema["additionalProperties"]
    for word in ("allOf", "anyOf", "oneOf"):
        parts |= {f"{word}[{i}]": part for i, part in enumerate(schema.get(word) or ())}
    for name, below in parts.items():
        yield from schema_faults(below, f"{path}.{name}")


def pruned(value: Any, schema: Schema, *, root: bool = True) -> Any:
    """`value` without the fields its schema does not know, where the schema does not keep them."""
    if isinstance(value, list):
        items = schema.get("items")
        return [pruned(item, items, root=False) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    keep = schema.get("x-kubernetes-preserve-unknown-fields") or extra is True
    result = {}
    for key, below in value.items():
        embedded = root or schema.get("x-kubernetes-embedded-resource")
        if embedded and key in _ROOT_FIELDS:
            result[key] = below
        elif key in known:
            if below is None and not known[key].get("nullable") and known[key].get("type"):
                continue  # null is as good as nothing where the schema does not allow it
            result[key] = pruned(below, known[key], root=False)
        elif isinstance(extra, dict):
            result[key] = pruned(below, extra, root=False)
        elif keep:
            result[key] = below
    return result


def unknown_fields(
    value: Any,
    schema: Schema,
    path: str = "",
    *,
    root: bool = True,
    resolve: Callable[[Schema], Schema] = lambda schema: schema,
) -> Iterator[str]:
    """The paths `pruned` would drop; `resolve` follows references. Directives of patches (`$...`) are not fields."""
    schema = resolve(schema)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for i, item in enumerate(value):
            yield from unknown_fields(item, schema["items"], f"{path}[{i}]", root=False, resolve=resolve)
    if not isinstance(value, dict):
        return
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    embedded = root or schema.get("x-kubernetes-embedded-resource")
    for key, below in value.items():
        here = f"{path}.{key}" if path else key
        if (embedded and key in _ROOT_FIELDS) or key.startswith("$"):
            continue
        child = known.get(key) or (extra if isinstance(extra, dict) else None)
        if child is not None:
            yield from unknown_fields(below, child, here, root=False, resolve=resolve)
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and extra is not True:
            yield here


def defaulted(value: Any, schema: Schema) -> Any:
    """`value` with the defaults of its schema filled in, also below values that defaults made."""
    if isinstance(value, list):
        items = schema.get("items")
        return [defaulted(item, items) for item in value] if isinstance(items, dict) else value
    if not isinstance(value, dict):
        return value
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    result = dict(value)
    for key, below in properties.items():
        missing = key not in result or (result[key] is None and not below.get("nullable"))
        if missing and "default" in below:
            result[key] = below["default"]
        if key in result:
            result[key] = defaulted(result[key], below)
    if isinstance(extra, dict):
        result |= {key: defaulted(held, extra) for key, held in result.items() if key not in properties}
    return result


def decoded(obj: Any, schema: Schema) -> Any:
    """A custom object as its schema has it read: without fields that are not known, and with defaults."""
    return defaulted(pruned(obj, schema), schema)


def faults(value: Any, schema: Schema, path: str = "") -> Iterator[Fault]:
    """Everything in which `value` breaks its schema, with the path of each field."""
    where = path or "<root>"
    if value is None:
        if not schema.get("nullable") and schema.get("type"):
            yield cause(
                where, f'Invalid value: "null": must be of type {schema["type"]}: "null"', "FieldValueTypeInvalid"
            )
        return
    if not _type_ok(value, schema):
        expected = "integer or string" if schema.get("x-kubernetes-int-or-string") else schema["type"]
        text = f'Invalid value: "{_type_name(value)}": {where} in body must be of type {expected}'
        yield cause(where, f'{text}: "{_type_name(value)}"', "FieldValueTypeInvalid")
        return
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(f'"{choice}"' for choice in schema["enum"])
        yield cause(where, f'Unsupported value: "{value}": supported values: {known}', "FieldValueNotSupported")
    if isinstance(value, dict):
        yield from _map_faults(value, schema, path)
    elif isinstance(value, list):
        yield from _list_faults(value, schema, path)
    elif isinstance(value, str):
        if not _OF_TEXT.isdisjoint(schema):
            yield from _text_faults(value, schema, where)
    elif not isinstance(value, bool):
        yield from _number_faults(value, schema, where)
    if not _COMBINING.isdisjoint(schema):
        yield from _combined_faults(value, schema, path)


class SoundFields:
    """Remembers fields of custom objects that broke nothing of their schema: most writes change one field of several.

    A field is its value encoded, below a schema that is the same object.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Schema, dict[str, set[bytes]]]] = {}
        """Identity of a schema -> that schema, which keeps its identity, and field -> values."""

    def checked(self, obj: Schema, schema: Schema) -> tuple[Schema, list[Fault]]:
        """The object pruned and filled in, and everything in which it then breaks its schema."""
        asked = self._less_known(obj, schema)
        obj = decoded(obj, asked)
        return obj, list(faults(obj, asked))

    def _less_known(self, obj: Schema, schema: Schema) -> Schema:
        """The schema without what it says of the fields of `obj` that are known to be sound."""
        held = self._known.get(id(schema))
        if held is None:
            return schema
        sound = {key: _ANYTHING for key, values in held[1].items() if key in obj and _encode(obj[key]) in values}
        return {**schema, "properties": {**schema["properties"], **sound}} if sound else schema

    def note(self, obj: Schema, schema: Schema) -> None:
        """Remember the fields of an object that was pruned, filled in and found sound."""
        _, fields = self._known.setdefault(id(schema), (schema, {}))
        for key in schema.get("properties") or ():
            if key in obj and key not in _ROOT_FIELDS:
                values = fields.setdefault(key, set())
                if len(values) >= _MOST_SOUND:
                    values.clear()
                values.add(_encode(obj[key]))


def _type_ok(value: Any, schema: Schema) -> bool:
    if schema.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    expected = schema.get("type")
    if not expected:
        return True
    if isinstance(value, bool) and expected != "boolean":
        return False
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[expected])


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), type(value).__name__)


def _map_faults(value: Schema, schema: Schema, path: str) -> Iterator[Fault]:
    for key in schema.get("required") or ():
        if key not in value:
            yield cause(f"{path}.{key}".lstrip("."), "Required value", "FieldValueRequired")
    if len(value) > schema.get("maxProperties", len(value)):
        yield cause(
            path, f"Too many: {len(value)}: must have at most {schema['maxProperties']} items", "FieldValueTooMany"
        )
    if len(value) < schema.get("minProperties", 0):
        yield cause(path, f"Invalid value: should have at least {schema['minProperties']} properties")
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, below in sorted(value.items()):
        child = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if child:
            yield from faults(below, child, f"{path}.{key}".lstrip("."))


def _list_faults(value: list[Any], schema: Schema, path: str) -> Iterator[Fault]:
    if len(value) > schema.get("maxItems", len(value)):
        yield cause(path, f"Too many: {len(value)}: must have at most {schema['maxItems']} items", "FieldValueTooMany")
    if len(value) < schema.get("minItems", 0):
        text = f"Invalid value: {len(value)}: {path} in body should have at least {schema['minItems']} items"
        yield cause(path, text)
    if schema.get("uniqueItems") or schema.get("x-kubernetes-list-type") == "set":
        yield from _duplicates(value, value, path)
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys and schema.get("x-kubernetes-list-type") == "map":
        yield from _duplicates(value, [[i.get(k) for k in keys] if isinstance(i, dict) else i for i in value], path)
    for i, item in enumerate(value):
        yield from faults(item, schema.get("items") or {}, f"{path}[{i}]")


def _duplicates(value: list[Any], identities: list[Any], path: str) -> Iterator[Fault]:
    for i, identity in enumerate(identities):
        if identity in identities[:i]:
            yield cause(f"{path}[{i}]", f"Duplicate value: {value[i]!r}", "FieldValueDuplicate")


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _text_faults(value: str, schema: Schema, where: str) -> Iterator[Fault]:
    if len(value) > schema.get("maxLength", len(value)):
        yield cause(where, f"Too long: may not be more than {schema['maxLength']} bytes", "FieldValueTooLong")
        return
    if len(value) < schema.get("minLength", 0):
        text = f'Invalid value: "{value}": {where} in body should be at least {schema["minLength"]} chars long'
        yield cause(where, text)
    pattern = schema.get("pattern")
    if pattern and not _pattern(pattern).search(value):
        yield cause(where, f"Invalid value: \"{value}\": {where} in body should match '{pattern}'")
    expected = _FORMATS.get(schema.get("format", ""))
    if expected and not _pattern(expected).fullmatch(value):
        text = f'Invalid value: "{value}": {where} in body must be of type {schema["format"]}: "{value}"'
        yield cause(where, text, "FieldValueTypeInvalid")


def _number_faults(value: float, schema: Schema, where: str) -> Iterator[Fault]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (value == low and schema.get("exclusiveMinimum") is True)):
        bound = "greater than" if schema.get("exclusiveMinimum") is True else "greater than or equal to"
        yield cause(where, f"Invalid value: {value}: {where} in body should be {bound} {low}")
    if high is not None and (value > high or (value == high and schema.get("exclusiveMaximum") is True)):
        bound = "less than" if schema.get("exclusiveMaximum") is True else "less than or equal to"
        yield cause(where, f"Invalid value: {value}: {where} in body should be {bound} {high}")
    step = schema.get("multipleOf")
    if step and value % step:
        yield cause(where, f"Invalid value: {value}: {where} in body should be a multiple of {step}")


def _combined_faults(value: Any, schema: Schema, path: str) -> Iterator[Fault]:
    where = path or "<root>"
    for part in schema.get("allOf") or ():
        yield from faults(value, part, path)
    fitting = [not any(faults(value, part, path)) for part in schema.get("anyOf") or ()]
    if fitting and not any(fitting):
        yield cause(where, "Invalid value: must validate at least one schema (anyOf)")
    exact = [not any(faults(value, part, path)) for part in schema.get("oneOf") or ()]
    if exact and sum(exact) != 1:
        count = f"Found {sum(exact)} valid alternatives" if any(exact) else "Found none valid"
        text = f'"{where}" must validate one and only one schema (oneOf). {count}'
        yield cause("<nil>", f'Invalid value: "": {text}')
        if not any(exact):
            yield from faults(value, schema["oneOf"][0], path)
    if "not" in schema and not any(faults(value, schema["not"], path)):
        yield cause(where, "Invalid value: must not validate the schema (not)")
