"""Gangs that wish for racks, slices and neighbourhoods are placed on the topology of their flavor."""

from typing import Any

import pytest

from fleet.scheduling import cycle
from fleet.snapshot import PodSet, Slice
from model import labels
from tests.support.fleets import GPU, NOW, FleetBuilder, amounts, gang, plain_node, pod_set
from tests.support.world import World

RACK = "example.com/rack"


def racks(**busy: int) -> World:
    """Three racks of two machines of our own, four GPUs each; `busy`: GPUs that other pods take on a machine."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).topology("hall", RACK, labels.HOSTNAME)
    builder.flavor("own", nodeLabels={"own": "yes"}, topology="hall")
    world = World(builder.team(quotas={"own": {GPU: 99}}).queue(flavors=["own"]).build())
    for number in range(6):
        name, rack = f"n{number}", f"r{number // 2}"
        free = 4 - busy.get(name, 0)
        carried = {"own": "yes", RACK: rack, labels.HOSTNAME: name}
        node = plain_node(name, {**amounts(cpu="99", memory="99Gi"), GPU: free, "pods": 99}, carried)
        world.nodes[name] = node
    return world


def places(world: World) -> dict[str, dict[str, int]]:
    """Gang -> node -> pods, once the next pass has decided."""
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    found: dict[str, dict[str, int]] = {}
    for it in world.gangs.values():
        for pin in it.pins:
            on = found.setdefault(it.job.name, {})
            on[pin.node] = on.get(pin.node, 0) + pin.count
    return found


@pytest.mark.parametrize(
    ("wish", "busy", "expected"),
    [
        ({"preferred_topology": RACK}, {"n0": 1, "n2": 4, "n3": 4}, {"n4": 4, "n5": 4}),
        ({"preferred_topology": RACK}, {"n0": 1, "n2": 1, "n4": 1}, None),
        ({"slices": (Slice(RACK, 4),)}, {"n0": 2, "n2": 4, "n4": 4}, {"n3": 4, "n5": 4}),
        ({"any_topology": True}, {"n0": 0}, None),
    ],
    ids=["a rack that holds all", "spread where no rack does", "slices of four", "anywhere"],
)
def test_where_eight_pods_go(wish: dict[str, Any], busy: dict[str, int], expected: dict[str, int] | None) -> None:
    world = racks(**busy)
    world.waits(gang("g", pod_set(count=8, gpu=1, **wish)))
    found = places(world)["g"]
    assert sum(found.values()) == 8
    if expected is not None:
        assert found == {name: count for name, count in expected.items() if count}


def test_a_leader_stands_in_the_rack_of_its_workers() -> None:
    world = racks(n0=3, n1=3)
    leader = pod_set("leader", 1, 0, group="g", required_topology=RACK)
    workers = pod_set("worker", 8, 1, group="g", required_topology=RACK)
    world.waits(gang("g", leader, workers))
    assert {world.nodes[name].labels[RACK] for name in places(world)["g"]} == {"r1"}


def together(*counts: int, **wish: Any) -> list[PodSet]:
    return [pod_set(f"s{n}", count, 1, group="g", required_topology=RACK, **wish) for n, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "busy", "rack"),
    [
        ((2, 2, 2), {"n0": 3, "n2": 1, "n4": 4}, "r1"),
        ((2, 3), {"n0": 4, "n2": 4}, "r2"),
        ((2, 2, 2), {"n0": 2}, "r0"),
    ],
    ids=["the only one that holds all", "two sets of several", "the tightest"],
)
def test_more_sets_than_a_leader_and_its_workers_share_a_domain(
    counts: tuple[int, ...], busy: dict[str, int], rack: str
) -> None:
    world = racks(**busy)
    world.waits(gang("g", *together(*counts)))
    found = places(world)["g"]
    assert (sum(found.values()), {world.nodes[name].labels[RACK] for name in found}) == (sum(counts), {rack})


def test_each_of_them_has_its_slices() -> None:
    world = racks(n0=1, n1=1, n2=2, n3=2)
    world.waits(gang("g", *together(3, 3, slices=(Slice(labels.HOSTNAME, 3),))))
    found = {(pin.pod_set, pin.node): pin.count for pin in (places(world), world.gang("g"))[1].pins}
    assert sorted(found.values()) == [3, 3]
    assert len({node for _, node in found}) == 2


def test_sets_that_no_domain_holds_together_are_refused_by_name() -> None:
    world = racks()
    world.waits(gang("g", *together(3, 3, 3)))
    assert places(world) == {}
    assert world.gang("g").message.startswith(f"no domain of {RACK} has places for s0 (3), s1 (3), s2 (3)")


def test_slices_that_fit_nowhere_are_refused_with_numbers() -> None:
    world = racks(n0=4, n2=4, n4=4)
    world.waits(gang("g", pod_set(count=5, gpu=1, slices=(Slice(RACK, 5),))))
    assert places(world) == {}
    g = world.gang("g")
    assert g.reason == "TopologyPlacementFailed"
    assert "1 slice" in g.message


def test_gangs_of_one_pass_see_each_other() -> None:
    world = racks()
    wish = {"required_topology": RACK, "preferred_topology": ""}
    world.waits(
        gang("a", pod_set(count=8, gpu=1, slices=(Slice(RACK, 8),)), created_s=NOW - 9),
        gang("b", pod_set(count=8, gpu=1, slices=(Slice(RACK, 8),)), created_s=NOW - 8),
        gang("c", pod_set(count=8, gpu=1, **wish), created_s=NOW - 7),
        gang("d", pod_set(count=1, gpu=1), created_s=NOW - 6),
    )
    found = places(world)
    taken = [{world.nodes[name].labels[RACK] for name in found[gang_name]} for gang_name in "abc"]
    assert all(len(rack) == 1 for rack in taken)
    assert len(set.union(*taken)) == 3
    assert "d" not in found
