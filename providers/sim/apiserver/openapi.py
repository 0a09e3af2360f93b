"""OpenAPI v3, enough for `kubectl explain`, `--validate` and `--dry-run=server`; of v2 only what says that it is there.

Custom resources show the schema of their definition. The schemas of built-in kinds come from the models of the Python
client, which are generated from the same upstream document; they are only loaded when somebody asks.
"""

import importlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from providers.sim.store import Resource
from providers.sim.store.listkeys import NamedShape, named_shape
from providers.sim.store.schema import unknown_fields

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_PERMISSIVE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO = {"title": "Kubernetes", "version": "v1.36.2"}
V2: Schema = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
"""The v2 document without definitions: a client takes it as having no word on any kind, and leaves it to the server."""


def index(group_versions: Iterable[str], stamp: int) -> dict[str, Any]:
    """The answer of `/openapi/v3`; `stamp` changes whenever a document may have."""
    paths = (("apis/" if "/" in gv else "api/") + gv for gv in group_versions)
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={stamp}"} for path in paths}}


def document(group_version: str, resources: Iterable[Resource]) -> dict[str, Any]:
    """The OpenAPI v3 document of one group and version."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in resources:
        if resource.api_version == group_version:
            name, needed = _components(resource)
            schemas |= needed
            paths |= _paths(resource, name)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def wants_v2_protobuf(accept: str) -> bool:
    """Whether a client asks for v2 as protobuf and nothing else, with either spelling of the media type.

    kubectl does for every `kind: List`, which has no OpenAPI v3 entry of its own (`queryParamVerifierV3.HasSupport`).
    """
    return "proto-openapi.spec.v2" in accept and "application/json" not in accept


def v2_protobuf() -> bytes:
    """`V2` as the `Document` of gnostic's OpenAPIv2.proto: 1 is the version, 2 the `Info` (1 title, 2 version)."""
    info = _proto_field(1, _INFO["title"].encode()) + _proto_field(2, _INFO["version"].encode())
    return _proto_field(1, V2["swagger"].encode()) + _proto_field(2, info)


def _proto_field(number: int, value: bytes) -> bytes:
    """A length-delimited field; both number and length fit in one byte here."""
    return bytes((number << 3 | 2, len(value))) + value


def unknown(resource: Resource, obj: dict[str, Any]) -> Iterator[str]:
    """The fields of `obj` that its schema does not know; nothing when there is no schema."""
    if resource.schema is not None:
        yield from unknown_fields(obj, resource.schema)
        return
    name, schemas = _components(resource)

    def resolved(schema: Schema) -> Schema:
        return schemas[schema["$ref"].removeprefix(_REF)] if "$ref" in schema else schema

    yield from unknown_fields(obj, schemas[name], resolve=resolved, root=False)


