"""The documents that describe the kinds, and what they find unknown."""

from typing import Any

import pytest

from providers.sim.apiserver.openapi import document, unknown
from providers.sim.store import Resource
from providers.sim.store.builtins import builtin_resources

RESOURCES = {resource.kind: resource for resource in builtin_resources()}
CRDS: Resource = RESOURCES["CustomResourceDefinition"]
V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"items": {"type": "string"}}, []),
        ({"items": {"tpye": "string"}}, ["items.tpye"]),
        ({"items": [{"type": "string"}, {"items": {"enum": ["a"]}}]}, []),
        ({"items": {"items": {"properties": {"tpye": {"tpye": 1}}}}}, ["items.items.properties.tpye.tpye"]),
        ({"additionalProperties": True}, []),
        ({"additionalProperties": {"anyOf": [{"type": "string"}], "x-kubernetes-int-or-string": True}}, []),
        ({"additionalProperties": {"anyOf": [{"tpye": "string"}]}}, ["additionalProperties.anyOf[0].tpye"]),
        ({"not": {"allOf": [{"oneOf": [{"maximum": 1.5}]}]}}, []),
        ({"not": {"allOf": [{"oneOf": [{"max": 1}]}]}}, ["not.allOf[0].oneOf[0].max"]),
        ({"dependencies": {"a": ["b"], "c": {"required": ["d"]}, "e": {"need": []}}}, ["dependencies.e.need"]),
        ({"default": {"any": {"thing": 1}}, "enum": [{"a": 1}], "example": {"b": 2}}, []),
    ],
)
def test_schemas_within_schemas(schema: dict[str, Any], found: list[str]) -> None:
    version = {"name": "v1", "schema": {"openAPIV3Schema": {"properties": {"x": schema}}}}
    paths = unknown(CRDS, {"kind": "CustomResourceDefinition", "metadata": {}, "spec": {"versions": [version]}})
    assert list(paths) == [f"spec.versions[0].schema.openAPIV3Schema.properties.x.{path}" for path in found]


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("PodDisruptionBudget", "V1PodDisruptionBudgetSpec.minAvailable", {"x-kubernetes-int-or-string": True}),
        ("CustomResourceDefinition", "V1JSONSchemaProps.maximum", {"type": "number"}),
        (
            "CustomResourceDefinition",
            "V1JSONSchemaProps.not",
            {"$ref": "#/components/schemas/io.k8s.V1JSONSchemaProps"},
        ),
    ],
)
def test_fields_of_several_types(kind: str, path: str, expected: dict[str, Any]) -> None:
    resource, (model, field) = RESOURCES[kind], path.split(".")
    schemas = document(resource.api_version, [resource])["components"]["schemas"]
    shown = schemas[f"io.k8s.{model}"]["properties"][field]
    assert {key: value for key, value in shown.items() if key != "description"} == expected


def test_bytes_are_base64() -> None:
    secret = document("v1", [RESOURCES["Secret"]])["components"]["schemas"]["io.k8s.V1Secret"]
    assert secret["properties"]["data"]["additionalProperties"] == {"type": "string", "format": "byte"}


def fields(message: bytes) -> dict[int, bytes]:
    """The length-delimited fields of a small protobuf message."""
    found = {}
    while message:
        tag, length = message[0], message[1]
        assert tag & 7 == 2
        found[tag >> 3], message = message[2 : 2 + length], message[2 + length :]
    return found


def test_v2_is_there_in_both_forms(http_client: Any) -> None:
    """kubectl asks for protobuf, and nothing else, before it sends a `kind: List`."""
    response = http_client.send("GET", "/openapi/v2", Accept=V2)
    assert (response.status, response.headers["Content-Type"]) == (200, V2.replace("@", "."))
    document = fields(response.read())
    assert document[1] == b"2.0"
    plain = http_client.get("/openapi/v2", Accept=f"application/json, {V2}")
    assert plain == http_client.get("/openapi/v2")
    assert fields(document[2]) == {1: plain["info"]["title"].encode(), 2: plain["info"]["version"].encode()}
