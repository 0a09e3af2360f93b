"""What differs between two revisions of a fleet, resource by resource and field by field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from model.fleet import Fleet
from model.kinds import Declaration
from model.kinds.base import format_duration

Verb = Literal["create", "update", "delete", "replace", "keep"]
"""`keep`: it would go, or change, without the revision."""
SYMBOLS: Mapping[Verb, str] = {"create": "+", "update": "~", "delete": "-", "replace": "-/+", "keep": "="}
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
    ("capacitybuffer", "capacity_buffers"),
    ("podtemplate", "pod_templates"),
)
"""Kind as in addresses, and the table of `Fleet`."""


@dataclass(frozen=True, slots=True)
class FieldChange:
    """The change of one field, by its path below the resource (`spec.limits.nodes`); None = the field is not there."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class When:
    """When something happens, as far as can be foreseen."""

    after_s: float = 0.0
    """Seconds from the observation; 0 = now."""
    held: str = ""
    """What keeps it from happening within the horizon; empty = it happens."""
    until: str = ""
    """The window at whose end it happens; empty where it waits for something else."""

    def __str__(self) -> str:
        if self.held:
            return f"held: {self.held}"
        cause = f", when {self.until} ends" if self.until else ""
        return f"in about {format_duration(_rounded_s(self.after_s))}{cause}" if self.after_s else "now"


NOW: Final = When()


def _rounded_s(seconds: float) -> float:
    """Returns a span of time as precisely as it is known: to minutes, later to quarters of an hour."""
    grain_s = 60.0 if seconds < 3600 else 900.0
    return max(60.0, grain_s * round(seconds / grain_s))


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change of one resource. `address` is `kind/name`, as in `nodepool/h100-full` or `nodeclaim/...`."""

    address: str
    verb: Verb
    fields: tuple[FieldChange, ...] = ()
    reason: str = ""
    when: When = NOW
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def declared_changes(before: Fleet, after: Fleet) -> list[PlannedChange]:
    """Returns creations, updates and deletions of declarations, by address, without flavors implied by node pools."""
    changes: list[PlannedChange] = []
    for kind, table in _TABLES:
        old, new = (_declared(fleet, table) for fleet in (before, after))
        for name in sorted(old.keys() | new.keys()):
            changes += _change(f"{kind}/{name}", _plain(old.get(name)), _plain(new.get(name)))
    clusters = {it.key: it for it in (before.cluster, after.cluster) if it is not None}
    for name in sorted(clusters):
        was, becomes = (it if it and it.key == name else None for it in (before.cluster, after.cluster))
        changes += _change(f"cluster/{name}", _plain(was), _plain(becomes))
    changes += _change("fleetpolicy/policy", _plain(before.policy), _plain(after.policy), settings_only=True)
    return sorted(changes, key=lambda change: change.address)


def only_windows(before: Fleet, after: Fleet) -> bool:
    """Returns whether only freeze and allow windows change: the way out of a window must not be frozen itself."""
    changes = declared_changes(before, after)
    fields = [field.path for change in changes for field in change.fields or (FieldChange("", None, None),)]
    return bool(fields) and all(path.startswith(("spec.freezeWindows", "spec.allowWindows")) for path in fields)


def says_the_same(before: Fleet | None, after: Fleet) -> bool:
    """Returns whether a revision changes no file that the cluster reads; never so where no Cluster says which.

    Its prices and its world may be others, but that is not the revision's doing.
    """
    return before is not None and bool(after.digest) and before.digest == after.digest


def suspension(fleet: Fleet) -> str:
    """Returns why a revision does not come into force in the cluster that it declares; empty where nothing suspends it.

    The revision itself is asked, not the one in force: taking `suspend` away must not be held back by it.
    """
    if fleet.cluster is None or not fleet.cluster.spec.suspend:
        return ""
    why = f": {fleet.cluster.spec.suspend_reason}" if fleet.cluster.spec.suspend_reason else ""
    return f"the Cluster {fleet.cluster.key} is suspended{why}"


def _declared(fleet: Fleet, table: str) -> dict[str, Declaration]:
    found: dict[str, Declaration] = dict(getattr(fleet, table))
    implied = fleet.node_pools if table == "flavors" else {}
    return {name: it for name, it in found.items() if name not in implied}


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
    found = _fields("", before, after)
    if fields := tuple(it for it in found if not settings_only or it.path.startswith("spec")):
        yield PlannedChange(address, "update", fields, before=before, after=after)


def _fields(path: str, before: Any, after: Any) -> Iterator[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _fields(f"{path}.{key}" if path else key, before.get(key), after.get(key))
    elif before != after:
        yield FieldChange(path, before, after)
