"""What admission policies of both kinds have in common: conditions, variables, bindings, and what they may say.

Source: apiserver `pkg/admission/plugin/policy`, `pkg/apis/admissionregistration/validation`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from providers.sim.store.cel import CelExpression, compiled, constant_type
from providers.sim.store.celgrammar import InvalidCel
from providers.sim.store.celvalues import CelBudget, CelError
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import duplicate, required, unsupported
from providers.sim.store.policymatch import AskedWrite, match_faults, matches, refused

FAILURES: Final = ("Fail", "Ignore")
_OBJECTS: Final = frozenset({"object", "oldObject", "request", "namespaceObject"})
NAMES: Final = _OBJECTS | {"variables"}
"""The variables of an expression."""
_STEPS_MOST: Final = 1_000_000
"""Of all expressions of a policy together, ten times what one may cost (`RuntimeCELCostBudget`)."""
_EMPTY_MATCH: Final = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}


class PolicyFails(Exception):
    """An expression of a policy, or what it asks for, that could not be evaluated."""


def value_of(expression: CelExpression, known: Mapping[str, Any]) -> Any:
    """The value of an expression. Errors: PolicyFails, in the words of the API server."""
    try:
        return expression.value(known)
    except CelError as error:
        raise PolicyFails(f"expression '{expression.text}' resulted in error: {error}") from error


class _Variables(dict[str, Any]):
    """The variables of a policy, each computed when it is first asked for: a value or a failure that is remembered."""

    def __init__(self, expressions: Mapping[str, CelExpression], known: dict[str, Any]) -> None:
        super().__init__()
        self._expressions, self._known = expressions, known
        self._failures: dict[str, str] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._expressions

    def __missing__(self, name: str) -> Any:
        if name not in self._failures:
            try:
                self[name] = found = self._expressions[name].value(self._known)
            except CelError as error:
                self._failures[name] = f'composited variable "{name}" fails to evaluate: {error}'
            else:
                return found
        raise CelError(self._failures[name])


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """A policy with one of its bindings, compiled."""

    name: str
    binding: str
    fails: bool
    """Whether what cannot be evaluated denies."""
    spec: Obj
    binding_spec: Obj
    conditions: tuple[CelExpression, ...]
    variables: Mapping[str, CelExpression]

    @classmethod
    def of(cls, policy: Obj, binding: Obj) -> "BoundPolicy":
        """Compile what both kinds have."""
        spec = policy["spec"]
        return cls(
            name=policy["metadata"]["name"],
            binding=binding["metadata"]["name"],
            fails=spec.get("failurePolicy", "Fail") == "Fail",
            spec=spec,
            binding_spec=binding["spec"],
            conditions=tuple(compiled(it["expression"], NAMES) for it in spec.get("matchConditions") or ()),
            variables={it["name"]: compiled(it["expression"], NAMES) for it in spec.get("variables") or ()},
        )

    def matches(self, asked: AskedWrite) -> bool:
        """Whether policy and binding mean this write, as far as rules and selectors say."""
        own = self.binding_spec.get("matchResources")
        return matches(self.spec.get("matchConstraints") or {}, asked) and (own is None or matches(own, asked))

    def known(self, asked: AskedWrite, obj: Obj | None) -> dict[str, Any]:
        """The values of the variables of its expressions."""
        known: dict[str, Any] = {
            "object": obj,
            "oldObject": asked.old,
            "request": asked.request,
            "namespaceObject": asked.namespace,
            "": CelBudget(_STEPS_MOST),
        }
        known["variables"] = _Variables(self.variables, known)
        return known

    def applies(self, known: Mapping[str, Any]) -> bool:
        """Whether all conditions hold; one that does not counts more than one that fails. Errors: PolicyFails."""
        trouble: PolicyFails | None = None
        for condition in self.conditions:
            try:
                if value_of(condition, known) is not True:
                    return False
            except PolicyFails as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return True


def defaulted_policy(policy: Obj) -> Obj:
    """A policy with the defaults of the API."""
    spec = policy.get("spec") or {}
    match = spec.get("matchConstraints")
    if match is not None:
        spec = {**spec, "matchConstraints": _defaulted_match(match)}
    return {**policy, "spec": {"failurePolicy": "Fail", **spec}}


def defaulted_binding(binding: Obj) -> Obj:
    """A binding with the defaults of the API."""
    spec = binding.get("spec") or {}
    if spec.get("matchResources") is None:
        return binding
    return {**binding, "spec": {**spec, "matchResources": _defaulted_match(spec["matchResources"])}}


def _defaulted_match(match: Obj) -> Obj:
    found = {**_EMPTY_MATCH, **match}
    for name in ("resourceRules", "excludeResourceRules"):
        if match.get(name):
            found[name] = [{"scope": "*", **rule} for rule in match[name]]
    return found


def rules_faults(spec: Obj, *, parts: bool, operations: tuple[str, ...]) -> Iterator[Fault]:
    """What is wrong with what policies of both kinds say."""
    yield from refused(spec, ("paramKind",), "spec")
    match = spec.get("matchConstraints")
    if match is None:
        yield required("spec.matchConstraints")
    else:
        if not match.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        yield from match_faults(match, "spec.matchConstraints", parts=parts, operations=operations)
    if spec.get("failurePolicy", "Fail") not in FAILURES:
        yield unsupported("spec.failurePolicy", spec["failurePolicy"], FAILURES)
    for field in ("matchConditions", "variables"):
        yield from _named_faults(spec, field)


def _named_faults(spec: Obj, field: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for i, it in enumerate(spec.get(field) or ()):
        here, name = f"spec.{field}[{i}]", it.get("name") or ""
        if not name:
            yield required(f"{here}.name")
        elif name in seen:
            yield duplicate(f"{here}.name", name)
        wanted = ("bool",) if field == "matchConditions" else ()
        earlier = seen if field == "variables" else {at.get("name") for at in spec.get("variables") or ()}
        yield from expression_faults(it.get("expression"), wanted, "bool", f"{here}.expression", earlier)
        seen.add(name)


def expression_faults(
    text: str | None,
    wanted: tuple[str, ...],
    told: str,
    path: str,
    variables: set[str],
    *,
    messages: bool = False,
) -> Iterator[Fault]:
    """What is wrong with an expression, which may use those `variables`; `wanted` are the types that it may have."""
    if not (text or "").strip():
        yield required(path)
        return
    expression = str(text)
    try:
        found = compiled(expression, NAMES, messages=messages)
    except InvalidCel as error:
        yield cause(path, f'Invalid value: "{expression}": compilation failed: ERROR: {error}')
        return
    for name in sorted(found.variables - variables):
        yield cause(path, f"Invalid value: \"{expression}\": compilation failed: ERROR: undefined field '{name}'")
    kind = constant_type(found)
    if wanted and kind not in ("", *wanted):
        yield cause(path, f'Invalid value: "{expression}": must evaluate to {told} but got {kind}')


def binding_faults(binding: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a binding of a mutating policy, or of any."""
    spec = binding.get("spec") or {}
    if not spec.get("policyName"):
        yield required("spec.policyName")
    yield from refused(spec, ("paramRef",), "spec")
    yield from match_faults(spec.get("matchResources") or {}, "spec.matchResources", parts=True)
