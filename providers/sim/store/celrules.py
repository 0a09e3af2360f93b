"""The rules of a custom kind that its schema does not say: `x-kubernetes-validations`, and the counts of its scale.

Source: apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`, `pkg/registry/customresource/validator.go`.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from providers.sim.store.cel import TOO_COSTLY, compiled
from providers.sim.store.celvalues import CelBudget, CelError, same
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.registry import Resource

Schema = dict[str, Any]
_RULES: Final = "x-kubernetes-validations"
_STEPS_MOST: Final = 1_000_000
"""Of all rules of an object together, ten times what one may cost (`RuntimeCELCostBudget`)."""
_NO_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
RULE_NAMES: Final = frozenset({"self", "oldSelf"})
"""The variables of a rule."""
# What is so wrong that rules are not asked: types, what is missing, sizes, unknown choices.
_BLOCKING: Final = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTypeInvalid",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueNotSupported",
    }
)
_UNCHECKED: Final = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def custom_faults(resource: Resource, obj: Any, old: Any, known: Sequence[Fault]) -> Iterator[Fault]:
    """What is wrong with a custom object beyond the faults of its schema, which are `known`."""
    if resource.scale_paths:
        yield from _scale_faults(obj, resource.scale_paths[0])
    schema = resource.schema or {}
    if any(fault["reason"] in _BLOCKING for fault in known):
        if _has_rules(schema):
            yield cause("<nil>", _UNCHECKED)
        return
    yield from _rule_faults(obj, old, schema, "", CelBudget(_STEPS_MOST))


_MOST_ANSWERS = 65536
_answers: dict[int, tuple[Schema, bool]] = {}
"""By identity of a schema, which the value beside the answer keeps from being another's: schemas are never changed."""


def _ruled(schema: Schema) -> bool:
    """Whether a schema has rules, itself or below; found out once."""
    known = _answers.get(id(schema))
    if known is not None:
        return known[1]
    if len(_answers) >= _MOST_ANSWERS:
        _answers.clear()
    found = _has_rules(schema)
    _answers[id(schema)] = schema, found
    return found


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return _RULES in schema or any(_has_rules(below) for below in schema.values())
    return isinstance(schema, list) and any(_has_rules(item) for item in schema)


def _scale_faults(obj: Any, path: str) -> Iterator[Fault]:
    value = obj
    for part in path.strip(".").split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        kind = {float: "float64", str: "string", bool: "bool"}.get(type(value), "map[string]interface {}")
        shown = int(value) if isinstance(value, float) and value.is_integer() else value
        yield cause(path, f"Invalid value: 0: {path} accessor error: {shown} is of the type {kind}, expected int64")
    elif value < 0:
        yield cause(path, f"Invalid value: {value}: should be a non-negative integer")


def _rule_faults(value: Any, old: Any, schema: Schema, path: str, budget: CelBudget) -> Iterator[Fault]:
    for rule in schema.get(_RULES) or ():
        yield from _asked(rule, value, old, path, budget)
    if isinstance(value, dict):
        known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, below in value.items():
            child = known.get(key) or (extra if isinstance(extra, dict) else None)
            if child is not None and _ruled(child):
                before = old.get(key) if isinstance(old, dict) else None
                yield from _rule_faults(below, before, child, f"{path}.{key}".lstrip("."), budget)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict) and _ruled(schema["items"]):
        for i, (item, before) in enumerate(zip(value, _correlated(value, old, schema), strict=True)):
            yield from _rule_faults(item, before, schema["items"], f"{path}[{i}]", budget)


def _correlated(items: list[Any], old: Any, schema: Schema) -> list[Any]:
    """The item that each was before: only those of a keyed list are known again."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list):
        return [None] * len(items)
    held = {tuple(it.get(key) for key in keys): it for it in old if isinstance(it, dict)}
    return [held.get(tuple(it.get(key) for key in keys)) if isinstance(it, dict) else None for it in items]


def _asked(rule: Schema, value: Any, old: Any, path: str, budget: CelBudget) -> Iterator[Fault]:
    if budget.left <= 0:
        return  # which was told
    expression = compiled(rule["rule"], RULE_NAMES)
    if "oldSelf" in expression.names:
        if old is None:
            return  # a transition rule has nothing to say about what is new
    elif old is not None and (value is old or same(value, old)):
        return  # what has not changed may stay as it is (ratcheting)
    try:
        holds = expression.value({"self": value, "oldSelf": old, "": budget})
    except CelError as error:
        if str(error) == TOO_COSTLY:
            budget.left = 0
            no_more = "no further validation rules will be run due to call cost exceeds limit for rule"
            yield cause(path, f"Invalid value: \"{_kind(value)}\": '{error}': {no_more}: {rule['rule']}")
            return
        said = f" evaluating rule: {rule['message']}" if rule.get("message") else ""
        yield cause(path, f'Invalid value: "{_kind(value)}": {error}{said}')
        return
    if budget.left <= 0:
        yield cause(path, f'Invalid value: "{_kind(value)}": {_NO_BUDGET}')
    elif holds is not True:
        yield _broken(rule, value, old, path)


def _broken(rule: Schema, value: Any, old: Any, path: str) -> Fault:
    said = rule.get("message") or f"failed rule: {rule['rule']}"
    if rule.get("messageExpression"):
        with contextlib.suppress(CelError):  # the message stands
            said = str(compiled(rule["messageExpression"], RULE_NAMES).value({"self": value, "oldSelf": old}))
    where = f"{path}{rule.get('fieldPath') or ''}".lstrip(".")
    match rule.get("reason") or "FieldValueInvalid":
        case "FieldValueForbidden":
            return cause(where, f"Forbidden: {said}", "FieldValueForbidden")
        case "FieldValueRequired":
            return cause(where, f"Required value: {said}", "FieldValueRequired")
        case reason:
            shown = "" if isinstance(value, dict | list) else f"{json.dumps(value)}: "
            return cause(where, f"Invalid value: {shown}{said}", reason)


def _kind(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value), "integer")
