"""How lists and maps merge: by key, as a set, or whole. The built-in kinds by table, custom ones by their schema.

Source: the patchStrategy/patchMergeKey, listType/listMapKey and mapType markers in kubernetes/api `core/v1/types.go`,
`batch/v1`, `apps/v1`; `x-kubernetes-list-type` and friends for custom resources.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from providers.sim.store.published import published_shape

# Field name -> the keys an item is known by in server-side apply.
_APPLY_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "schedulingGates": ("name",),
    "volumes": ("name",),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "secrets": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "podIPs": ("ip",),
    "hostIPs": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "replicatedJobs": ("name",),
    "replicatedJobsStatus": ("name",),
}
# The same field means something else below these kinds.
_APPLY_KEYS_OF_KIND: dict[tuple[str, str], tuple[str, ...] | None] = {
    ("Service", "ports"): ("port", "protocol"),
    ("Node", "addresses"): ("type",),
    ("Endpoints", "ports"): None,
    ("ServiceAccount", "imagePullSecrets"): None,
    ("Event", "conditions"): None,
}
_STRATEGIC_KEYS: dict[tuple[str, ...], str] = {
    ("containerPort", "protocol"): "containerPort",
    ("port", "protocol"): "port",
    ("topologyKey", "whenUnsatisfiable"): "topologyKey",
}
_SETS = frozenset({"finalizers", "podCIDRs"})
_RETAIN_KEYS = frozenset({"volumes", "resourceClaims", "resourceClaimStatuses", "strategy", "updateStrategy"})
_ATOMIC_MAPS = frozenset(
    {
        "selector",
        "labelSelector",
        "namespaceSelector",
        "nodeSelector",
        "nodeSelectorTerms",
        "configMapKeyRef",
        "secretKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "involvedObject",
        "claimRef",
        "targetRef",
        "roleRef",
        "scopeSelector",
    }
)
# What a key of an item is when the item leaves it out.
KEY_DEFAULTS = {"protocol": "TCP"}


class MergeShape(Protocol):
    """How one field of an object merges."""

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The key fields of a list of maps; None when the list is a set or atomic."""
        ...

    @property
    def is_set(self) -> bool:
        """Whether a list is a set of scalars."""
        ...

    @property
    def atomic_map(self) -> bool:
        """Whether a map is owned and replaced whole."""
        ...

    @property
    def strategic_key(self) -> str | None:
        """The key by which a strategic merge patch knows the items of a list."""
        ...

    def child(self, field: str) -> "MergeShape":
        """The shape of a field of a map."""
        ...

    def item(self) -> "MergeShape":
        """The shape of the items of a list."""
        ...


@dataclass(frozen=True, slots=True)
class NamedShape:
    """Built-in kinds: the name of the field says how it merges. Made by `named_shape`, which keeps one of each."""

    kind: str
    field: str
    keys: tuple[str, ...] | None
    is_set: bool
    atomic_map: bool
    strategic_key: str | None
    retains_keys: bool

    def child(self, field: str) -> "NamedShape":
        """See `MergeShape`."""
        return named_shape(self.kind, field)

    def item(self) -> "NamedShape":
        """See `MergeShape`: an item is not itself a list, but whole when its list's name says so."""
        return named_shape(self.kind, self.field if self.atomic_map else "")


@lru_cache(maxsize=65536)
def named_shape(kind: str, field: str = "") -> NamedShape:
    """The shape of `field` anywhere in an object of `kind`; of the object itself without a field."""
    special = (kind, field)
    keys = _APPLY_KEYS_OF_KIND[special] if special in _APPLY_KEYS_OF_KIND else _APPLY_KEYS.get(field)
    return NamedShape(
        kind=kind,
        field=field,
        keys=keys,
        is_set=field in _SETS,
        atomic_map=field in _ATOMIC_MAPS,
        strategic_key=(_STRATEGIC_KEYS.get(keys) or keys[0]) if keys else None,
        retains_keys=field in _RETAIN_KEYS,
    )


class SchemaShape:
    """Custom kinds: the structural schema says how a field merges; without a word maps are granular, lists atomic.

    A shape reads its schema once and keeps the shapes below it.
    """

    strategic_key: str | None = None
    """See `MergeShape`: custom kinds take no strategic merge patch."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        kind = schema.get("x-kubernetes-list-type")
        self.keys: tuple[str, ...] | None = (
            tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else None
        )
        self.is_set = kind == "set"
        self.atomic_map = schema.get("x-kubernetes-map-type") == "atomic"
        self._children: dict[str, MergeShape] = {}
        self._item: MergeShape | None = None

    def child(self, field: str) -> "MergeShape":
        """See `MergeShape`."""
        found = self._children.get(field)
        if found is None:
            found = self._children[field] = self._below(field)
        return found

    def _below(self, field: str) -> "MergeShape":
        extra = self.schema.get("additionalProperties")
        below = (self.schema.get("properties") or {}).get(field) or (extra if isinstance(extra, dict) else {})
        return SchemaShape(below)

    def item(self) -> "MergeShape":
        """See `MergeShape`."""
        if self._item is None:
            items = self.schema.get("items")
            self._item = SchemaShape(items if isinstance(items, dict) else {})
        return self._item


_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class CustomShape(SchemaShape):
    """The root of a custom object: `metadata` merges as everywhere, the rest by schema."""

    def _below(self, field: str) -> "MergeShape":
        return published_shape(_OBJECT_META) if field == "metadata" else super()._below(field)
