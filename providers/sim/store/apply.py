"""Who owns which field: `managedFields`, server-side apply and its conflicts.

Source: structured-merge-diff v4 `merge/update.go`; apimachinery `pkg/util/managedfields`; KEP-555. Ownership is kept
only
where it can matter: a write without a manager on an object without owners leaves no trace, and the first apply then
finds the fields owned by `before-first-apply`, as with objects that predate server-side apply.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from providers.sim.store.errors import StoreConflict, cause
from providers.sim.store.fields import (
    FieldDifference,
    FieldsV1,
    Path,
    Paths,
    fields_v1_of,
    from_fields_v1,
    less_paths,
    merged,
    paths_of,
    readable,
    shared,
    to_fields_v1,
    with_paths,
    without,
)
from providers.sim.store.listkeys import MergeShape
from providers.sim.store.objects import Obj, client_metadata

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_MORE_META = ("deletionTimestamp", "deletionGracePeriodSeconds", "generateName")
_UNOWNED_META = frozenset({*_META, *_MORE_META})
_UNOWNED: Paths = frozenset(
    {("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _UNOWNED_META)}
)
_ANONYMOUS, _BEFORE_FIRST = "unknown", "before-first-apply"


class Writer(NamedTuple):
    """Who writes: the manager's name, through which endpoint, in which version, at what time."""

    manager: str
    api_version: str
    time: str
    subresource: str = ""
    operation: str = "Update"

    @property
    def key(self) -> tuple[str, str, str]:
        """Two writes with this in common are one entry of managedFields."""
        return self.manager, self.operation, self.subresource


class _Owner(NamedTuple):
    writer: Writer
    paths: Paths


_Owners = dict[tuple[str, str, str], _Owner]


def updated_ownership(live: Obj, new: Obj, writer: Writer, shape: MergeShape) -> Obj:
    """`new` with the managedFields that follow from an ordinary write over `live` ({} when it is created)."""
    held = (live.get("metadata") or {}).get("managedFields")
    given = new["metadata"].get("managedFields")
    if given == [{}] or (given == [] and held):
        return _with_entries(new, [])  # the documented way to reset ownership
    if not writer.manager and not held:
        return new if given is None else _with_entries(new, [])
    if not live:
        fields = fields_v1_of(_ownable(_scope(new, writer)), shape)
        return _with_entries(new, [_wire_entry(writer, fields)] if fields else [])
    writer = writer if writer.manager else writer._replace(manager=_ANONYMOUS)
    difference = FieldDifference(_scope(live, writer), _scope(new, writer), shape)
    touched, gone = difference.written - _UNOWNED, difference.removed - _UNOWNED
    return _with_entries(new, list(_after_write(held or [], writer, touched, gone)))


def _after_write(
    entries: list[dict[str, Any]], writer: Writer, touched: set[Path], gone: set[Path]
) -> Iterator[dict[str, Any]]:
    """The entries when `writer` has written `touched` and removed `gone`, which nobody else owns any longer."""
    found = False
    for entry in entries:
        mine = _writer(entry).key == writer.key
        found = found or mine
        before = entry.get("fieldsV1") or {}
        fields = less_paths(before, gone if mine else touched | gone)
        if mine and touched:
            yield _wire_entry(writer, with_paths(fields, touched))
        elif fields:
            yield entry if fields is before else {**entry, "fieldsV1": fields}
    if touched and not found:
        yield _wire_entry(writer, to_fields_v1(frozenset(touched)))


def _ownable(obj: Obj) -> Obj:
    """The part of an object that can have owners."""
    meta = {key: value for key, value in obj["metadata"].items() if key not in _UNOWNED_META}
    rest = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    return {"metadata": meta, **rest} if meta else rest


