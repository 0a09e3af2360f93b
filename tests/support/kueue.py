"""Reads the worlds of the Kueue conformance cases (`shared/conformance/kueue`) into quota trees."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fleet.admission.tree import FlavorResource, Quota, QuotaTree, Usage
from tests.support.shared import SHARED

Case = Mapping[str, Any]


def cases(kind: str) -> list[Case]:
    """The cases of a kind; none where the reference folder is absent (a test then skips)."""
    path = SHARED / "conformance/kueue/core" / f"{kind}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def tree_of(case: Case) -> QuotaTree:
    """Cohorts and cluster queues with their quotas; a cohort that is only named exists without any."""
    tree = QuotaTree()
    cohorts = {cohort["name"]: cohort for cohort in case.get("cohorts", ())}
    named = {queue["cohort"] for queue in case["cluster_queues"] if queue.get("cohort")}
    named |= {cohort["parent"] for cohort in cohorts.values() if cohort.get("parent")}
    for name in sorted(named - cohorts.keys()):
        cohorts[name] = {"name": name}
    for name in sorted(cohorts):
        _add_cohort(tree, cohorts, name)
    for queue in case["cluster_queues"]:
        weight = queue.get("fair_weight", 1) or 1
        tree.add(queue["name"], queue.get("cohort"), quotas(queue), weight=weight, is_queue=True)
    tree.seal()
    return tree


def _add_cohort(tree: QuotaTree, cohorts: Mapping[str, Case], name: str) -> None:
    if name in tree.cohorts:
        return
    parent = cohorts[name].get("parent")
    if parent:
        _add_cohort(tree, cohorts, parent)
    tree.add(name, parent, quotas(cohorts[name]), weight=cohorts[name].get("fair_weight", 1) or 1)


def quotas(node: Case) -> dict[FlavorResource, Quota]:
    """The cells of a cohort or cluster queue."""
    return {
        FlavorResource(flavor["name"], resource): Quota(
            _limit(quota["nominal"]) or 0, _limit(quota.get("borrowing_limit")), _limit(quota.get("lending_limit"))
        )
        for group in node.get("resource_groups", ())
        for flavor in group["flavors"]
        for resource, quota in flavor["quotas"].items()
    }


def _limit(value: int | str | None) -> int | None:
    return None if value is None or value == "unlimited" else int(value)


def cells(amounts: Mapping[str, Mapping[str, int]]) -> Usage:
    """`{flavor: {resource: amount}}` as usage."""
    return {FlavorResource(flavor, resource): amount for flavor, resource, amount in _flat(amounts)}


def _flat(amounts: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    for flavor, resources in amounts.items():
        for resource, amount in resources.items():
            yield flavor, resource, amount
