"""The fields of a pod that say where it may run, as admission completes them.

Source: `pkg/registry/core/pod/strategy.go` (label keys merged into selectors), the admission plugin RuntimeClass,
`pkg/apis/core/v1/defaults.go` (host network).
"""

from collections.abc import Callable, Mapping, Sequence

from providers.sim.store.errors import StoreForbidden
from providers.sim.store.objects import Obj

Lookup = Callable[[str, str, str], Obj | None]  # resource key, namespace, name -> object

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def placed_spec(name: str, spec: Obj, labels: Mapping[str, str], lookup: Lookup) -> Obj:
    """The spec of a new pod with what its labels, its runtime class and the host network add. Forbidden."""
    spec = _with_runtime_class(name, spec, lookup)
    if spec.get("hostNetwork"):
        spec = _on_host_network(spec)
    if spec.get("topologySpreadConstraints"):
        given = spec["topologySpreadConstraints"]
        spec = {**spec, "topologySpreadConstraints": [_with_label_keys(each, labels) for each in given]}
    affinity = spec.get("affinity") or {}
    kinds = [kind for kind in ("podAffinity", "podAntiAffinity") if affinity.get(kind)]
    if kinds:
        merged = {kind: _merged_affinity(affinity[kind], labels) for kind in kinds}
        spec = {**spec, "affinity": {**affinity, **merged}}
    return spec


def _with_runtime_class(name: str, spec: Obj, lookup: Lookup) -> Obj:
    """Overhead, node selector and tolerations of the runtime class."""
    class_name = spec.get("runtimeClassName")
    details = {"name": name, "kind": "pods"}
    if not class_name:
        if spec.get("overhead"):
            text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise StoreForbidden(f'pods "{name}" is forbidden: {text}', details)
        return spec
    held = lookup("runtimeclasses.node.k8s.io", "", class_name)
    if held is None:
        text = f'pods "{name}" is forbidden: pod rejected: RuntimeClass "{class_name}" not found'
        raise StoreForbidden(text, details)
    result = {**spec}
    overhead = (held.get("overhead") or {}).get("podFixed")
    if overhead:
        result["overhead"] = overhead
    scheduling = held.get("scheduling") or {}
    wanted, given = scheduling.get("nodeSelector") or {}, spec.get("nodeSelector") or {}
    clash = next((key for key in sorted(wanted.keys() & given.keys()) if wanted[key] != given[key]), None)
    if clash is not None:
        text = f"conflict: runtimeClass.scheduling.nodeSelector[{clash}] = {wanted[clash]}"
        raise StoreForbidden(
            f'pods "{name}" is forbidden: {text}; pod.spec.nodeSelector[{clash}] = {given[clash]}', details
        )
    if wanted:
        result["nodeSelector"] = {**given, **wanted}
    known = spec.get("tolerations") or []
    added = [each for each in scheduling.get("tolerations") or () if each not in known]
    if added:
        result["tolerations"] = [*known, *added]
    return result


def _on_host_network(spec: Obj) -> Obj:
    result = {**spec}
    for field in ("containers", "initContainers"):
        if spec.get(field):
            result[field] = [_with_host_ports(container) for container in spec[field]]
    return result


def _with_host_ports(container: Obj) -> Obj:
    if not container.get("ports"):
        return container
    ports = [{**port, "hostPort": port.get("hostPort") or port["containerPort"]} for port in container["ports"]]
    return {**container, "ports": ports}


def _merged_affinity(affinity: Obj, labels: Mapping[str, str]) -> Obj:
    result = {**affinity}
    if affinity.get(_REQUIRED):
        result[_REQUIRED] = [_with_label_keys(term, labels) for term in affinity[_REQUIRED]]
    if affinity.get(_PREFERRED):
        result[_PREFERRED] = [
            {**each, "podAffinityTerm": _with_label_keys(each.get("podAffinityTerm") or {}, labels)}
            for each in affinity[_PREFERRED]
        ]
    return result


def _with_label_keys(term: Obj, labels: Mapping[str, str]) -> Obj:
    """The term with `matchLabelKeys` and `mismatchLabelKeys` in its selector; one without a selector means nobody."""
    if term.get("labelSelector") is None:
        return term
    added = [
        *_expressions(term.get("matchLabelKeys") or (), "In", labels),
        *_expressions(term.get("mismatchLabelKeys") or (), "NotIn", labels),
    ]
    if not added:
        return term
    selector = term["labelSelector"]
    expressions = [*(selector.get("matchExpressions") or ()), *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _expressions(keys: Sequence[str], operator: str, labels: Mapping[str, str]) -> list[Obj]:
    return [{"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels]
