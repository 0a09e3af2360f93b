"""A machine that has drifted is a place for new work only where nothing else stands: it would be stopped once more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.actions import OpenClaims
from fleet.disruption.context import DisruptionContext
from fleet.disruption.simulation import CandidateGroup
from fleet.scheduling import cycle
from fleet.snapshot import Claim
from model import labels
from tests.support.fleets import GPU, FleetBuilder, gang, pod_set
from tests.support.world import World


def yard(drifted: str, machines: int = 3, nodes: int = 0) -> World:
    """Idle machines m0, m1, ... of eight GPUs each; the letters of `drifted` are numbers of those that have drifted."""
    builder = FleetBuilder().pool(limits={"nodes": nodes}, zones=["us-east-1a"]).team(quotas={"h100": {GPU: 999}})
    world = World(builder.queue().build())
    for number in range(machines):
        world.machine(f"m{number}")
    for number in drifted:
        world.claims[f"m{number}"] = another(world.claims[f"m{number}"])
    return world


def another(claim: Claim) -> Claim:
    """The claim of a machine that was bought by another template than its pool's."""
    version, _, _ = claim.pool_hash.partition("-")
    return replace(claim, pool_hash=f"{version}-another")


def used(world: World) -> dict[str, int]:
    """Machine -> pods, once the next pass has decided."""
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    found: dict[str, int] = {}
    for it in world.gangs.values():
        for pin in it.pins:
            found[pin.claim] = found.get(pin.claim, 0) + pin.count
    return found


@pytest.mark.parametrize("drifted", ["0", "1", "2", "01", "12", "02"])
def test_new_work_goes_where_it_may_stay(drifted: str) -> None:
    world = yard(drifted)
    world.waits(gang("g", count=1))
    assert not {f"m{number}" for number in drifted} & used(world).keys()


def test_a_half_used_machine_that_is_to_leave_is_not_filled_up() -> None:
    """As few machines as possible would mean the other."""
    world = yard("0", machines=2)
    world.runs(gang("old", pod_set(count=1, gpu=4)), ("m0", 1))
    world.waits(gang("new", pod_set(count=1, gpu=4)))
    assert used(world) == {"m0": 1, "m1": 1}


def test_what_does_not_fit_elsewhere_stands_there_before_anything_is_bought() -> None:
    world = yard("0", machines=2, nodes=9)
    world.waits(gang("g", count=2))
    actions = cycle.decide(world.fleet, world.snapshot())
    assert not [it for it in actions if isinstance(it, OpenClaims)]
    assert used(world) == {"m0": 1, "m1": 1}


@pytest.mark.parametrize("gpus", [4, 8])
def test_pods_that_share_a_host_do_so_where_they_may_stay(gpus: int) -> None:
    world = yard("0", machines=2)
    world.waits(gang("g", pod_set(count=2, gpu=gpus // 2, required_topology=labels.HOSTNAME)))
    assert used(world) == {"m1": 2}


def test_pods_that_share_a_host_share_one_that_is_to_leave_where_no_other_has_the_room() -> None:
    world = yard("0", machines=2)
    world.runs(gang("old", pod_set(count=1, gpu=4)), ("m1", 1))
    world.waits(gang("g", pod_set(count=2, gpu=4, required_topology=labels.HOSTNAME)))
    assert used(world) == {"m0": 2, "m1": 1}


sizes = st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, max_size=5)


@given(st.sets(st.integers(0, 3)), sizes)
def test_no_place_that_stays_is_left_empty_for_one_that_leaves(drifted: set[int], gpus: list[int]) -> None:
    """Whoever stands on a drifted machine would have found no room on the others, as they were filled at the end."""
    world = yard("".join(map(str, drifted)), machines=4)
    world.waits(*(gang(f"g{n}", pod_set(count=1, gpu=each), created_s=n) for n, each in enumerate(gpus)))
    used(world)
    free = {f"m{n}": 8 for n in range(4) if n not in drifted}
    left: list[int] = []
    for it in world.gangs.values():
        for pin in it.pins:
            asked = it.pod_set(pin.pod_set).requests[GPU]
            if pin.claim in free:
                free[pin.claim] -= asked
            else:
                left.append(asked)
    assert all(room < asked for room in free.values() for asked in left)


# -- on a topology, and when gangs are moved --------------------------------------------------------------------------

RACK = "example.com/rack"


def racks(drifted: str) -> World:
    """Machines m0 and m1 in one rack, m2 and m3 in another."""
    builder = FleetBuilder().pool(limits={"nodes": 0}, zones=["us-east-1a"]).topology("hall", RACK, labels.HOSTNAME)
    builder.flavor("own", nodeLabels={"own": "yes"}, topology="hall").team(quotas={"own": {GPU: 99}})
    world = World(builder.queue(flavors=["own"]).build())
    for number in range(4):
        world.machine(f"m{number}")
        node = world.nodes[f"node-m{number}"]
        carried = {**node.labels, "own": "yes", RACK: f"r{number // 2}", labels.HOSTNAME: node.name}
        world.nodes[node.name] = replace(node, labels=carried)
    for number in drifted:
        world.claims[f"m{number}"] = another(world.claims[f"m{number}"])
    return world


@pytest.mark.parametrize(("drifted", "expected"), [("", {"m0", "m1"}), ("0", {"m2", "m3"}), ("03", {"m0", "m1"})])
def test_a_rack_that_stays_is_chosen_before_one_that_leaves(drifted: str, expected: set[str]) -> None:
    world = racks(drifted)
    world.waits(gang("g", pod_set(count=2, gpu=8, required_topology=RACK)))
    assert used(world).keys() == expected


def test_gangs_are_moved_where_they_may_stay() -> None:
    world = yard("1", machines=3)
    moved = world.runs(gang("g", pod_set(count=1, gpu=4)), ("m0", 1))
    context = DisruptionContext.of(world.fleet, world.snapshot())
    plans = context.simulate(CandidateGroup((world.claims["m0"],), (moved,)))
    assert isinstance(plans, dict)
    assert [it.slot.claim for it in plans[moved.uid].assignments] == ["m2"]
