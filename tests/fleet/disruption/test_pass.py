"""One pass over the machines: methods share budgets, windows freeze all, no order of a listing decides anything."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.snapshot import Claim, NodeDisruption
from model.kinds import NEVER
from tests.support.disruption import ANY, BOTH, at_rest, gone, idle, of_claim, standing, told, with_pool
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, gang
from tests.support.world import World


def test_the_deadline_is_the_pools_grace_period() -> None:
    world = idle(template={"terminationGracePeriod": "10m"})
    [action] = disrupt.decide(world.fleet, world.snapshot())
    assert isinstance(action, SaveClaim)
    assert action.claim.disruption
    assert (action.claim.disruption.deadline_s, action.claim.disruption.at_s) == (NOW + 600, NOW)
    assert action.claim.disruption.message == "nothing has run on it for 100 s"


@pytest.mark.parametrize(
    ("schedule", "blocks", "goes"),
    [
        ("0 8 * * *", ["Disruption"], False),
        ("0 8 * * *", ["Sync"], True),
        ("0 9 * * *", ["Disruption"], True),
        ("30 7 * * *", ["Sync", "Disruption"], False),
    ],
)
def test_freeze_windows(schedule: str, blocks: list[str], goes: bool) -> None:
    builder = FleetBuilder().pool(**ANY).team().queue()
    window = {"name": "launch", "schedule": schedule, "duration": "1h", "blocks": blocks}
    world = World(builder.policy(freezeWindows=[window]).build())
    world.machine("m0")
    assert bool(gone(world)) is goes


def test_methods_share_the_budget_of_a_pool() -> None:
    """Emptiness takes first; what it leaves is for drift."""
    world = idle(4, since_s=1)
    of_claim(emptied_at_s=NOW - 99)(world)
    with_pool(world, template={"labels": {"a": "b"}}, disruption={"budgets": [{"nodes": 2}]})
    assert gone(world) == {"m0": "Empty", "m1": "Drifted"}


def test_nothing_is_bought_for_idle_machines() -> None:
    world = idle(3)
    with_pool(world, **ANY, template={"labels": {"a": "b"}, "expireAfter": "1h"})
    assert not [it for it in disrupt.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims)]


def test_idle_machines_go_and_then_nothing_happens() -> None:
    world = standing(4)
    world.settle_down()
    assert not world.claims
    at_rest(world)


def test_a_machine_that_goes_in_this_pass_is_no_place_to_move_to() -> None:
    """The idle machine goes; the gang whose work would fit on it stays where it is."""
    world = standing(2, limits={"nodes": 2})
    world.runs(gang("g"), ("m0", 1), admitted_at_s=NOW - 600)
    assert told(world.disrupted()) == {"m1": "Empty"}


AT_ONCE: dict[str, Any] = {"budgets": [{"nodes": "100%"}], "consolidateAfter": "0s"}


def of_policy(kinds: list[str], disruption: dict[str, Any], **pool: Any) -> World:
    builder = FleetBuilder().pool(instanceTypes=kinds, disruption={**AT_ONCE, **disruption}, **pool)
    return World(builder.team(quotas={"h100": {GPU: 64}}).queue().build())


def bought_first(world: World) -> list[Claim]:
    return [claim for it in world.disrupted() if isinstance(it, OpenClaims) for claim in it.claims]


def told_to_go(world: World) -> list[str]:
    return [it.claim.name for it in world.disrupted() if isinstance(it, SaveClaim)]


@pytest.mark.parametrize(
    ("value", "goes"), [("", True), ("true", False), ("3h", False), ("1h", True), ("nonsense", True)]
)
@pytest.mark.parametrize("busy", [False, True])
def test_a_protected_node_stays(value: str, goes: bool, busy: bool) -> None:
    """Nodes here are two hours old."""
    world = of_policy(BOTH, {})
    world.machine("m0", emptied_at_s=0.0 if busy else NOW - 60)
    if busy:
        world.runs(gang("g", gpu=1), ("m0", 1), admitted_at_s=NOW - 600)
    node = world.nodes["node-m0"]
    world.nodes["node-m0"] = replace(node, do_not_disrupt=value, created_at_s=NOW - 7200)
    assert bool(bought_first(world) if busy else told_to_go(world)) is goes


def test_protection_does_not_hold_expiry_back() -> None:
    world = of_policy(BOTH, {}, template={"expireAfter": "1h", "annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    world.machine("m0", at_s=NOW - 7200)
    node = world.nodes["node-m0"]
    world.nodes["node-m0"] = replace(node, do_not_disrupt="true")
    assert told_to_go(world) == ["m0"]


def test_annotations_of_the_template_end_on_the_node() -> None:
    world = of_policy([P5.name], {}, template={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, replicas=1)
    world.settle_down()
    assert [node.do_not_disrupt for node in world.nodes.values()] == ["true"]


# -- whatever stands where ---------------------------------------------------------------------------------------------

BUDGETS = (0, 1, 2, "30%", "100%")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Machines of two pools, some drifted, idle, unwell, on their way out or protected; gangs on some of them."""

    def declared(template: dict[str, Any], nodes: Any) -> Any:
        policy = draw(st.sampled_from(("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")))
        disruption = {"budgets": [{"nodes": nodes}], "consolidationPolicy": policy, "consolidateAfter": "0s"}
        kinds = {"instanceTypes": [P5.name, P5S.name], "disruption": disruption, "template": template}
        builder = FleetBuilder().pool("a", **kinds, **fixed).pool("b", **kinds)
        flavors = {"a": {GPU: 99}, "b": {GPU: 99}}
        return builder.team(quotas=flavors).queue(flavors=["a", "b"]).build()

    fixed = draw(st.sampled_from(({}, {"replicas": 3})))
    world = World(declared({}, 0))
    for number in range(draw(st.integers(1, 8))):
        name, pool = f"m{number}", draw(st.sampled_from("ab"))
        world.machine(name, pool, draw(st.sampled_from((P5.name, P5S.name))))
        fate = draw(st.sampled_from(("", "", "", "told", "unwell", "protected", "gang", "gang")))
        node = world.nodes[f"node-{name}"]
        if fate == "told":
            leaves = NodeDisruption("Drifted", "x", NOW, NEVER)
            world.claims[name] = replace(world.claims[name], disruption=leaves)
        elif fate == "gang":
            world.runs(gang(f"g{number}", gpu=1), (name, 1), flavor=pool, admitted_at_s=NOW - 900)
        elif fate:
            changed = {"ready": False} if fate == "unwell" else {"do_not_disrupt": "true"}
            world.nodes[node.name] = replace(node, **changed)
    world.fleet = declared(draw(st.sampled_from(({}, {"labels": {"x": "y"}}))), draw(st.sampled_from(BUDGETS)))
    return world


