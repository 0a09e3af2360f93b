"""A gang lets go of a place whose devices a DeviceTaintRule keeps from it, before its pods have been given them."""

from dataclasses import replace

import pytest

from fleet.actions import SaveGang
from fleet.gangs import lifecycle
from fleet.gangs.taken_places import TAKEN_AFTER_S
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Snapshot
from fleet.snapshot.constraints import PodConstraints
from fleet.snapshot.devices import AllocatedDevice, ClusterDevices, DeviceAllocation, DeviceTaintRule, under_rules
from model.kinds import Taint, Toleration
from tests.fleet.placement.test_device_allocator import WHOLE, bearing, claim, gpu
from tests.support.fleets import NOW, gang, pod_set, small_fleet
from tests.support.world import World

DRAINED = Taint(key="example.com/drained", effect="NoSchedule")
BEARS = Toleration(key=DRAINED.key, operator="Exists")


def claiming(name: str, *, pods: int = 3, bears: bool = False, **more: object) -> Gang:
    """A gang of pods that claim a GPU each."""
    asked = claim(bearing(gpu(), BEARS) if bears else gpu())
    return gang(name, pod_set("main", pods, gpu=1, constraints=PodConstraints(devices=asked)), **more)


def seen(world: World, tainted: int, given: tuple[str, ...] = ()) -> Snapshot:
    """What a decider sees where so many of the eight GPUs of a machine are tainted, the first of all; `given`: pods
    that have one of the first.
    """
    rules = tuple(DeviceTaintRule(f"r{n}", DRAINED, device=f"gpu-{n}") for n in range(tainted))
    devices = [AllocatedDevice(it.id) for it in WHOLE.devices]
    allocated = tuple(DeviceAllocation(f"ns/c{n}", pod, (devices[n],)) for n, pod in enumerate(given))
    known = ClusterDevices({"node-m0": under_rules(WHOLE, rules)}, {"node-m0": allocated}, rules)
    return replace(world.snapshot(), devices=known)


def reserved(*gangs: Gang) -> World:
    """Gangs that have their places on one machine, and have not started."""
    world = World(small_fleet())
    world.machine("m0")
    for each in gangs:
        world.runs(each, ("m0", each.pod_sets[0].count), pods=False)
        held = world.gangs[each.uid]
        world.gangs[each.uid] = replace(held, state=GangState.RESERVED, admitted_at_s=0.0, pods_ready=False)
        world.jobs[each.uid] = replace(world.jobs[each.uid], suspended=True)
    return world


def states(world: World, snapshot: Snapshot) -> list[tuple[GangState, str]]:
    decided = lifecycle.decide(world.fleet, snapshot)
    return [(it.gang.state, it.gang.reason) for it in decided if isinstance(it, SaveGang)]


STARTS, LETS_GO = (GangState.ADMITTED, Reason.ADMITTED), (GangState.PENDING, Reason.MACHINE_LOST)


@pytest.mark.parametrize(
    ("tainted", "bears", "state"),
    [
        (0, False, STARTS),
        (5, False, STARTS),
        (6, False, LETS_GO),
        (6, True, STARTS),
        (8, False, LETS_GO),
    ],
)
def test_a_gang_that_has_not_started_is_placed_anew(tainted: int, bears: bool, state: object) -> None:
    world = reserved(claiming("g", bears=bears))
    assert states(world, seen(world, tainted)) == [state]


def test_not_all_let_go_where_some_find_their_devices() -> None:
    """Five GPUs are left for six pods: the older gang has three of them."""
    world = reserved(claiming("a", created_s=NOW - 10), claiming("b", created_s=NOW - 20))
    assert states(world, seen(world, 3)) == [LETS_GO, STARTS]


@pytest.mark.parametrize(("given", "goes"), [(0, True), (1, True), (3, False)])
def test_whoever_has_devices_keeps_them(given: int, goes: bool) -> None:
    """Of three pods on a machine some have GPUs, with the taint since; the others wait where none is left."""
    world = World(small_fleet())
    world.machine("m0")
    since_s = NOW - 2 * TAKEN_AFTER_S
    world.runs(claiming("g"), ("m0", 3), pods_ready=False, admitted_at_s=since_s)
    pods = sorted(world.pods)
    late = {"node": "", "pinned_host": "node-m0", "phase": "Pending", "ready": False, "waits_since_s": since_s}
    for name in pods[given:]:
        world.pods[name] = replace(world.pods[name], **late)
    told = states(world, seen(world, 8, tuple(pods[:given])))
    assert ([reason for _, reason in told if reason == Reason.PLACE_TAKEN] != []) is goes