def applied_object(live: Obj, applied: Obj, writer: Writer, shape: MergeShape, *, force: bool) -> Obj:
    """`live` with the configuration `applied` of one manager: merged, what it no longer says removed, owners recorded.

    Conflict, with one cause a field, when it would change what another manager owns and `force` is not set.
    """
    held = (live.get("metadata") or {}).get("managedFields")
    owners = _owners(held or [])
    if live and not owners:
        first = Writer(_BEFORE_FIRST, writer.api_version, writer.time)
        owners = {first.key: _Owner(first, paths_of(_scope(live, first), shape) - _UNOWNED)}
    applied = _scope(_without_nulls(applied), writer)
    if "metadata" in applied:
        applied = {**applied, "metadata": client_metadata(applied["metadata"])}
    mine = paths_of(applied, shape) - _UNOWNED
    before = owners[writer.key].paths if writer.key in owners else frozenset()
    others = {key: owner for key, owner in owners.items() if key != writer.key}
    result = merged(live, applied, shape)
    theirs: Paths = frozenset().union(*(owner.paths for owner in others.values()))
    result = without(result, before - mine - theirs, mine | theirs, shape)
    difference = FieldDifference(_scope(live, writer), _scope(result, writer), shape)
    written = difference.written - difference.emptied
    _refuse_conflicts(others, written, force=force)
    lost = frozenset(written | difference.removed)
    after = {
        key: owner if owner.paths.isdisjoint(lost) else owner._replace(paths=owner.paths - lost)
        for key, owner in others.items()
    }
    same = writer.key in owners and before == mine
    after[writer.key] = owners[writer.key] if same and not lost else _Owner(writer, mine)
    return _with_owners(result, after)


def _refuse_conflicts(others: _Owners, written: set[Path], *, force: bool) -> None:
    found = [(owner, sorted(owner.paths & written)) for owner in others.values()]
    causes = [
        cause(readable(path), f'conflict with "{_described(owner.writer)}', "FieldManagerConflict")
        for owner, paths in found
        for path in paths
    ]
    if not causes or force:
        return
    count = "1 conflict" if len(causes) == 1 else f"{len(causes)} conflicts"
    if len(causes) == 1:
        text = f"{causes[0]['message']}: {causes[0]['field']}"
    else:
        text = "conflicts with " + "; ".join(
            f'"{_described(owner.writer)}:\n' + "\n".join(f"- {readable(path)}" for path in paths)
            for owner, paths in found
            if paths
        )
    raise StoreConflict(f"Apply failed with {count}: {text}", {"causes": causes})


def _described(writer: Writer) -> str:
    """The tail of kubectl's sentence; the opening quote is the caller's."""
    through = f' with subresource "{writer.subresource}"' if writer.subresource else ""
    version = f" using {writer.api_version}" if writer.operation == "Update" else ""
    return f'{writer.manager}"{through}{version}'


def _scope(obj: Obj, writer: Writer) -> Obj:
    """The part of an object the endpoint can write: status through `status`, everything else through the rest."""
    if writer.subresource == "status":
        return {key: value for key, value in obj.items() if key in ("status", "metadata")}
    return {key: value for key, value in obj.items() if key != "status"} if "status" in obj else obj


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(below) for key, below in value.items() if below is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _owners(entries: list[dict[str, Any]]) -> _Owners:
    held = (_Owner(_writer(entry), from_fields_v1(entry.get("fieldsV1") or {})) for entry in entries)
    return {owner.writer.key: owner for owner in held}


def _writer(entry: dict[str, Any]) -> Writer:
    return Writer(
        manager=entry.get("manager", ""),
        api_version=entry.get("apiVersion", ""),
        time=entry.get("time", ""),
        subresource=entry.get("subresource", ""),
        operation=entry.get("operation", "Update"),
    )


def _with_owners(obj: Obj, owners: _Owners) -> Obj:
    return _with_entries(obj, [_wire_entry(o.writer, to_fields_v1(o.paths)) for o in owners.values() if o.paths])


def _with_entries(obj: Obj, entries: list[dict[str, Any]]) -> Obj:
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    entries = sorted(entries, key=_entry_order)
    return {**obj, "metadata": {**meta, "managedFields": entries} if entries else meta}


def _entry_order(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    """Applies before updates, then by time and manager (managedfields `sortEncodedManagedFields`)."""
    words = ("operation", "time", "manager", "subresource")
    return tuple(str(entry.get(word, "")) for word in words)  # type: ignore[return-value]


def _wire_entry(writer: Writer, fields: FieldsV1) -> dict[str, Any]:
    entry = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": writer.api_version,
        "time": writer.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": shared(fields),
    }
    return {**entry, "subresource": writer.subresource} if writer.subresource else entry
