"""Disruption budgets: Karpenter's own cases, and what counts as disrupted."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from fleet.capacity.disrupt.budgets import BUDGET_REASONS, UNBOUNDED, allowed, disrupted
from fleet.reasons import Reason
from fleet.snapshot import Disruption
from model.kinds import NEVER, NodePool
from tests.support.fleets import NOW, FleetBuilder, small_fleet
from tests.support.shared import SHARED
from tests.support.world import World

REASONS = {"Empty": Reason.EMPTY, "Underutilized": Reason.UNDERUTILIZED, "Drifted": Reason.DRIFTED}


def pool(*budgets: Mapping[str, Any]) -> NodePool:
    built = FleetBuilder().pool(disruption={"budgets": [_budget(it) for it in budgets]}).build()
    return built.node_pools["h100"]


def _budget(it: Mapping[str, Any]) -> dict[str, Any]:
    nodes = it["nodes"]
    return {**it, "nodes": int(nodes) if isinstance(nodes, str) and nodes.isdigit() else nodes}


def _cases() -> list[Mapping[str, Any]]:
    path = SHARED / "conformance/karpenter/budgets.json"
    return json.loads(path.read_text("utf-8"))["cases"] if path.exists() else []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


BY_REASON = [it for it in _cases() if "allowed" in it["expect"]]
BY_VALUE = [it for it in _cases() if "budget_value" in it["expect"] and "error" not in it["expect"]]
NOW_ALLOWED = [it for it in _cases() if "allowed_now" in it["expect"]]


@pytest.mark.parametrize("case", BY_REASON, ids=lambda case: case["id"])
def test_by_reason_as_karpenter(case: Mapping[str, Any]) -> None:
    given = case["given"]
    found = pool(*given["budgets"])
    for name, expected in case["expect"]["allowed"].items():
        most = allowed(found, REASONS[name], given["nodes_in_pool"], 0, _seconds(given["now"]))
        assert most == (UNBOUNDED if expected == "unbounded" else expected), name


@pytest.mark.parametrize("case", BY_VALUE, ids=lambda case: case["id"])
def test_values_as_karpenter(case: Mapping[str, Any]) -> None:
    given, expected = case["given"], case["expect"]["budget_value"]
    most = allowed(pool(*given["budgets"]), Reason.EMPTY, given["nodes_in_pool"], 0, _seconds(given["now"]))
    assert most == (UNBOUNDED if expected == "unbounded" else expected)


@pytest.mark.parametrize("case", NOW_ALLOWED, ids=lambda case: case["id"])
def test_what_is_left_as_karpenter(case: Mapping[str, Any]) -> None:
    given = case["given"]
    taken = given.get("marked_for_deletion", 0) + given.get("not_ready", 0)
    most = allowed(pool(*given["budgets"]), Reason.EMPTY, given["managed_initialized_nodes"], taken, NOW)
    assert most == case["expect"]["allowed_now"]


@pytest.mark.parametrize(
    ("budgets", "nodes", "taken", "most"),
    [
        ([{"nodes": "10%"}], 1, 0, 1),
        ([{"nodes": "10%"}], 11, 0, 2),
        ([{"nodes": "0%"}], 100, 0, 0),
        ([{"nodes": 3}, {"nodes": 5}], 100, 0, 3),
        ([{"nodes": 3}], 100, 2, 1),
        ([{"nodes": 3}], 100, 7, 0),
        ([{"nodes": 0, "reasons": ["Drifted"]}], 100, 0, UNBOUNDED),
        ([{"nodes": 0, "reasons": ["Empty", "Drifted"]}], 100, 0, 0),
        ([{"nodes": 0, "schedule": "0 8 * * *", "duration": "1h"}], 100, 0, 0),
        ([{"nodes": 0, "schedule": "0 9 * * *", "duration": "1h"}], 100, 0, UNBOUNDED),
        ([], 100, 5, UNBOUNDED - 5),
    ],
)
def test_allowed(budgets: list[dict[str, Any]], nodes: int, taken: int, most: int) -> None:
    assert allowed(pool(*budgets), Reason.EMPTY, nodes, taken, NOW) == most


def test_every_reason_a_budget_can_name_is_known() -> None:
    assert sorted(BUDGET_REASONS.values()) == ["Drifted", "Empty", "Expired", "Underutilized"]


def test_what_counts_as_disrupted() -> None:
    world = World(small_fleet())
    for name in ("fine", "deleting", "told", "replaced", "unwell", "lost", "new"):
        world.machine(name)
    leaves = Disruption("Drifted", "x", NOW, NEVER)
    changes: dict[str, dict[str, Any]] = {
        "deleting": {"deleting": True},
        "told": {"disruption": leaves},
        "new": {"replaces": ("replaced",)},
        "lost": {"node": "nowhere"},
    }
    for name, facts in changes.items():
        world.claims[name] = replace(world.claims[name], **facts)
    world.nodes["node-unwell"] = replace(world.nodes["node-unwell"], ready=False)
    snapshot = world.snapshot()
    counted = {name for name, claim in world.claims.items() if disrupted([claim], snapshot)}
    assert counted == {"deleting", "told", "replaced", "unwell", "lost"}
    assert disrupted(world.claims.values(), snapshot) == 5


def test_a_replacement_that_was_given_up_frees_the_budget() -> None:
    world = World(small_fleet())
    world.machine("old")
    world.machine("new", replaces=("old",), disruption=Disruption("InsufficientCapacityError", "x", NOW, NEVER))
    assert disrupted([world.claims["old"]], world.snapshot()) == 0
