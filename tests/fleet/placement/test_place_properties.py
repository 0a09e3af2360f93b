"""Whatever the fleet and the gang: a plan passes an independent judge, a refusal leaves nothing behind."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.place import place_gang
from fleet.placement.plan import Need
from fleet.reasons import Refusal
from fleet.snapshot import CapacityPool, PodSet
from fleet.snapshot.lookups import holders
from model import labels
from model.kinds import Taint, Toleration
from tests.support.checker import before, faults, over_limits
from tests.support.fleets import GPU, NOW, P4, P5, P5S, A, B, FleetBuilder, amounts, gang
from tests.support.world import World

KINDS = (P5, P5S, P4)
TAINT = {"key": "gpu", "effect": "NoSchedule"}
SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"


@st.composite
def pools(draw: st.DrawFn, *, mig: bool = False) -> dict[str, Any]:
    """The spec of a pool."""
    spec: dict[str, Any] = {
        "instanceTypes": [P5.name]
        if mig
        else draw(st.sampled_from(([P5.name], [P5.name, P5S.name], [P4.name, P5S.name]))),
        "capacityTypes": draw(st.sampled_from((["on-demand"], ["spot", "on-demand"], ["on-demand", "spot"]))),
        "zones": draw(st.sampled_from(([], [A], [B]))),
        "weight": draw(st.integers(0, 2)),
    }
    limits: dict[str, Any] = {}
    if draw(st.booleans()):
        limits["nodes"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        limits["usdPerHour"] = draw(st.sampled_from((10.0, 60.0, 196.0, 300.0)))
    if draw(st.booleans()):
        limits["resources"] = {GPU: draw(st.integers(0, 24))}
    spec["limits"] = limits
    if draw(st.integers(0, 3)) == 0:
        spec["template"] = {"taints": [TAINT], "labels": {"role": "x"}}
    if mig:
        spec["sharing"] = {"mig": {"layouts": draw(st.permutations(("small", "large")))}}
    return spec


@st.composite
def pod_sets(draw: st.DrawFn, name: str) -> PodSet:
    """Pods that ask for GPUs, slices or only CPUs."""
    kind = draw(st.sampled_from((GPU, GPU, GPU, SMALL, LARGE, "")))
    requests = {**amounts(), **({kind: draw(st.sampled_from((1, 1, 3, 8)))} if kind else {})}
    return PodSet(
        name,
        draw(st.integers(1, 9)),
        requests,
        node_selector=draw(st.sampled_from(({}, {}, {}, {labels.ZONE: B}, {"role": "x"}))),
        tolerations=draw(st.sampled_from(((), (Toleration(key="gpu", operator="Exists"),)))),
        required_topology=draw(st.sampled_from(("", "", "", labels.ZONE, labels.HOSTNAME, "rack"))),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two or three pools, some machines of theirs, some of them half full, some shortages."""
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    names = ["pa", "pb", "pm"]
    for name in names:
        builder.pool(name, **draw(pools(mig=name == "pm")))
    builder.flavor("any", nodePools=names).team(quotas={"any": {GPU: 99}}).queue(flavors=["any"])
    world = World(builder.build())
    for n in range(draw(st.integers(0, 4))):
        _stand(world, draw, f"m{n}", draw(st.sampled_from(names)))
    for _ in range(draw(st.integers(0, 4))):
        pool = CapacityPool(
            draw(st.sampled_from(("spot", "on-demand"))),
            draw(st.sampled_from(KINDS)).name,
            draw(st.sampled_from((A, B))),
        )
        world.shortages[pool] = NOW + 60
    return world


