"""What counts against the limits of a pool: every machine that bills, whoever answers for it."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.offerings.limits import PoolHeadroom
from fleet.snapshot import Claim, NodeDisruption
from model import labels
from model.kinds import NEVER
from tests.support.fleets import NOW, P5, FleetBuilder, instance_of
from tests.support.world import World

LIMITS = {"nodes": 4, "usdPerHour": 400, "resources": {"nvidia.com/gpu": 32}}


def limited() -> World:
    world = World(FleetBuilder().pool(limits=LIMITS).team().queue().build())
    world.machine("m0")
    return world


def left(world: World) -> tuple[int | None, float | None, dict[str, int]]:
    found = PoolHeadroom.of(world.snapshot(), world.fleet.node_pools["h100"])
    return found.nodes, found.usd_h, found.resources


def changed(claim: Claim, **facts: Any) -> Claim:
    return replace(claim, **facts)


def unlaunched(world: World) -> None:
    """Its launch is under way: EC2 lists the machine, and the claim has not heard of it."""
    world.claims["m0"] = replace(world.claims["m0"], instance_id="", launched_at_s=0.0)


def without_claim(world: World) -> None:
    del world.claims["m0"]


def leaving(world: World) -> None:
    told = NodeDisruption("Drifted", "x", NOW, NEVER)
    world.claims["m0"] = replace(world.claims["m0"], disruption=told, deleting=True)


@pytest.mark.parametrize("change", [lambda _world: None, unlaunched, leaving, without_claim])
def test_a_machine_that_bills_counts_once(change: Any) -> None:
    """Claims alone counted: while a machine had lost its own, the limit let another one be bought."""
    world = limited()
    change(world)
    assert left(world) == (3, 400 - 98.0, {"nvidia.com/gpu": 24})


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"state": "terminated"}, id="it is terminated"),
        pytest.param({"tags": {labels.CLUSTER: "another", labels.NODE_POOL: "h100"}}, id="of another cluster"),
        pytest.param({"tags": {labels.CLUSTER: "default", labels.NODE_POOL: "other"}}, id="of another pool"),
    ],
)
def test_what_does_not_count(facts: dict[str, Any]) -> None:
    world = limited()
    instance = instance_of(world.claims["m0"], **facts)
    without_claim(world)
    world.instances[instance.id] = instance
    assert left(world) == (4, 400, {"nvidia.com/gpu": 32})


def test_a_machine_of_a_type_that_is_not_sold_any_more_counts_as_one() -> None:
    world = limited()
    without_claim(world)
    world.catalog = replace(world.catalog, types={}, offers=())
    assert P5.name not in world.catalog.types
    assert left(world) == (3, 400, {"nvidia.com/gpu": 32})
