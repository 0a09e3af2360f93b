"""Sets of fields, as server-side apply owns them: paths like ("f:spec", 'k:{"name":"a"}', "f:image").

A set is a frozenset of paths; the wire form is FieldsV1. Source: structured-merge-diff v4 `fieldpath`, `typed`.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from providers.sim.store.errors import StoreBadRequest
from providers.sim.store.listkeys import KEY_DEFAULTS, MergeShape

Path = tuple[str, ...]
Paths = frozenset[Path]
FieldsV1 = dict[str, Any]
_MEMBER: FieldsV1 = {}  # shared by all leaves: wire values are never changed
_DOT: dict[bool, FieldsV1] = {True: {".": _MEMBER}, False: _MEMBER}
_NESTED = (dict, list)
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=1024)
def to_fields_v1(paths: frozenset[Path]) -> FieldsV1:
    """The wire form, shared by its users: nested maps; `.` marks a member that also has members below it."""
    root: FieldsV1 = {}
    for path in sorted(paths):
        root = _with_path(root, path)
    return root


def with_paths(wire: FieldsV1, paths: Iterable[Path]) -> FieldsV1:
    """`wire` with more members; what is not on the way to them is shared."""
    for path in sorted(paths):
        wire = _with_path(wire, path)
    return wire


def _with_path(node: FieldsV1, path: Path) -> FieldsV1:
    element, rest = path[0], path[1:]
    below = node.get(element)
    if not rest:
        return (
            node
            if below is not None and (not below or "." in below)
            else {**node, element: {**(below or {}), **_DOT[bool(below)]}}
        )
    start = below or ({} if below is None else {".": {}})
    return {**node, element: _with_path(start, rest)}


def less_paths(wire: FieldsV1, paths: Iterable[Path]) -> FieldsV1:
    """`wire` with fewer members; the same object when it has none of them."""
    for path in paths:
        wire = _less_path(wire, path)
    return wire


def _less_path(node: FieldsV1, path: Path) -> FieldsV1:
    element, rest = path[0], path[1:]
    below = node.get(element)
    if below is None or (rest and not below):
        return node
    if rest:
        left = _less_path(below, rest)
        if left is below:
            return node
    else:
        left = {key: value for key, value in below.items() if key != "."}
        if below and len(left) == len(below):
            return node
    if left.keys() == {"."}:
        return {**node, element: {}}
    return {**node, element: left} if left else {key: value for key, value in node.items() if key != element}


def fields_v1_of(value: Any, shape: MergeShape) -> FieldsV1:
    """The wire form of every field that `value` sets: `to_fields_v1(paths_of(value, shape))`, in one pass."""
    if isinstance(value, dict):
        if not value or shape.atomic_map:
            return _MEMBER
        return {
            f"f:{key}": fields_v1_of(below, shape.child(key)) if isinstance(below, _NESTED) else _MEMBER
            for key, below in value.items()
        }
    keyed = items_by_element(value, shape) if isinstance(value, list) and value else None
    if keyed is None:
        return _MEMBER
    inner = shape.item()
    return {
        element: {**fields_v1_of(item, inner), ".": _MEMBER} if isinstance(item, dict) and item else _MEMBER
        for element, item in keyed.items()
    }


def shared(wire: FieldsV1) -> FieldsV1:
    """An equal value that all its users share: the pods of a gang differ in names, not in which fields are set."""
    return _shared(_encode(wire))


@lru_cache(maxsize=1024)
def _shared(encoded: bytes) -> FieldsV1:
    wire: FieldsV1 = msgspec.json.decode(encoded)
    return wire


def from_fields_v1(wire: FieldsV1) -> Paths:
    """The set a FieldsV1 value describes."""
    known = _paths_of_wire.get(id(wire))
    if known is not None:
        return known[1]
    if len(_paths_of_wire) >= _MOST_WIRES:
        _paths_of_wire.clear()
    paths = _from_encoded(_encode(wire))
    _paths_of_wire[id(wire)] = wire, paths
    return paths


_MOST_WIRES = 4096
_paths_of_wire: dict[int, tuple[FieldsV1, Paths]] = {}
"""By identity, which the value beside it keeps from being another's: wire values are shared, and never changed."""


@lru_cache(maxsize=1024)
def _from_encoded(encoded: bytes) -> Paths:
    return frozenset(_members(msgspec.json.decode(encoded), ()))


def _members(node: dict[str, Any], path: Path) -> Iterator[Path]:
    for element, below in node.items():
        if element == ".":
            continue
        here = (*path, element)
        if not below or "." in below:
            yield here
        yield from _members(below, here)


def readable(path: Path) -> str:
    """A path as error messages show it: `.spec.containers[name="a"].image`."""
    text = ""
    for element in path:
        if element.startswith("f:"):
            text += f".{element[2:]}"
        elif element.startswith("k:"):
            keys = msgspec.json.decode(element[2:])
            text += "[" + ",".join(f"{name}={_encode(value).decode()}" for name, value in keys.items()) + "]"
        else:
            text += f"[={element[2:]}]"
    return text


