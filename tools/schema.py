"""JSON Schema of the kinds, for editors and for other tools: `python -m tools.schema schemas` writes the files.

An editor with yaml-language-server checks a file whose first line is
`# yaml-language-server: $schema=<path to>/schemas/fleet.json`.

The texts below the fields are read from the source. Pydantic could collect them (`use_attribute_docstrings`), at 30 ms
for every start of the command line.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from model.kinds import KINDS, Declaration
from model.kinds.base import Spec, format_duration
from model.upstream.manifests import UPSTREAM_KINDS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


ALL_KINDS: tuple[type[Declaration], ...] = (*KINDS, *UPSTREAM_KINDS)
"""Every form in which a document may be written."""


class _WithDocstrings(GenerateJsonSchema):
    """Describes every property by the docstring below its field, and what to do instead of an unsupported one."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described, cls = super().model_schema(schema), schema["cls"]
        properties = described.setdefault("properties", {})
        for key, text in field_docstrings(cls).items():
            properties.get(key, {})["description"] = text
        if issubclass(cls, Spec):
            for key, advice in sorted(cls.unsupported.items()):
                properties[key] = {"not": {}, "description": f"Not supported. {advice[0].upper()}{advice[1:]}."}
            properties |= {key: {"description": f"Left aside: {cls.ignored_as}."} for key in sorted(cls.ignored)}
        return described


def schemas() -> Mapping[str, str]:
    """File name -> content: one schema a kind, and `fleet.json` for a document of any kind."""
    one_each = {f"{kind.__name__.lower()}.json": _render(schema_of(kind)) for kind in ALL_KINDS}
    return one_each | {"fleet.json": _render(_of_any())}


def schema_of(kind: type[Declaration]) -> dict[str, Any]:
    """The JSON Schema of one kind."""
    schema = kind.model_json_schema(by_alias=True, schema_generator=_WithDocstrings)
    _require_kind(schema)
    return _finish(kind.__name__, schema)


def _of_any() -> dict[str, Any]:
    """Any one of them: `apiVersion` and `kind` say which."""
    inputs: list[tuple[type[Declaration], Literal["validation"]]] = [(kind, "validation") for kind in ALL_KINDS]
    references, schema = models_json_schema(inputs, by_alias=True, schema_generator=_WithDocstrings)
    for kind in ALL_KINDS:
        _require_kind(schema["$defs"][kind.__name__])
    one_of = [references[kind, "validation"] for kind in ALL_KINDS]
    return _finish("A declaration of a Muster fleet", schema | {"oneOf": one_of})


def _finish(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": _DIALECT, **_tidy(schema), "title": title}


def _require_kind(schema: dict[str, Any]) -> None:
    """`kind` has a default in code, but every document must say it."""
    schema["properties"]["kind"] = {"const": schema["properties"]["kind"]["const"], "type": "string"}
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


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """YAML key -> docstring of the fields of `model`, its own before those it inherits."""
    named: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            named |= _attribute_docstrings(cls.__module__).get(cls.__name__, {})
    return {field.alias or name: named[name] for name, field in model.model_fields.items() if name in named}


@cache
def _attribute_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Class -> attribute -> the text that stands below it."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_pairs(node)) for node in classes}


def _pairs(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text(below)):
            yield field.target.id, inspect.cleandoc(text)


def _text(node: ast.stmt) -> str:
    value: Any = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def main(folder: str) -> None:
    """Writes every schema below `folder`."""
    for name, content in schemas().items():
        (Path(folder) / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
