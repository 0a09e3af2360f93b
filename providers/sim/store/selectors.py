"""Label and field selectors: text in, predicate out.

Source: apimachinery `pkg/labels/selector.go` and `pkg/fields/selector.go`; the fields each resource knows are in
`pkg/apis/*/v1/conversion.go`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from providers.sim.store.errors import StoreBadRequest
from providers.sim.store.registry import Resource

Predicate = Callable[[dict[str, Any]], bool]

_TERM = re.compile(
    r"""\s*(?:
        (?P<set_key>[\w./-]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key>[\w./-]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[\w.-]*)
      | (?P<absent>!)?\s*(?P<exists>[\w./-]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD_TERM = re.compile(r"^(?P<path>[\w.\[\]'/-]+?)(?P<op>==|=|!=)(?P<value>.*)$")

_EVERY = ("metadata.name", "metadata.namespace")
_INVOLVED = tuple(
    f"involvedObject.{part}"
    for part in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
)
_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "jobs.batch": ("status.successful",),
    "secrets": ("type",),
    "events": (*_INVOLVED, "reason", "reportingComponent", "source", "type"),
    "events.events.k8s.io": (
        "regarding.kind",
        "regarding.name",
        "regarding.namespace",
        "regarding.uid",
        "reason",
        "type",
    ),
}


@lru_cache(maxsize=4096)
def label_predicate(text: str) -> Callable[[dict[str, str]], bool] | None:
    """The test of a label map that `text` describes; None for an empty selector, which everything matches."""
    terms: list[Callable[[dict[str, str]], bool]] = []
    position = 0
    while position < len(text):
        match = _TERM.match(text, position)
        if not match or match.end() == position:
            raise StoreBadRequest(f"unable to parse requirement: found '{text[position:]}' in label selector '{text}'")
        terms.append(_label_term(match))
        position = match.end()
    if not terms:
        return None
    return lambda labels: all(term(labels) for term in terms)


def _label_term(match: re.Match[str]) -> Callable[[dict[str, str]], bool]:
    part = match.groupdict()
    if part["set_key"]:
        key, values = part["set_key"], frozenset(v.strip() for v in part["values"].split(","))
        if part["set_op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    if part["key"]:
        return _comparison(part["key"], part["op"], part["value"])
    name = part["exists"]
    return (lambda labels: name not in labels) if part["absent"] else (lambda labels: name in labels)


def _comparison(key: str, operator: str, value: str) -> Callable[[dict[str, str]], bool]:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if not re.fullmatch(r"-?\d+", value):
        raise StoreBadRequest(f"for 'Gt', 'Lt' operators, the value must be an integer: {value}")
    sign, bound = (1 if operator == ">" else -1), int(value)
    return lambda labels: bool(re.fullmatch(r"-?\d+", labels.get(key, ""))) and sign * int(labels[key]) > sign * bound


def matches_label_selector(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """Whether a `LabelSelector` value (matchLabels, matchExpressions) selects `labels`; None selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(e, labels) for e in selector.get("matchExpressions") or ())


def _expression(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    held = labels.get(key)
    match operator:
        case "In":
            return held in values
        case "NotIn":
            return held is None or held not in values
        case "Exists":
            return held is not None
        case "DoesNotExist":
            return held is None
        case _:
            raise StoreBadRequest(f'"{operator}" is not a valid label selector operator')


def field_value(obj: dict[str, Any], path: str) -> str:
    """The value at a dotted path as the text field selectors compare; absent is the empty string."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if path == "source" and isinstance(value, dict):
        return str(value.get("component", ""))
    return str(value)


def _unsupported(resource: Resource, path: str) -> str:
    """The words for a field that a kind is not selected by; kinds without fields of their own say so otherwise."""
    if resource.key == "jobs.batch":
        return f'field label "{path}" not supported for {resource.kind}'
    if resource.key in _FIELDS or resource.custom:
        return f"field label not supported: {path}"
    return f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def field_predicate(resource: Resource, text: str) -> Predicate | None:
    """The test of an object that the field selector `text` describes; BadRequest on a field the kind does not index."""
    terms: list[tuple[str, bool, str]] = []
    for piece in filter(None, text.split(",")):
        match = _FIELD_TERM.match(piece.strip())
        if not match:
            raise StoreBadRequest(f"invalid selector: '{text}'; can't understand '{piece}'")
        path = match["path"]
        if path not in _EVERY and path not in _FIELDS.get(resource.key, ()) and path not in resource.selectable_fields:
            raise StoreBadRequest(_unsupported(resource, path))
        terms.append((path, match["op"] != "!=", match["value"]))
    if not terms:
        return None
    return lambda obj: all((field_value(obj, path) == value) is wanted for path, wanted, value in terms)


def selection(resource: Resource, label_selector: str, field_selector: str) -> Predicate | None:
    """Both selectors as one predicate of an object, or None when everything is selected."""
    labels, fields = label_predicate(label_selector), field_predicate(resource, field_selector)
    if labels is None:
        return fields
    wanted = labels
    if fields is None:
        return lambda obj: wanted(obj["metadata"].get("labels") or {})
    also = fields
    return lambda obj: wanted(obj["metadata"].get("labels") or {}) and also(obj)
