"""Sets of machines that may go together, with their gangs moved whole."""

from typing import Any

import pytest

from fleet.catalog import InstanceOffer
from fleet.disruption.context import DisruptionContext
from fleet.disruption.evaluation import ConsolidationMove, command, evaluate, granted
from fleet.disruption.outcomes import Blocked
from tests.fleet.nodeclaims.test_capacity_buffers import buffered
from tests.support.fleets import (
    GPU,
    M7,
    NOW,
    P4,
    P5,
    P5S,
    A,
    FleetBuilder,
    catalog,
    foreign_pod,
    gang,
    machine,
    pod_set,
)
from tests.support.world import World


def standing(gpus: dict[str, int], *, kind: str = P5.name, own: Any = "on-demand", **disruption: Any) -> World:
    """A machine for each name, with a gang of so many GPUs."""
    told = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s", **disruption}
    builder = FleetBuilder().pool(instanceTypes=[P5.name, P5S.name], capacityTypes=[own], disruption=told)
    world = World(builder.team(quotas={"h100": {GPU: 64}}).queue().build())
    for name, count in gpus.items():
        world.machine(name, kind=kind, capacity_type=own)
        world.runs(gang(f"g-{name}", gpu=count), (name, 1), admitted_at_s=NOW - 600)
    return world


def evaluated(world: World, *names: str, most_bought: int = 1) -> tuple[DisruptionContext, ConsolidationMove | None]:
    context = DisruptionContext.of(world.fleet, world.snapshot())
    found = evaluate(context, [world.claims[name] for name in names], most_bought=most_bought)
    return context, None if isinstance(found, Blocked) else found


@pytest.mark.parametrize(
    ("gpus", "going", "bought"),
    [
        pytest.param({"a": 2, "b": 2, "c": 2}, ["a", "b"], [], id="two go to the third"),
        pytest.param({"a": 4, "b": 4, "c": 4}, ["a", "b"], None, id="the third has no room for both"),
        pytest.param({"a": 8, "b": 1}, ["b"], [P5S.name], id="a cheaper one"),
        pytest.param({"a": 4, "b": 4}, ["a", "b"], None, id="one of their own"),
        pytest.param({"a": 1, "b": 1}, ["a", "b"], None, id="two cheaper ones"),
    ],
)
def test_sets(gpus: dict[str, int], going: list[str], bought: list[str] | None) -> None:
    _, found = evaluated(standing(gpus), *going)
    assert (found and [lot.offering.offer.instance_type.name for lot in found.purchases]) == bought


def test_more_than_one_may_be_bought_where_that_is_asked_for() -> None:
    context, found = evaluated(standing({"a": 1, "b": 1}), "b", "a", most_bought=2)
    assert found
    assert found.saving_usd_h == pytest.approx(2 * 98.0 - 2 * 14.0)
    assert granted(context, found)
    given = command(context, found)
    assert [claim.replaces for claim in given.replacements] == [("a", "b"), ("a", "b")]
    assert len({claim.launch.group for claim in given.replacements}) == 1
    assert not granted(context, found), "they are spoken for"


def mixed(gpus: dict[str, int], **pool: Any) -> World:
    """Gangs of so many GPUs on one machine of eight, in a pool that has cheaper ones of eight and of one."""
    told = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
    builder = FleetBuilder().pool(instanceTypes=[P5.name, P4.name, P5S.name], disruption=told, **pool)
    world = World(builder.team(quotas={"h100": {GPU: 64}}).queue().build())
    world.machine("m0")
    for name, count in gpus.items():
        world.runs(gang(name, gpu=count), ("m0", 1), admitted_at_s=NOW - 600)
    return world


@pytest.mark.parametrize(
    "gpus", [{"a-small": 1, "b-wide": 4}, {"a-wide": 4, "b-small": 1}, {"a": 1, "b": 1, "c": 1, "d": 5}]
)
def test_one_cheaper_machine_holds_all_whoever_is_placed_first(gpus: dict[str, int]) -> None:
    """Gang by gang the first got the cheapest that holds it, and the next another: more than one would have come."""
    _, found = evaluated(mixed(gpus), "m0")
    assert found
    assert [lot.offering.offer.instance_type.name for lot in found.purchases] == [P4.name]
    assert found.saving_usd_h == pytest.approx(98.0 - 32.0)


def test_what_no_one_cheaper_machine_holds_stays() -> None:
    _, found = evaluated(standing({"a": 1, "b": 1}), "a", "b")
    assert found is None


def test_what_budgets_do_not_allow() -> None:
    context, found = evaluated(standing({"a": 2, "b": 2, "c": 2}, budgets=[{"nodes": 1}]), "a", "b")
    assert found
    assert not granted(context, found)


@pytest.mark.parametrize(("threshold", "worth"), [(1, False), (2, True)])
def test_every_pool_has_a_say(threshold: int, worth: bool) -> None:
    """Two of three machines for five of six parts of the disruption."""
    world = standing({"a": 2, "b": 2, "c": 2}, consolidationPolicy="Balanced", consolidationThreshold=threshold)
    world.runs(gang("more", gpu=1), ("a", 1), admitted_at_s=NOW - 600)
    _, found = evaluated(world, "a", "b")
    assert (found is not None) is worth


def test_machines_of_a_pool_that_is_gone_are_not_evaluated() -> None:
    world = standing({"a": 2, "b": 2})
    world.fleet = FleetBuilder().pool("other").team(quotas={}).queue(flavors=["other"]).build()
    assert evaluated(world, "a")[1] is None


@pytest.mark.parametrize(("in_use", "spare"), [(1, 7), (7, 1)])
def test_a_pod_and_a_buffer_go_to_one_smaller_machine(in_use: int, spare: int) -> None:
    """On a machine of 16 cores: a small one would have come for whichever is placed first, and another beside it."""
    small, middle = machine("small.large", cpu=4, gib=32), machine("middle.large", cpu=12, gib=32)
    prices = [(small, 0.2), (middle, 0.5), (M7, 0.8)]
    told = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}
    builder = FleetBuilder().pool(
        instanceTypes=[it.name for it, _ in prices], serves=["Gangs", "Pods"], disruption=told
    )
    fleet = buffered(builder.team().queue().build(), containers=[{"resources": {"requests": {"cpu": spare}}}])
    sold = [InstanceOffer(it, A, "on-demand", usd_h) for it, usd_h in prices]
    world = World(fleet, catalog=catalog(sold))
    world.machine("m0", kind=M7.name, emptied_at_s=0.0)
    shape = pod_set(requests={"cpu": in_use * 1000}, namespace="ns")
    world.stands(foreign_pod("p", "node-m0", shape.requests, shape=shape, controlled=True))
    _, found = evaluated(world, "m0")
    assert found
    assert [lot.offering.offer.instance_type.name for lot in found.purchases] == [middle.name]
