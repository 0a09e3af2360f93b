"""The documents that describe the kinds, and what they find unknown."""

from typing import Any

import pytest

from providers.sim.apiserver.decoding import FieldCheck
from providers.sim.apiserver.openapi import document
from providers.sim.store import Resource, StoreBadRequest
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
    crd = {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": {}, "spec": {"versions": [version]}}
    check = FieldCheck("Warn")
    check.of_body(CRDS, crd, b"{}")
    where = "spec.versions[0].schema.openAPIV3Schema.properties.x"
    assert check.warnings == [f'unknown field "{where}.{path}"' for path in found]
    if found:
        with pytest.raises(StoreBadRequest, match="strict decoding error"):
            FieldCheck("Strict").of_body(CRDS, crd, b"{}")


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("PodDisruptionBudget", "PodDisruptionBudgetSpec.minAvailable", "IntOrString"),
        ("CustomResourceDefinition", "JSONSchemaProps.maximum", {"type": "number", "format": "double"}),
        ("CustomResourceDefinition", "JSONSchemaProps.not", "JSONSchemaProps"),
    ],
)
def test_fields_of_several_types(kind: str, path: str, expected: dict[str, Any] | str) -> None:
    resource, (model, field) = RESOURCES[kind], path.split(".")
    schemas = document(resource.api_version, [resource])["components"]["schemas"]
    shown = next(body for name, body in schemas.items() if name.endswith(f".{model}"))["properties"][field]
    if isinstance(expected, str):
        reference = shown["$ref"].removeprefix("#/components/schemas/")
        assert reference.endswith(f".{expected}")
        assert reference in schemas
    else:
        assert {key: value for key, value in shown.items() if key != "description"} == expected


def test_a_number_or_a_text_is_said_to_be_either() -> None:
    schemas = document("policy/v1", [RESOURCES["PodDisruptionBudget"]])["components"]["schemas"]
    either = schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
    assert (either["format"], either["x-kubernetes-int-or-string"]) == ("int-or-string", True)


def test_bytes_are_base64() -> None:
    secret = document("v1", [RESOURCES["Secret"]])["components"]["schemas"]["io.k8s.api.core.v1.Secret"]
    assert secret["properties"]["data"]["additionalProperties"] == {"type": "string", "format": "byte"}


def fields(message: bytes) -> dict[int, bytes]:
    """The length-delimited fields of a protobuf message; of a repeated one the last."""
    found = {}
    while message:
        tag, message = varint(message)
        assert tag & 7 == 2
        length, message = varint(message)
        found[tag >> 3], message = message[:length], message[length:]
    return found


def varint(message: bytes) -> tuple[int, bytes]:
    number, shift = 0, 0
    for i, byte in enumerate(message):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, message[i + 1 :]
        shift += 7
    raise AssertionError("cut off")


def test_v2_is_there_in_both_forms(http_client: Any) -> None:
    """kubectl asks for protobuf, and nothing else, before it sends a `kind: List`."""
    response = http_client.send("GET", "/openapi/v2", Accept=V2)
    assert (response.status, response.headers["Content-Type"]) == (200, V2.replace("@", "."))
    document = fields(response.read())
    assert document[1] == b"2.0"
    plain = http_client.get("/openapi/v2", Accept=f"application/json, {V2}")
    assert plain == http_client.get("/openapi/v2")
    assert fields(document[2]) == {1: plain["info"]["title"].encode(), 2: plain["info"]["version"].encode()}
