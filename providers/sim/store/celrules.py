"""The rules of a custom kind that its schema does not say: `x-kubernetes-validations`, and the counts of its scale.

Source: apiextensions-apiserver `pkg/apiserver/schema/cel/validation.go`, `pkg/registry/customresource/validator.go`.
"""

import base64
import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from celpy.celtypes import BytesType, TimestampType

from providers.sim.store.cel import TOO_COSTLY, compiled
from providers.sim.store.celvalues import CelBudget, CelError, MapList, SetList, same, time_of
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
    if schema.get(_RULES):
        try:
            known = {"self": typed(value, schema, root=not path), "oldSelf": typed(old, schema, root=not path)}
        except CelError as error:
            yield cause(path, f'Invalid value: "{_kind(value)}": {error}')
            return
        for rule in schema[_RULES]:
            yield from _asked(rule, value, {**known, "": budget}, path)
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


def _asked(rule: Schema, value: Any, known: dict[str, Any], path: str) -> Iterator[Fault]:
    budget, old = known[""], known["oldSelf"]
    if budget.left <= 0:
        return  # which was told
    expression = compiled(rule["rule"], RULE_NAMES)
    if "oldSelf" in expression.names:
        if old is None:
            return  # a transition rule has nothing to say about what is new
    elif old is not None and same(known["self"], old):
        return  # what has not changed may stay as it is (ratcheting)
    try:
        holds = expression.value(known)
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
        yield _broken(rule, value, known, path)


def _broken(rule: Schema, value: Any, known: dict[str, Any], path: str) -> Fault:
    said = rule.get("message") or f"failed rule: {rule['rule']}"
    if rule.get("messageExpression"):
        with contextlib.suppress(CelError):  # the message stands
            said = str(compiled(rule["messageExpression"], RULE_NAMES).value(known))
    where = f"{path}{rule.get('fieldPath') or ''}".lstrip(".")
    match rule.get("reason") or "FieldValueInvalid":
        case "FieldValueForbidden":
            return cause(where, f"Forbidden: {said}", "FieldValueForbidden")
        case "FieldValueRequired":
            return cause(where, f"Required value: {said}", "FieldValueRequired")
        case reason:
            shown = "" if isinstance(value, dict | list) else f"{json.dumps(value)}: "
            return cause(where, f"Invalid value: {shown}{said}", reason)


# -- values as rules see them ------------------------------------------------------------------------------------------

_NAMED: Final = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_TEXT: Final = {"type": "string"}
ROOT_FIELDS: Final[Schema] = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _NAMED}
"""What rules see of every object."""
_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
    "nano": 1e-9,
    "micro": 1e-6,
    "milli": 1e-3,
    "sec": 1,
    "min": 60,
    "hour": 3600,
    "hr": 3600,
    "day": 86400,
    "week": 604800,
    "wk": 604800,
    "second": 1,
    "minute": 60,
}
_PART: Final = re.compile(r"([0-9.]+)\s*([A-Za-z\u00b5]+)")


def typed(value: Any, schema: Schema, *, root: bool = False) -> Any:
    """A value as rules see it: times, durations, bytes, doubles and lists of their own kinds by what its schema says.

    Of an object these are its fields, and the others are not there. Errors: CelError, where it is no such value.
    Source: apiextensions-apiserver `pkg/apiserver/schema/cel/model`, apiserver `pkg/cel/common/values.go`.
    """
    if value is None or schema.get("x-kubernetes-int-or-string"):
        return value
    if isinstance(value, dict):
        return _typed_object(value, schema, root=root or bool(schema.get("x-kubernetes-embedded-resource")))
    if isinstance(value, list):
        return _typed_list([typed(it, schema.get("items") or {}) for it in value], schema)
    made = _SCALARS.get((schema.get("type"), schema.get("format") if isinstance(value, str) else None))
    if made is None:
        return value
    try:
        return made(value)
    except (ValueError, OverflowError) as error:
        raise CelError(f"Invalid {schema.get('format') or schema.get('type')} {value}({error})") from error


def _typed_object(value: Schema, schema: Schema, *, root: bool) -> Schema:
    known, extra = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(extra, dict) and not known:
        return {key: typed(below, extra) for key, below in value.items()}
    fields = {**(known or {}), **(ROOT_FIELDS if root else {})}
    return {key: typed(below, fields[key]) for key, below in value.items() if key in fields}


def _typed_list(items: list[Any], schema: Schema) -> list[Any]:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return SetList(items)
        case "map":
            return MapList(items, tuple(schema.get("x-kubernetes-list-map-keys") or ()))
        case _:
            return items


def _duration(text: str) -> Any:
    """A duration of Go's, or of the words that OpenAPI has (`3 days`)."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip(" -") or text.strip("-") == "":
        raise ValueError("it is no duration")
    seconds = sum(float(count) * _unit(name) for count, name in parts)
    return time_of(timedelta(seconds=-seconds if text.startswith("-") else seconds))


def _unit(name: str) -> float:
    found = _UNITS_S.get(name) or _UNITS_S.get(name.lower().removesuffix("s").removesuffix("second") or "s")
    if found is None:
        raise ValueError(f"unknown unit {name}")
    return found


_SCALARS: Final[Mapping[tuple[Any, Any], Callable[[Any], Any]]] = {
    ("number", None): float,
    ("integer", None): int,
    ("string", "byte"): lambda text: BytesType(base64.b64decode(text, validate=True)),
    ("string", "date"): lambda text: TimestampType(f"{text}T00:00:00Z"),
    ("string", "date-time"): TimestampType,
    ("string", "datetime"): TimestampType,
    ("string", "duration"): _duration,
}
"""Type and format -> what makes the value."""


def _kind(value: Any) -> str:
    return {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value), "integer")
