"""Gangs out of the running: through deactivation by hand, and through the limit of their run time."""

from dataclasses import replace

import pytest

from fleet.actions import SaveGang
from fleet.gangs import lifecycle
from fleet.gangs.transitions import evicted, released
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.scheduling.prefilter import PODS_MAX, prefilter
from fleet.snapshot import Eviction, GangState
from tests.support.fleets import NOW, gang, small_fleet
from tests.support.world import World

FLEET = small_fleet()


def idle_machine() -> World:
    world = World(FLEET)
    world.machine("m0")
    return world


def saves(world: World) -> list[SaveGang]:
    return [action for action in world.settle_down() if isinstance(action, SaveGang)]


def test_one_that_is_not_active_is_not_considered_and_says_how_to_change_that() -> None:
    world = idle_machine()
    world.waits(gang("g", active=False))
    [save] = saves(world)
    assert (save.gang.state, save.gang.reason, save.deactivates) == (GangState.PENDING, "Deactivated", False)
    assert save.gang.message == (
        "it is deactivated; activate it with kubectl -n ns patch workloads.muster.dev job-g --type merge "
        '-p \'{"spec":{"active":true}}\''
    )
    world.gangs["uid-g"] = replace(world.gang("g"), active=True)
    world.settle_down()
    assert world.gang("g").state is GangState.ADMITTED


def test_a_gang_leaves_when_it_is_deactivated_and_comes_back_when_it_is_not_any_more() -> None:
    world = idle_machine()
    world.waits(gang("g"))
    world.settle_down()
    world.gangs["uid-g"] = replace(world.gang("g"), active=False)
    assert not any(save.deactivates for save in saves(world))
    assert (world.gang("g").state, world.gang("g").reason) == (GangState.PENDING, "Deactivated")
    assert world.jobs["uid-g"].suspended
    world.gangs["uid-g"] = replace(world.gang("g"), active=True)
    world.settle_down()
    assert world.gang("g").state is GangState.ADMITTED


def test_a_gang_that_has_run_its_time_is_deactivated_once_and_gets_its_time_anew() -> None:
    world = idle_machine()
    world.waits(gang("g", max_run_s=1000.0))
    world.settle_down()
    world.now_s = world.gang("g").admitted_at_s + 999
    assert world.pass_once() == []
    world.now_s += 1
    assert [save.deactivates for save in saves(world)] == [False, True, False]
    found = world.gang("g")
    assert (found.active, found.reason, found.ran_before_s) == (False, "Deactivated", 0.0)
    assert "MaximumExecutionTimeExceeded: it has run for the 16m40s that it may" in found.message
    world.gangs["uid-g"] = replace(found, active=True)
    world.settle_down()
    assert world.gang("g").state is GangState.ADMITTED


@pytest.mark.parametrize("state", [GangState.PENDING, GangState.RESERVED, GangState.EVICTING])
@pytest.mark.parametrize("active", [True, False])
def test_who_dies_between_the_two_writes_does_them_again(state: GangState, active: bool) -> None:
    """The specification comes first. What it says already is not written again: its user may have changed it."""
    eviction = Eviction(Reason.MAX_RUN_TIME, "x", NOW) if state is GangState.EVICTING else None
    world = idle_machine()
    found = gang("g", state=state, active=active, eviction=eviction, max_run_s=50.0, ran_before_s=60.0, timeouts=3)
    world.waits(found)
    [save] = lifecycle.decide(FLEET, world.snapshot())
    assert isinstance(save, SaveGang)
    assert (save.gang.state, save.gang.reason) == (GangState.PENDING, Reason.MAX_RUN_TIME)
    assert (save.gang.active, save.gang.ran_before_s, save.gang.timeouts) == (False, 0.0, 0)
    assert save.deactivates is active


def test_only_the_time_a_gang_was_admitted_counts_and_each_run_once() -> None:
    running = gang("g", state=GangState.ADMITTED, admitted_at_s=NOW - 100, ran_before_s=7.0)
    assert running.ran_s(NOW) == 107
    leaving = evicted(running, None, Reason.PREEMPTED, "x", NOW)
    assert (leaving.ran_before_s, leaving.ran_s(NOW + 50)) == (107, 107)
    waiting = released(leaving, None, Reason.QUEUED, "x", NOW + 50)
    assert (waiting.ran_before_s, waiting.ran_s(NOW + 99)) == (107, 107)
    reserved = replace(waiting, state=GangState.RESERVED)
    assert evicted(reserved, None, Reason.PREEMPTED, "x", NOW + 99).ran_before_s == 107


@pytest.mark.parametrize("state", [GangState.RESERVED, GangState.ADMITTED])
def test_an_eviction_counts_whether_the_gang_had_started_or_waited_for_its_machines(state: GangState) -> None:
    """Else gangs that wait for machines could evict each other for ever: it is by the count that this right rests."""
    gone = evicted(replace(gang(), state=state, evictions=2), None, Reason.PREEMPTED, "x", NOW)
    assert (gone.evictions, gone.eviction) == (3, Eviction(Reason.PREEMPTED, "x", NOW))


def test_without_a_queue_it_is_still_the_deactivation_that_counts() -> None:
    world = idle_machine()
    refusal = prefilter(FLEET, world.snapshot(), gang("g", queue="gone", active=False))
    assert refusal is not None
    assert refusal.reason is Reason.DEACTIVATED
    assert cycle.decide(FLEET, world.snapshot()) == []


def test_more_pods_than_a_cluster_runs_are_a_slip() -> None:
    world = idle_machine()
    few, many = (gang("g", count=count) for count in (PODS_MAX, PODS_MAX + 1))
    refusal = prefilter(FLEET, world.snapshot(), many)
    assert refusal is not None
    assert (refusal.reason, str(PODS_MAX + 1) in refusal.message) == (Reason.TOO_MANY_PODS, True)
    assert prefilter(FLEET, world.snapshot(), few) is None
