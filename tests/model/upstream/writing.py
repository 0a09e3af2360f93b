"""Upstream manifests written in few lines."""

from model.fleet import Fleet
from model.loader import inspect, load
from model.problem import Problem

V1, V2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
VOLCANO = "scheduling.volcano.sh/v1beta1"


def manifest(kind: str, name: str, spec: str = "{}", *, version: str = V2, namespace: str = "") -> str:
    """One document of four lines; `spec` is YAML in flow style and stands in line 4."""
    below = f", namespace: {namespace}" if namespace else ""
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}{below}}}\nspec: {spec}\n"


def quota(nominal: str = "8", *, flavor: str = "f", resource: str = "nvidia.com/gpu", more: str = "") -> str:
    """`resourceGroups` of one flavor and one resource, in flow style."""
    cell = f"{{name: {resource}, nominalQuota: {nominal}{', ' + more if more else ''}}}"
    return f"[{{coveredResources: [{resource}], flavors: [{{name: {flavor}, resources: [{cell}]}}]}}]"


FLAVOR = manifest("ResourceFlavor", "f")


def fleet(*documents: str) -> Fleet:
    return load({"f.yaml": "---\n".join(documents).encode()})


def problems(*documents: str) -> list[Problem]:
    return list(inspect({"f.yaml": "---\n".join(documents).encode()}).problems)
