"""Where a resource lives in the API: group, version and plural to URL paths."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True, order=True)
class ResourcePath:
    """One served resource. The core group is `""`; `plural` is the lower-case name in URLs (`pods`)."""

    group: str
    version: str
    plural: str
    namespaced: bool

    def root(self) -> str:
        """`/api/v1` for the core group, `/apis/<group>/<version>` for the others."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str = "") -> str:
        """The path of the list; an empty `namespace` means every namespace (or none, for cluster-scoped resources)."""
        if namespace and not self.namespaced:
            raise ValueError(f"{self} is not namespaced, yet namespace {namespace!r} was given")
        scope = f"/namespaces/{_segment(namespace)}" if namespace else ""
        return f"{self.root()}{scope}/{self.plural}"

    def object(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of its `subresource`. A namespaced object needs its namespace."""
        if self.namespaced and not namespace:
            raise ValueError(f"{self} is namespaced: {name!r} needs a namespace")
        tail = f"/{_segment(subresource)}" if subresource else ""
        return f"{self.collection(namespace)}/{_segment(name)}{tail}"

    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(name: str) -> str:
    """One path segment. A name from a hostile manifest must not climb: URL libraries fold `..` away silently."""
    if name in {"", ".", ".."}:
        raise ValueError(f"not a name: {name!r}")
    return quote(name, safe="")


LEASES = ResourcePath("coordination.k8s.io", "v1", "leases", namespaced=True)
PODS = ResourcePath("", "v1", "pods", namespaced=True)
RESOURCE_SLICES: Final = ResourcePath("resource.k8s.io", "v1", "resourceslices", namespaced=False)
RESOURCE_CLAIMS: Final = ResourcePath("resource.k8s.io", "v1", "resourceclaims", namespaced=True)

GROUP: Final = "muster.dev"
WORKLOADS: Final = ResourcePath(GROUP, "v1alpha1", "workloads", namespaced=True)
NODE_CLAIMS: Final = ResourcePath(GROUP, "v1alpha1", "nodeclaims", namespaced=False)
FLEET_SYNCS: Final = ResourcePath(GROUP, "v1alpha1", "fleetsyncs", namespaced=False)
QUEUES: Final = ResourcePath(GROUP, "v1alpha1", "queues", namespaced=False)
NODE_POOLS: Final = ResourcePath(GROUP, "v1alpha1", "nodepools", namespaced=False)
