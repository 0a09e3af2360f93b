"""Extended resources that DeviceClasses stand for: a pod asks as ever, and a claim is made for it when it has its node.

Source: `dynamicresources/extendeddynamicresources.go` and `extended/` (KEP-5004). On a node whose device plugin offers
the resource nothing of this happens.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from providers.sim.controllers.mirror import InformerCache
from providers.sim.controllers.objects import Obj, controlled_by, key_of, status_of
from providers.sim.store.podrequests import Amounts, amounts

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""The resource of every class: this and its name."""
_ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"


def classes_by_resource(classes: InformerCache) -> dict[str, str]:
    """Resource -> DeviceClass; of several the one that was created last."""
    found: dict[str, str] = {}
    for held in sorted(
        classes, key=lambda it: (it["metadata"]["creationTimestamp"], _reversed(it["metadata"]["name"]))
    ):
        name = held["metadata"]["name"]
        found[IMPLICIT + name] = name
        if held["spec"].get("extendedResourceName"):
            found[held["spec"]["extendedResourceName"]] = name
    return found


def _reversed(name: str) -> tuple[int, ...]:
    """Of classes as old as each other the first by name wins."""
    return tuple(-ord(sign) for sign in name)


def lacking(wanted: Amounts, resources: Collection[str], allocatable: Amounts) -> frozenset[str]:
    """Those of the resources that a pod wants and a node's device plugin does not offer."""
    return frozenset(name for name in resources if wanted.get(name) and not allocatable.get(name))


def extended_claim(pod: Obj, resources: Collection[str], classes: Mapping[str, str]) -> Obj:
    """The claim for these resources of a pod, as it would be made; each container has requests of its own."""
    requests = [
        {
            "name": name,
            "exactly": {"deviceClassName": classes[resource], "allocationMode": "ExactCount", "count": count},
        }
        for _, resource, name, count in _asked(pod, resources)
    ]
    namespace, name = key_of(pod)
    base = f"{name}-extended-resources-"
    metadata: dict[str, Any] = {
        "namespace": namespace,
        "generateName": base if len(base) <= 57 else f"{name[: 57 - len('-extended-resources-')]}-extended-resources-",
        "annotations": {_ANNOTATION: "true"},
        "ownerReferences": controlled_by(pod, "v1", "Pod"),
    }
    return {"metadata": metadata, "spec": {"devices": {"requests": requests}}}


def in_memory(claim: Obj, pod: Obj) -> Obj:
    """The claim while a node is looked for: it has no name and nobody sees it."""
    named = {"name": "<extended-resources>", "uid": f"extended-resources-{pod['metadata']['uid']}"}
    return {**claim, "metadata": {**claim["metadata"], **named}}


def with_extended_claim(pod: Obj, claim: Obj, resources: Collection[str]) -> Obj:
    """The status of a pod that says which request of the claim is for which resource of which container."""
    mappings = [
        {"containerName": container, "resourceName": resource, "requestName": name}
        for container, resource, name, _ in _asked(pod, resources)
    ]
    told = {"requestMappings": mappings, "resourceClaimName": claim["metadata"]["name"]}
    return {**status_of(pod), "extendedResourceClaimStatus": told}


def resources_by_claim(pod: Obj) -> set[str]:
    """The resources that a pod has by a claim and not of the device plugin."""
    told = status_of(pod).get("extendedResourceClaimStatus") or {}
    return {it["resourceName"] for it in told.get("requestMappings") or ()}


def _asked(pod: Obj, resources: Collection[str]) -> Iterator[tuple[str, str, str, int]]:
    """Container, resource, name of the request and how many devices."""
    spec = pod["spec"]
    for i, container in enumerate((*(spec.get("initContainers") or ()), *spec["containers"])):
        given = container.get("resources") or {}
        wanted = amounts({**(given.get("limits") or {}), **(given.get("requests") or {})})
        asked = [name for name in sorted(wanted) if name in resources and wanted[name]]
        for j, name in enumerate(asked):
            yield container["name"], name, f"container-{i}-request-{j}", wanted[name]
