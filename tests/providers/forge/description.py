"""Holds exchanges to the descriptions of the forges' APIs, `tests/data/*-openapi.json` (OpenAPI 3.0).

GitHub's is its own; of the others see `tools/typed_description.py`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from providers.sim.forge import ForgeExchange

_DATA = Path(__file__).parents[2] / "data"
_ERRORS = {"400", "401", "403", "404", "422", "429", "500"}
"""What any operation may be answered with, described or not."""
_SOMETIMES_NULL = (("pull-request-simple", "head", "repo"), ("pull-request", "head", "repo"))
"""What is null without being described so: the repository of a head whose fork is deleted."""


def problems(exchange: ForgeExchange, forge: str = "github") -> Iterator[str]:
    """Everything about an exchange that a forge's description does not promise."""
    template = _template(exchange, forge)
    if template is None:
        yield f"nobody describes {exchange.method} {exchange.path}"
        return
    operation = description(forge)["paths"][template][exchange.method.lower()]
    yield from _problems_of_query(exchange, operation, forge)
    yield from _problems_of_body(exchange, operation, forge)
    yield from _problems_of_answer(exchange, operation, forge)


def _problems_of_query(exchange: ForgeExchange, operation: Mapping[str, Any], forge: str) -> Iterator[str]:
    parameters = [_followed(parameter, forge) for parameter in operation.get("parameters", ())]
    known = {parameter["name"]: parameter for parameter in parameters if parameter["in"] == "query"}
    for name, text in exchange.query.items():
        if name not in known:
            yield f"{exchange.path}: no parameter {name}"
            continue
        schema = known[name]["schema"]
        yield from _against(forge, schema, _read(text, schema.get("type", "")), f"{exchange.path}?{name}")
    yield from (
        f"{exchange.path}: without {name}"
        for name in known
        if known[name].get("required") and name not in exchange.query
    )


def _read(text: str, kind: str) -> Any:
    if kind in {"integer", "number"}:
        return int(text)
    return {"true": True, "false": False}.get(text, text) if kind == "boolean" else text


def _problems_of_body(exchange: ForgeExchange, operation: Mapping[str, Any], forge: str) -> Iterator[str]:
    described = operation.get("requestBody")
    if described is None:
        if exchange.request_body:
            yield f"{exchange.path}: a body that is not asked for"
        return
    if not exchange.request_body:
        if described.get("required"):
            yield f"{exchange.path}: no body"
        return
    body, schema = json.loads(exchange.request_body), described["content"]["application/json"]["schema"]
    yield from _against(forge, schema, body, f"{exchange.method} {exchange.path}")
    # A forge ignores what it does not know, so that a misspelt field would be lost without a word.
    known = _fields(schema, forge)
    yield from (f"{exchange.path}: no field {name}" for name in body if name not in known)


def _problems_of_answer(exchange: ForgeExchange, operation: Mapping[str, Any], forge: str) -> Iterator[str]:
    where, status = f"{exchange.method} {exchange.path} {exchange.status}", str(exchange.status)
    if status == "304" and exchange.method == "GET":
        if exchange.body:
            yield f"{where}: a body"
        return
    if status in operation["responses"]:
        content = _followed(operation["responses"][status], forge).get("content", {})
        schema = content.get("application/json", {}).get("schema")
    elif status in _ERRORS:
        schema = {"$ref": "#/components/schemas/basic-error"}
    else:
        yield f"{where}: not described"
        return
    if schema is not None:
        yield from _against(forge, schema, json.loads(exchange.body), where)


def _against(forge: str, schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    for error in _validator(forge, json.dumps(schema, sort_keys=True)).iter_errors(value):
        yield f"{where}: {'/'.join(map(str, error.instance_path))}: {error.message[:300]}"


@cache
def _validator(forge: str, schema: str) -> Any:
    whole = {**json.loads(schema), "components": description(forge)["components"]}
    return jsonschema_rs.Draft7Validator(_as_json_schema(whole), validate_formats=True)


@cache
def description(forge: str) -> dict[str, Any]:
    """A forge's description, with what it is known to leave out."""
    document: dict[str, Any] = json.loads((_DATA / f"{forge}-openapi.json").read_text("utf-8"))
    for name, *path in _SOMETIMES_NULL if forge == "github" else ():
        properties = document["components"]["schemas"][name]["properties"]
        *outer, last = path
        for key in outer:
            properties = properties[key]["properties"]
        properties[last] = {"nullable": True, "allOf": [properties[last]]}
    return document


def _as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0 says `nullable` where JSON Schema has a type more."""
    if isinstance(node, list):
        return [_as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {key: _as_json_schema(value) for key, value in node.items()}
    if plain.pop("nullable", False) is True:
        return {"anyOf": [plain, {"type": "null"}]}
    return plain


def _fields(schema: Mapping[str, Any], forge: str) -> set[str]:
    schema = _followed(schema, forge)
    several = (schema.get(kind, ()) for kind in ("oneOf", "anyOf", "allOf"))
    return set(schema.get("properties", ())).union(*(_fields(each, forge) for kind in several for each in kind))


def _followed(node: Mapping[str, Any], forge: str) -> Mapping[str, Any]:
    while "$ref" in node:
        _, _, kind, name = node["$ref"].split("/")
        node = description(forge)["components"][kind][name]
    return node


def _template(exchange: ForgeExchange, forge: str) -> str | None:
    fitting = [
        template
        for template, operations in description(forge)["paths"].items()
        if exchange.method.lower() in operations and _pattern(template).fullmatch(exchange.path)
    ]
    return min(fitting, key=lambda template: template.count("{"), default=None)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """A file's path has slashes where GitHub and Gitea take it; all else is one part of an address."""
    named = re.sub(r"contents/\{(\w+)\}", r"contents/(?P<\1>.+)", template)
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", named))
