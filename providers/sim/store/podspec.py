"""What a pod, and a pod template, may say: a table of rules over its fields.

Source: `pkg/apis/core/validation/validation.go` (ValidatePodSpec and what it calls).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from providers.sim.store.affinity import affinity_faults
from providers.sim.store.amounts import container_faults, pod_level_faults
from providers.sim.store.errors import cause
from providers.sim.store.naming import (
    Fault,
    dns_label,
    dns_subdomain,
    env_name,
    invalid_value,
    label_faults,
    label_value,
    qualified_name,
)

Obj = dict[str, Any]
_PORTS: Final = (1, 65535)
_DEADLINES: Final = (1, 2147483647)
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTARTS: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULLS: Final = ("Always", "IfNotPresent", "Never")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")


def pod_spec_faults(spec: Obj, path: str) -> list[Fault]:
    """What is wrong with a pod spec, by field path, in the order of the server."""
    return [fault for rule in _RULES for fault in rule(spec, path)]


def unsupported(path: str, value: Any, known: Sequence[str]) -> Fault:
    """A value that is not among those there are."""
    listed = ", ".join(f'"{it}"' for it in known)
    return cause(path, f'Unsupported value: "{value}": supported values: {listed}', "FieldValueNotSupported")


def between(path: str, value: Any, bounds: tuple[int, int]) -> Iterator[Fault]:
    """A number that is out of its bounds."""
    low, high = bounds
    if isinstance(value, int) and not low <= value <= high:
        yield cause(path, f"Invalid value: {value}: must be between {low} and {high}, inclusive")


def required(path: str, text: str = "") -> Fault:
    """A field that is missing."""
    return cause(path, f"Required value: {text}" if text else "Required value", "FieldValueRequired")


def taint_faults(taint: Obj, path: str, effects: Sequence[str]) -> Iterator[Fault]:
    """What is wrong with a taint, of a node or of a device, which may have these effects."""
    key, value, effect = (taint.get(field) or "" for field in ("key", "value", "effect"))
    yield from invalid_value(f"{path}.key", key, qualified_name(key))
    yield from invalid_value(f"{path}.value", value, label_value(value))
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in effects:
        yield unsupported(f"{path}.effect", effect, effects)


def duplicate(path: str, value: Any) -> Fault:
    """A value that was there before."""
    return cause(path, f'Duplicate value: "{value}"', "FieldValueDuplicate")


def _volumes(spec: Obj, path: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or ()):
        here, name = f"{path}.volumes[{i}].name", volume.get("name") or ""
        if not name:
            yield required(here)
        else:
            yield from invalid_value(here, name, dns_label(name))
        if name in seen:
            yield duplicate(here, name)
        seen.add(name)


def _containers(spec: Obj, path: str) -> Iterator[Fault]:
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield required(f"{path}.containers")
        return
    yield from _named_containers(containers, spec, f"{path}.containers", set())


def _init_containers(spec: Obj, path: str) -> Iterator[Fault]:
    held = spec.get("initContainers")
    if held:
        others = {it.get("name") for it in spec.get("containers") or () if isinstance(it, dict)}
        yield from _named_containers(held, spec, f"{path}.initContainers", others)


def _named_containers(containers: list[Any], spec: Obj, path: str, seen: set[Any]) -> Iterator[Fault]:
    for i, container in enumerate(containers):
        here = f"{path}[{i}]"
        if not isinstance(container, dict):
            yield required(f"{here}.name")
            continue
        name = container.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        else:
            yield from invalid_value(f"{here}.name", name, dns_label(name))
        if name and name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield required(f"{here}.image")
        for rule in _CONTAINER_RULES:
            yield from rule(container, here, spec)


def _ports(container: Obj, path: str, spec: Obj) -> Iterator[Fault]:
    for i, port in enumerate(container.get("ports") or ()):
        here = f"{path}.ports[{i}]"
        number, on_host = port.get("containerPort"), port.get("hostPort")
        if not number:
            yield required(f"{here}.containerPort")
        else:
            yield from between(f"{here}.containerPort", number, _PORTS)
        if on_host:
            yield from between(f"{here}.hostPort", on_host, _PORTS)
            if spec.get("hostNetwork") and on_host != number:
                text = "must match `containerPort` when `hostNetwork` is true"
                yield cause(f"{here}.hostPort", f"Invalid value: {on_host}: {text}")
        if port.get("protocol", "TCP") not in _PROTOCOLS:
            yield unsupported(f"{here}.protocol", port["protocol"], _PROTOCOLS)


def _env(container: Obj, path: str, _: Obj) -> Iterator[Fault]:
    for i, variable in enumerate(container.get("env") or ()):
        here, name = f"{path}.env[{i}].name", variable.get("name") or ""
        if not name:
            yield required(here)
        else:
            yield from invalid_value(here, name, env_name(name))


def _mounts(container: Obj, path: str, spec: Obj) -> Iterator[Fault]:
    volumes = {it.get("name") for it in spec.get("volumes") or ()} if container.get("volumeMounts") else set()
    places: set[str] = set()
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        here, name, place = f"{path}.volumeMounts[{i}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{here}.name")
        elif name not in volumes:
            yield cause(f"{here}.name", f'Not found: "{name}"', "FieldValueNotFound")
        if not place:
            yield required(f"{here}.mountPath")
        elif place in places:
            yield cause(f"{here}.mountPath", f'Invalid value: "{place}": must be unique')
        places.add(place)


def _pull_policy(container: Obj, path: str, _: Obj) -> Iterator[Fault]:
    if container.get("imagePullPolicy", "Always") not in _PULLS:
        yield unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULLS)


def _resources(container: Obj, path: str, _: Obj) -> Iterator[Fault]:
    resources = container.get("resources")
    if resources:
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        whole = {**resources, "requests": {**limits, **requests}} if limits else resources
        yield from container_faults(whole, f"{path}.resources")


def _node_selector(spec: Obj, path: str) -> Iterator[Fault]:
    if spec.get("nodeSelector"):
        yield from label_faults(spec["nodeSelector"], f"{path}.nodeSelector")


def _scalars(spec: Obj, path: str) -> Iterator[Fault]:
    if spec.get("restartPolicy", "Always") not in _RESTARTS:
        yield unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTARTS)
    if spec.get("dnsPolicy", "ClusterFirst") not in _DNS:
        yield unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS)
    if spec.get("nodeName"):
        yield from invalid_value(f"{path}.nodeName", spec["nodeName"], dns_subdomain(spec["nodeName"]))
    for field in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
        if spec.get(field):
            yield from invalid_value(f"{path}.{field}", spec[field], dns_subdomain(spec[field]))
    yield from between(f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), _DEADLINES)


def _tolerations(spec: Obj, path: str) -> Iterator[Fault]:
    for i, toleration in enumerate(spec.get("tolerations") or ()):
        yield from toleration_faults(toleration, f"{path}.tolerations[{i}]")


def toleration_faults(toleration: Obj, path: str) -> Iterator[Fault]:
    """What is wrong with one toleration."""
    key, operator, effect = toleration.get("key"), toleration.get("operator") or "", toleration.get("effect") or ""
    if key:
        yield from invalid_value(f"{path}.key", key, qualified_name(key))
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield cause(f"{path}.operator", f'Invalid value: "{operator}": {text}')
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield cause(f"{path}.effect", f'Invalid value: "{effect}": {text}')
    yield from _operator_faults(toleration, operator, path)
    if effect and effect not in _EFFECTS:
        yield unsupported(f"{path}.effect", effect, _EFFECTS)


def _operator_faults(toleration: Obj, operator: str, path: str) -> Iterator[Fault]:
    value = toleration.get("value") or ""
    if operator in ("", "Equal"):
        yield from invalid_value(f"{path}.operator", value, label_value(value))
    elif operator == "Exists":
        if value:
            text = "value must be empty when `operator` is 'Exists'"
            yield cause(f"{path}.operator", f'Invalid value: "{value}": {text}')
    else:
        known = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        yield unsupported(f"{path}.operator", operator, known)


def _spread(spec: Obj, path: str) -> Iterator[Fault]:
    seen: set[tuple[Any, Any]] = set()
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        here = f"{path}.topologySpreadConstraints[{i}]"
        skew, key, unsatisfiable = (constraint.get(it) for it in ("maxSkew", "topologyKey", "whenUnsatisfiable"))
        if (skew or 0) <= 0:
            yield cause(f"{here}.maxSkew", f"Invalid value: {skew or 0}: must be greater than zero")
        if not key:
            yield required(f"{here}.topologyKey", "can not be empty")
        else:
            yield from invalid_value(f"{here}.topologyKey", key, qualified_name(key))
        if unsatisfiable not in _UNSATISFIABLE:
            yield unsupported(f"{here}.whenUnsatisfiable", unsatisfiable or "", _UNSATISFIABLE)
        if (key, unsatisfiable) in seen:
            text = f"{{{key}, {unsatisfiable}}}"
            yield duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", text)
        seen.add((key, unsatisfiable))
        yield from _least_domains(constraint, here)


def _least_domains(constraint: Obj, path: str) -> Iterator[Fault]:
    domains, unsatisfiable = constraint.get("minDomains"), constraint.get("whenUnsatisfiable")
    if domains is None:
        return
    if domains <= 0:
        yield cause(f"{path}.minDomains", f"Invalid value: {domains}: must be greater than zero")
    elif unsatisfiable != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {unsatisfiable}"
        yield cause(f"{path}.minDomains", f"Invalid value: {domains}: {text}")


def _gates(spec: Obj, path: str) -> Iterator[Fault]:
    seen: set[Any] = set()
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        here, name = f"{path}.schedulingGates[{i}]", gate.get("name") or ""
        yield from invalid_value(here, name, qualified_name(name))
        if name in seen:
            yield duplicate(here, name)
        seen.add(name)


def _claims(spec: Obj, path: str) -> Iterator[Fault]:
    """The claims that a pod names, and those that its containers take of them."""
    claims = spec.get("resourceClaims") or []
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        here, name = f"{path}.resourceClaims[{i}]", claim.get("name") or ""
        if name in seen:
            yield duplicate(f"{here}.name", name)
        seen.add(name)
        yield from _pod_claim(claim, here, name)
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            if isinstance(container, dict):
                uses = (container.get("resources") or {}).get("claims") or ()
                yield from _container_claims(uses, f"{path}.{field}[{i}].resources.claims", seen)


def _pod_claim(claim: Obj, path: str, name: str) -> Iterator[Fault]:
    named, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
    if not name:
        yield required(f"{path}.name")
    else:
        yield from invalid_value(f"{path}.name", name, dns_label(name))
    shown = json.dumps({"Name": name, "ResourceClaimName": named, "ResourceClaimTemplateName": template})
    if named is not None and template is not None:
        text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        yield cause(path, f"Invalid value: {shown}: {text}")
    elif named is None and template is None:
        text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        yield cause(path, f"Invalid value: {shown}: {text}")
    for field, value in (("resourceClaimName", named), ("resourceClaimTemplateName", template)):
        if value is not None:
            yield from invalid_value(f"{path}.{field}", value, dns_subdomain(value))


def _container_claims(uses: Sequence[Obj], path: str, there: set[str]) -> Iterator[Fault]:
    seen: set[tuple[str, str]] = set()
    for i, use in enumerate(uses):
        name, request = use.get("name") or "", use.get("request") or ""
        if not name:
            yield required(f"{path}[{i}].name")
        elif name not in there:
            yield cause(f"{path}[{i}].name", f'Not found: "{name}"', "FieldValueNotFound")
        if (name, request) in seen:
            yield duplicate(f"{path}[{i}]", f"{name}/{request}" if request else name)
        seen.add((name, request))


_CONTAINER_RULES: Final[tuple[Callable[[Obj, str, Obj], Iterator[Fault]], ...]] = (
    _ports,
    _env,
    _mounts,
    _pull_policy,
    _resources,
)
_RULES: Final[tuple[Callable[[Obj, str], Iterator[Fault]], ...]] = (
    _volumes,
    _containers,
    _init_containers,
    lambda spec, path: pod_level_faults(spec, f"{path}.resources"),
    _node_selector,
    _scalars,
    affinity_faults,
    _tolerations,
    _gates,
    _spread,
    _claims,
)
