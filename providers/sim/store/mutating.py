"""Mutating admission policies: what they may say, and what they make of objects that are written.

Bindings take effect without parameters and without match resources of their own. Source: KEP-3962, apiserver
`pkg/admission/plugin/policy/mutating`, `pkg/apis/admissionregistration/validation`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from providers.sim.store.cel import compiled, constant_type, evaluate
from providers.sim.store.endpoints import shape_of
from providers.sim.store.errors import StorePolicyDenied, cause
from providers.sim.store.fields import merged
from providers.sim.store.jsonpatch import json_patch
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import required, unsupported
from providers.sim.store.registry import Resource
from providers.sim.store.selectors import matches_label_selector

POLICIES: Final = "mutatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"
_FAILURES: Final = ("Fail", "Ignore")
_REINVOCATIONS: Final = ("IfNeeded", "Never")
_PATCHES: Final = ("ApplyConfiguration", "JSONPatch")
_EMPTY_MATCH: Final = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}


def defaulted_policy(policy: Obj) -> Obj:
    """A policy with the defaults of the API."""
    spec = policy.get("spec") or {}
    match = spec.get("matchConstraints")
    if match is not None:
        rules = [{"scope": "*", **rule} for rule in match.get("resourceRules") or ()]
        match = {**_EMPTY_MATCH, **match, **({"resourceRules": rules} if rules else {})}
        spec = {**spec, "matchConstraints": match}
    return {**policy, "spec": {"failurePolicy": "Fail", **spec}}


def policy_faults(policy: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a policy."""
    spec = policy.get("spec") or {}
    if spec.get("matchConstraints") is None:
        yield required("spec.matchConstraints")
    if spec.get("failurePolicy", "Fail") not in _FAILURES:
        yield unsupported("spec.failurePolicy", spec["failurePolicy"], _FAILURES)
    if spec.get("reinvocationPolicy", "Never") not in _REINVOCATIONS:
        yield unsupported("spec.reinvocationPolicy", spec["reinvocationPolicy"], _REINVOCATIONS)
    for i, condition in enumerate(spec.get("matchConditions") or ()):
        here = f"spec.matchConditions[{i}]"
        if not condition.get("name"):
            yield required(f"{here}.name")
        yield from _expression_faults(condition.get("expression"), "bool", "bool", f"{here}.expression")
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for i, mutation in enumerate(mutations):
        yield from _mutation_faults(mutation, f"spec.mutations[{i}]")


def _mutation_faults(mutation: Obj, path: str) -> Iterator[Fault]:
    kind = mutation.get("patchType")
    if kind not in _PATCHES:
        yield unsupported(f"{path}.patchType", kind or "", _PATCHES)
        return
    field = "jsonPatch" if kind == "JSONPatch" else "applyConfiguration"
    if mutation.get(field) is None:
        yield required(f"{path}.{field}")
        return
    wanted, told = ("list", "list(JSONPatch)") if kind == "JSONPatch" else ("map", "Object")
    yield from _expression_faults(mutation[field].get("expression"), wanted, told, f"{path}.{field}.expression")


def _expression_faults(text: str | None, wanted: str, told: str, path: str) -> Iterator[Fault]:
    if not (text or "").strip():
        yield required(path)
        return
    expression = str(text)
    try:
        compiled(expression)
    except SyntaxError as error:
        yield cause(path, f'Invalid value: "{expression}": compilation failed: ERROR: {error}')
        return
    kind = constant_type(expression)
    if kind not in ("", wanted):
        yield cause(path, f'Invalid value: "{expression}": must evaluate to {told} but got {kind}')


