"""CustomResourceDefinitions: what they must say, and the resource each one makes.

Source: apiextensions-apiserver `pkg/apis/apiextensions` (v1 defaults, validation) and its naming controller.
"""

from typing import Any

from providers.sim.store.errors import cause
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.registry import Column, Resource
from providers.sim.store.schema import schema_faults

CRD_KEY = "customresourcedefinitions.apiextensions.k8s.io"


def admitted(resource: Resource, crd: Obj) -> Obj:
    """A definition with its defaults; Invalid when names, group, scope or versions do not hold together."""
    spec, name = crd.get("spec") or {}, crd["metadata"]["name"]
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    faults = [
        cause(f"spec.{field}", "Required value", "FieldValueRequired")
        for field, value in (
            ("group", spec.get("group")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
        )
        if not value
    ]
    if name != f"{names.get('plural')}.{spec.get('group')}":
        faults.append(cause("metadata.name", 'Invalid value: must be spec.names.plural+"."+spec.group'))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        faults.append(cause("spec.scope", "Unsupported value: must be Cluster or Namespaced", "FieldValueNotSupported"))
    if sum(1 for version in versions if version.get("storage")) != 1:
        faults.append(cause("spec.versions", "Invalid value: must have exactly one version marked as storage version"))
    faults += [
        cause(
            f"spec.versions[{i}].schema.openAPIV3Schema", "Required value: schemas are required", "FieldValueRequired"
        )
        for i, version in enumerate(versions)
        if not (version.get("schema") or {}).get("openAPIV3Schema")
    ]
    for i, version in enumerate(versions):
        held = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        faults += schema_faults(held, f"spec.versions[{i}].schema.openAPIV3Schema")
    if faults:
        raise invalid(resource, name, *faults)
    names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", **names}
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}


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
