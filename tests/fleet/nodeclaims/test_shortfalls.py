"""Whatever launches bring: limits hold at every moment, nobody runs in part, and no machine stays that nobody uses.

Idle machines are never given back for being idle here, so a machine that is left over stays for all to see.
"""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.snapshot import GangState
from tests.support.fleets import G6, GPU, P4, P5, P5S, FleetBuilder, gang
from tests.support.world import World

KINDS = (P5, P5S, P4, G6)
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two pools with limits, gangs that want more than one kind can bring, and launches that go wrong."""

    def spec() -> dict[str, Any]:
        limits = {
            "nodes": draw(st.sampled_from((None, 2, 5))),
            "usdPerHour": draw(st.sampled_from((None, 40, 200))),
            "resources": draw(st.sampled_from(({}, {GPU: 9}, {GPU: 24}))),
        }
        return {
            "instanceTypes": [kind.name for kind in draw(st.permutations(KINDS))[: draw(st.integers(1, 3))]],
            "capacityTypes": draw(st.sampled_from((["on-demand"], ["spot", "on-demand"]))),
            "limits": {key: value for key, value in limits.items() if value},
            "disruption": KEEP,
        }

    builder = FleetBuilder().pool("a", **spec()).pool("b", **spec()).flavor("any", nodePools=["a", "b"])
    world = World(builder.team(quotas={"any": {GPU: 99}}).queue(flavors=["any"]).build())
    for number in range(draw(st.integers(1, 5))):
        world.waits(gang(f"g{number}", count=draw(st.integers(1, 5)), gpu=draw(st.sampled_from((1, 1, 2, 4, 8)))))
    world.brings = draw(st.lists(st.sampled_from((0, 0, 1, 2, 3)), max_size=12))
    world.answers_lost = draw(st.sampled_from((0, 0, 1, 3)))
    return world


def within_limits(world: World) -> None:
    for name, pool in world.fleet.node_pools.items():
        mine = [claim for claim in world.claims.values() if claim.node_pool == name and claim.disruption is None]
        limits = pool.spec.limits
        assert limits.nodes is None or len(mine) <= limits.nodes
        assert limits.usd_per_hour is None or sum(it.price_usd_h for it in mine) <= limits.usd_per_hour + 1e-6
        gpus = sum(world.catalog.types[it.capacity_pool.instance_type].capacity.get(GPU, 0) for it in mine)
        assert GPU not in limits.resources or gpus <= limits.resources[GPU]


def nobody_in_part(world: World) -> None:
    for it in world.gangs.values():
        pods = [pod for pod in world.pods.values() if pod.workload == it.workload and not pod.gated]
        assert len(pods) in {0, sum(pods.count for pods in it.pod_sets)} or it.state is not GangState.ADMITTED
        pinned = Counter[str]()
        for pin in it.pins:
            pinned[pin.pod_set] += pin.count
        assert not it.pins or pinned == Counter({pods.name: pods.count for pods in it.pod_sets})


@settings(max_examples=25)
@given(worlds())
def test_nothing_is_left_over(world: World) -> None:
    for turn in range(80):
        actions = world.pass_once()
        within_limits(world)
        nobody_in_part(world)
        if not actions and turn > 70:
            break
        world.now_s += 10.0
    running = {name for name, it in world.gangs.items() if it.state is GangState.ADMITTED}
    used = {pin.claim for name in running for pin in world.gangs[name].pins}
    alive = {it.id for it in world.instances.values() if not it.gone}
    assert alive == {world.claims[name].instance_id for name in used}
    assert set(world.claims) == used
