"""Every machine at one glance."""

from dataclasses import replace

from fleet.explain.machine_tiles import UNCLAIMED, DeviceUse, MachineTile, machine_tiles
from fleet.snapshot import CutOrder, NodeDisruption
from tests.support.fleets import GPU, NOW, P5, FleetBuilder, foreign_pod, gang, plain_node
from tests.support.world import World


def world() -> World:
    builder = FleetBuilder().pool().team("a", {"h100": {GPU: 32}}, namespaces=["a"]).queue("qa", "a")
    made = World(builder.build())
    for name in ("m1", "m0"):
        made.machine(name)
    return made


def tiles(made: World) -> dict[str, MachineTile]:
    return {tile.name: tile for tile in machine_tiles(made.fleet, made.snapshot())}


def test_machines_come_by_pool_and_name_and_strangers_last() -> None:
    made = world()
    made.nodes["aaa"] = plain_node("aaa", {GPU: 2})
    found = tiles(made)
    assert [(it.name, it.pool, it.state) for it in found.values()] == [
        ("m0", "h100", "Ready"),
        ("m1", "h100", "Ready"),
        ("aaa", "", UNCLAIMED),
    ]
    assert found["aaa"].devices == (DeviceUse(GPU, 2, 0),)


def test_who_uses_its_gpus_and_who_pays() -> None:
    made = world()
    made.runs(gang("g", gpu=2, count=3, queue="qa", namespace="a"), ("m0", 2), ("m1", 1))
    found = tiles(made)
    assert found["m0"].devices == (DeviceUse(GPU, 8, 4),)
    assert found["m1"].devices == (DeviceUse(GPU, 8, 2),)
    assert (found["m0"].teams, [it.job.name for it in found["m0"].holders]) == (("a",), ["g"])
    assert (found["m0"].instance_type, found["m0"].usd_h) == (P5.name, 98.0)


def test_one_that_is_to_go_says_why() -> None:
    made = world()
    leaving = NodeDisruption("Empty", "nobody needs it", NOW)
    made.claims["m0"] = replace(made.claims["m0"], disruption=leaving)
    made.claims["m1"] = replace(made.claims["m1"], disruption=leaving, deleting=True)
    found = tiles(made)
    assert (found["m0"].state, found["m0"].why) == ("Leaving", "Empty: nobody needs it")
    assert found["m1"].state == "Terminating"


def test_one_whose_gpus_are_cut_says_why() -> None:
    made = world()
    drift = CutOrder("LayoutDrift", "declared halves; real: label thirds", NOW)
    made.claims["m0"] = replace(made.claims["m0"], cut=drift)
    made.claims["m1"] = replace(
        made.claims["m1"], cut=drift, disruption=NodeDisruption("Empty", "nobody needs it", NOW)
    )
    found = tiles(made)
    assert (found["m0"].state, found["m0"].why) == ("Recutting", "LayoutDrift: declared halves; real: label thirds")
    assert (found["m1"].state, found["m1"].why) == ("Leaving", "Empty: nobody needs it")


def test_pods_of_no_gang_use_gpus_as_well_and_their_team_pays() -> None:
    """A machine full of them was shown as idle, and counted as free for whoever waits."""
    made = world()
    made.runs(gang("g", gpu=2, queue="qa", namespace="a"), ("m0", 1))
    made.stands(replace(foreign_pod("p", made.claims["m0"].node, {GPU: 4}), namespace="a"))
    found = tiles(made)["m0"]
    assert (found.devices, found.teams) == ((DeviceUse(GPU, 8, 6),), ("a",))
