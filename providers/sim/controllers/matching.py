"""Which nodes a pod may go to: selectors, required node affinity, taints (component-helpers `scheduling/corev1`)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from providers.sim.controllers.objects import Obj

Taint = Mapping[str, Any]


_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def _integer(text: str | None) -> int | None:
    """A label as Go's ParseInt reads it: no spaces, no underscores, 64 bits."""
    if text is None or not _INTEGER.fullmatch(text):
        return None
    value = int(text) if len(text) <= 20 else 1 << 64
    return value if -(1 << 63) <= value < 1 << 63 else None


def _greater(value: str | None, operands: Sequence[str]) -> bool:
    left, right = _integer(value), _integer(operands[0] if len(operands) == 1 else None)
    return left is not None and right is not None and left > right


def _less(value: str | None, operands: Sequence[str]) -> bool:
    left, right = _integer(value), _integer(operands[0] if len(operands) == 1 else None)
    return left is not None and right is not None and left < right


_OPERATORS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, operands: value in operands,
    "NotIn": lambda value, operands: value not in operands,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": _greater,
    "Lt": _less,
}


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    test = _OPERATORS.get(expression["operator"])
    return test is not None and test(values.get(expression["key"]), expression.get("values") or ())


def _term_matches(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term selects nothing
    return all(_holds(e, labels) for e in expressions) and all(_holds(f, {"metadata.name": name}) for f in fields)


def selects(pod_spec: Obj, labels: Mapping[str, str], node_name: str) -> bool:
    """Whether nodeSelector and required node affinity let the pod onto a node with these labels."""
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selector_matches(required, labels, node_name)


def node_selector_matches(selector: Mapping[str, Any], labels: Mapping[str, str], node_name: str) -> bool:
    """Whether one of the terms of a NodeSelector selects a node."""
    return any(_term_matches(term, labels, node_name) for term in selector.get("nodeSelectorTerms") or ())


def selector_matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects these labels; an empty one selects all, None nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Whether one toleration tolerates one taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if (toleration.get("operator") or "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(pod_spec: Obj, taints: Iterable[Taint], effects: frozenset[str]) -> Taint | None:
    """The first taint of these effects that the pod does not tolerate."""
    tolerations = pod_spec.get("tolerations") or ()
    for taint in taints:
        if taint["effect"] in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None
