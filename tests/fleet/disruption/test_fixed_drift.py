"""Drifted machines of fixed pools: another one first, then they go; and the pool never has fewer than it should."""

from dataclasses import replace
from typing import Any

import pytest

from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim
from fleet.disruption.drift import staged
from fleet.nodeclaims import fixed
from tests.support.fleets import FleetBuilder, gang
from tests.support.world import World

CHANGED: dict[str, Any] = {"template": {"labels": {"a": "b"}}}


def drifted(machines: int, replicas: int, budget: str = "100%", **pool: Any) -> World:
    def built(**more: Any) -> Any:
        spec = {"replicas": replicas, "disruption": {"budgets": [{"nodes": budget}]}, **pool, **more}
        return FleetBuilder().pool(**spec).team().queue().build()

    world = World(built())
    for number in range(machines):
        world.machine(f"m{number}")
    world.fleet = built(**CHANGED)
    return world


def decided(world: World) -> tuple[list[str], list[str]]:
    """(machines for which another is bought, machines told to go)."""
    actions = disrupt.decide(world.fleet, world.snapshot())
    bought = [name for it in actions if isinstance(it, OpenClaims) for claim in it.claims for name in claim.replaces]
    return bought, [it.claim.name for it in actions if isinstance(it, SaveClaim)]


@pytest.mark.parametrize(
    ("replicas", "running", "count", "budget", "limit", "turns"),
    [
        (10, 10, 10, 2, float("inf"), 2),
        (5, 5, 5, 9, 5, 0),
        (5, 5, 5, 9, 7, 2),
        (1, 2, 1, 9, float("inf"), 0),
        (5, 4, 3, 9, float("inf"), 3),
        (5, 5, 5, 0, float("inf"), 0),
        (5, 5, 2, 9, 4, 0),
    ],
)
def test_staged(replicas: int, running: int, count: int, budget: int, limit: float, turns: int) -> None:
    assert staged(replicas, running, count, budget, limit) == turns


@pytest.mark.parametrize(
    ("machines", "replicas", "pool", "bought", "gone"),
    [
        pytest.param(3, 3, {}, ["m0", "m1", "m2"], [], id="each by another"),
        pytest.param(4, 4, {"budget": "50%"}, ["m0", "m1"], [], id="budget"),
        pytest.param(3, 3, {"limits": {"nodes": 4}}, ["m0"], [], id="limit"),
        pytest.param(3, 3, {"limits": {"nodes": 3}}, [], ["m0", "m1", "m2"], id="no room for one more"),
        pytest.param(3, 3, {"limits": {"usdPerHour": 3 * 98.0}}, [], ["m0", "m1", "m2"], id="no money for one more"),
        pytest.param(3, 2, {}, [], [], id="too many stand"),
        pytest.param(3, 4, {}, [], [], id="one is missing: that comes first"),
    ],
)
def test_turns(machines: int, replicas: int, pool: dict[str, Any], bought: list[str], gone: list[str]) -> None:
    assert decided(drifted(machines, replicas, **pool)) == (bought, gone)


def test_the_old_ones_go_when_the_new_ones_are_ready_and_the_pool_keeps_its_number() -> None:
    world = drifted(3, 3, budget="34%")
    for _ in range(60):
        world.pass_once()
        world.now_s += 5
        living = [one for one in world.claims.values() if one.ready_at_s and not one.disruption and not one.deleting]
        assert len(living) >= 3
    assert len(world.claims) == 3
    assert not {"m0", "m1", "m2"} & world.claims.keys()


def test_a_gang_that_may_not_move_keeps_its_machine() -> None:
    world = drifted(2, 2)
    world.runs(replace(gang("g"), do_not_disrupt=True), ("m0", 1))
    assert decided(world) == (["m1"], [])


def test_a_machine_that_has_a_successor_does_not_count_twice() -> None:
    world = drifted(1, 1)
    world.machine("new", replaces=("m0",))
    assert fixed.decide(world.fleet, world.snapshot()) == []
    assert decided(world) == ([], ["m0"])
