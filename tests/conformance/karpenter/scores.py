"""`disruption-scoring`: what moves cost, in which order machines are tried, and what a Balanced pool agrees to."""

from collections.abc import Callable, Mapping
from math import isinf
from typing import Any

from fleet.disruption.evaluation import (
    BalancedScore,
    NodePoolTotals,
    PoolContribution,
    agreed,
    by_ratio,
    disruption_cost,
    eviction_cost,
    judged,
    savings_ratio,
)
from fleet.offerings.offerings import Offerings
from model import labels
from model.kinds.node_pool import DEFAULT_THRESHOLD
from tests.conformance.cases import Case
from tests.conformance.karpenter.worlds import catalog_of, fleet_of

Given = Mapping[str, Any]


def run(case: Case) -> dict[str, Any]:
    """By the first of the words that tell what a case is about."""
    given = case["given"]
    return next((score for word, score in _BY_WORD if word in given), _pod)(given)


def _evicted(given: Given) -> float:
    return eviction_cost(float(given.get("deletion_cost") or 0), float(given.get("priority") or 0))


def _evictions(given: Any) -> list[float]:
    """A number of ordinary pods, or pods one by one."""
    return [eviction_cost()] * given if isinstance(given, int) else [_evicted(each) for each in given]


def _disruption(given: Given) -> float:
    return float(given["reschedule_cost"]) if "reschedule_cost" in given else disruption_cost(_evictions(given["pods"]))


def _pod(given: Given) -> dict[str, Any]:
    cost = _evicted(given)
    return {"cost": cost, "cost_lt": cost, "cost_gt": cost}


def _ratio(given: Given) -> dict[str, Any]:
    cost = _disruption(given)
    return {"savings_ratio": savings_ratio(given["price"], cost), "reschedule_cost": cost}


def _order(given: Given) -> dict[str, Any]:
    if not given["candidates"]:
        return _verdict(agreed(0.0, (), {}))
    ratios = [(each["name"], savings_ratio(each["price"], _disruption(each))) for each in given["candidates"]]
    return {"order": by_ratio(ratios)}


def _score(given: Given) -> dict[str, Any]:
    pool = NodePoolTotals(given["pool_total_cost"], given["pool_total_disruption"])
    return _verdict(judged(given["savings"], given["move_disruption"], pool, given.get("k", DEFAULT_THRESHOLD)))


def _totals(given: Given) -> dict[str, Any]:
    found = NodePoolTotals.of((each["price"], _evictions(each["pods"])) for each in given["nodes"])
    return {"total_cost": found.cost_usd_h, "total_disruption": found.disruption}


def _move(given: Given) -> dict[str, Any]:
    """A deletion across pools; without `replacement_price` all is saved."""
    parts, totals, alone = [], {}, {}
    for number, each in enumerate(given["pools"]):
        name = each.get("name", f"p{number}")
        evictions = _evictions(each["pods_each"])
        totals[name] = NodePoolTotals.of([(each["price"], evictions)] * each["nodes"])
        price, disruption = each["price"] * each["delete"], disruption_cost(evictions) * each["delete"]
        threshold = each.get("k", DEFAULT_THRESHOLD) if each["policy"] == "Balanced" else None
        if each["delete"]:
            parts.append(PoolContribution(name, price, disruption, threshold))
            alone[name] = price
    whole = sum(alone.values()) - given.get("replacement_price", 0.0)
    found = agreed(whole, parts, totals)
    return {**_verdict(found), "score_balanced_pool": found.score}


def _replacement(given: Given) -> dict[str, Any]:
    """A replacement by a machine of several offers, of which the pool may use some."""
    allowed = {"key": labels.CAPACITY_TYPE, "op": "In", "values": given["nodepool_capacity_types"]}
    fleet = fleet_of([{"name": "p", "requirements": [allowed]}])
    sold = catalog_of([{"name": "destination", "capacity": {}, "offerings": given["destination_offerings"]}])
    cheapest, *_ = Offerings(fleet, sold).of(fleet.node_pools["p"])
    savings = given["source_price"] - cheapest.offer.price_usd_h
    pool = NodePoolTotals(given["pool_total_cost"], given["pool_total_disruption"])
    found = judged(savings, disruption_cost(_evictions(given["pods"])), pool, given.get("k", DEFAULT_THRESHOLD))
    return {**_verdict(found), "savings": savings}


def _verdict(found: BalancedScore) -> dict[str, Any]:
    return {"score": "+Inf" if isinf(found.score) else found.score, "approved": found.approved}


_BY_WORD: tuple[tuple[str, Callable[[Given], dict[str, Any]]], ...] = (
    ("source_price", _replacement),
    ("savings", _score),
    ("pools", _move),
    ("nodes", _totals),
    ("candidates", _order),
    ("price", _ratio),
    ("pods", lambda given: {"reschedule_cost": _disruption(given)}),
)
"""What is about none of these is about one pod."""
