"""The schemas that Kubernetes publishes of its own kinds: how fields merge, which there are, and of which type.

`published.json.gz` has the OpenAPI definitions of 1.36 with their merge keys (`tools/kubernetes_schemas.py` writes it).
They are asked by compiled validators (jsonschema-rs): one that knows every field says in a microsecond that nothing is
wrong, and only an object it does not like is looked at closely.
"""

import gzip
import importlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

Schema = dict[str, Any]
_FILE: Final = Path(__file__).with_name("published.json.gz")
_REF: Final = "#/$defs/"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_QUANTITY_FORM: Final = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_PROPS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
# What stands in a JSON schema where a schema could: nothing else is published of these.
_EITHER: Final[dict[str, Schema]] = {
    "JSONSchemaPropsOrArray": {"type": ["array", "null"], "items": {"$ref": f"{_REF}{_PROPS}"}},
    "JSONSchemaPropsOrBool": {"type": ["boolean", "null"]},
    "JSONSchemaPropsOrStringArray": {"type": ["array", "null"], "items": {"type": "string"}},
}
_BOUNDS: Final = {"int32": 2**31, "int64": 2**63}


class SchemaFault(Protocol):
    """What a compiled validator finds."""

    @property
    def kind(self) -> Any:
        """Which rule is broken."""
        ...

    @property
    def instance(self) -> Any:
        """The value that breaks it."""
        ...

    @property
    def instance_path(self) -> list[str | int]:
        """Where that value is."""
        ...

    @property
    def schema_path(self) -> list[str | int]:
        """Where the rule is."""
        ...


class CompiledValidator(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: Any) -> bool:
        """Whether nothing is wrong."""
        ...

    def iter_errors(self, instance: Any) -> Iterator[SchemaFault]:
        """Everything that is."""
        ...


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(_FILE.read_bytes()))
    return document


def definitions() -> dict[str, Schema]:
    """Every definition by name, such as `io.k8s.api.core.v1.Pod`."""
    found: dict[str, Schema] = _document()["definitions"]
    return found


def definition_of(api_version: str, kind: str) -> str:
    """The name of the definition of a kind; empty when none is published."""
    name: str = _document()["kinds"].get(f"{api_version}/{kind}", "")
    return name


def resolved(schema: Schema) -> Schema:
    """The schema that `schema` refers to, or itself."""
    reference = schema.get("$ref")
    return definitions()[reference.removeprefix(_REF)] if reference else schema


@cache
def reachable(name: str) -> tuple[str, ...]:
    """The definition of that name and every one that it refers to."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found[here] = None
            waiting += _references(definitions()[here])
    return tuple(found)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(_REF)
        for below in schema.values():
            yield from _references(below)


@cache
def validator(name: str) -> CompiledValidator:
    """The validator of a definition: the types, numbers and dates of every field, and no field that is not there.

    As in the decoding of the API server null stands for nothing, and nothing is required.
    """
    compiled: CompiledValidator = importlib.import_module("jsonschema_rs").validator_for(
        {"$ref": f"{_REF}{name}", "$defs": _decodable()}, validate_formats=True
    )
    return compiled


@cache
def _decodable() -> dict[str, Schema]:
    return {name: _as_decoded(schema, name) for name, schema in definitions().items()}


def _as_decoded(schema: Schema, name: str = "") -> Schema:
    """A definition as the decoder reads it."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    either = _EITHER.get(name.rpartition(".")[2])
    if either is not None:
        return {"if": {"type": "object"}, "then": {"$ref": f"{_REF}{_PROPS}"}, "else": either}
    result: Schema = {}
    kinds = schema.get("type")
    if kinds is not None:
        result["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
    if name == _QUANTITY:
        result["pattern"] = _QUANTITY_FORM
    if schema.get("format") == "date-time":
        result["format"] = "date-time"
    bound = _BOUNDS.get(schema.get("format", ""))
    if bound and kinds == "integer":
        result |= {"minimum": -bound, "maximum": bound - 1}
    if "properties" in schema:
        result["properties"] = {field: _as_decoded(below) for field, below in schema["properties"].items()}
        result["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _as_decoded(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = _as_decoded(schema["items"])
    return result


def without_nothing(obj: Any, name: str) -> Any:
    """An object of that definition as Go decodes and encodes it: null is nothing, and empty collections go.

    In a map of texts null is an empty text.
    """
    return _some(obj, {"$ref": f"{_REF}{name}"})


def _some(value: Any, schema: Any) -> Any:
    body = resolved(schema) if isinstance(schema, dict) else {}
    if isinstance(value, list):
        items = body.get("items")
        return [_some(item, items) if isinstance(item, dict | list) else item for item in value]
    if not isinstance(value, dict):
        return value
    known, extra = body.get("properties") or {}, body.get("additionalProperties")
    texts = isinstance(extra, dict) and extra.get("type") == "string"
    if not known and not isinstance(extra, dict):
        return value
    kept: dict[str, Any] = {}
    for key, below in value.items():
        if below is None:
            if texts and key not in known:
                kept[key] = ""
        elif not isinstance(below, dict | list):
            kept[key] = below
        elif below or not _is_left_out(key, below, body):
            kept[key] = _some(below, known.get(key, extra))
    return kept


def _is_left_out(field_name: str, value: Any, body: Any) -> bool:
    """Whether Go leaves an empty list or map of this field out (`omitempty`): those that are not required."""
    if value not in ({}, []) or field_name in (body.get("required") or ()):
        return False
    declared = (body.get("properties") or {}).get(field_name) or {}
    return declared.get("type") == "array" or isinstance(declared.get("additionalProperties"), dict)


class PublishedShape:
    """How one field of a built-in kind merges, as `listkeys.MergeShape`; made by `published_shape`, one for each."""

    __slots__ = ("_children", "_item", "_schema", "atomic_map", "is_set", "keys", "retains_keys", "strategic_key")

    def __init__(self, schema: Schema) -> None:
        body = resolved(schema)
        self._schema = body
        self._children: dict[str, PublishedShape] = {}
        self._item: PublishedShape | None = None
        words = {**body, **schema}
        named = tuple(words.get("x-kubernetes-list-map-keys") or ())
        kind = words.get("x-kubernetes-list-type")
        self.keys: tuple[str, ...] | None = named if kind == "map" else None
        self.is_set = kind == "set"
        self.atomic_map = words.get("x-kubernetes-map-type") == "atomic"
        strategy = str(words.get("x-kubernetes-patch-strategy", ""))
        self.strategic_key: str | None = words.get("x-kubernetes-patch-merge-key")
        self.retains_keys = "retainKeys" in strategy
        if "merge" in strategy.split(",") and self.strategic_key is None:
            self.is_set = True

    def child(self, field: str) -> "PublishedShape":
        """See `MergeShape`."""
        found = self._children.get(field)
        if found is None:
            extra = self._schema.get("additionalProperties")
            below = (self._schema.get("properties") or {}).get(field) or (extra if isinstance(extra, dict) else {})
            found = self._children[field] = PublishedShape(below)
        return found

    def item(self) -> "PublishedShape":
        """See `MergeShape`."""
        if self._item is None:
            self._item = PublishedShape(self._schema.get("items") or {})
        return self._item

    def default(self, field: str) -> Any:
        """What a key field is when an item leaves it out."""
        found = resolved((self._schema.get("properties") or {}).get(field) or {})
        return found.get("default")


@cache
def published_shape(name: str) -> PublishedShape:
    """The shape of a whole object of that definition."""
    return PublishedShape({"$ref": f"{_REF}{name}"})
