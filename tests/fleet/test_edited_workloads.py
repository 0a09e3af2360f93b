"""A Workload that somebody edits while its gang runs: nobody knows what stands on its machines, and nobody stumbles."""

from dataclasses import replace

import pytest

from fleet.cost.uses import CostTerms, uses
from fleet.deciders import DECIDERS
from fleet.explain.verdicts import verdicts
from fleet.plan import make_plan
from fleet.snapshot import Gang, PodSet
from tests.support.fleets import FleetBuilder, gang
from tests.support.world import World

NEW_LABEL = {"template": {"labels": {"rack": "new"}}}


@pytest.fixture
def world() -> World:
    """A running gang whose Workload has another pod set than it was admitted with, on one of two machines."""
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    world.machine("m1")
    running = gang("g", gpu=4)
    world.runs(running, ("m0", 1))
    edited: Gang = replace(world.gangs["uid-g"], pod_sets=(PodSet("other", 1, running.pod_sets[0].requests),))
    world.gangs = {**world.gangs, edited.uid: edited}
    return world


@pytest.mark.parametrize("name", DECIDERS)
def test_every_decider_goes_on(world: World, name: str) -> None:
    list(DECIDERS[name](world.fleet, world.snapshot()))


def test_its_machine_is_not_disrupted_and_says_why(world: World) -> None:
    drifted = FleetBuilder().pool(**NEW_LABEL).team().queue().build()
    snapshot = world.snapshot()
    told = {it.message for it in verdicts(drifted, snapshot, snapshot.claims["m0"])}
    assert any("ns/g has places for pod sets that its Workload does not have: main" in words for words in told), told
    use = uses(world.fleet, snapshot, CostTerms(lambda *_: "t"))["i-m0"]
    assert [it.share for it in use.holdings] == [0.0]


def test_a_plan_replaces_the_other_machine_alone(world: World) -> None:
    drifted = FleetBuilder().pool(**NEW_LABEL).team().queue().build()
    plan = make_plan(world.fleet, drifted, world.snapshot(), base_revision="aaa", head_revision="bbb")
    touched = {change.name for change in plan.machines if not change.when.held}
    assert "m0" not in touched
