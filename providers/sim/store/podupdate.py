"""Which fields of a pod may change after its creation.

Source: `pkg/apis/core/validation/validation.go` (ValidatePodUpdate, ValidatePodResize); KEP-3521 (scheduling gates),
KEP-3838 (directives of gated pods), KEP-1287 (resizing in place).
"""

from collections.abc import Iterator
from typing import Any, Final

from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj, invalid
from providers.sim.store.pods import defaulted_spec, with_default_tolerations
from providers.sim.store.podspec import pod_spec_faults
from providers.sim.store.registry import Resource

_FORBIDDEN: Final = "FieldValueForbidden"
_ONLY: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ADDITIONS: Final = "only additions are allowed (no mutations or deletions)"
_TERMS: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
_CHANGEABLE: Final = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
_RESIZABLE: Final = frozenset({"cpu", "memory"})


def updated_pod(resource: Resource, new: Obj, old: Obj) -> Obj:
    """A replaced pod, defaulted again, or the 422 that says which change is not allowed."""
    held = old["spec"]
    if new.get("spec") == held:
        return new
    spec = defaulted_spec({"enableServiceLinks": True, **(new.get("spec") or {})})
    spec["tolerations"] = with_default_tolerations(spec.get("tolerations") or [])
    spec = {**spec, **{field: held[field] for field in _ADMITTED if field in held and field not in spec}}
    if not spec["tolerations"] and "tolerations" not in held:
        del spec["tolerations"]
    faults = [*pod_spec_faults(spec, "spec"), *_change_faults(spec, held)]
    if faults:
        raise invalid(resource, old["metadata"]["name"], *faults)
    return {**new, "spec": spec}


# What admission put into the spec, and puts there again.
_ADMITTED: Final = ("priority", "preemptionPolicy")


def _change_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(held.get(field) or ()):
            text = "Forbidden: pod updates may not add or remove containers"
            yield cause(f"spec.{field}", text, _FORBIDDEN)
            return
    found = [*_deadline_faults(spec, held), *_toleration_faults(spec, held), *_gate_faults(spec, held)]
    gated = bool(held.get("schedulingGates"))
    if gated:
        found += _directive_faults(spec, held)
    yield from found
    if not found and _comparable(spec, held, gated=gated) != held:
        yield cause("spec", _ONLY, _FORBIDDEN)


def _deadline_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    after, before = spec.get("activeDeadlineSeconds"), held.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if after is None and before is not None:
        yield cause(path, "Invalid value: null: must not update from a positive integer to nil value")
    elif after is not None and before is not None and after > before:
        yield cause(path, f"Invalid value: {after}: must be less than or equal to previous value")


def _gate_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    before = {gate["name"] for gate in held.get("schedulingGates") or ()}
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in before:
            text = f"Forbidden: only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield cause(f"spec.schedulingGates[{i}].name", text, _FORBIDDEN)


def _toleration_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    given = [_timeless(it) for it in spec.get("tolerations") or ()]
    if not all(_timeless(it) in given for it in held.get("tolerations") or ()):
        text = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        yield cause("spec.tolerations", text, _FORBIDDEN)


def _timeless(toleration: Obj) -> Obj:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _directive_faults(spec: Obj, held: Obj) -> Iterator[Fault]:
    """While gated, node selectors and required node affinity may only become stricter (KEP-3838)."""
    given = spec.get("nodeSelector") or {}
    if any(given.get(key) != value for key, value in (held.get("nodeSelector") or {}).items()):
        yield cause("spec.nodeSelector", f"Invalid value: {given}: {_ADDITIONS}")
    before, after = _required_terms(held), _required_terms(spec)
    if before is None:
        return
    if after is None or len(after) != len(before):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield cause(_TERMS, f"Invalid value: {after}: {text}")
        return
    for i, (term, was) in enumerate(zip(after, before, strict=True)):
        if not _narrows(term, was):
            yield cause(f"{_TERMS}[{i}]", f"Invalid value: {term}: {_ADDITIONS}")


def _required_terms(spec: Obj) -> list[Obj] | None:
    node = ((spec.get("affinity") or {}).get("nodeAffinity")) or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    return (required.get("nodeSelectorTerms") or []) if required else None


def _narrows(after: Obj, before: Obj) -> bool:
    return all(
        expression in (after.get(part) or ())
        for part in ("matchExpressions", "matchFields")
        for expression in before.get(part) or ()
    )


def _comparable(spec: Obj, held: Obj, *, gated: bool) -> Obj:
    """The new spec with everything that may change set back to what is stored."""
    result = _restored(spec, held, _CHANGEABLE)
    for field in ("containers", "initContainers"):
        given, stored = spec.get(field) or [], held.get(field) or []
        if stored:
            result[field] = [
                {**g, **{word: s[word] for word in ("image", "imagePullPolicy") if word in s}}
                if g.get("image") != s.get("image") and g.get("imagePullPolicy") != s.get("imagePullPolicy")
                else {**g, "image": s.get("image")}
                for g, s in zip(given, stored, strict=True)
            ]
    if held.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        result["terminationGracePeriodSeconds"] = held["terminationGracePeriodSeconds"]
    if gated:
        result = _restored(result, held, ("nodeSelector",))
        affinity = _restored(result.get("affinity") or {}, held.get("affinity") or {}, ("nodeAffinity",))
        affinity = {key: value for key, value in affinity.items() if value}
        result = _restored(result, {**held, "affinity": affinity} if affinity else held, ("affinity",))
        if affinity == {key: value for key, value in (held.get("affinity") or {}).items() if value}:
            result = _restored(result, held, ("affinity",))
    return result


def _restored(new: Obj, old: Obj, fields: tuple[str, ...]) -> Obj:
    rest = {key: value for key, value in new.items() if key not in fields}
    return {**rest, **{field: old[field] for field in fields if field in old}}


def resized_pod(resource: Resource, new: Obj, old: Obj) -> Obj:
    """The pod with the new resources of its containers; nothing else of `new` counts. Invalid for other resources."""
    asked = {it.get("name"): it for it in (new.get("spec") or {}).get("containers") or ()}
    containers: list[Any] = []
    for held in old["spec"]["containers"]:
        resources = (asked.get(held["name"]) or held).get("resources") or {}
        containers.append({**held, "resources": resources})
        if _fixed_part(resources) != _fixed_part(held.get("resources") or {}):
            text = "Forbidden: only cpu and memory resources are mutable"
            raise invalid(resource, old["metadata"]["name"], cause("spec", text, _FORBIDDEN))
    spec = {**old["spec"], "containers": containers}
    if faults := pod_spec_faults(spec, "spec"):
        raise invalid(resource, old["metadata"]["name"], *faults)
    return {**old, "metadata": new["metadata"], "spec": spec}


def _fixed_part(resources: Obj) -> Obj:
    return {
        kind: {name: value for name, value in (resources.get(kind) or {}).items() if name not in _RESIZABLE}
        for kind in ("limits", "requests")
    }
