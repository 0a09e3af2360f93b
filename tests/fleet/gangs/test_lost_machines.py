"""Pods of a machine that is taken away: who runs on until the next machine is there, and who leaves at once."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import EvictPod, OpenClaims, SaveGang
from fleet.gangs import lifecycle as gang_lifecycle
from fleet.gangs.lost_machines import POLITE_S, leaves_since_s, lost_place
from fleet.scheduling import cycle
from fleet.snapshot import GangState, NodeDisruption, Pin
from model.kinds import NEVER
from model.quantity import Resources
from tests.support.fleets import NOW, FleetBuilder, foreign_pod, gang
from tests.support.world import World

GRACE_S = 5.0


def scene(
    *, left_s: float = 105.0, boots_s: float = 60.0, machines: int = 2, grace_s: float = GRACE_S, **why: Any
) -> World:
    """A gang with a pod on each machine; `m0` was just told to go, with `left_s` until its deadline."""
    world = World(FleetBuilder().pool().team(quotas={"h100": {"nvidia.com/gpu": 64}}).queue().build())
    names = [f"m{n}" for n in range(machines)]
    for name in names:
        world.machine(name, launched_at_s=NOW - 7000, ready_at_s=NOW - 7000 + boots_s)
    world.runs(gang("g", count=machines), *((name, 1) for name in names))
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], restarts={"main": 9})
    world.pods = {key: replace(pod, deletion_grace_s=grace_s) for key, pod in world.pods.items()}
    told = {"reason": "Interrupted", "message": "x", "at_s": NOW, "deadline_s": NOW + left_s} | why
    world.claims["m0"] = replace(world.claims["m0"], disruption=NodeDisruption(**told))
    return world


def turn(world: World) -> dict[str, int | None]:
    """One pass of what concerns gangs: pod -> the grace it is told to go with."""
    found = {}
    for decide in (gang_lifecycle.decide, cycle.decide, gang_lifecycle.decide):
        actions = decide(world.fleet, world.snapshot())
        found |= {it.pod.name: it.force_grace_s for it in actions if isinstance(it, EvictPod)}
        world.apply(it for it in actions if isinstance(it, (SaveGang, OpenClaims)))
    return found


LAST_S = 105.0 - GRACE_S - POLITE_S


@pytest.mark.parametrize(
    ("world", "stays"),
    [
        pytest.param(scene(), True, id="the next one comes in time"),
        pytest.param(scene(boots_s=LAST_S), True, id="just in time"),
        pytest.param(scene(boots_s=LAST_S + 1), False, id="it would come too late"),
        pytest.param(scene(grace_s=60), False, id="the pod needs the time to end"),
        pytest.param(scene(left_s=-5), False, id="the deadline is past"),
        pytest.param(scene(deadline_s=NEVER, boots_s=900), True, id="maintenance without a date"),
        pytest.param(scene(reason="NodeFailures", deadline_s=NOW), False, id="the machine is not well"),
        pytest.param(scene(machines=1), True, id="all that the gang has"),
    ],
)
def test_who_runs_on(world: World, stays: bool) -> None:
    leaves = turn(world)
    [claim] = [claim for claim in world.claims.values() if claim.launched_at_s == 0]
    assert claim.purpose == "in place of a machine that ns/g has lost"
    assert world.gang("g").state is GangState.ADMITTED
    assert leaves == ({} if stays else {"g-node-m0-0": None})


def test_a_gang_that_has_nothing_else_leaves_where_the_next_machine_comes_too_late() -> None:
    world = scene(machines=1, boots_s=300)
    turn(world)
    assert world.gang("g").state is GangState.EVICTING


def test_a_silent_node_is_not_waited_with() -> None:
    world = scene()
    world.nodes["node-m0"] = replace(world.nodes["node-m0"], ready=False, ready_changed_at_s=NOW - 5)
    assert turn(world) == {"g-node-m0-0": None}


def test_it_leaves_politely_when_the_next_machine_is_ready_and_recovers_from_then_on() -> None:
    world = scene()
    assert turn(world) == {}
    [new] = [name for name, claim in world.claims.items() if not claim.launched_at_s]
    world.now_s += 62
    world.machine("x")
    ready = replace(world.claims.pop("x"), name=new, uid="u", ready_at_s=world.now_s, created_at_s=NOW)
    world.claims[new] = replace(ready, launch=world.claims[new].launch)
    assert turn(world) == {"g-node-m0-0": None}
    assert world.gang("g").not_ready_since_s == world.now_s
    world.now_s += POLITE_S + 1
    assert turn(world) == {"g-node-m0-0": int(GRACE_S)}, "a disruption budget holds it no longer"


def test_it_leaves_politely_in_the_last_moment_and_then_by_force() -> None:
    world = scene()
    assert turn(world) == {}
    world.now_s = NOW + LAST_S
    assert turn(world) == {"g-node-m0-0": None}
    world.now_s += POLITE_S
    assert turn(world) == {"g-node-m0-0": int(GRACE_S)}
    assert world.now_s + GRACE_S == NOW + 105, "over by the deadline"


def test_a_gang_leaves_in_one_step_however_many_machines_it_waits_for() -> None:
    world = scene(machines=3)
    for name in ("m0", "m1"):
        world.claims[name] = replace(world.claims[name], disruption=NodeDisruption("Interrupted", "x", NOW, NOW + 105))
    assert turn(world) == {}
    awaited = sorted({pin.claim for pin in world.gang("g").pins if not pin.node})
    assert len(awaited) == 2


WELL: dict[str, Any] = {"pods_ready": True}
RAN: dict[str, Any] = {"not_ready_since_s": NOW - 100}
INTRUDER, DAEMON = {"nvidia.com/gpu": 1}, {"cpu": 1000}


def crowded(*, came: int = 0, waits_s: float = 30.0, others: Resources = INTRUDER, **facts: Any) -> World:
    """Of a gang of two on one machine `came` have come; for the others kube-scheduler finds no place."""
    world = World(FleetBuilder().pool().team(quotas={"h100": {"nvidia.com/gpu": 64}}).queue().build())
    world.machine("m0")
    world.runs(gang("g", count=2, gpu=4), ("m0", 2))
    for key in sorted(world.pods)[came:]:
        late: dict[str, Any] = {"node": "", "pinned_host": "node-m0", "phase": "Pending", "ready": False}
        world.pods[key] = replace(world.pods[key], waits_since_s=NOW - waits_s, **late)
    told: dict[str, Any] = {"pods_ready": False, "admitted_at_s": NOW - 40} | facts
    world.gangs["uid-g"] = replace(world.gangs["uid-g"], **told)
    world.stands(foreign_pod("other", "node-m0", others))
    return world


@pytest.mark.parametrize(
    ("world", "taken"),
    [
        pytest.param(crowded(), True, id="none has come"),
        pytest.param(crowded(came=1), True, id="one of two has not come, and nothing has begun"),
        pytest.param(crowded(**RAN), True, id="both are made anew"),
        pytest.param(crowded(came=1, **RAN), False, id="the other runs on"),
        pytest.param(crowded(waits_s=9), False, id="kube-scheduler may find it yet"),
        pytest.param(crowded(others=DAEMON), False, id="there is room: something else keeps it"),
        pytest.param(crowded(came=2, **WELL), False, id="all have come"),
    ],
)
def test_which_places_count_as_taken_by_others(world: World, taken: bool) -> None:
    seen, job = world.snapshot(), world.jobs["uid-g"]
    found = lost_place(
        world.fleet, seen, seen.gangs["uid-g"], replace(job, suspended=False), Pin("main", "node-m0", "m0", 2)
    )
    assert (found is not None and found.reason == "PlaceTaken") is taken


@settings(max_examples=60, deadline=None)
@given(
    left_s=st.floats(1, 600),
    boots_s=st.floats(1, 600),
    grace_s=st.floats(0, 120),
    later_s=st.floats(0, 700),
)
def test_nobody_stays_longer_than_its_grace_allows(
    left_s: float, boots_s: float, grace_s: float, later_s: float
) -> None:
    world = scene(left_s=left_s, boots_s=boots_s, grace_s=grace_s)
    turn(world)
    world.now_s += later_s
    [pod] = [pod for pod in world.pods.values() if pod.node == "node-m0"]
    since_s = leaves_since_s(world.snapshot(), world.gang("g"), pod)
    assert since_s is None or since_s <= world.now_s
    if world.now_s >= NOW + left_s - grace_s - POLITE_S:
        assert since_s is not None, "with the grace it asks for it would not be over by the deadline"