def _stand(world: World, draw: st.DrawFn, name: str, pool: str) -> None:
    spec = world.fleet.node_pools[pool].spec
    zone = draw(st.sampled_from(spec.zones or (A, B)))
    claim = world.machine(
        name, pool, draw(st.sampled_from(spec.instance_types)), zone, draw(st.sampled_from(spec.capacity_types))
    )
    node = world.nodes[claim.node]
    if draw(st.booleans()):
        world.nodes[node.name] = replace(node, labels={**node.labels, "rack": draw(st.sampled_from(("r1", "r2")))})
    if draw(st.integers(0, 4)) == 0:
        taint = Taint(key="flaky", effect="NoSchedule")
        world.nodes[node.name] = replace(world.nodes[node.name], taints=(*node.taints, taint))
    resource = next((it for it in (GPU, SMALL, LARGE) if node.allocatable.get(it)), GPU)
    if draw(st.booleans()):
        pods = PodSet("main", 1, {resource: draw(st.integers(1, node.allocatable[resource]))})
        world.runs(gang(f"on-{name}", pods), (name, 1), flavor="any")


@settings(max_examples=250, deadline=None)
@given(worlds(), st.data())
def test_plans_pass_the_judge_and_refusals_leave_nothing_behind(world: World, data: st.DataObject) -> None:
    snapshot = world.snapshot()
    supply = build_capacity(world.fleet, snapshot)
    board = build_cluster_state(snapshot, holders(snapshot))
    flavors = FleetFlavors(world.fleet, supply.offerings, board)
    spent = [
        (claim.node_pool, claim.price_usd_h, snapshot.catalog.types[claim.capacity_pool.instance_type].capacity)
        for claim in snapshot.claims.values()
    ]
    already = {
        name
        for name, pool in world.fleet.node_pools.items()
        if over_limits(pool, [(p, c) for n, p, c in spent if n == name])
    }
    for number in range(data.draw(st.integers(1, 3), label="gangs")):
        sets = [data.draw(pod_sets(f"s{n}")) for n in range(data.draw(st.integers(1, 2), label="pod sets"))]
        needs: list[Need] = [flavors.need(it, ("any",)) for it in sets]
        standing = before(board)
        headroom = {name: (it.nodes, it.usd_h, dict(it.resources)) for name, it in supply.headroom.items()}
        plan = place_gang(board, supply, f"uid-{number}", needs)
        if isinstance(plan, Refusal):
            assert before(board) == standing
            for name, it in supply.headroom.items():
                nodes, usd_h, resources = headroom[name]
                assert (it.nodes, it.resources) == (nodes, resources)
                assert (it.usd_h is None and usd_h is None) or abs((it.usd_h or 0) - (usd_h or 0)) < 1e-9
            assert plan.message
            continue
        assert faults(plan, needs, standing, f"uid-{number}") == []
        for lot in plan.purchases:
            assert lot.offering.offer.pool_key not in snapshot.shortages
            spent += [
                (lot.offering.pool.name, lot.offering.offer.price_usd_h, lot.offering.offer.instance_type.capacity)
            ] * lot.count
        for name, pool in world.fleet.node_pools.items():
            assert name in already or not over_limits(pool, [(p, c) for n, p, c in spent if n == name])
        for slot in [it for it in board.slots.values() if it.name.startswith("new/")]:
            board.rename(slot, f"kept/{number}/{slot.name}")


@settings(max_examples=60, deadline=None)
@given(worlds(), st.data())
def test_a_larger_gang_never_fits_where_a_smaller_one_does_not(world: World, data: st.DataObject) -> None:
    """Nothing that stands can make room for more pods of a kind than for fewer (existing machines only)."""
    wanted = data.draw(pod_sets("s"))
    fewer = replace(wanted, count=max(1, wanted.count - 1))

    def fits(pods: PodSet) -> bool:
        snapshot = world.snapshot()
        supply = build_capacity(world.fleet, snapshot, may_buy=False)
        board = build_cluster_state(snapshot, holders(snapshot))
        need = FleetFlavors(world.fleet, supply.offerings, board).need(pods, ("any",))
        return not isinstance(place_gang(board, supply, "uid", [need]), Refusal)

    assert fits(fewer) or not fits(wanted)
