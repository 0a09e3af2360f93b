"""`disruption-candidate`: whether a machine may be disrupted at all."""

from collections.abc import Mapping
from math import inf
from typing import Any

from fleet.capacity.disrupt.eligibility import Care, Post, barrier
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter.scenes import NOW, tenant_of

Given = Mapping[str, Any]
POOL = "default"
_LEAVING = ("deleting", "marked_for_deletion", "deletion_timestamp")
_IN_HAND = ("in_queue", "queued", "being_disrupted")
_PROTECTED = ("node_do_not_disrupt", "do_not_disrupt")
_BESIDE = frozenset({"instance_type", "capacity_type", "zone", "instance_type_known", "instance_type_resolved"})
"""What only consolidation asks for: the common filter does not look at it."""
_KNOWN = {"class", "pods", "termination_grace_period_s", "has_nodeclaim", "has_node", "labels", "missing_label"} | {
    *("initialized", "nominated", "node_annotations", "node_age_s"),
    *_LEAVING,
    *_IN_HAND,
    *_PROTECTED,
    *_BESIDE,
}


class UnknownFact(ValueError):
    """The case says something of the machine that has no translation."""


def run(case: Case) -> dict[str, Any]:
    """One machine, asked for by a method of the class."""
    given = case["given"]
    if unknown := sorted(set(given) - _KNOWN):
        raise UnknownFact(", ".join(unknown))
    grace_s = given.get("termination_grace_period_s")
    post = Post(
        claimed=given.get("has_nodeclaim", True),
        joined=given.get("has_node", True),
        initialized=given.get("initialized", True),
        leaving=any(given.get(name) for name in _LEAVING),
        nominated=given.get("nominated", False),
        in_hand=any(given.get(name) for name in _IN_HAND),
        pool_known=_pool_known(given),
        do_not_disrupt=_protected(given),
        since_s=NOW - given.get("node_age_s", 0.0),
        grace_s=inf if grace_s is None else grace_s,
        tenants=tuple(tenant_of(each) for each in given.get("pods", ())),
    )
    found = barrier(post, Care(given.get("class", "graceful")), NOW)
    return {"candidate": found is None, "reason": found}


def _pool_known(given: Given) -> bool:
    if given.get("missing_label") == labels.NODE_POOL:
        return False
    return given.get("labels", {labels.NODE_POOL: POOL}).get(labels.NODE_POOL) == POOL


def _protected(given: Given) -> str:
    told = [given[name] for name in _PROTECTED if given.get(name)]
    told += [value for key, value in given.get("node_annotations", {}).items() if key == labels.DO_NOT_DISRUPT]
    return "true" if True in told else next((str(value) for value in told), "")
