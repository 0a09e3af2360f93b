"""Disruption budgets, and what counts as disrupted; Karpenter's own cases run in `tests/conformance`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from fleet.disruption.budgets import (
    BUDGET_REASONS,
    UNBOUNDED,
    InvalidBudget,
    allowed,
    allowed_by,
    disrupted,
    headcount,
)
from fleet.reasons import Reason
from fleet.snapshot import NodeDisruption
from model.kinds import NEVER, Budget, DisruptionReason, NodePool
from tests.support.fleets import NOW, FleetBuilder, small_fleet
from tests.support.world import World


def pool(*budgets: Mapping[str, Any]) -> NodePool:
    built = FleetBuilder().pool(disruption={"budgets": [_budget(it) for it in budgets]}).build()
    return built.node_pools["h100"]


def _budget(it: Mapping[str, Any]) -> dict[str, Any]:
    nodes = it["nodes"]
    return {**it, "nodes": int(nodes) if isinstance(nodes, str) and nodes.isdigit() else nodes}


def unchecked(**given: Any) -> Budget:
    """A budget that no loader has seen."""
    return Budget.model_construct(**{"nodes": 3, **given})


@pytest.mark.parametrize(
    "budget",
    [
        unchecked(schedule="@wrongly", duration=3600.0),
        unchecked(nodes="1000a%"),
        unchecked(nodes="101%"),
        unchecked(nodes="ten"),
        unchecked(nodes="1.5%", schedule="* * * * *", duration=3600.0),
    ],
    ids=repr,
)
def test_what_cannot_be_read_allows_nothing(budget: Budget) -> None:
    with pytest.raises(InvalidBudget):
        allowed_by(budget, 100, NOW)
    bare = pool()
    disruption = bare.spec.disruption.model_copy(update={"budgets": (budget,)})
    broken = bare.model_copy(update={"spec": bare.spec.model_copy(update={"disruption": disruption})})
    assert allowed(broken, Reason.EMPTY, 100, 0, NOW) == 0


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
    assert set(BUDGET_REASONS.values()) == set(get_args(DisruptionReason))


def test_what_counts_as_disrupted() -> None:
    world = World(small_fleet())
    for name in ("fine", "deleting", "told", "replaced", "unwell", "lost", "new"):
        world.machine(name)
    leaves = NodeDisruption("Drifted", "x", NOW, NEVER)
    changes: dict[str, dict[str, Any]] = {
        "deleting": {"deleting": True},
        "told": {"disruption": leaves},
        "new": {"replaces": ("replaced",), "ready_at_s": NOW - 60},
        "lost": {"node": "nowhere"},
    }
    for name, facts in changes.items():
        world.claims[name] = replace(world.claims[name], **facts)
    world.nodes["node-unwell"] = replace(world.nodes["node-unwell"], ready=False)
    snapshot = world.snapshot()
    counted = {name for name, claim in world.claims.items() if disrupted([claim], snapshot)}
    assert counted == {"deleting", "told", "replaced", "unwell", "lost"}
    assert disrupted(world.claims.values(), snapshot) == 5
    assert headcount(world.claims.values(), snapshot) == (7, 5)


@pytest.mark.parametrize(("ready_s", "counted"), [(0.0, 1), (NOW - 800, 1), (NOW - 1000, 0)])
def test_a_replacement_into_which_others_have_moved_frees_the_budget(ready_s: float, counted: int) -> None:
    """What it was bought for had gone, another gang ran on both: an idle machine of the pool was kept for hours."""
    world = World(small_fleet())
    world.machine("old")
    world.machine("new", replaces=("old",), ready_at_s=ready_s)
    assert disrupted([world.claims["old"]], world.snapshot()) == counted


def test_a_replacement_that_was_given_up_frees_the_budget() -> None:
    world = World(small_fleet())
    world.machine("old")
    world.machine("new", replaces=("old",), disruption=NodeDisruption("InsufficientCapacityError", "x", NOW, NEVER))
    assert disrupted([world.claims["old"]], world.snapshot()) == 0


def test_machines_that_percentages_are_of() -> None:
    """Those that were ready once and are not terminated; one that is being terminated counts as disrupted."""
    world = World(small_fleet())
    for name in ("fine", "boots", "told", "leaves", "ends", "ended"):
        world.machine(name)
    world.claims["boots"] = replace(world.claims["boots"], ready_at_s=0.0)
    world.claims["told"] = replace(world.claims["told"], disruption=NodeDisruption("Drifted", "x", NOW, NEVER))
    for name in ("leaves", "ends", "ended"):
        world.claims[name] = replace(world.claims[name], deleting=True)
    world.instances["i-ends"] = replace(world.instances["i-ends"], state="shutting-down")
    world.instances["i-ended"] = replace(world.instances["i-ended"], state="terminated")
    assert headcount(world.claims.values(), world.snapshot()) == (4, 3)
