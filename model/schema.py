"""JSON Schema of the kinds, for editors and for other tools: `python -m model.schema schemas` writes the files.

An editor with yaml-language-server checks a file whose first line is
`# yaml-language-server: $schema=<path to>/schemas/fleet.json`.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from model.docstrings import field_docstrings
from model.kinds import KINDS, Declaration, Kind
from model.kinds.base import format_duration

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _WithDocstrings(GenerateJsonSchema):
    """Describes every property by the docstring below its field."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        for key, text in field_docstrings(schema["cls"]).items():
            described.get("properties", {}).get(key, {})["description"] = text
        return described


def schemas() -> Mapping[str, str]:
    """File name -> content: one schema a kind, and `fleet.json` for a document of any kind."""
    one_each = {f"{kind.__name__.lower()}.json": _render(schema_of(kind)) for kind in KINDS}
    return one_each | {"fleet.json": _render(_of_any())}


def schema_of(kind: type[Kind]) -> dict[str, Any]:
    """The JSON Schema of one kind."""
    schema = kind.model_json_schema(by_alias=True, schema_generator=_WithDocstrings)
    _require_kind(schema, kind.__name__)
    return _finish(kind.__name__, schema)


def _of_any() -> dict[str, Any]:
    any_kind: Any = Declaration  # a union is a type form, which mypy takes or refuses by the order of its imports
    schema = TypeAdapter[Any](any_kind).json_schema(by_alias=True, schema_generator=_WithDocstrings)
    for kind in KINDS:
        _require_kind(schema["$defs"][kind.__name__], kind.__name__)
    return _finish("A declaration of a Muster fleet", schema)


def _finish(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, **_tidy(schema), "title": title}


def _require_kind(schema: dict[str, Any], name: str) -> None:
    """`kind` has a default in code, but every document must say it."""
    schema["properties"]["kind"] = {"const": name, "type": "string"}
    others = [key for key in schema["required"] if key not in {"apiVersion", "kind"}]
    schema["required"] = ["apiVersion", "kind", *others]


def _tidy(node: Any, *, names: bool = False) -> Any:
    """Without generated titles and defaults that are no YAML scalar; durations as they are written.

    `names`: the keys of `node` are property names, which may well be `title` or `default`.
    """
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if names or key not in {"title", "default", "discriminator"}}
    out = {key: _tidy(value, names=key in {"properties", "$defs"} and not names) for key, value in kept.items()}
    default = None if names else node.get("default")
    if isinstance(default, float):
        out["default"] = format_duration(default) if "Never" in node.get("pattern", "") else default
    elif isinstance(default, str | int) or (
        isinstance(default, list) and all(isinstance(item, str) for item in default)
    ):
        out.update({"default": default} if default not in ("", []) else {})
    return out


def _render(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def main(folder: str) -> None:
    """Writes every schema below `folder`."""
    for name, content in schemas().items():
        (Path(folder) / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
