"""What makes the schema of a custom kind structural, and its rules and defaults sound.

Source: apiextensions-apiserver `pkg/apiserver/schema` (validation.go, defaulting), `pkg/apis/apiextensions/validation`.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from providers.sim.store.cel import compiled, constant_type
from providers.sim.store.celgrammar import InvalidCel
from providers.sim.store.celrules import ROOT_FIELDS, RULE_NAMES
from providers.sim.store.celvalues import unescaped
from providers.sim.store.errors import cause
from providers.sim.store.naming import Fault
from providers.sim.store.podspec import required
from providers.sim.store.schema import faults as value_faults

Schema = dict[str, Any]
_OPEN: Final = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
_FIELD: Final = re.compile(r"(?<![\w.'\"])(self|oldSelf)((?:\.[A-Za-z_]\w*)+)")


def structural_faults(schema: Schema, path: str) -> Iterator[Fault]:
    """What is wrong with a whole schema."""
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    yield from _below(schema, path)


def _below(schema: Schema, path: str) -> Iterator[Fault]:
    yield from _list_faults(schema, path)
    if "default" in schema:
        for fault in value_faults(schema["default"], {**schema, "nullable": schema.get("nullable", False)}):
            text = fault["message"].replace("<root> in body", " in body")
            yield cause(f"{path}.default", text, fault["reason"])
    for i, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        yield from _rule_faults(rule, schema, f"{path}.x-kubernetes-validations[{i}].rule")
    for name, part in (schema.get("properties") or {}).items():
        yield from _part(part, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from _part(schema[word], f"{path}.{word}")


def _part(schema: Any, path: str) -> Iterator[Fault]:
    if not isinstance(schema, dict):
        return
    if not schema.get("type") and not any(schema.get(word) for word in _OPEN):
        kind = "items" if path.endswith(".items") else "fields"
        yield required(
            f"{path}.type", f"must not be empty for specified {'array' if kind == 'items' else 'object'} {kind}"
        )
    yield from _below(schema, path)


def _list_faults(schema: Schema, path: str) -> Iterator[Fault]:
    if schema.get("type") != "array":
        return
    items, keys = schema.get("items"), schema.get("x-kubernetes-list-map-keys") or ()
    if items is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("x-kubernetes-list-type") != "map":
        return
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    body = items if isinstance(items, dict) else {}
    for key in keys:
        field = (body.get("properties") or {}).get(key) or {}
        if key not in (body.get("required") or ()) and "default" not in field:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", text)


def _rule_faults(rule: Schema, schema: Schema, path: str) -> Iterator[Fault]:
    text = rule.get("rule") or ""
    if not text.strip():
        yield required(path, "rule is not specified")
        return
    shown = {"Rule": text, "Message": rule.get("message", ""), "MessageExpression": rule.get("messageExpression", "")}
    more = {"Reason": rule.get("reason"), "FieldPath": rule.get("fieldPath", ""), "OptionalOldSelf": None}
    value = json.dumps({**shown, **more}, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")
    unknown = _unknown_field(text, schema)
    if unknown:
        name, at = unknown
        where = f"ERROR: <input>:1:{at}: undefined field '{name}'\n | {text}\n | {'.' * (at - 1)}^"
        yield cause(path, f"Invalid value: {value}: compilation failed: {where}")
        return
    try:
        expression = compiled(text, RULE_NAMES)
    except InvalidCel as error:
        yield cause(path, f"Invalid value: {value}: compilation failed: ERROR: {error}")
        return
    if constant_type(expression) not in ("", "bool"):
        yield cause(path, f"Invalid value: {value}: cel expression must evaluate to a bool")
    yield from _more_faults(rule, path.removesuffix(".rule"))


def _more_faults(rule: Schema, path: str) -> Iterator[Fault]:
    """What is wrong beside the rule itself: its message, and what has no effect here."""
    if rule.get("optionalOldSelf") is not None:
        yield cause(
            f"{path}.optionalOldSelf", "Forbidden: optionalOldSelf is not supported here", "FieldValueForbidden"
        )
    if told := rule.get("messageExpression"):
        try:
            kind = constant_type(compiled(told, RULE_NAMES))
        except InvalidCel as error:
            yield cause(f"{path}.messageExpression", f'Invalid value: "{told}": compilation failed: ERROR: {error}')
            return
        if kind not in ("", "string"):
            text = f'Invalid value: "{told}": messageExpression must evaluate to a string'
            yield cause(f"{path}.messageExpression", text)


def _unknown_field(text: str, schema: Schema) -> tuple[str, int] | None:
    """A field below `self` that the schema does not have, and the column where it stands."""
    for match in _FIELD.finditer(text):
        below: Schema | None = {**schema, "properties": {**ROOT_FIELDS, **(schema.get("properties") or {})}}
        at = match.end(1)
        for name in match[2].split(".")[1:]:
            fields = _fields(below or {})
            if fields is None:
                break
            if unescaped(name) not in fields and name not in fields:
                called = at + 1 + len(name) == match.end() and text[match.end() :].lstrip().startswith("(")
                return None if called else (name, at + 1)
            below = fields.get(name) or fields.get(unescaped(name))
            at += 1 + len(name)
    return None


def _fields(schema: Schema) -> Schema | None:
    """The fields of an object; None of what is a map, a list or a value."""
    if schema.get("type") != "object" or isinstance(schema.get("additionalProperties"), dict):
        return None
    known: Schema = schema.get("properties") or {}
    return {**ROOT_FIELDS, **known} if schema.get("x-kubernetes-embedded-resource") else known
