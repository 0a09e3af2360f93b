"""Changes one value of a declaration where it is written, and nothing else of its file."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel

from model.fleet import Fleet
from model.kinds import NodePool
from model.loader.declarations import Declarations, Declared
from model.loader.load import declared_in, inspect
from model.loader.parse import DEFAULT_LIMITS
from model.loader.source import line_starts
from model.loader.tree import Path

_BOM = "\ufeff"


class NotRewritable(ValueError):
    """The value cannot be changed where it stands without changing more; the message says what to do by hand."""


def with_value(files: Mapping[str, bytes], pool: str, at: Path, value: str, *, cluster: str = "") -> tuple[str, bytes]:
    """Returns the file in which the text at a path of a node pool stands, and its content with another one there.

    `files` and `cluster` are as of `load`. Raises NotRewritable where they declare no such pool, where the text is not
    written as such at its place, or where the change would be more than that of the one value.
    """
    declarations = Declarations()
    problems = list(islice(declared_in(files, DEFAULT_LIMITS, declarations, cluster), 1))
    declared = declarations.node_pools.get(pool)
    if declared is None or any(problem.severity == "error" for problem in problems):
        raise NotRewritable(f"node pool {pool} cannot be read from the branch")
    file, changed = _replaced(files, declared, at, value)
    before, after = (inspect(it, cluster=cluster).fleet for it in (files, {**files, file: changed}))
    if before is None or after is None or _differences(before, after) - {("node_pools", pool, *at)}:
        raise NotRewritable(f"the text in {declared.place} stands for more than node pool {pool}: change it by hand")
    return file, changed


def _replaced(files: Mapping[str, bytes], declared: Declared[NodePool], at: Path, value: str) -> tuple[str, bytes]:
    node = declared.document.find(at)
    source, old = node.source or declared.document.source, node.data
    begin = line_starts(source.text)[node.line - 1] + node.column - 1
    begin += source.text[begin : begin + 1] in {"'", '"'}
    if not isinstance(old, str) or not old or source.text[begin : begin + len(old)] != old:
        raise NotRewritable(f"the value is not written as such in {declared.place}: change it by hand")
    bom = _BOM if files[source.file].startswith(_BOM.encode()) else ""
    return source.file, (bom + source.text[:begin] + value + source.text[begin + len(old) :]).encode()


def _differences(before: Fleet, after: Fleet) -> set[tuple[object, ...]]:
    """Returns the paths of all values that differ, from the table on."""
    return {
        path
        for table in before.__dataclass_fields__
        if table not in _NOT_DECLARED
        for path in _paths(_plain(getattr(before, table)), _plain(getattr(after, table)), (table,))
    }


def _plain(declared: Any) -> Any:
    if isinstance(declared, Mapping):
        return {key: _plain(it) for key, it in declared.items()}
    return declared.model_dump(mode="json", by_alias=True) if isinstance(declared, BaseModel) else declared


def _paths(before: Any, after: Any, at: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key, it in before.items():
            yield from _paths(it, after[key], (*at, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, it in enumerate(before):
            yield from _paths(it, after[index], (*at, index))
    elif before != after:
        yield at


_NOT_DECLARED = frozenset({"digest", "files", "index"})
