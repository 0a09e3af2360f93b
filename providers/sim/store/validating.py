"""Validating admission policies: what they may say, and what they say to a write.

Source: KEP-3488, apiserver `pkg/admission/plugin/policy/validating`, `pkg/apis/admissionregistration/validation`. There
is no audit log: what a binding has audited is a line in the log of the process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from providers.sim.store.cel import CelExpression, compiled
from providers.sim.store.celvalues import CelError
from providers.sim.store.endpoints import details, qualified
from providers.sim.store.errors import (
    ApiError,
    StoreForbidden,
    StoreInvalid,
    StoreRequestTooLarge,
    StoreUnauthorized,
    cause,
)
from providers.sim.store.naming import Fault
from providers.sim.store.objects import Obj
from providers.sim.store.podspec import duplicate, required, unsupported
from providers.sim.store.policymatch import AskedWrite, refused
from providers.sim.store.policyrules import (
    NAMES,
    BoundPolicy,
    PolicyFails,
    binding_faults,
    expression_faults,
    rules_faults,
    value_of,
)

_log = structlog.get_logger(__name__)
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_DENIALS: Final[Mapping[str, type[ApiError]]] = {
    "Forbidden": StoreForbidden,
    "Invalid": StoreInvalid,
    "RequestEntityTooLarge": StoreRequestTooLarge,
    "Unauthorized": StoreUnauthorized,
}
_MESSAGE_BYTES: Final = 5 * 1024


def policy_faults(policy: Obj, _: Obj | None) -> Iterator[Fault]:
    """What is wrong with a validating policy."""
    spec = policy.get("spec") or {}
    yield from rules_faults(spec, parts=True, operations=("CREATE", "UPDATE", "DELETE", "*"))
    yield from refused(spec, ("auditAnnotations",), "spec")
    if not spec.get("validations"):
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
    variables = {it.get("name") for it in spec.get("variables") or ()}
    for i, it in enumerate(spec.get("validations") or ()):
        here = f"spec.validations[{i}]"
        yield from expression_faults(it.get("expression"), ("bool",), "bool", f"{here}.expression", variables)
        if it.get("messageExpression"):
            path = f"{here}.messageExpression"
            yield from expression_faults(it["messageExpression"], ("string",), "string", path, variables)
        if "\n" in (it.get("message") or ""):
            yield cause(f"{here}.message", f'Invalid value: "{it["message"]}": message must not contain line breaks')
        if it.get("reason") not in (None, *_DENIALS):
            yield unsupported(f"{here}.reason", it["reason"], tuple(_DENIALS))


def validating_binding_faults(binding: Obj, old: Obj | None) -> Iterator[Fault]:
    """What is wrong with a binding of a validating policy."""
    yield from binding_faults(binding, old)
    actions = (binding.get("spec") or {}).get("validationActions") or []
    if not actions:
        yield required("spec.validationActions")
    for i, action in enumerate(actions):
        if action not in _ACTIONS:
            yield unsupported(f"spec.validationActions[{i}]", action, _ACTIONS)
        if action in actions[:i]:
            yield duplicate(f"spec.validationActions[{i}]", action)
    if "Deny" in actions and "Warn" in actions:
        shown = "[" + ", ".join(f'"{it}"' for it in actions) + "]"
        yield cause("spec.validationActions", f"Invalid value: {shown}: must not contain both Deny and Warn")


@dataclass(frozen=True, slots=True)
class _Validation:
    """One expression that has to be true, and what is said where it is not."""

    holds: CelExpression
    told: CelExpression | None
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValidatingPolicy:
    """A bound policy, and what it demands."""

    bound: BoundPolicy
    validations: tuple[_Validation, ...]
    actions: tuple[str, ...]

    @classmethod
    def of(cls, policy: Obj, binding: Obj) -> "ValidatingPolicy":
        """Compile a policy."""
        validations = tuple(
            _Validation(
                compiled(it["expression"], NAMES),
                compiled(it["messageExpression"], NAMES) if it.get("messageExpression") else None,
                (it.get("message") or "").strip(),
                it.get("reason") or "Invalid",
            )
            for it in policy["spec"]["validations"]
        )
        return cls(BoundPolicy.of(policy, binding), validations, tuple(binding["spec"]["validationActions"]))

    def refusals(self, asked: AskedWrite) -> Iterator[tuple[str, str]]:
        """What it has against a write, with the reason of each."""
        known = self.bound.known(asked, asked.obj)
        try:
            if not self.bound.applies(known):
                return
        except PolicyFails as error:
            if self.bound.fails:
                yield str(error), "Invalid"
            return
        for validation in self.validations:
            try:
                if value_of(validation.holds, known) is not True:
                    yield _told(validation, known), validation.reason
            except PolicyFails as error:
                if self.bound.fails:
                    yield str(error), "Invalid"


def _told(validation: _Validation, known: Mapping[str, Any]) -> str:
    """What is said: the value of its expression, if that is one line; else its message; else the expression itself."""
    if validation.told is not None:
        try:
            value = validation.told.value(known)
        except CelError:
            value = None
        if isinstance(value, str):
            text = value.strip()
            if text and "\n" not in text and len(text.encode()) <= _MESSAGE_BYTES:
                return text
    return validation.message or f"failed expression: {validation.holds.text.strip()}"


def validate(policies: Sequence[ValidatingPolicy], asked: AskedWrite, warn: Callable[[str], None]) -> None:
    """Ask the policies that mean this write. Errors: the first that denies it, with its reason."""
    denied: list[tuple[str, str]] = []
    for policy in policies:
        if not policy.bound.matches(asked):
            continue
        names = f"'{policy.bound.name}' with binding '{policy.bound.binding}'"
        for message, reason in policy.refusals(asked):
            if "Deny" in policy.actions:
                denied.append((f"ValidatingAdmissionPolicy {names} denied request: {message}", reason))
            if "Warn" in policy.actions:
                warn(f"Validation failed for ValidatingAdmissionPolicy {names}: {message}")
            if "Audit" in policy.actions:
                _log.warning("validation_failure", policy=policy.bound.name, binding=policy.bound.binding, told=message)
    if denied:
        message, reason = denied[0]
        name = asked.metadata.get("name", "")
        text = f'{qualified(asked.resource)} "{name}" is forbidden: {message}'
        raise _DENIALS[reason](text, {**details(asked.resource, name), "causes": [{"message": message}]})
