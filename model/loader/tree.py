"""`YamlNode`: plain data with the place of every value and key.

Data and places are one tree, so that a valid file pays nothing for error messages: a path is looked up only when
something is wrong with it. Aliases share nodes instead of copying them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model.loader.source import SourceFile
from model.problem import Code, Problem, Severity

Path = tuple[str | int, ...]


class YamlNode:
    """A value with its place (from 1); `children` are `(key node, value node)` by key, or value nodes in order."""

    __slots__ = ("children", "column", "data", "height", "line", "plain", "source", "weight")

    def __init__(self, data: Any, line: int, column: int, *, plain: str | None = None) -> None:
        self.data = data
        self.line = line
        self.column = column
        self.plain = plain
        """The text of an unquoted scalar."""
        self.children: dict[str, tuple[YamlNode, YamlNode]] | list[YamlNode] | None = None
        self.source: SourceFile | None = None
        """The file it stands in, where that is not its document's: a patch has put it there."""
        self.height = 0
        self.weight = 1
        """Values below this one, aliases expanded."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document that holds a mapping."""

    source: SourceFile
    root: YamlNode
    parts: Mapping[str, str] = field(default_factory=dict)
    """File -> digest of what it says of this, where patches have changed it; else empty."""

    def find(self, path: Path) -> YamlNode:
        """The value at `path`, or at the deepest part of it that exists."""
        node = self.root
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            node = child
        return node

    def find_key(self, path: Path) -> YamlNode:
        """The key that introduces `path`; where there is none (a list item), the value."""
        parent = self.find(path[:-1])
        if isinstance(parent.children, dict) and path and path[-1] in parent.children:
            return parent.children[str(path[-1])][0]
        return self.find(path)

    def problem(
        self, path: Path, message: str, code: Code, *, hint: str = "", severity: Severity = "error", key: bool = False
    ) -> Problem:
        """A problem with the value at `path` (with `key`, with the key that introduces it)."""
        node = self.find_key(path) if key else self.find(path)
        place = text_path(path)
        source = node.source or self.source
        return source.problem(node.line, node.column, message, code, path=place, hint=hint, severity=severity)


def _child(node: YamlNode, step: str | int) -> YamlNode | None:
    if isinstance(node.children, dict) and isinstance(step, str):
        pair = node.children.get(step)
        return pair[1] if pair else None
    if isinstance(node.children, list) and isinstance(step, int) and 0 <= step < len(node.children):
        return node.children[step]
    return None


def text_path(path: Path) -> str:
    """`spec.budgets[0].nodes`; keys that contain dots or slashes are quoted."""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        elif step and all(char.isalnum() or char in "-_" for char in step):
            out += f".{step}" if out else step
        else:
            out += f'["{step}"]'
    return out
