"""`provision`: pods, pools and machine types -> what is bought for whom."""

from collections.abc import Mapping
from typing import Any

from bench.reference.karpenter.buy import (
    MachineType,
    PlannedClaim,
    ProvisionerSettings,
    SchedulingResults,
    WaitingPod,
    solve,
)
from model.requirements import STRICT, Requirements
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.requirements import requirements


def run(case: Case) -> dict[str, Any]:
    """One pass over pods that wait, with no machine standing."""
    given, expect = case["given"], case["expect"]
    named = given.get("instance_types", {"catalog": "default"})
    machines = catalogs.machines({"catalog": named} if isinstance(named, str) else named, case["folder"])
    pools = catalogs.templates(given.get("node_pools") or [{}], machines)
    pods = [catalogs.pod(number, each) for number, each in enumerate(given["pods"])]
    rules = ProvisionerSettings(
        best_effort_min_values=given.get("min_values_policy") == "BestEffort",
        respect_preferences=given.get("preference_policy") != "Ignore",
        most_types=given.get("max_instance_types", ProvisionerSettings().most_types),
    )
    return _told(solve(pods, pools, rules=rules), pods, {each.name: each for each in machines}, expect)


def _told(
    outcome: SchedulingResults, pods: list[WaitingPod], machines: Mapping[str, MachineType], expect: Mapping[str, Any]
) -> dict[str, Any]:
    claims = outcome.claims
    prices = [claim.price_usd_h for claim in claims]
    matched = requirements(expect.get("every_launch_option_matches", []))
    return {
        "nodes": len(claims),
        "scheduled": sum(len(claim.pods) for claim in claims),
        "launched": [claim.options[0].machine for claim in claims],
        "distinct_nodes": all(len(claim.pods) == 1 for claim in claims),
        "min_instance_types_per_launch": min((len(claim.options) for claim in claims), default=0),
        "error_contains": "\n".join(each.message for each in outcome.unplaced),
        "every_launch_option_fits": all(_fits(claim, pods, machines) for claim in claims),
        "every_launch_option_matches": all(_matches(claim, matched, machines) for claim in claims),
        "cheapest_fitting_price": prices[0] if len(prices) == 1 else prices,
        "launch_price": prices[0] if len(prices) == 1 else prices,
    }


def _fits(claim: PlannedClaim, pods: list[WaitingPod], machines: Mapping[str, MachineType]) -> bool:
    """Counted anew from the pods themselves."""
    total = {"pods": len(claim.pods)}
    for pod in pods:
        if pod.name in claim.pods:
            for name, amount in pod.ask.requests.items():
                total[name] = total.get(name, 0) + amount
    return all(
        amount <= machines[option.machine].allocatable.get(name, 0)
        for option in claim.options
        for name, amount in total.items()
    )


def _matches(claim: PlannedClaim, wanted: Requirements, machines: Mapping[str, MachineType]) -> bool:
    """Each option has the labels and an offering that are wanted."""
    for option in claim.options:
        machine = machines[option.machine]
        offers = [
            machine.requirements
            & Requirements.from_labels(
                {"topology.kubernetes.io/zone": each.zone, "karpenter.sh/capacity-type": each.capacity_type}
            )
            for each in machine.offerings
            if each.available
        ]
        if not any((each & claim.requirements).compatible(wanted, undefined=STRICT) for each in offers):
            return False
    return True
