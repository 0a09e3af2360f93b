"""The field tables of `docs/kinds/*.md`: `python -m tools.field_tables docs/kinds` rewrites them from the models."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from model.kinds import KINDS, Declaration
from model.upstream.capacity import KueueTopology, ResourceFlavor
from model.upstream.capacity_buffer import CapacityBuffer, CorePodTemplate
from model.upstream.cluster_queue import ClusterQueue
from model.upstream.karpenter import EC2NodeClass, KarpenterNodeOverlay, KarpenterNodePool
from model.upstream.tenancy import AdmissionCheck, Cohort, LocalQueue, WorkloadPriorityClass
from model.upstream.volcano import VolcanoQueue
from tools.schema import schema_of

_END = "<!-- /fields -->"
_ENVELOPE = frozenset({"apiVersion", "kind", "metadata", "status"})
FAMILIES: Mapping[str, tuple[type[Declaration], ...]] = {
    "kueue.md": (
        ClusterQueue,
        Cohort,
        LocalQueue,
        ResourceFlavor,
        KueueTopology,
        WorkloadPriorityClass,
        AdmissionCheck,
    ),
    "volcano.md": (VolcanoQueue,),
    "capacity-buffer.md": (CapacityBuffer, CorePodTemplate),
    "karpenter.md": (KarpenterNodePool, EC2NodeClass, KarpenterNodeOverlay),
}
"""Pages that hold the tables of several kinds: page -> kinds. Every kind of ours has a page of its own."""
_HEAD = "| field | type | default | meaning |\n|---|---|---|---|\n"


class Field(NamedTuple):
    """One line of a table."""

    path: str
    type: str
    default: str
    meaning: str


def fields_of(kind: type[Declaration]) -> Iterator[Field]:
    """Every field beside the envelope, depth first: `spec.gpu.minCount`, `[]` for items, `<key>` of a mapping."""
    schema = schema_of(kind)
    if "spec" in schema["properties"]:
        yield from _fields(schema["properties"]["spec"], "spec", schema["$defs"])
        return
    bare = {name: node for name, node in schema["properties"].items() if name not in _ENVELOPE}
    yield from _fields({"properties": bare, "required": schema["required"]}, "", schema["$defs"])


def _fields(node: dict[str, Any], path: str, defs: dict[str, Any]) -> Iterator[Field]:
    target = _resolve(node, defs)
    required = target.get("required", ())
    for name, child in target.get("properties", {}).items():
        if child.keys() == {"description"}:
            continue  # it is left aside
        below = f"{path}.{name}" if path else name
        default = "required" if name in required else _default(child)
        yield Field(below, _type(child, defs), default, _meaning(child, defs))
        for inner, suffix in _containers(child, defs):
            yield from _fields(inner, below + suffix, defs)


def _resolve(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return dict(defs[node["$ref"].rsplit("/", 1)[1]])
    return node


def _options(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of an optional or union field, without null."""
    return [option for option in node.get("anyOf", [node]) if option.get("type") != "null"]


def _containers(node: dict[str, Any], defs: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """What below `node` has fields of its own, and how the path goes on to it."""
    for option in _options(node):
        target = _resolve(option, defs)
        if "properties" in target:
            yield option, ""
        elif isinstance(target.get("items"), dict):
            yield from ((inner, "[]" + suffix) for inner, suffix in _containers(target["items"], defs))
        elif isinstance(target.get("additionalProperties"), dict):
            yield from (
                (inner, ".<key>" + suffix) for inner, suffix in _containers(target["additionalProperties"], defs)
            )


def _type(node: dict[str, Any], defs: dict[str, Any]) -> str:
    return " or ".join(dict.fromkeys(_one_type(_resolve(option, defs), defs) for option in _options(node)))


_SCALARS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}


def _one_type(node: dict[str, Any], defs: dict[str, Any]) -> str:
    if "not" in node:
        return "error"
    if values := node.get("enum") or ([node["const"]] if "const" in node else None):
        return ", ".join(f"`{value}`" for value in values if value)
    if isinstance(node["type"], list):
        return "quantity"
    if node["type"] == "array":
        return f"list of {_type(node['items'], defs)}"
    if node["type"] == "object":
        return _mapping(node, defs)
    pattern = node.get("pattern", "")
    special = "duration" if "Never" in pattern else "percentage" if "%" in pattern else ""
    return special or _SCALARS[node["type"]] + _range(node)


def _mapping(node: dict[str, Any], defs: dict[str, Any]) -> str:
    values = node.get("additionalProperties")
    if not isinstance(values, dict):
        return "mapping"
    options = {option.get("type") for option in _options(values)}
    return "resource -> quantity" if options == {"string", "number"} else f"mapping of {_type(values, defs)}"


def _range(node: dict[str, Any]) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    above = node.get("exclusiveMinimum")
    if low is not None and high is not None:
        return f", {_plain(low)} to {_plain(high)}"
    if low is not None:
        return f", at least {_plain(low)}"
    return f", more than {_plain(above)}" if above is not None else ""


def _plain(number: float) -> str:
    return str(number).removesuffix(".0")


def _default(node: dict[str, Any]) -> str:
    if "default" not in node:
        return ""
    default = node["default"]
    if isinstance(default, list):
        return f"`[{', '.join(default)}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else str(default).removesuffix('.0')}`"


def _meaning(node: dict[str, Any], defs: dict[str, Any]) -> str:
    text = node.get("description") or next(
        (_resolve(option, defs).get("description", "") for option in _options(node)), ""
    )
    return " ".join(str(text).split()).replace("|", "\\|")


def field_table(kind: type[Declaration]) -> str:
    """The Markdown table of a kind."""
    rows = (f"| `{row.path}` | {row.type} | {row.default} | {row.meaning} |\n" for row in fields_of(kind))
    return _HEAD + "".join(rows)


def page_name(kind: type[Declaration]) -> str:
    """The file name of a kind's own page: `node-pool.md`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower() + ".md"


def with_table(page: str, kind: type[Declaration], *, of: str = "") -> str:
    """`page` with the table between its markers replaced; raises `ValueError` when it has none.

    `of` tells the tables of one page apart: `<!-- fields of ClusterQueue: generated ... -->`.
    """
    start = f"<!-- fields{f' of {of}' if of else ''}: generated by `python -m tools.field_tables docs/kinds` -->"
    before, begin, rest = page.partition(start)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the page of {kind.__name__} lacks the lines {start!r} and {_END!r}")
    return f"{before}{start}\n{field_table(kind)}{_END}{after}"


def with_tables(page: str, kinds: tuple[type[Declaration], ...]) -> str:
    """`page` with the tables of all `kinds` of a family replaced."""
    for kind in kinds:
        page = with_table(page, kind, of=kind.__name__)
    return page


def main(folder: str) -> None:
    """Rewrites the tables of every page below `folder`."""
    for kind in KINDS:
        page = Path(folder) / page_name(kind)
        page.write_text(with_table(page.read_text(encoding="utf-8"), kind), encoding="utf-8")
    for name, kinds in FAMILIES.items():
        page = Path(folder) / name
        page.write_text(with_tables(page.read_text(encoding="utf-8"), kinds), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
