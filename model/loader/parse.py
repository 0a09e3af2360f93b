"""YAML text -> documents, on libyaml's event stream: no recursion, no object construction, every limit checked."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from yaml import (
    AliasEvent,
    DocumentEndEvent,
    MappingEndEvent,
    MappingStartEvent,
    MarkedYAMLError,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    YAMLError,
)
from yaml._yaml import CParser

from model.loader.foreign import looks_like_a_template
from model.loader.scalars import resolve
from model.loader.source import SourceFile
from model.loader.tree import Document, YamlNode
from model.problem import Code, Problem

_COLLECTION_STARTS = (MappingStartEvent, SequenceStartEvent)
_COLLECTION_ENDS = (MappingEndEvent, SequenceEndEvent)
_VALUES = (ScalarEvent, AliasEvent, *_COLLECTION_STARTS)


_NO_MAPPING = "a document must be a mapping with apiVersion, kind and metadata"


class LoaderLimits(NamedTuple):
    """What a repository may ask of the loader; far above any real fleet."""

    file_bytes: int = 1 << 20
    total_bytes: int = 16 << 20
    documents: int = 10_000
    depth: int = 32
    values: int = 100_000
    """Values in one document, aliases expanded."""
    total_values: int = 2_000_000
    """Values in all documents together, aliases expanded."""


DEFAULT_LIMITS = LoaderLimits()


class _Refused(Exception):
    """Something this reader does not accept, at a place."""

    def __init__(self, line: int, column: int, message: str, code: Code = Code.YAML_SYNTAX) -> None:
        self.args = (line, column, message, code)


@dataclass(slots=True)
class _Frame:
    """A collection that is still open, and the key whose value comes next."""

    node: YamlNode
    key: YamlNode | None = None
    merges: list[YamlNode] | None = None


def parse(source: SourceFile, limits: LoaderLimits = DEFAULT_LIMITS) -> tuple[list[Document], list[Problem]]:
    """The documents of a file, and its problems. Empty documents are left out.

    A duplicate key costs only its value, a document that is no mapping only itself; anything else ends the file.
    """
    documents: list[Document] = []
    problems: list[Problem] = []

    def report(refused: _Refused) -> None:
        line, column, message, code = refused.args
        problems.append(source.problem(line, column, message, code))

    try:
        for builder in _documents(source.text, limits):
            for refused in builder.refused:
                report(refused)
            root = builder.root
            if root is not None and isinstance(root.data, dict):
                documents.append(Document(source, root))
            elif root is not None and root.data is not None:
                report(_Refused(root.line, root.column, _NO_MAPPING, Code.NOT_A_DECLARATION))
    except _Refused as refused:
        report(refused)
    except YAMLError as error:
        problems.append(_syntax_problem(source, error))
    return documents, problems


def _syntax_problem(source: SourceFile, error: YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if line > len(source.lines):  # libyaml counts the end of the text as a line of its own
        line, column = len(source.lines), len(source.lines[-1]) + 1
    text = str(error.problem or error.context) if isinstance(error, MarkedYAMLError) else str(error)
    if source.lines[line - 1][column - 1 : column] == "\t":
        return source.problem(line, column, "a tab cannot indent", Code.YAML_SYNTAX, hint="use spaces")
    hint = _TEMPLATE_HINT if looks_like_a_template(source.text) else _syntax_hint(text, error)
    return source.problem(line, column, f"not YAML here: {text}", Code.YAML_SYNTAX, hint=hint)


_TEMPLATE_HINT = "this looks like a template of Helm: render it, or keep it outside the fleet's folder"


def _syntax_hint(text: str, error: YAMLError) -> str:
    if "mapping values are not allowed" in text:
        return "a ': ' inside text needs quotes, or the line above is not closed"
    start, context = getattr(error, "context_mark", None), getattr(error, "context", None)
    return f"{context} that starts in line {start.line + 1}, column {start.column + 1}" if start and context else ""


def _documents(text: str, limits: LoaderLimits) -> Iterator["_Builder"]:
    """Each document when it is complete."""
    next_event = CParser(text).get_event
    builder = _Builder(limits)
    while True:
        event = next_event()
        kind = type(event)
        if kind in _VALUES or kind in _COLLECTION_ENDS:
            builder.take(event)
        elif kind is DocumentEndEvent:
            yield builder
            builder = _Builder(limits)
        elif kind is StreamEndEvent:
            return


class _Builder:
    """Assembles the tree of one document from events."""

    def __init__(self, limits: LoaderLimits) -> None:
        self.root: YamlNode | None = None
        self.refused: list[_Refused] = []
        self._limits = limits
        self._open: list[_Frame] = []
        self._anchors: dict[str, YamlNode] = {}
        self._weight = 0

    def take(self, event: Any) -> None:
        """Takes one event of libyaml inside the document."""
        kind = type(event)
        if kind in _COLLECTION_ENDS:
            self._close()
            return
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if kind is AliasEvent:
            self._attach(self._alias(event.anchor, line, column), line, column)
            return
        if event.tag is not None:
            raise _Refused(line, column, f"the tag {_short(event.tag)} is not read; quote the value if it is text")
        node = _scalar(event, line, column) if kind is ScalarEvent else self._start(kind, line, column)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        if kind is ScalarEvent:
            self._attach(node, line, column)
        else:
            self._open.append(_Frame(node))

    def _start(self, kind: type, line: int, column: int) -> YamlNode:
        if len(self._open) >= self._limits.depth:
            raise _Refused(line, column, f"nested deeper than {self._limits.depth} levels", Code.TOO_LARGE)
        if self._open and isinstance(self._open[-1].node.data, dict) and self._open[-1].key is None:
            raise _Refused(line, column, "a key must be text, not a collection")
        node = YamlNode({} if kind is MappingStartEvent else [], line, column)
        node.children = {} if kind is MappingStartEvent else []
        return node

    def _alias(self, anchor: str, line: int, column: int) -> YamlNode:
        node = self._anchors.get(anchor)
        if node is None:
            raise _Refused(line, column, f"the alias *{anchor} has no anchor before it in this document")
        if any(frame.node is node for frame in self._open):
            raise _Refused(line, column, f"the alias *{anchor} would contain itself")
        if len(self._open) + node.height > self._limits.depth:
            raise _Refused(line, column, f"nested deeper than {self._limits.depth} levels", Code.TOO_LARGE)
        self._weight += node.weight
        self._check_weight(line, column)
        return node

    def _check_weight(self, line: int, column: int) -> None:
        if self._weight > self._limits.values:
            message = f"the document has more than {self._limits.values} values, aliases expanded"
            raise _Refused(line, column, message, Code.TOO_LARGE)

    def _close(self) -> None:
        frame = self._open.pop()
        if frame.merges:
            for merged in frame.merges:
                _merge(frame.node, merged)
        self._attach(frame.node, frame.node.line, frame.node.column)

    def _attach(self, node: YamlNode, line: int, column: int) -> None:
        """Puts a finished value where it belongs: root, list item, key, or value of the pending key."""
        self._weight += 1
        if self._weight > self._limits.values:
            self._check_weight(line, column)
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        parent = frame.node
        if isinstance(parent.children, list):
            parent.children.append(node)
            parent.data.append(node.data)
        elif frame.key is None:
            frame.key = _as_key(node, line, column)
            return
        else:
            self._put(frame, frame.key, node)
            frame.key = None
        parent.weight += node.weight
        if node.height >= parent.height:
            parent.height = node.height + 1

    def _put(self, frame: _Frame, key: YamlNode, node: YamlNode) -> None:
        """A value under its key; the first of two equal keys stays, so that the rest is still checked."""
        children, text = frame.node.children, str(key.data)
        if not isinstance(children, dict):
            raise TypeError("only a mapping has keys")
        if key.plain == "<<":
            frame.merges = [*(frame.merges or ()), *_merge_sources(node)]
        elif text in children:
            first = children[text][0]
            message = f"the key {text!r} is already given in line {first.line}, column {first.column}"
            self.refused.append(_Refused(key.line, key.column, message, Code.DUPLICATE_KEY))
        else:
            children[text] = (key, node)
            frame.node.data[text] = node.data


def _scalar(event: Any, line: int, column: int) -> YamlNode:
    if event.implicit[0] and not event.style:
        return YamlNode(resolve(event.value), line, column, plain=event.value)
    return YamlNode(event.value, line, column)


def _short(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _as_key(node: YamlNode, line: int, column: int) -> YamlNode:
    """A key is the text that was written, whatever it looks like."""
    if node.children is not None:
        raise _Refused(line, column, "a key must be text, not a collection")
    text = node.data if node.plain is None else node.plain
    if text == "":
        raise _Refused(line, column, "a key is empty")
    return YamlNode(text, line, column, plain=node.plain)


def _merge_sources(node: YamlNode) -> list[YamlNode]:
    sources = node.children if isinstance(node.children, list) else [node]
    for source in sources:
        if not isinstance(source.children, dict):
            raise _Refused(node.line, node.column, "the merge key << takes a mapping or a list of mappings")
    return list(sources)


def _merge(into: YamlNode, source: YamlNode) -> None:
    """YAML 1.1 merge: keys that are there win, earlier sources over later ones."""
    if isinstance(into.children, dict) and isinstance(source.children, dict):
        for name, pair in source.children.items():
            if name not in into.children:
                into.children[name] = pair
                into.data[name] = pair[1].data
