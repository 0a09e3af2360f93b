"""Holds exchanges to GitHub's own description of its API, `tests/data/github-openapi.json` (OpenAPI 3.0)."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from providers.sim.forge import GitHubExchange

_FILE = Path(__file__).parents[2] / "data" / "github-openapi.json"
_ERRORS = {"400", "401", "403", "404", "422", "429"}
"""What any operation may be answered with, described or not."""
_SOMETIMES_NULL = (("pull-request-simple", "head", "repo"), ("pull-request", "head", "repo"))
"""What is null without being described so: the repository of a head whose fork is deleted."""


def problems(exchange: GitHubExchange) -> Iterator[str]:
    """Everything about an exchange that GitHub's description does not promise."""
    template = _template(exchange)
    if template is None:
        yield f"nobody describes {exchange.method} {exchange.path}"
        return
    operation = description()["paths"][template][exchange.method.lower()]
    yield from _problems_of_query(exchange, operation)
    yield from _problems_of_body(exchange, operation)
    yield from _problems_of_answer(exchange, operation)


def _problems_of_query(exchange: GitHubExchange, operation: Mapping[str, Any]) -> Iterator[str]:
    parameters = [_followed(parameter) for parameter in operation.get("parameters", ())]
    known = {parameter["name"]: parameter for parameter in parameters if parameter["in"] == "query"}
    for name, text in exchange.query.items():
        if name not in known:
            yield f"{exchange.path}: no parameter {name}"
            continue
        schema = known[name]["schema"]
        value = int(text) if schema.get("type") == "integer" else text
        yield from _against(schema, value, f"{exchange.path}?{name}")
    yield from (
        f"{exchange.path}: without {name}"
        for name in known
        if known[name].get("required") and name not in exchange.query
    )


def _problems_of_body(exchange: GitHubExchange, operation: Mapping[str, Any]) -> Iterator[str]:
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
    yield from _against(schema, body, f"{exchange.method} {exchange.path}")
    # GitHub ignores what it does not know, so that a misspelt field would be lost without a word.
    known = _fields(schema)
    yield from (f"{exchange.path}: no field {name}" for name in body if name not in known)


def _problems_of_answer(exchange: GitHubExchange, operation: Mapping[str, Any]) -> Iterator[str]:
    where, status = f"{exchange.method} {exchange.path} {exchange.status}", str(exchange.status)
    if status == "304" and exchange.method == "GET":
        if exchange.body:
            yield f"{where}: a body"
        return
    if status in operation["responses"]:
        content = _followed(operation["responses"][status]).get("content", {})
        schema = content.get("application/json", {}).get("schema")
    elif status in _ERRORS:
        schema = {"$ref": "#/components/schemas/basic-error"}
    else:
        yield f"{where}: not described"
        return
    if schema is not None:
        yield from _against(schema, json.loads(exchange.body), where)


def _against(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    for error in _validator(json.dumps(schema, sort_keys=True)).iter_errors(value):
        yield f"{where}: {'/'.join(map(str, error.instance_path))}: {error.message[:300]}"


@cache
def _validator(schema: str) -> Any:
    whole = {**json.loads(schema), "components": description()["components"]}
    return jsonschema_rs.Draft7Validator(_as_json_schema(whole), validate_formats=True)


@cache
def description() -> dict[str, Any]:
    """GitHub's description, with what it is known to leave out."""
    document: dict[str, Any] = json.loads(_FILE.read_text("utf-8"))
    for name, *path in _SOMETIMES_NULL:
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


def _fields(schema: Mapping[str, Any]) -> set[str]:
    schema = _followed(schema)
    several = (schema.get(kind, ()) for kind in ("oneOf", "anyOf", "allOf"))
    return set(schema.get("properties", ())).union(*(_fields(each) for kind in several for each in kind))


def _followed(node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        _, _, kind, name = node["$ref"].split("/")
        node = description()["components"][kind][name]
    return node


def _template(exchange: GitHubExchange) -> str | None:
    path = unquote(exchange.path)
    fitting = [
        template
        for template, operations in description()["paths"].items()
        if exchange.method.lower() in operations and _pattern(template).fullmatch(path)
    ]
    return min(fitting, key=lambda template: template.count("{"), default=None)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template))
