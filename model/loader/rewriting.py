"""Changes what a declaration says where it is written, and nothing else of its file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel

from model.fleet import Fleet
from model.kinds import API_VERSION, MigLayout, NodePool
from model.kinds.capacity import DeviceGroup
from model.loader.declarations import Declarations, Declared
from model.loader.load import declared_in, inspect
from model.loader.parse import DEFAULT_LIMITS
from model.loader.source import SourceFile, line_starts
from model.loader.tree import Path, YamlNode

_BOM = "\ufeff"


class NotRewritable(ValueError):
    """The value cannot be changed where it stands without changing more; the message says what to do by hand."""


def with_value(files: Mapping[str, bytes], pool: str, at: Path, value: str, *, cluster: str = "") -> tuple[str, bytes]:
    """Returns the file in which the text at a path of a node pool stands, and its content with another one there.

    `files` and `cluster` are as of `load`. Raises NotRewritable where they declare no such pool, where the text is not
    written as such at its place, or where the change would be more than that of the one value.
    """
    declared = _declared(files, pool, cluster)
    file, changed = _replaced(files, declared, at, value)
    before, after = (inspect(it, cluster=cluster).fleet for it in (files, {**files, file: changed}))
    if before is None or after is None or _differences(before, after) - {("node_pools", pool, *at)}:
        raise NotRewritable(f"the text in {declared.place} stands for more than node pool {pool}: change it by hand")
    return file, changed


@dataclass(frozen=True, slots=True)
class PoolLayouts:
    """`PoolLayouts` are the layouts that a node pool is to have, in its order, and the machines of a fixed one."""

    pool: str
    names: tuple[str, ...]
    replicas: int | None
    """None leaves what the pool says."""
    new: tuple[MigLayout, ...]
    """Those that are not declared yet; they are written behind the pool, in its file."""


_LAYOUTS: Final[Path] = ("spec", "sharing", "mig", "layouts")


def with_layouts(files: Mapping[str, bytes], wanted: PoolLayouts, *, cluster: str = "") -> tuple[str, bytes]:
    """Returns the file in which a node pool names its layouts, and its content with others. Raises as `with_value`."""
    declared = _declared(files, wanted.pool, cluster)
    file, spans = _layout_spans(declared, wanted)
    text = (declared.document.find(_LAYOUTS).source or declared.document.source).text
    for begin, end, said in sorted(spans, reverse=True):
        text = text[:begin] + said + text[end:]
    before = inspect(files, cluster=cluster).fleet
    known = before.mig_layouts if before is not None else {}
    new = [_written(it) for it in wanted.new if known.get(it.name) != it]
    if new:
        text = "\n---\n".join((text.rstrip(), *new)) + "\n"
    changed = (_bom(files[file]) + text).encode()
    loaded = inspect({**files, file: changed}, cluster=cluster)
    if loaded.fleet is None:
        wrong = next(it for it in loaded.problems if it.severity == "error")
        raise NotRewritable(
            f"with other layouts of node pool {wanted.pool} the fleet would be invalid: {wrong.message}"
        )
    if before is None or not _as_wanted(before, loaded.fleet, wanted):
        raise NotRewritable(f"the layouts in {declared.place} stand for more than node pool {wanted.pool}")
    return file, changed


def _written(layout: MigLayout) -> str:
    head = f"apiVersion: {API_VERSION}\nkind: MigLayout\nmetadata:\n  name: {layout.name}\nspec:\n  models:\n"
    return head + "\n".join(
        line for model, groups in layout.spec.models.items() for line in (f"    {model}:", *map(_group, groups))
    )


def _group(group: DeviceGroup) -> str:
    devices = "all" if group.devices == "all" else f"[{', '.join(map(str, group.devices))}]"
    profiles = ", ".join(f"{name}: {count}" for name, count in sorted(group.profiles.items()))
    return f"      - devices: {devices}\n        profiles: {{{profiles}}}"


def _layout_spans(declared: Declared[NodePool], wanted: PoolLayouts) -> tuple[str, list[tuple[int, int, str]]]:
    """Returns the file, and (from, to, text) of what is to be replaced in it."""
    at = declared.document.find(_LAYOUTS)
    source = at.source or declared.document.source
    if not isinstance(at.children, list):
        raise NotRewritable(f"{declared.place} names no layouts: write `sharing.mig.layouts` by hand")
    begin, last = _offset(source, at), at.children[-1]
    end = _offset(source, last) + len(str(last.data))
    block = source.text[begin] == "-"
    if source.text[_offset(source, last)] in {"'", '"'}:
        end += 2
    joint = "\n" + " " * (at.column - 1) + "- "
    said = "- " + joint.join(wanted.names) if block else f"[{', '.join(wanted.names)}]"
    end = end if block else source.text.find("]", end) + 1
    mig = declared.value.spec.sharing.mig
    spans = [(begin, end, said)] if mig is None or wanted.names != mig.layouts else []
    if wanted.replicas is not None and wanted.replicas != declared.value.spec.replicas:
        node = declared.document.find(("spec", "replicas"))
        from_ = _offset(node.source or declared.document.source, node)
        spans.append((from_, from_ + len(str(node.data)), str(wanted.replicas)))
    if any("#" in source.text[from_:to] for from_, to, _ in spans):
        raise NotRewritable(f"there are comments among the layouts in {declared.place}: change them by hand")
    return source.file, spans


def _as_wanted(before: Fleet, after: Fleet, wanted: PoolLayouts) -> bool:
    pool = after.node_pools[wanted.pool]
    ours = {("mig_layouts",), *(("node_pools", wanted.pool, "spec", *it) for it in (_LAYOUTS[1:], ("replicas",)))}
    more = {path for path in _differences(before, after) if not any(path[: len(it)] == it for it in ours)}
    layouts = {**before.mig_layouts, **{it.name: it for it in wanted.new}}
    mig = pool.spec.sharing.mig
    replicas = before.node_pools[wanted.pool].spec.replicas if wanted.replicas is None else wanted.replicas
    return (
        not more
        and after.mig_layouts == layouts
        and mig is not None
        and mig.layouts == wanted.names
        and (pool.spec.replicas == replicas)
    )


def _declared(files: Mapping[str, bytes], pool: str, cluster: str) -> Declared[NodePool]:
    declarations = Declarations()
    problems = list(islice(declared_in(files, DEFAULT_LIMITS, declarations, cluster), 1))
    declared = declarations.node_pools.get(pool)
    if declared is None or any(problem.severity == "error" for problem in problems):
        raise NotRewritable(f"node pool {pool} cannot be read from the branch")
    return declared


def _offset(source: SourceFile, node: YamlNode) -> int:
    return line_starts(source.text)[node.line - 1] + node.column - 1


def _bom(content: bytes) -> str:
    return _BOM if content.startswith(_BOM.encode()) else ""


def _replaced(files: Mapping[str, bytes], declared: Declared[NodePool], at: Path, value: str) -> tuple[str, bytes]:
    node = declared.document.find(at)
    source, old = node.source or declared.document.source, node.data
    begin = _offset(source, node)
    begin += source.text[begin : begin + 1] in {"'", '"'}
    if not isinstance(old, str) or not old or source.text[begin : begin + len(old)] != old:
        raise NotRewritable(f"the value is not written as such in {declared.place}: change it by hand")
    bom = _bom(files[source.file])
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
