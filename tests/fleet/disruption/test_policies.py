"""What pools say of consolidation, and what machines say of being disrupted."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, SaveClaim
from fleet.snapshot import Claim, InstanceOffer
from tests.support.fleets import GPU, NOW, P5, P5S, A, FleetBuilder, catalog, gang, machine
from tests.support.world import World

BOTH = [P5.name, P5S.name]
OPEN: dict[str, Any] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}


def standing(kinds: list[str], disruption: dict[str, Any], **pool: Any) -> World:
    builder = FleetBuilder().pool(instanceTypes=kinds, disruption={**OPEN, **disruption}, **pool)
    return World(builder.team(quotas={"h100": {GPU: 64}}).queue().build())


def bought(world: World) -> list[Claim]:
    return [claim for it in world.disrupted() if isinstance(it, OpenClaims) for claim in it.claims]


def told(world: World) -> list[str]:
    return [it.claim.name for it in world.disrupted() if isinstance(it, SaveClaim)]


# -- Balanced ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("disruption", "moves"),
    [
        pytest.param({}, True, id="not asked"),
        pytest.param({"consolidationPolicy": "WhenEmpty"}, False, id="WhenEmpty"),
        pytest.param({"consolidationPolicy": "Balanced"}, True, id="balanced"),
        pytest.param({"consolidationPolicy": "Balanced", "consolidationThreshold": 1}, False, id="stricter"),
    ],
)
def test_a_move_in_proportion(disruption: dict[str, Any], moves: bool) -> None:
    """A pod on one of two large machines moves to a small one: 84 of 196 USD/h for 2 of 3 parts of the disruption."""
    world = standing(BOTH, disruption)
    world.machine("m0")
    world.machine("m1", emptied_at_s=NOW)
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    world.nodes["node-m1"] = replace(world.nodes["node-m1"], do_not_disrupt="true", unschedulable=True)
    assert bool(bought(world)) is moves


def test_the_machine_that_brings_most_for_what_it_disturbs_comes_first() -> None:
    world = standing([P5.name], {})
    for number, count in enumerate((4, 1, 2)):
        world.machine(f"m{number}")
        world.runs(gang(f"g{number}", count=count, gpu=1), (f"m{number}", count), admitted_at_s=NOW - 600)
    assert told(world)[0] == "m1"


def test_urgent_work_is_dearer_to_move() -> None:
    world = standing([P5.name], {})
    for number, boost in enumerate((2**26, 0)):
        world.machine(f"m{number}")
        world.runs(replace(gang(f"g{number}", gpu=1), priority_boost=boost), (f"m{number}", 1), admitted_at_s=NOW - 600)
    assert told(world) == ["m1"]


# -- spot for spot ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cheaper", "enabled", "moves"), [(15, True, True), (14, True, False), (15, False, False)])
def test_spot_gives_way_to_spot_where_fifteen_types_are_cheaper(cheaper: int, enabled: bool, moves: bool) -> None:
    kinds = [machine(f"x{n:02}.large", gpus=1, gpu="h100", gpu_memory=81920, cpu=16) for n in range(cheaper)]
    offers = [InstanceOffer(kind, A, "spot", 5.0 + n / 10) for n, kind in enumerate(kinds)] + [
        InstanceOffer(P5, A, "spot", 40.0)
    ]
    names = [P5.name, *(kind.name for kind in kinds)]
    world = standing(names, {"spotToSpot": enabled}, capacityTypes=["spot"])
    world.catalog = catalog(sorted(offers, key=lambda offer: offer.instance_type.name))
    world.machine("m0", capacity_type="spot")
    world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    assert [claim.capacity_pool.instance_type for claim in bought(world)] == (["x00.large"] if moves else [])


# -- do-not-disrupt on nodes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "goes"), [("", True), ("true", False), ("3h", False), ("1h", True), ("nonsense", True)]
)
@pytest.mark.parametrize("busy", [False, True])
def test_a_protected_node_stays(value: str, goes: bool, busy: bool) -> None:
    """Nodes here are two hours old."""
    world = standing(BOTH, {})
    world.machine("m0", emptied_at_s=0.0 if busy else NOW - 60)
    if busy:
        world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    node = world.nodes["node-m0"]
    world.nodes["node-m0"] = replace(node, do_not_disrupt=value, created_at_s=NOW - 7200)
    assert bool(bought(world) if busy else told(world)) is goes


def test_protection_does_not_hold_expiry_back() -> None:
    world = standing(BOTH, {}, template={"expireAfter": "1h", "annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    world.machine("m0", at_s=NOW - 7200)
    node = world.nodes["node-m0"]
    world.nodes["node-m0"] = replace(node, do_not_disrupt="true")
    assert told(world) == ["m0"]


def test_annotations_of_the_template_end_on_the_node() -> None:
    world = standing([P5.name], {}, template={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, replicas=1)
    world.settle_down()
    assert [node.do_not_disrupt for node in world.nodes.values()] == ["true"]
