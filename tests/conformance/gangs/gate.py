"""Rows about Volcano's gate before the queue: no machines, pods that are still to be created, ResourceQuotas."""

import json
from collections.abc import Mapping
from typing import Any, Final

from fleet.snapshot import NamespaceQuota, NamespaceQuotas
from model.quantity import canonical_resources, format_amount, plus
from providers.kube.objects import decode_namespace_quota
from tests.conformance.cases import Case
from tests.conformance.gangs.declined import known_words

SOMEWHERE: Final = "somewhere"
"""Node with room for all, in rows without any: the gate looks at none."""


def with_machines(case: Case) -> Case:
    """Returns a row that has no machines with one that holds all that it asks; what runs somewhere runs there."""
    if case.get("nodes") or case["semantics"] != "volcano":
        return case
    asked: dict[str, int] = {}
    for each in (*(pod["requests"] for pod in case["pods"]), *(it.get("min_resources") for it in case["podgroups"])):
        asked = plus(asked, canonical_resources(each or {}))
    room = {**{name: format_amount(name, amount) for name, amount in asked.items()}, "pods": "110"}
    pods = [{**pod, "node": SOMEWHERE} if pod["phase"] == "Running" else pod for pod in case["pods"]]
    return {**case, "nodes": [{"name": SOMEWHERE, "allocatable": room}], "pods": pods}


def as_asked(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns, for a group that has no pods, one that asks all that the group asks at least."""
    name, asked = f"{group['namespace']}/{group['name']}", group.get("min_resources")
    return [{"id": name, "podgroup": group["name"], "phase": "Pending", "requests": asked}] if asked else []


def quotas_of(case: Case) -> NamespaceQuotas:
    """Returns the ResourceQuotas of a row as the agent reads them."""
    found: dict[str, tuple[NamespaceQuota, ...]] = {}
    for entry in case.get("resource_quotas") or ():
        known_words("resource_quotas", entry, "ObjectMeta", "Spec", "Status")
        words = {"metadata": entry["ObjectMeta"], "spec": entry["Spec"], "status": entry.get("Status") or {}}
        quota = decode_namespace_quota(json.dumps(_as_written(words)).encode())
        found[quota.namespace] = (*found.get(quota.namespace, ()), quota)
    return NamespaceQuotas(found)


def _as_written(value: Any) -> Any:
    """Returns fields as Kubernetes writes them, which rows have in the words of its Go types."""
    if not isinstance(value, dict):
        return value
    return {f"{key[0].lower()}{key[1:]}": _as_written(it) for key, it in value.items()}
