"""What differs between two revisions of a fleet, resource by resource and field by field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from model.fleet import Fleet
from model.kinds import Declaration

Verb = Literal["create", "update", "delete", "replace"]
SYMBOLS: Mapping[Verb, str] = {"create": "+", "update": "~", "delete": "-", "replace": "-/+"}
_TABLES = (
    ("nodepool", "node_pools"),
    ("nodeoverlay", "node_overlays"),
    ("miglayout", "mig_layouts"),
    ("flavor", "flavors"),
    ("team", "teams"),
    ("queue", "queues"),
    ("priorityclass", "priority_classes"),
    ("topology", "topologies"),
    ("clusterqueue", "cluster_queues"),
    ("cohort", "cohorts"),
    ("localqueue", "local_queues"),
    ("resourceflavor", "resource_flavors"),
    ("admissioncheck", "admission_checks"),
    ("volcanoqueue", "volcano_queues"),
)
"""Kind as in addresses, and the table of `Fleet`."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field, by its path below the resource (`spec.limits.nodes`); None = the field is not there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change of one resource. `address` is `kind/name`, as in `nodepool/h100-full` or `nodeclaim/...`."""

    address: str
    verb: Verb
    fields: tuple[FieldChange, ...] = ()
    reason: str = ""
    upkeep: bool = False
    """The agent would do it anyway (an idle, expired or underused machine, or one whose image the cloud has replaced):
    not the revision's doing."""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def declared_changes(before: Fleet, after: Fleet) -> list[PlannedChange]:
    """Returns creations, updates and deletions of declarations, by address, without flavors implied by node pools."""
    changes: list[PlannedChange] = []
    for kind, table in _TABLES:
        old, new = (_declared(fleet, table) for fleet in (before, after))
        for name in sorted(old.keys() | new.keys()):
            changes += _change(f"{kind}/{name}", _plain(old.get(name)), _plain(new.get(name)))
    changes += _change("fleetpolicy/policy", _plain(before.policy), _plain(after.policy), settings_only=True)
    return sorted(changes, key=lambda change: change.address)


def _declared(fleet: Fleet, table: str) -> dict[str, Declaration]:
    found: dict[str, Declaration] = dict(getattr(fleet, table))
    if table == "flavors":
        return {name: flavor for name, flavor in found.items() if name not in fleet.node_pools}
    return found


def _plain(resource: Declaration | None) -> Mapping[str, Any] | None:
    return None if resource is None else resource.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _change(
    address: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, settings_only: bool = False
) -> Iterator[PlannedChange]:
    if before == after:
        return
    if before is None or after is None:
        verb: Verb = "create" if before is None else "delete"
        yield PlannedChange(address, verb, before=before, after=after)
        return
    fields = tuple(_fields("", before, after))
    if settings_only:
        fields = tuple(field for field in fields if field.path.startswith("spec"))
    if fields:
        yield PlannedChange(address, "update", fields, before=before, after=after)


def _fields(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _fields(f"{path}.{key}" if path else key, before.get(key), after.get(key))
    elif before != after:
        yield FieldChange(path, before, after)
