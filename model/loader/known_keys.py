"""Which keys a place in a declaration may hold, and which model class stands there."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from model.loader.tree import Path


def known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The YAML keys of the mapping at `path` inside a `model`; empty where any key is allowed."""
    return sorted({_alias(cls, name) for cls in models_at(model, path) for name in cls.model_fields})


def models_at(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    """The classes that the mapping at `path` inside a `model` may be held against."""
    here: list[Any] = [model]
    for step in path:
        here = [part for annotation in here for part in _below(annotation, step)]
    return [cls for part in here for cls in _models(part)]


def _alias(cls: type[BaseModel], name: str) -> str:
    return cls.model_fields[name].alias or name


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Model classes that `annotation` may be: itself or a member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if not _is_container(annotation):
        for part in get_args(annotation):
            yield from _models(part)


def _is_container(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", None)
    return origin in {tuple, dict, list}


def _below(annotation: Any, step: str | int) -> Iterator[Any]:
    """The annotations of what `step` leads to."""
    for cls in _models(annotation):
        for name, field in cls.model_fields.items():
            if step in {name, field.alias}:
                yield field.annotation
    for container in _containers(annotation):
        arguments = [part for part in get_args(container) if part is not Ellipsis]
        yield arguments[-1]


def _containers(annotation: Any) -> Iterator[Any]:
    if _is_container(annotation):
        yield annotation
    elif not isinstance(annotation, type):
        for part in get_args(annotation):
            yield from _containers(part)
