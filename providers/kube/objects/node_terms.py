"""`core/v1` NodeSelectorTerm <-> a conjunction of requirements on a node's labels and on its name.

Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from model.kinds import RequirementTerm
from model.labels import NODE_NAME
from providers.kube.objects.label_selectors import WireLabelRequirement, label_requirement
from providers.kube.objects.shapes import JsonObject, Wire, set_fields

_INTEGER: Final = re.compile(r"[0-9]{1,19}")


class WireNodeTerm(Wire, frozen=True, forbid_unknown_fields=True):
    """A `NodeSelectorTerm`."""

    match_expressions: list[WireLabelRequirement] | None = None
    match_fields: list[WireLabelRequirement] | None = None


def conjunction_of(term: WireNodeTerm) -> tuple[RequirementTerm, ...]:
    """The requirements, all of which hold; those on fields are on `NODE_NAME`. ValueError for a malformed one."""
    labels = (_on_label(one.key, one.operator, tuple(one.values or ())) for one in term.match_expressions or ())
    fields = (_on_field(one.key, one.operator, tuple(one.values or ())) for one in term.match_fields or ())
    return (*labels, *fields)


@lru_cache(maxsize=4096)
def requirement_of(key: str, operator: str, values: tuple[str, ...]) -> RequirementTerm:
    """One requirement on a node label; equal ones are one object. ValueError for an unknown operator."""
    given: dict[str, Any] = {"key": key, "operator": operator, "values": values}
    return RequirementTerm.model_validate(given)


def _on_label(key: str, operator: str, values: tuple[str, ...]) -> RequirementTerm:
    if operator in {"Gt", "Lt"}:
        if len(values) != 1 or not _INTEGER.fullmatch(values[0]) or int(values[0]) >= 1 << 63:
            raise ValueError(f"{operator} on {key} needs exactly one integer")
    else:
        _check_label(key, operator, values)
    return requirement_of(key, operator, values)


def _check_label(key: str, operator: str, values: tuple[str, ...]) -> None:
    try:
        label_requirement(key, operator, values)
    except ValueError:
        raise ValueError(f"{operator} on {key} with these values is no node selector requirement") from None


def _on_field(key: str, operator: str, values: tuple[str, ...]) -> RequirementTerm:
    if key != NODE_NAME or operator not in {"In", "NotIn"} or len(values) != 1:
        raise ValueError(f"matchFields knows In and NotIn on {NODE_NAME}, with one value")
    return requirement_of(key, operator, values)


def node_term_object(terms: Iterable[RequirementTerm]) -> JsonObject:
    """A `NodeSelectorTerm`."""
    written = [(one.key, _requirement_object(one)) for one in terms]
    return set_fields(
        matchExpressions=[it for key, it in written if key != NODE_NAME],
        matchFields=[it for key, it in written if key == NODE_NAME],
    )


def _requirement_object(term: RequirementTerm) -> JsonObject:
    return {"key": term.key, "operator": term.operator} | set_fields(values=list(term.values))
