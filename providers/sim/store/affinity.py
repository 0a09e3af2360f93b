"""What the affinities of a pod, and label selectors anywhere, may say.

Source: `pkg/apis/core/validation/validation.go` (validateAffinity), apimachinery `pkg/apis/meta/v1/validation`
(ValidateLabelSelector).
"""

from collections.abc import Iterator
from typing import Any, Final

from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault, invalid_value, label_faults, label_value, qualified_name

Obj = dict[str, Any]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity_faults(spec: Obj, path: str) -> Iterator[Fault]:
    """What is wrong with the affinities of a pod spec."""
    affinity = spec.get("affinity")
    if not affinity:
        return
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(kind) or {}, f"{path}.affinity.{kind}")


def _node_affinity(affinity: Obj, path: str) -> Iterator[Fault]:
    required = affinity.get(_REQUIRED)
    if required is not None:
        terms, here = required.get("nodeSelectorTerms") or (), f"{path}.{_REQUIRED}.nodeSelectorTerms"
        if not terms:
            text = "Required value: must have at least one node selector term"
            yield cause(here, text, "FieldValueRequired")
        for i, term in enumerate(terms):
            yield from _node_term(term, f"{here}[{i}]")
    for i, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{path}.{_PREFERRED}[{i}]"
        yield from _weight(preferred, here)
        yield from _node_term(preferred.get("preference") or {}, f"{here}.preference")


def _weight(preferred: Obj, path: str) -> Iterator[Fault]:
    weight = preferred.get("weight") or 0
    if not 1 <= weight <= 100:
        yield cause(f"{path}.weight", f"Invalid value: {weight}: must be in the range 1-100")


def _node_term(term: Obj, path: str) -> Iterator[Fault]:
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _expression(expression, f"{path}.matchExpressions[{i}]")
    for i, field in enumerate(term.get("matchFields") or ()):
        yield from _field(field, f"{path}.matchFields[{i}]")


def _expression(expression: Obj, path: str) -> Iterator[Fault]:
    operator, values = expression.get("operator") or "", expression.get("values") or ()
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
    key = expression.get("key") or ""
    yield from invalid_value(f"{path}.key", key, qualified_name(key))
    for i, value in enumerate(values):
        yield from invalid_value(f"{path}.values[{i}]", value, label_value(value))


def _field(field: Obj, path: str) -> Iterator[Fault]:
    operator, key = field.get("operator") or "", field.get("key") or ""
    if operator in ("In", "NotIn"):
        if len(field.get("values") or ()) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield cause(f"{path}.values", f"Required value: {text}", "FieldValueRequired")
    else:
        yield cause(f"{path}.operator", f'Invalid value: "{operator}": not a valid selector operator')
    if key != "metadata.name":
        yield cause(f"{path}.key", f'Invalid value: "{key}": not a valid field selector key')


def _pod_affinity(affinity: Obj, path: str) -> Iterator[Fault]:
    for i, term in enumerate(affinity.get(_REQUIRED) or ()):
        yield from _pod_term(term, f"{path}.{_REQUIRED}[{i}]")
    for i, preferred in enumerate(affinity.get(_PREFERRED) or ()):
        here = f"{path}.{_PREFERRED}[{i}]"
        yield from _weight(preferred, here)
        yield from _pod_term(preferred.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")


def _pod_term(term: Obj, path: str) -> Iterator[Fault]:
    for part in ("labelSelector", "namespaceSelector"):
        yield from selector_faults(term.get(part), f"{path}.{part}")
    key = term.get("topologyKey") or ""
    if not key:
        yield cause(f"{path}.topologyKey", "Required value: can not be empty", "FieldValueRequired")
    yield from invalid_value(f"{path}.topologyKey", key, qualified_name(key))


def selector_faults(selector: Obj | None, path: str) -> Iterator[Fault]:
    """What is wrong with a label selector."""
    if not selector:
        return
    yield from label_faults(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for i, expression in enumerate(selector.get("matchExpressions") or ()):
        here = f"{path}.matchExpressions[{i}]"
        operator, values = expression.get("operator") or "", expression.get("values") or ()
        if operator in ("In", "NotIn") and not values:
            text = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            yield cause(f"{here}.values", text, "FieldValueRequired")
        elif operator in ("Exists", "DoesNotExist") and values:
            text = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield cause(f"{here}.values", text, "FieldValueForbidden")
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            yield cause(f"{here}.operator", f'Invalid value: "{operator}": not a valid selector operator')
        yield from invalid_value(
            f"{here}.key", expression.get("key") or "", qualified_name(expression.get("key") or "")
        )