def binding_faults(binding: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a binding."""
    if not (binding.get("spec") or {}).get("policyName"):
        yield required("spec.policyName")


class _Failed(Exception):
    """An expression that could not be evaluated."""


@dataclass(frozen=True, slots=True)
class MutatingPolicies:
    """The policies of a store, asked at each write: `listed` gives the objects of a resource by its key."""

    listed: Callable[[str], list[Obj]]
    namespace: Callable[[str], Obj | None]

    def mutated(self, resource: Resource, obj: Obj, old: Obj | None) -> Obj:
        """The object as the policies that match leave it. PolicyDenied where one fails that may not."""
        bindings = self.listed(BINDINGS)
        if not bindings:
            return obj
        held = {policy["metadata"]["name"]: policy for policy in self.listed(POLICIES)}
        for binding in bindings:
            policy = held.get((binding.get("spec") or {}).get("policyName") or "")
            if policy is not None and self._matches(policy, resource, obj, old):
                obj = self._applied(policy, binding, resource, obj, old)
        return obj

    def _matches(self, policy: Obj, resource: Resource, obj: Obj, old: Obj | None) -> bool:
        match = policy["spec"].get("matchConstraints") or {}
        if not any(_rule_matches(rule, resource, old) for rule in match.get("resourceRules") or ()):
            return False
        if not _selects(match.get("objectSelector"), obj):
            return False
        if not resource.namespaced or not match.get("namespaceSelector"):
            return True
        space = self.namespace(obj["metadata"].get("namespace", ""))
        return space is not None and _selects(match["namespaceSelector"], space)

    def _known(self, resource: Resource, obj: Obj, old: Obj | None) -> Obj:
        """The variables of an expression."""
        space = self.namespace((obj.get("metadata") or {}).get("namespace", "")) if resource.namespaced else None
        request = _request(resource, obj, old)
        return {"object": obj, "oldObject": old, "request": request, "namespaceObject": space, "variables": {}}

    def _applied(self, policy: Obj, binding: Obj, resource: Resource, obj: Obj, old: Obj | None) -> Obj:
        spec = policy["spec"]
        try:
            known = self._known(resource, obj, old)
            if not all(_value(it["expression"], known) for it in spec.get("matchConditions") or ()):
                return obj
            for mutation in spec["mutations"]:
                known = self._known(resource, obj, old)
                for variable in spec.get("variables") or ():
                    known["variables"][variable["name"]] = _value(variable["expression"], known)
                obj = _patched(mutation, resource, obj, known)
        except _Failed as error:
            if spec.get("failurePolicy") == "Ignore":
                return obj
            names = f"policy '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
            text = f"{names} denied request: {error}"
            told = {"name": obj["metadata"].get("name", ""), "group": resource.group, "kind": resource.plural}
            raise StorePolicyDenied(text, {**told, "causes": [{"message": text}]}) from error
        return obj


def _request(resource: Resource, obj: Obj, old: Obj | None) -> Obj:
    """What an expression knows as `request`."""
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    place = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    meta = obj.get("metadata") or {}
    asked = {"name": meta.get("name", ""), "namespace": meta.get("namespace", "")}
    return {"operation": "CREATE" if old is None else "UPDATE", "kind": kind, "resource": place, **asked}


def _rule_matches(rule: Obj, resource: Resource, old: Obj | None) -> bool:
    operation = "CREATE" if old is None else "UPDATE"
    asked = (
        ("apiGroups", resource.group),
        ("apiVersions", resource.version),
        ("resources", resource.plural),
        ("operations", operation),
    )
    return all("*" in (rule.get(field) or ()) or word in (rule.get(field) or ()) for field, word in asked)


def _selects(selector: Obj | None, obj: Obj) -> bool:
    return not selector or matches_label_selector(selector, (obj.get("metadata") or {}).get("labels") or {})


def _value(expression: str, known: Obj) -> Any:
    try:
        return evaluate(expression, **known)
    except KeyError as error:
        raise _Failed(f"expression '{expression}' resulted in error: no such key: {error.args[0]}") from error
    except (SyntaxError, TypeError, IndexError, AttributeError) as error:
        raise _Failed(f"expression '{expression}' resulted in error: {error}") from error


def _patched(mutation: Obj, resource: Resource, obj: Obj, known: Obj) -> Obj:
    if mutation["patchType"] == "JSONPatch":
        patch = json_patch(obj, _value(mutation["jsonPatch"]["expression"], known))
        return dict(patch)
    applied = _value(mutation["applyConfiguration"]["expression"], known)
    return dict(merged(obj, applied, shape_of(resource)))
