"""Worlds of a few machines of one pool, and plans in them, for the tests of plans."""

from typing import Any

from fleet.plan import Plan, make_plan
from model.fleet import Fleet
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, gang
from tests.support.world import World

CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}
LIFTED: dict[str, Any] = dict.fromkeys(
    ("maxPercentRemoved", "maxNodesAdded", "maxUsdPerHourAdded", "maxUsdPerHourExposed", "maxGangsEvicted"), "Unlimited"
)


def fleet(
    *,
    pool: dict[str, Any] | None = None,
    team: dict[str, Any] | None = None,
    queue: dict[str, Any] | None = None,
    **rails: Any,
) -> Fleet:
    builder = FleetBuilder().pool(**{"disruption": {"budgets": [{"nodes": "100%"}]}, **(pool or {})})
    builder.team(**{"quotas": {"h100": {GPU: 99}}, **(team or {})}).queue(**(queue or {}))
    return builder.policy(guardRails={**LIFTED, **rails}).build()


QUIET: dict[str, Any] = {"disruption": {"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "100%"}]}}


def quiet(**pool: Any) -> Fleet:
    """One that gives back idle machines only."""
    return fleet(pool={**QUIET, **pool})


def standing(machines: int = 2, *, busy: int = 0, before: Fleet | None = None) -> World:
    """Machines of the pool that became idle a moment ago, the first ones with a gang each."""
    world = World(before or fleet())
    for n in range(machines):
        world.machine(f"m{n}", emptied_at_s=NOW)
    for n in range(busy):
        world.runs(gang(f"g{n}"), (f"m{n}", 1))
    return world


def plan(world: World, after: Fleet, **more: Any) -> Plan:
    return make_plan(world.fleet, after, world.snapshot(), base_revision="aaa", head_revision="bbb", **more)


def verbs(it: Plan) -> dict[str, str]:
    return {change.address.removeprefix("nodeclaim/"): change.verb for change in it.machines}


def wasteful(**policy: Any) -> dict[str, Any]:
    return {
        "instanceTypes": [P5.name, P5S.name],
        "disruption": {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s", **policy},
    }


def meant(line: str, where: str = "in an earlier revision") -> str:
    """How a refusal ends: with what lifts the rail."""
    return f"; if it is meant, write {line} {where}"
