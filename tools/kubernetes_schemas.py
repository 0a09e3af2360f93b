"""Writes `providers/sim/store/published.json.gz`: the schemas that Kubernetes publishes of the kinds the store serves.

They are taken from the package `kubernetes-validate` (Apache-2.0), which carries the OpenAPI definitions of each
release with their merge keys; the definitions are Kubernetes' (Apache-2.0). Run it with that package's wheel:

    pip download --no-deps kubernetes-validate==1.36.0 -d /tmp/wheels
    python -m tools.kubernetes_schemas /tmp/wheels/kubernetes_validate-1.36.0-py3-none-any.whl 1.36.0
"""

import gzip
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from providers.sim.store import RELEASES
from providers.sim.store.builtins import builtin_resources

TARGET = Path(__file__).parents[1] / "providers/sim/store/published.json.gz"
_BETAS = ("admissionregistration.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
_MORE = {"policy/v1": ("Eviction",), "autoscaling/v1": ("Scale",), "v1": ("Binding", "DeleteOptions")}
_EITHER = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": ["string", "integer"],
    "io.k8s.apimachinery.pkg.api.resource.Quantity": ["string", "number"],
}


def main(wheel: Path, release: str) -> None:
    """Write the file."""
    member = f"kubernetes_validate/kubernetes-json-schema/v{release}-local/_definitions.json"
    with zipfile.ZipFile(wheel) as archive:
        definitions: dict[str, Any] = json.loads(archive.read(member))["$defs"]
    kinds = dict(_wanted(definitions))
    kept: dict[str, Any] = {}
    for name in kinds.values():
        _collect(name, definitions, kept)
    document = {"release": release, "kinds": kinds, "definitions": {name: kept[name] for name in sorted(kept)}}
    encoded = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    TARGET.write_bytes(gzip.compress(encoded, mtime=0))


def _wanted(definitions: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`group/version/Kind` -> name of its definition."""
    by_kind = {
        "/".join(filter(None, (it["group"], it["version"], it["kind"]))): name
        for name, body in definitions.items()
        for it in body.get("x-kubernetes-group-version-kind") or ()
        if not name.endswith(".DeleteOptions") or it["group"] == ""
    }
    served = {
        (it.api_version, it.kind)
        for release in RELEASES.values()
        for it in builtin_resources(release.with_betas(*_BETAS))
    }
    served |= {(version, kind) for version, kinds in _MORE.items() for kind in kinds}
    for version, kind in sorted(served):
        if f"{version}/{kind}" in by_kind:
            yield f"{version}/{kind}", by_kind[f"{version}/{kind}"]


def _collect(name: str, definitions: dict[str, Any], kept: dict[str, Any]) -> None:
    if name in kept:
        return
    kept[name] = _plain(definitions[name], name)
    for other in _references(definitions[name]):
        _collect(other, definitions, kept)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix("#/$defs/")
        for below in schema.values():
            yield from _references(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _references(below)


def _plain(schema: Any, name: str = "", *, fields: bool = False) -> Any:
    """As Kubernetes publishes it: without the null that the package allows everywhere, which is not in the document."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if name in _EITHER:
        return {"type": _EITHER[name], **({"description": schema["description"]} if "description" in schema else {})}
    result = {
        key: _plain(below, fields=key == "properties" and not fields)
        for key, below in schema.items()
        if fields or key != "enum"  # which the package adds to apiVersion and kind
    }
    if not fields and isinstance(schema.get("type"), list):
        types = [it for it in schema["type"] if it != "null"]
        result["type"] = types[0] if len(types) == 1 else types
    return result


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
