"""The numeric rows: fair shares, who may reclaim, and whose work may be considered."""

from collections.abc import Mapping
from typing import Any

from tests.conformance.cases import Case
from tests.reference.shares.division import UNLIMITED, Claimant, divide
from tests.reference.shares.reclaim import QueueStanding, can_reclaim, worth_trying

RESOURCES = ("gpu", "cpu", "memory")


def fair_share(case: Case) -> dict[str, Any]:
    """`fairshare-case/v1`."""
    shares: dict[str, dict[str, float]] = {name: {} for name in case["queues"]}
    remaining = {}
    for resource, total in case["total"].items():
        claimants = {
            name: Claimant(
                quota=given[resource]["deserved"],
                request=given[resource]["request"],
                weight=given[resource].get("over_quota_weight", 1),
                limit=given[resource].get("max_allowed", UNLIMITED),
                priority=int(given.get("priority") or 0),
                usage=given[resource].get("usage") or 0.0,
            )
            for name, given in case["queues"].items()
            if resource in given
        }
        divided = divide(total, claimants, case.get("k_value") or 0.0)
        for name, share in divided.items():
            shares[name][resource] = share
        remaining[resource] = max(0.0, total - sum(divided.values()))
    return {"fair_share": shares, "remaining": remaining}


def reclaim(case: Case) -> dict[str, Any]:
    """`can-reclaim-case/v1`."""
    reclaimer = case["reclaimer"]
    may = can_reclaim(_standings(case["queue"]), _required(reclaimer), preemptible=reclaimer["preemptible"])
    return {"can_reclaim": may}


def victim(case: Case) -> dict[str, Any]:
    """`filter-victim-case/v1`."""
    mine, theirs = case["queues"][case["reclaimer"]["queue"]], case["queues"][case["victim_queue"]]
    return {"victim_allowed": worth_trying(_standings(mine), _required(case["reclaimer"]), _standings(theirs))}


def _standings(queue: Mapping[str, Any]) -> dict[str, QueueStanding]:
    found = {}
    for resource in RESOURCES:
        given = queue.get(resource) or {}
        found[resource] = QueueStanding(
            quota=given.get("deserved", 0.0),
            fair=given.get("fair_share", 0.0),
            limit=given.get("max_allowed", UNLIMITED),
            used=given.get("allocated", 0.0),
            used_firmly=given.get("allocated_non_preemptible", 0.0),
        )
    return found


def _required(reclaimer: Mapping[str, Any]) -> dict[str, float]:
    required = reclaimer["required"]
    return {"gpu": required["gpu"], "cpu": required["cpu_milli"], "memory": required["memory"]}


def same(expected: Any, got: Any) -> bool:
    """Equal up to rounding; what is expected to be zero may be missing."""
    if isinstance(expected, Mapping):
        return all(same(value, (got or {}).get(key)) for key, value in expected.items())
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    return abs(float(expected) - float(got or 0.0)) < 1e-6


RUNNERS = {"fairshare-case/v1": fair_share, "can-reclaim-case/v1": reclaim, "filter-victim-case/v1": victim}
