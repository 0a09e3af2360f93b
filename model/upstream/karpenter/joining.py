"""A NodePool of Karpenter and its EC2NodeClass -> the NodePool of ours that says the same.

What differs by default is said: `consolidateAfter` is 0s there, budgets do not hold machines back that have expired,
and of the capacity types allowed `reserved` goes before `spot` and `spot` before `on-demand`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from model import labels
from model.kinds.base import API_VERSION, Spec
from model.kinds.node_pool import NodePool
from model.labels import CapacityType
from model.requirement import InvalidRequirement
from model.requirements import Requirements
from model.upstream.base import own_metadata
from model.upstream.karpenter.node_class import CapacityReservationTerm, EC2NodeClass
from model.upstream.karpenter.node_pool import (
    KarpenterBudget,
    KarpenterBudgetV1,
    KarpenterNodePool,
    KarpenterNodePoolSpec,
    KarpenterNodePoolSpecV1Beta1,
    KarpenterNodePoolV1Beta1,
)

AnyKarpenterNodePool = KarpenterNodePool | KarpenterNodePoolV1Beta1
Path = tuple[str | int, ...]

_IN_CLAIMS: Path = ("spec", "template", "spec")
PLACES: Mapping[Path, Path] = MappingProxyType(
    {
        ("spec", "requirements"): (*_IN_CLAIMS, "requirements"),
        ("spec", "capacityTypes"): (*_IN_CLAIMS, "requirements"),
        ("spec", "template", "labels"): ("spec", "template", "metadata", "labels"),
        ("spec", "template", "annotations"): ("spec", "template", "metadata", "annotations"),
        ("spec", "template", "taints"): (*_IN_CLAIMS, "taints"),
        ("spec", "template", "startupTaints"): (*_IN_CLAIMS, "startupTaints"),
        ("spec", "template"): (*_IN_CLAIMS, "nodeClassRef"),
        ("spec", "limits", "resources"): ("spec", "limits"),
    }
)
"""Where a manifest says what our NodePool says at a path; other paths are the same."""

_PREFERENCE: tuple[CapacityType, ...] = ("reserved", "spot", "on-demand")
_VOLUNTARY = ("Empty", "Underutilized", "Drifted")
_OF_CLASS = (
    "user_data",
    "role",
    "instance_profile",
    "associate_public_ip_address",
    "block_device_mappings",
    "instance_store_policy",
    "metadata_options",
    "detailed_monitoring",
    "tags",
    "ami_family",
    "kubelet",
)


class _Said(NamedTuple):
    """What the two versions say in different places."""

    expire_after_s: float | None
    termination_grace_period_s: float | None
    kubelet: Any
    disruption: dict[str, Any]


def joined(pool: AnyKarpenterNodePool, node_class: EC2NodeClass) -> NodePool:
    """Returns the NodePool of ours. What is not said is left unset, so that a plan shows nothing of it."""
    spec, claims = pool.spec, pool.spec.template.spec
    said = _said(spec)
    group = node_class.spec.placement_group_selector
    reservations = node_class.spec.capacity_reservation_selector_terms
    paid_by = capacity_types(spec, reserved=bool(reservations))
    selects = "reserved" in paid_by
    own: dict[str, Any] = {
        "requirements": claims.requirements,
        "capacity_types": paid_by,
        "reservations": _without_nothing({"select": [_reservation(term) for term in reservations if selects]}),
        "limits": _limits(spec.limits),
        "weight": spec.weight,
        "template": _template(pool, node_class, said),
        "disruption": said.disruption,
        "replicas": spec.replicas if isinstance(spec, KarpenterNodePoolSpec) else None,
        "placement": _without_nothing({"group": group.name if group else "", "efa": "Requested"}),
        "serves": ("Gangs", "Pods"),
    }
    envelope = {"api_version": API_VERSION, "kind": "NodePool", "metadata": own_metadata(pool.metadata)}
    return NodePool.model_validate({**envelope, "spec": _without_nothing(own)}, by_alias=True, by_name=True)


def _without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without fields that are unset or empty; a count of 0 is something, and what users' own mappings say stays."""
    return {key: value for key, value in values.items() if value not in (None, "", (), [], {})}


def _reservation(term: CapacityReservationTerm) -> dict[str, Any]:
    said = {"id": term.id, "tags": term.tags, "owner": term.owner_id, "match": term.instance_match_criteria}
    return _without_nothing(said)


