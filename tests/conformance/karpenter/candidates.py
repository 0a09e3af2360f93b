"""`disruption-candidate`: whether a machine may be disrupted at all."""

from collections.abc import Mapping
from math import inf
from typing import Any

from bench.reference.karpenter.disrupt.eligibility import CandidateNode, DisruptionClass, not_disruptable
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter.scenes import NOW, tenant_of

Given = Mapping[str, Any]
POOL = "default"
_BESIDE = ("instance_type", "capacity_type", "zone")
"""What only consolidation asks for: the common filter does not look at it."""


class UnknownFact(ValueError):
    """The case says something of the machine that has no translation."""


def run(case: Case) -> dict[str, Any]:
    """One machine, asked for by a method of the class."""
    given = case["given"]
    grace_s = given.get("termination_grace_period_s")
    facts = {name: value for key, told in given.items() for name, value in _fact(key, told).items()}
    node = CandidateNode(
        pool_known=_pool_known(given),
        grace_s=inf if grace_s is None else grace_s,
        pods=tuple(tenant_of(each) for each in given.get("pods", ())),
        **facts,
    )
    found = not_disruptable(node, DisruptionClass(given.get("class", "graceful")), NOW)
    return {"candidate": found is None, "reason": found}


_READ = frozenset({"class", "pods", "termination_grace_period_s", "labels", "missing_label", *_BESIDE})
_WORDS: tuple[tuple[str, str], ...] = (
    ("nodeclaim", "claimed"),
    ("has_node", "joined"),
    ("initialized", "initialized"),
    ("delet", "leaving"),
    ("nominated", "nominated"),
    ("queue", "in_hand"),
    ("disrupted", "in_hand"),
)
"""Part of the name of a fact -> the field it is about; the first that fits."""


def _fact(key: str, told: Any) -> dict[str, Any]:
    """A fact of the case as a field of ours; none for what is read elsewhere."""
    if key in _READ:
        return {}
    if "do_not_disrupt" in key:
        return {"do_not_disrupt": "true" if told is True else told or ""}
    if key == "node_annotations":
        return {"do_not_disrupt": told.get(labels.DO_NOT_DISRUPT, "")}
    if key in {"age_s", "node_age_s"}:
        return {"since_s": NOW - told}
    field = next((field for word, field in _WORDS if word in key), None)
    if field is None:
        raise UnknownFact(key)
    return {field: bool(told)}


def _pool_known(given: Given) -> bool:
    """Labels that are taken away are null; of labels that are listed, the pool's must be among them."""
    carried = given.get("labels")
    if carried is None or given.get("missing_label") == labels.NODE_POOL:
        return given.get("missing_label") != labels.NODE_POOL
    if labels.NODE_POOL not in carried and carried and not any(carried.values()):
        return True
    return bool(carried.get(labels.NODE_POOL) == POOL)