def _gvk(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _components(resource: Resource) -> tuple[str, dict[str, Schema]]:
    """The name of the root schema of a resource and every schema it needs."""
    if resource.schema is None:
        return _builtin_components(resource)
    name = ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    known = {**properties, **(resource.schema.get("properties") or {})}
    return name, {name: {**resource.schema, "properties": known, "x-kubernetes-group-version-kind": [_gvk(resource)]}}


@cache
def _builtin_components(resource: Resource) -> tuple[str, dict[str, Schema]]:
    models = importlib.import_module("kubernetes.client.models")
    prefixes = ("CoreV1", "V1") if not resource.group else ("EventsV1", "V1")
    model = next((found for p in prefixes if (found := getattr(models, p + resource.kind, None)) is not None), None)
    if model is None or resource.custom:
        name = f"muster.{resource.key}.{resource.kind}"
        return name, {name: {**_PERMISSIVE, "x-kubernetes-group-version-kind": [_gvk(resource)]}}
    raw = model.model_json_schema(by_alias=True)
    definitions = raw.pop("$defs", {})
    schemas = {f"io.k8s.{name}": _converted(body, resource.kind, "") for name, body in definitions.items()}
    name = f"io.k8s.{model.__name__}"
    schemas[name] = {**_converted(raw, resource.kind, ""), "x-kubernetes-group-version-kind": [_gvk(resource)]}
    return name, schemas


def _converted(schema: Any, kind: str, field: str) -> Schema:
    """A pydantic JSON schema as Kubernetes writes it: no null unions, component references, merge keys."""
    options = [option for option in schema.get("anyOf") or () if option.get("type") != "null"]
    if options:
        text = {"description": schema["description"]} if "description" in schema else {}
        if len(options) > 1:
            return {**text, **_union(frozenset(option.get("type") for option in options))}
        return {**_converted(options[0], kind, field), **text}
    result: Schema = {}
    for key in ("type", "format", "description", "required", "enum"):
        if key in schema:
            result[key] = schema[key]
    if "$ref" in schema:
        result["$ref"] = schema["$ref"].replace("#/$defs/", f"{_REF}io.k8s.")
    if "description" in result:
        result["description"] = str(result["description"]).partition("\n\nAttributes:")[0]
    if "properties" in schema:
        result["properties"] = {name: _converted(below, kind, name) for name, below in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = _converted(schema["additionalProperties"], kind, "")
    elif schema.get("type") == "object" and "properties" not in schema:
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in schema:
        result["items"] = _converted(schema["items"], kind, "")
        result |= _merge_words(named_shape(kind, field))
    if not result.keys() - {"description"}:
        result["x-kubernetes-preserve-unknown-fields"] = True
    return result


_UNIONS: dict[frozenset[str], Schema] = {
    frozenset({"integer", "string"}): {"x-kubernetes-int-or-string": True},
    frozenset({"string"}): {"type": "string", "format": "byte"},  # base64, or the bytes themselves
    frozenset({"integer", "number"}): {"type": "number"},
}
_SCHEMA_PROPS: Schema = {"$ref": f"{_REF}io.k8s.V1JSONSchemaProps"}


def _union(types: frozenset[str]) -> Schema:
    """What the models give several types.

    With a mapping among them it is a JSON schema that stands alone, in a list, or is replaced by a flag or by names
    (`JSONSchemaPropsOrArray`, `...OrBool`, `...OrStringArray`): there the schema says which fields a mapping may have.
    """
    return _UNIONS.get(types, _SCHEMA_PROPS)


def _merge_words(shape: NamedShape) -> Schema:
    if shape.is_set:
        return {"x-kubernetes-patch-strategy": "merge", "x-kubernetes-list-type": "set"}
    if shape.keys is None or shape.strategic_key is None:
        return {"x-kubernetes-list-type": "atomic"}
    return {
        "x-kubernetes-patch-strategy": "merge,retainKeys" if shape.retains_keys else "merge",
        "x-kubernetes-patch-merge-key": shape.strategic_key,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(shape.keys),
    }


def _paths(resource: Resource, schema_name: str) -> dict[str, Any]:
    base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
    collection = (
        f"{base}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"
    )
    operation = {
        "x-kubernetes-group-version-kind": _gvk(resource),
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ],
        "responses": {"200": {"description": "OK"}},
    }
    body = {"schema": {"$ref": f"{_REF}{schema_name}"}}
    types = _PATCHES if resource.custom else (*_PATCHES, _STRATEGIC)

    def taking(action: str, *media: str) -> dict[str, Any]:
        content = {"requestBody": {"content": dict.fromkeys(media, body)}} if media else {}
        return {**operation, "x-kubernetes-action": action, **content}

    return {
        collection: {"get": taking("list"), "post": taking("post", "application/json")},
        f"{collection}/{{name}}": {
            "get": taking("get"),
            "put": taking("put", "application/json"),
            "patch": taking("patch", *types),
            "delete": taking("delete"),
        },
    }
