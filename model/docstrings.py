"""What the texts below the fields of the kinds say, read from the source only when a schema or a page is written.

Pydantic can collect them itself (`use_attribute_docstrings`), at 30 ms for every start of the command line.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


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