def capacity_types(
    spec: KarpenterNodePoolSpec | KarpenterNodePoolSpecV1Beta1, *, reserved: bool
) -> tuple[CapacityType, ...]:
    """Those that the requirements allow, in upstream's order; `reserved` where the class selects reservations.

    All of them where the requirements contradict themselves: that is for the checks to say.
    """
    try:
        allowed = Requirements.from_terms(spec.template.spec.requirements).of(labels.CAPACITY_TYPE)
    except InvalidRequirement:
        return _PREFERENCE
    found = tuple(each for each in _PREFERENCE if allowed.has(each))
    return tuple(each for each in found if reserved or each != "reserved") or found or _PREFERENCE


def _limits(amounts: Mapping[str, int]) -> dict[str, Any]:
    resources = {name: str(amount) for name, amount in amounts.items() if name not in {"nodes", "cpu"}}
    if "cpu" in amounts:
        resources["cpu"] = f"{amounts['cpu']}m"
    return _without_nothing({"resources": resources, "nodes": amounts.get("nodes")})


def _said(spec: KarpenterNodePoolSpec | KarpenterNodePoolSpecV1Beta1) -> _Said:
    if isinstance(spec, KarpenterNodePoolSpec):
        claims = spec.template.spec
        expire, grace = _if_said(claims, "expire_after"), _if_said(claims, "termination_grace_period")
        policy = _if_said(spec.disruption, "consolidation_policy")
        disruption = _disruption(policy, spec.disruption.consolidate_after, spec.disruption.budgets)
        return _Said(expire, grace, None, disruption)
    old = spec.disruption
    policy = "WhenEmpty" if old.consolidation_policy == "WhenEmpty" else None
    disruption = _disruption(policy, old.consolidate_after or 0.0, old.budgets)
    kubelet = _if_said(spec.template.spec, "kubelet")
    return _Said(_if_said(old, "expire_after"), None, kubelet, disruption)


def _if_said(part: Spec, name: str) -> Any:
    return getattr(part, name) if name in part.model_fields_set else None


def _disruption(policy: str | None, after_s: float, budgets: Sequence[KarpenterBudget]) -> dict[str, Any]:
    """No budget at all, where a manifest says so, is no bound."""
    said = {"consolidation_policy": policy, "consolidate_after": after_s}
    return {**_without_nothing(said), "budgets": [_budget(budget) for budget in budgets]}


def _budget(budget: KarpenterBudget) -> dict[str, Any]:
    """Upstream, expiry asks no budget."""
    reasons = budget.reasons if isinstance(budget, KarpenterBudgetV1) else ()
    said = {"nodes": budget.nodes, "reasons": reasons or _VOLUNTARY}
    return _without_nothing({**said, "schedule": budget.schedule, "duration": budget.duration})


def _template(pool: AnyKarpenterNodePool, node_class: EC2NodeClass, said: _Said) -> dict[str, Any]:
    """What machines are born with: the class's word, but labels and taints of the pool."""
    template, of_class = pool.spec.template, node_class.spec
    own: dict[str, Any] = {name: getattr(of_class, name) for name in _OF_CLASS if name in of_class.model_fields_set}
    own |= {
        "labels": {**template.metadata.labels, **upstream_labels(pool.name, node_class.name)},
        "taints": [_taint(taint) for taint in template.spec.taints],
        "startup_taints": [_taint(taint) for taint in template.spec.startup_taints],
        "amis": of_class.ami_selector_terms,
        "subnets": of_class.subnet_selector_terms,
        "security_groups": of_class.security_group_selector_terms,
        "expire_after": said.expire_after_s,
        "termination_grace_period": said.termination_grace_period_s,
        "annotations": template.metadata.annotations,
    }
    return _without_nothing(own if said.kubelet is None else {**own, "kubelet": said.kubelet})


def upstream_labels(pool: str, node_class: str) -> dict[str, str]:
    """The labels by which work asks for machines of a pool or class of Karpenter."""
    return {labels.KARPENTER_NODE_POOL: pool, labels.KARPENTER_NODE_CLASS: node_class}


def _taint(taint: Any) -> dict[str, str]:
    return {"key": taint.key, "value": taint.value, "effect": taint.effect}
