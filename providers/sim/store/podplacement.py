"""The fields of a pod that say where it may run, as admission completes and validates them.

Source: `pkg/registry/core/pod/strategy.go` (label keys merged into selectors), the admission plugin RuntimeClass,
`pkg/apis/core/v1/defaults.go` (host network) and `pkg/apis/core/validation` (node selector terms).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from providers.sim.store.errors import StoreForbidden, cause
from providers.sim.store.objects import Obj

Lookup = Callable[[str, str, str], Obj | None]  # resource key, namespace, name -> object

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE_LENGTH = 63
_NOT_A_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_affinity_faults(spec: Obj, path: str) -> list[dict[str, str]]:
    """What is wrong with the required node affinity, by field path."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    here = f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    return [
        fault
        for i, term in enumerate((affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ())
        for j, expression in enumerate(term.get("matchExpressions") or ())
        for fault in _expression_faults(expression, f"{here}[{i}].matchExpressions[{j}]")
    ]


def _expression_faults(expression: Mapping[str, Any], path: str) -> Iterable[dict[str, str]]:
    operator, values = expression.get("operator"), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            text = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            yield cause(f"{path}.values", text, "FieldValueRequired")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield cause(f"{path}.values", text, "FieldValueForbidden")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield cause(f"{path}.values", text, "FieldValueRequired")
    else:
        yield cause(f"{path}.operator", f'Invalid value: "{operator}": not a valid selector operator')
    for i, value in enumerate(values):
        if len(value) > _LABEL_VALUE_LENGTH:
            text = f'Invalid value: "{value}": must be no more than {_LABEL_VALUE_LENGTH} characters'
            yield cause(f"{path}.values[{i}]", text)
        if not _LABEL_VALUE.fullmatch(value):
            yield cause(f"{path}.values[{i}]", f'Invalid value: "{value}": {_NOT_A_LABEL}')


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
    if not class_name:
        return spec
    held = lookup("runtimeclasses.node.k8s.io", "", class_name)
    details = {"name": name, "kind": "pods"}
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
