"""Changes one value of a declaration where it is written, and nothing else of its file."""

from collections.abc import Mapping
from itertools import islice

from model.fleet import Fleet
from model.kinds import NodePool
from model.loader.declarations import Declarations, Declared
from model.loader.load import declared_in, inspect
from model.loader.parse import DEFAULT_LIMITS
from model.loader.source import line_starts
from model.loader.tree import Path

_BOM = "\ufeff"
_ALIAS: Path = ("spec", "template", "amis", 0, "alias")


class NotRewritable(ValueError):
    """The value cannot be changed where it stands without changing more; the message says what to do by hand."""


def with_alias(files: Mapping[str, bytes], pool: str, alias: str, *, cluster: str = "") -> tuple[str, bytes]:
    """Returns the file that says a pool's alias of images, and its content with another one there.

    `files` and `cluster` are as of `load`. Raises NotRewritable where they declare no such pool, where the alias is
    not written as such at its place, or where the change would be more than that of the one pool.
    """
    declarations = Declarations()
    problems = list(islice(declared_in(files, DEFAULT_LIMITS, declarations, cluster), 1))
    declared = declarations.node_pools.get(pool)
    if declared is None or any(problem.severity == "error" for problem in problems):
        raise NotRewritable(f"node pool {pool} cannot be read from the branch")
    file, changed = _replaced(files, declared, declared.value.spec.template.amis[0].alias, alias)
    before = inspect(files, cluster=cluster).fleet
    after = inspect({**files, file: changed}, cluster=cluster).fleet
    if before is None or after is None or _without(before, pool) != _without(after, pool):
        raise NotRewritable(f"the alias of node pool {pool} stands for more than the pool: change it by hand")
    if after.node_pools[pool].spec.template.amis[0].alias != alias:
        raise NotRewritable(f"the alias of node pool {pool} is not the value in {declared.place}: change it by hand")
    return file, changed


def _replaced(files: Mapping[str, bytes], declared: Declared[NodePool], old: str, new: str) -> tuple[str, bytes]:
    node = declared.document.find(_ALIAS)
    source = node.source or declared.document.source
    at = line_starts(source.text)[node.line - 1] + node.column - 1
    at += source.text[at : at + 1] in {"'", '"'}
    if node.data != old or source.text[at : at + len(old)] != old:
        raise NotRewritable(f"the alias is not written as such in {declared.place}: change it by hand")
    bom = _BOM if files[source.file].startswith(_BOM.encode()) else ""
    return source.file, (bom + source.text[:at] + new + source.text[at + len(old) :]).encode()


def _without(fleet: Fleet, pool: str) -> tuple[object, ...]:
    """Returns all that a fleet declares but for a pool's alias, and the flavor that a pool implies is the same."""
    others = {name: it for name, it in fleet.node_pools.items() if name != pool}
    spec = fleet.node_pools[pool].spec
    own = spec.model_copy(update={"template": spec.template.model_copy(update={"amis": ()})})
    tables = (getattr(fleet, name) for name in fleet.__dataclass_fields__ if name not in _NOT_DECLARED)
    return (*tables, others, own)


_NOT_DECLARED = frozenset({"node_pools", "digest", "files", "index"})
