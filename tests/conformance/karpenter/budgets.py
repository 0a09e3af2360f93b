"""`budget`: how many machines of a pool may be disrupted now."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from fleet.disruption.budgets import UNBOUNDED, InvalidBudget, allowed, allowed_by, open_now
from fleet.disruption.context import DisruptionContext
from fleet.reasons import Reason
from fleet.snapshot import NodeDisruption
from model.kinds import NEVER, Budget, NodePool
from tests.conformance.cases import Case
from tests.support.fleets import FleetBuilder, amounts, plain_node
from tests.support.world import World

REASONS = {"Empty": Reason.EMPTY, "Underutilized": Reason.UNDERUTILIZED, "Drifted": Reason.DRIFTED}
Given = Mapping[str, Any]
NOW = 1_800_000_000.0


def run(case: Case) -> dict[str, Any]:
    """A window, budgets over a count, or budgets over machines, by what the case gives."""
    given = case["given"]
    if "managed_initialized_nodes" in given:
        return _over_machines(given)
    if "schedule" in given:
        return {"active": open_now(_budget({"nodes": "0", **_window(given)}), _instant_s(given["now"]))}
    return _over_a_count(given)


def _window(given: Given) -> Given:
    return {name: given[name] for name in ("schedule", "duration")}


def _over_a_count(given: Given) -> dict[str, Any]:
    now_s, nodes = _instant_s(given["now"]), given["nodes_in_pool"]
    found: dict[str, Any] = {"error": False}
    budgets = [_budget(each) for each in given["budgets"]]
    pool = _pool(budgets)
    try:
        found["budget_value"] = _told(allowed_by(budgets[0], nodes, now_s))
    except InvalidBudget:
        found |= {"error": True, "budget_value": _told(allowed(pool, Reason.EMPTY, nodes, 0, now_s))}
    found["allowed"] = {name: _told(allowed(pool, reason, nodes, 0, now_s)) for name, reason in REASONS.items()}
    return found


def _budget(given: Given) -> Budget:
    """A budget that nobody has checked: the loader would refuse some of them."""
    told = budget(given)
    if "duration" not in told:
        return Budget.model_construct(**told)
    duration_s = Budget.model_validate({"schedule": "@daily", "duration": told["duration"]}).duration
    return Budget.model_construct(**{**told, "duration": duration_s})


def _pool(budgets: list[Budget]) -> NodePool:
    bare = node_pool({"name": "default"})
    disruption = bare.spec.disruption.model_copy(update={"budgets": tuple(budgets)})
    return bare.model_copy(update={"spec": bare.spec.model_copy(update={"disruption": disruption})})


def _instant_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _told(value: int) -> int | str:
    return "unbounded" if value == UNBOUNDED else value


# -- machines ---------------------------------------------------------------------------------------------------------


def _over_machines(given: Given) -> dict[str, Any]:
    """The pass over a world that has them. Those not well or on their way out are among the initialized ones."""
    world = World(FleetBuilder().pool(disruption={"budgets": [budget(each) for each in given["budgets"]]}).build())
    world.now_s = NOW
    count = given["managed_initialized_nodes"]
    for number in range(count):
        world.machine(f"m{number}")
    for number in range(_count(given, "not_ready")):
        node = world.claims[f"m{number}"].node
        world.nodes[node] = replace(world.nodes[node], ready=False)
    leaving = _count(given, "marked") + _count(given, "deleting")
    for number in range(leaving):
        name = f"m{count - 1 - number}"
        world.claims[name] = replace(world.claims[name], disruption=NodeDisruption("Drifted", "x", NOW, NEVER))
    for number in range(_count(given, "terminating")):
        _taken_down(world, f"t{number}")
    for number in range(_count(given, "uninitialized")):
        world.machine(f"u{number}")
        world.claims[f"u{number}"] = replace(world.claims[f"u{number}"], ready_at_s=0.0)
    for number in range(_count(given, "unmanaged")):
        world.nodes[f"plain{number}"] = plain_node(f"plain{number}", amounts())
    context = DisruptionContext.of(world.fleet, world.snapshot())
    left = {name: context.budget("h100", reason) for name, reason in REASONS.items()}
    return {"allowed_now": _told(left["Underutilized"]), "allowed": {name: _told(each) for name, each in left.items()}}


def _count(given: Given, word: str) -> int:
    """Machines of a sort: the number whose name has the word in it (`uninitialized_nodes`)."""
    return sum(value for name, value in given.items() if word in name)


def _taken_down(world: World, name: str) -> None:
    claim = world.machine(name)
    world.claims[name] = replace(claim, deleting=True)
    world.instances[claim.instance_id] = replace(world.instances[claim.instance_id], state="shutting-down")


def node_pool(given: Given) -> NodePool:
    """A pool of ours that declares the same."""
    told = {"consolidationPolicy": "consolidation_policy", "consolidateAfter": "consolidate_after"}
    disruption = {ours: given[theirs] for ours, theirs in told.items() if theirs in given}
    if "budgets" in given:
        disruption["budgets"] = [budget(each) for each in given["budgets"]]
    spec: dict[str, Any] = {"disruption": disruption}
    if given.get("replicas") is not None:
        spec["replicas"] = given["replicas"]
    if "limits" in given:
        spec["limits"] = {"nodes": given["limits"].get("nodes")}
    return NodePool.model_validate(
        {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": given["name"]}, "spec": spec}
    )


def budget(given: Given) -> dict[str, Any]:
    """A count is text in the cases."""
    nodes = given["nodes"]
    return {**given, "nodes": int(nodes) if isinstance(nodes, str) and nodes.isdigit() else nodes}