def taken(actions: list[Action]) -> set[str]:
    """Machines told to go, or for which a replacement is bought."""
    told = {action.claim.name for action in actions if isinstance(action, SaveClaim)}
    opened = [claim for action in actions if isinstance(action, OpenClaims) for claim in action.claims]
    return told | {name for claim in opened for name in claim.replaces}


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_no_pass_takes_more_than_budgets_allow(world: World) -> None:
    going = taken(disrupt.decide(world.fleet, world.snapshot()))
    for name, pool in world.fleet.node_pools.items():
        [budget] = pool.spec.disruption.budgets
        mine = [claim for claim in world.claims.values() if claim.node_pool == name]
        hit = sum(1 for claim in mine if claim.disruption or not world.nodes[claim.node].ready)
        most = budget.nodes if isinstance(budget.nodes, int) else ceil(len(mine) * int(budget.nodes[:-1]) / 100)
        assert len([claim for claim in mine if claim.name in going]) <= max(0, most - hit)
    assert not any(world.nodes[world.claims[name].node].do_not_disrupt for name in going)


@settings(max_examples=40, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_things_are_listed_in_decides_nothing(world: World, random: Any) -> None:
    def mixed(table: dict[str, Any]) -> dict[str, Any]:
        items = list(table.items())
        random.shuffle(items)
        return dict(items)

    before = world.snapshot()
    other = replace(before, claims=mixed(world.claims), nodes=mixed(world.nodes), gangs=mixed(world.gangs))
    assert disrupt.decide(world.fleet, before) == disrupt.decide(world.fleet, other)
