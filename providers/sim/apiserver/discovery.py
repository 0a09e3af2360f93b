"""Discovery: which groups, versions and resources the server has, in the plain and the aggregated form.

Source: apiserver `pkg/endpoints/discovery`, KEP-3352 (aggregated discovery v2).
"""

from collections.abc import Iterable
from typing import Any

from providers.sim.store import Release, Resource
from providers.sim.store.registry import STANDARD_VERBS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

# Requests that are answered, not stored: group/version -> plural, Kind.
REVIEWS: dict[str, tuple[tuple[str, str], ...]] = {
    "authorization.k8s.io/v1": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
    "authentication.k8s.io/v1": (
        ("selfsubjectreviews", "SelfSubjectReview"),
        ("tokenreviews", "TokenReview"),
    ),
}
REVIEW_GROUPS = frozenset(group_version.partition("/")[0] for group_version in REVIEWS)
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
    "binding": ("", "v1", "Binding", ("create",)),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ("create",)),
}


def group_versions(resources: Iterable[Resource]) -> list[str]:
    """Every served `group/version` (`v1` for the core), in order."""
    return list(dict.fromkeys([*(resource.api_version for resource in resources), *REVIEWS]))


def api_versions() -> dict[str, Any]:
    """The answer of `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def version(release: Release) -> dict[str, Any]:
    """The answer of `/version`."""
    minor = str(release.minor)
    return {
        "major": "1",
        "minor": minor,
        "emulationMajor": "1",
        "emulationMinor": minor,
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(release.minor - 1),
        "gitVersion": release.git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def api_groups(resources: Iterable[Resource]) -> dict[str, Any]:
    """The answer of `/apis`."""
    served = group_versions(resources)
    names = dict.fromkeys(gv.partition("/")[0] for gv in served if "/" in gv)
    groups = [_api_group(name, served) for name in names]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str, resources: Iterable[Resource]) -> dict[str, Any] | None:
    """The answer of `/apis/<group>`, or None when it is not served."""
    served = group_versions(resources)
    if not any(gv.startswith(f"{group}/") for gv in served):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_api_group(group, served)}


def _api_group(group: str, served: Iterable[str]) -> dict[str, Any]:
    found = [gv for gv in served if gv.startswith(f"{group}/")]
    versions = [{"groupVersion": gv, "version": gv.partition("/")[2]} for gv in sorted(found, key=_newest_first)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _newest_first(group_version: str) -> tuple[bool, str]:
    """What is stable before what is beta (apimachinery `pkg/version`)."""
    return "alpha" in group_version or "beta" in group_version, group_version


def api_resources(group_version: str, resources: Iterable[Resource]) -> dict[str, Any] | None:
    """The answer of `/apis/<group>/<version>`, or None when it is not served."""
    rows: list[dict[str, Any]] = []
    for resource in sorted(resources, key=lambda it: it.plural):
        if resource.api_version == group_version:
            rows.append(_row(resource))
            rows += [_subrow(resource, name) for name in sorted(resource.subresources)]
    rows += [
        {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
        for plural, kind in REVIEWS.get(group_version, ())
    ]
    if not rows:
        return None
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def _row(resource: Resource) -> dict[str, Any]:
    row = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(STANDARD_VERBS),
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
    }
    return {key: value for key, value in row.items() if value != []}


def _subrow(resource: Resource, name: str) -> dict[str, Any]:
    row = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if name not in _SUBRESOURCE_KINDS:
        return {**row, "kind": resource.kind, "verbs": ["get", "patch", "update"]}
    group, version, kind, verbs = _SUBRESOURCE_KINDS[name]
    return {**row, "group": group, "version": version, "kind": kind, "verbs": list(verbs)}


def aggregated(resources: Iterable[Resource], *, core: bool) -> dict[str, Any]:
    """The aggregated answer of `/api` (core) or `/apis`."""
    held = list(resources)
    groups: dict[str, list[str]] = {}
    for gv in sorted(group_versions(held), key=_newest_first):
        if ("/" not in gv) is core:
            groups.setdefault(gv.rpartition("/")[0], []).append(gv)
    names = dict.fromkeys(gv.rpartition("/")[0] for gv in group_versions(held))
    items = [_aggregated_group(name, groups[name], held) for name in names if name in groups]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_group(group: str, served: list[str], resources: list[Resource]) -> dict[str, Any]:
    versions = [_aggregated_version(group_version, resources) for group_version in served]
    return {"metadata": {"name": group, "creationTimestamp": None}, "versions": versions}


def _aggregated_version(group_version: str, resources: list[Resource]) -> dict[str, Any]:
    group, _, version = group_version.rpartition("/")
    rows = [_aggregated_row(resource) for resource in resources if resource.api_version == group_version]
    rows += [
        {
            "resource": plural,
            "responseKind": {"group": group, "version": version, "kind": kind},
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "verbs": ["create"],
        }
        for plural, kind in REVIEWS.get(group_version, ())
    ]
    return {"version": version, "resources": rows, "freshness": "Current"}


def _aggregated_row(resource: Resource) -> dict[str, Any]:
    subresources = []
    for name in sorted(resource.subresources):
        default = (resource.group, resource.version, resource.kind, ("get", "patch", "update"))
        group, version, kind, verbs = _SUBRESOURCE_KINDS.get(name, default)
        known = {"group": group, "version": version, "kind": kind}
        subresources.append({"subresource": name, "responseKind": known, "verbs": list(verbs)})
    row = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(STANDARD_VERBS),
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
        "subresources": subresources,
    }
    return {key: value for key, value in row.items() if value != []}
