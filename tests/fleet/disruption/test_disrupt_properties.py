"""Whatever stands where: no pass takes more than budgets allow, and the order things are listed in decides nothing."""

from dataclasses import replace
from math import ceil
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import disruption as disrupt
from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.snapshot import NodeDisruption
from model.kinds import NEVER
from tests.support.fleets import GPU, NOW, P5, P5S, FleetBuilder, gang
from tests.support.world import World

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
