"""OpenAPI v3, enough for `kubectl explain`, `--validate` and `--dry-run=server`; of v2 the definitions.

kubectl needs those of v2 to check lists. Custom resources show the schema of their definition, built-in kinds the one
that Kubernetes publishes.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from providers.sim.apiserver.gnostic import gnostic_document
from providers.sim.store import Resource
from providers.sim.store.published import definition_of, definitions, reachable

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_PERMISSIVE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_STRATEGIC = "application/strategic-merge-patch+json"
_V2_REF = "#/definitions/"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_INFO = {"title": "Kubernetes", "version": "v1.36.2"}


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

    kubectl does for every `kind: List`, which has no OpenAPI v3 entry of its own (`queryParamVerifierV3.HasSupport`),
    and then checks the objects of the list itself.
    """
    return "proto-openapi.spec.v2" in accept and "application/json" not in accept


@cache
def v2() -> Schema:
    """The v2 document: the definitions of the built-in kinds, and no paths."""
    shown = {name: _referring(schema, _V2_REF) for name, schema in definitions().items()}
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": shown}


@cache
def v2_protobuf() -> bytes:
    """`v2()` as the `Document` of gnostic's OpenAPIv2.proto."""
    return gnostic_document(v2())


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


def _builtin_components(resource: Resource) -> tuple[str, dict[str, Schema]]:
    name = definition_of(resource.api_version, resource.kind)
    if not name:
        name = f"muster.{resource.key}.{resource.kind}"
        return name, {name: {**_PERMISSIVE, "x-kubernetes-group-version-kind": [_gvk(resource)]}}
    return name, {needed: _referring(definitions()[needed], _REF) for needed in reachable(name)}


def _referring(schema: Any, prefix: str) -> Any:
    """A published schema whose references begin with `prefix`, and whose quantities are one type."""
    if isinstance(schema, list):
        return [_referring(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema.get("type"), list):
        number = "integer" in schema["type"]
        kind = {"format": "int-or-string"} if number else {}
        return {**schema, "type": "string", **kind, **({"x-kubernetes-int-or-string": True} if number else {})}
    result = {key: _referring(below, prefix) for key, below in schema.items()}
    if isinstance(schema.get("$ref"), str):
        result["$ref"] = schema["$ref"].replace("#/$defs/", prefix)
    return result


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
