"""CustomResourceDefinitions: what they must say, and the resource each one makes.

Source: apiextensions-apiserver `pkg/apis/apiextensions` (v1 defaults, validation) and its naming controller.
"""

import json
from collections.abc import Iterator
from typing import Any

from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.podspec import required, unsupported
from providers.sim.store.registry import Column, Resource
from providers.sim.store.schema import schema_faults
from providers.sim.store.structural import structural_faults

CRD_KEY = "customresourcedefinitions.apiextensions.k8s.io"


def admitted(resource: Resource, crd: Obj, old: Obj | None = None) -> Obj:
    """A definition with its defaults; Invalid when names, group, scope or versions do not hold together."""
    spec = crd.get("spec") or {}
    crd = {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": _names(spec.get("names") or {})}}
    faults = [*_naming_faults(crd), *_version_faults(crd["spec"])]
    if old is not None:
        faults += _fixed_faults(crd["spec"], old["spec"])
    if faults:
        raise invalid(resource, crd["metadata"]["name"], *faults)
    return crd


def _names(names: Obj) -> Obj:
    kind = names.get("kind")
    return {"singular": kind.lower(), "listKind": f"{kind}List", **names} if kind else names


def _naming_faults(crd: Obj) -> Iterator[Fault]:
    spec, name = crd["spec"], crd["metadata"]["name"]
    names, group = spec["names"], spec.get("group") or ""
    if name != f"{names.get('plural')}.{group}":
        yield cause("metadata.name", f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group')
    if not group:
        yield required("spec.group")
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield unsupported("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced"))
    if spec.get("preserveUnknownFields"):
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield cause("spec.preserveUnknownFields", f"Invalid value: true: {text}")
    approved = (crd["metadata"].get("annotations") or {}).get(_APPROVAL)
    if (group in _PROTECTED or group.endswith(tuple(f".{it}" for it in _PROTECTED))) and not approved:
        link = "https://github.com/kubernetes/enhancements/pull/1111"
        text = f'protected groups must have approval annotation "{_APPROVAL}", see {link}'
        yield required(f"metadata.annotations[{_APPROVAL}]", text)


_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")


def _version_faults(spec: Obj) -> Iterator[Fault]:
    versions = spec.get("versions") or []
    if sum(1 for version in versions if version.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        yield cause("spec.versions", f"Invalid value: {json.dumps(versions, separators=(',', ':'))}: {text}")
        text = "Invalid value: null: must have at least one stored version"
        yield cause("status.storedVersions", text)
    for i, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        where = "spec" if len(versions) == 1 else f"spec.versions[{i}]"
        path = f"{where}.{'validation' if len(versions) == 1 else 'schema'}.openAPIV3Schema"
        if not schema:
            yield required(f"spec.versions[{i}].schema.openAPIV3Schema", "schemas are required")
        else:
            yield from schema_faults(schema, path)
            yield from structural_faults(schema, path)
        for j, column in enumerate(version.get("additionalPrinterColumns") or ()):
            yield from _column_faults(column, f"{where}.additionalPrinterColumns[{j}]")


_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")


def _column_faults(column: Obj, path: str) -> Iterator[Fault]:
    if column.get("type") not in _COLUMN_TYPES:
        text = f"must be one of {','.join(_COLUMN_TYPES)}"
        yield cause(f"{path}.type", f'Invalid value: "{column.get("type")}": {text}')
    place = column.get("jsonPath") or ""
    if not place:
        yield required(f"{path}.JSONPath")
    elif not place.startswith("."):
        yield cause(f"{path}.JSONPath", f'Invalid value: "{place}": must be a simple json path starting with .')


def _fixed_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    """What an established definition keeps for ever."""
    for path, after, before in (
        ("spec.scope", spec.get("scope"), held.get("scope")),
        ("spec.names.kind", spec["names"].get("kind"), held["names"].get("kind")),
        ("spec.names.plural", spec["names"].get("plural"), held["names"].get("plural")),
        ("spec.group", spec.get("group"), held.get("group")),
    ):
        if after != before:
            yield cause(path, f'Invalid value: "{after}": field is immutable')


def established(crd: Obj, now: str) -> Obj:
    """The status of a definition whose endpoints are served."""
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
    return {"acceptedNames": crd["spec"]["names"], "conditions": conditions, "storedVersions": stored}


def defined_resource(crd: Obj) -> Resource:
    """The resource a definition makes, in its storage version."""
    spec = crd["spec"]
    names = spec["names"]
    version = next(v for v in spec["versions"] if v["storage"])
    subresources = version.get("subresources") or {}
    scale = subresources.get("scale")
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(subresources),
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        schema=version["schema"]["openAPIV3Schema"],
        custom=True,
        generations=True,
        selectable_fields=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
        scale_paths=_scale_paths(scale) if scale else None,
    )


def _column(column: dict[str, Any]) -> Column:
    return Column(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        priority=column.get("priority", 0),
        description=column.get("description", ""),
    )


def _scale_paths(scale: dict[str, str]) -> tuple[str, str, str]:
    return scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