def item_element(item: Any, shape: MergeShape) -> str | None:
    """Tells an item of a list by its keys or its value; None where the list is atomic."""
    if shape.is_set:
        return f"v:{_encode_sorted(item).decode()}"
    keys = shape.keys
    if keys is None:
        return None
    if not isinstance(item, dict):
        raise StoreBadRequest(f"an item of a keyed list is not an object: {item!r}")
    known = {key: value for key in keys if (value := item.get(key, KEY_DEFAULTS.get(key))) is not None}
    return f"k:{_encode_sorted(known).decode()}"


def items_by_element(items: list[Any], shape: MergeShape) -> dict[str, Any] | None:
    """The items of a keyed or set list by element, in order; None for an atomic list."""
    if shape.keys is None and not shape.is_set:
        return None
    return {item_element(item, shape) or "": item for item in items}


def paths_of(value: Any, shape: MergeShape) -> Paths:
    """Every field that `value` sets."""
    found: set[Path] = set()
    _collect(value, shape, (), found)
    return frozenset(found)


def _collect(value: Any, shape: MergeShape, path: Path, found: set[Path]) -> None:
    if isinstance(value, dict) and value and not shape.atomic_map:
        for key, below in value.items():
            if isinstance(below, _NESTED):
                _collect(below, shape.child(key), (*path, f"f:{key}"), found)
            else:
                found.add((*path, f"f:{key}"))
        return
    keyed = items_by_element(value, shape) if isinstance(value, list) and value else None
    if keyed is None:
        found.add(path)
        return
    for element, item in keyed.items():
        here = (*path, element)
        found.add(here)
        if isinstance(item, dict) and not shape.item().atomic_map:
            _collect(item, shape.item(), here, found)


class FieldDifference:
    """What changed between two values of one shape, as paths.

    `emptied` are the maps and lists that became empty or ceased to be: nobody's value was overwritten there.
    """

    def __init__(self, before: Any, after: Any, shape: MergeShape) -> None:
        self.written: set[Path] = set()
        self.removed: set[Path] = set()
        self.emptied: set[Path] = set()
        self._compare(before, after, shape, ())

    def _compare(self, before: Any, after: Any, shape: MergeShape, path: Path) -> None:
        if before is after or (before == after and type(before) is type(after)):
            return
        maps = isinstance(before, dict) and isinstance(after, dict) and not shape.atomic_map
        if maps and before and after:
            self._compare_items(before, after, shape, path, prefix="f:")
            return
        if isinstance(before, list) and isinstance(after, list) and before and after:
            old, new = items_by_element(before, shape), items_by_element(after, shape)
            if old is not None and new is not None:
                self._compare_items(old, new, shape, path, prefix="")
                return
        if type(before) is type(after) and isinstance(before, _NESTED) and not (before and after):
            self.emptied.add(path)
        gone, come = _leaves(before, shape, path), _leaves(after, shape, path)
        self.removed |= gone - come
        self.written |= come

    def _compare_items(
        self, before: dict[str, Any], after: dict[str, Any], shape: MergeShape, path: Path, *, prefix: str
    ) -> None:
        for key in before.keys() | after.keys():
            if before.get(key) is after.get(key) is not None:
                continue  # most of what is written again
            below, here = (shape.child(key) if prefix else shape.item()), (*path, f"{prefix}{key}")
            own = set() if prefix else {here}
            if key not in after:
                self.removed |= _leaves(before[key], below, here) | own
            elif key not in before:
                self.written |= _leaves(after[key], below, here) | own
            else:
                self._compare(before[key], after[key], below, here)


def _leaves(value: Any, shape: MergeShape, path: Path) -> set[Path]:
    found: set[Path] = set()
    _collect(value, shape, path, found)
    return found


def merged(live: Any, applied: Any, shape: MergeShape) -> Any:
    """`live` with what `applied` says laid over it; nulls in `applied` say nothing."""
    if isinstance(applied, dict) and isinstance(live, dict) and not shape.atomic_map:
        fresh = {
            key: merged(live.get(key), value, shape.child(key)) for key, value in applied.items() if value is not None
        }
        return {**live, **fresh}
    if isinstance(applied, list) and isinstance(live, list):
        old, new = items_by_element(live, shape), items_by_element(applied, shape)
        if old is not None and new is not None:
            return [*{**old, **{e: merged(old.get(e), item, shape.item()) for e, item in new.items()}}.values()]
    return applied


def without(value: Any, gone: Paths, kept: Paths, shape: MergeShape, path: Path = ()) -> Any:
    """`value` less the fields `gone`. A list item goes whole unless something `kept` is inside; emptied maps go too."""
    if not gone:
        return value
    if isinstance(value, dict) and not shape.atomic_map:
        result = {}
        for key, below in value.items():
            here = (*path, f"f:{key}")
            if here in gone and not _inside(here, kept):
                continue
            left = without(below, gone, kept, shape.child(key), here)
            if left not in ({}, []) or left == below or here in kept:
                result[key] = left
        return result
    keyed = items_by_element(value, shape) if isinstance(value, list) else None
    if keyed is None:
        return value
    result_items = []
    for element, item in keyed.items():
        here = (*path, element)
        if here in gone and not _inside(here, kept):
            continue
        names = {(*here, f"f:{key}") for key in shape.keys or ()}
        result_items.append(without(item, gone - names, kept, shape.item(), here))
    return result_items


def _inside(prefix: Path, paths: Paths) -> bool:
    return any(path[: len(prefix)] == prefix for path in paths)
