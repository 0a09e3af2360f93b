"""Waiting too long, being evicted too often, and what a gang says of its end."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.quota.queue_binding import QueueBinding
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.scheduling.queue_order import ends_at_s, is_moved, overdue, preemption_backs_off, runs_s
from fleet.snapshot import Eviction, GangState
from tests.support.fleets import GPU, NOW, FleetBuilder, amounts, foreign_pod, gang, job_of
from tests.support.world import World


@pytest.mark.parametrize(
    ("reserve_after_s", "sla_waiting_s", "evicted_at_s", "expected"),
    [
        (None, None, 0.0, False),
        (None, 100.0, 0.0, True),
        (None, 101.0, 0.0, False),
        (None, 100.0, NOW - 99, False),
        (100.0, None, 0.0, True),
        (101.0, None, 0.0, False),
        (100.0, 1.0, 0.0, True),
        (101.0, 1.0, 0.0, False),
        (1.0, 101.0, 0.0, False),
        (inf, 1.0, 0.0, False),
        (0.0, None, NOW, True),
    ],
)
def test_who_has_waited_too_long(
    reserve_after_s: float | None, sla_waiting_s: float | None, evicted_at_s: float, expected: bool
) -> None:
    eviction = Eviction("Preempted", "x", evicted_at_s) if evicted_at_s else None
    waits = gang(created_s=NOW - 100, sla_waiting_s=sla_waiting_s, eviction=eviction)
    assert overdue(waits, QueueBinding("q", reserve_after_s=reserve_after_s), NOW) is expected


@pytest.mark.parametrize(
    ("reason", "since_s", "expected"),
    [
        (Reason.DRIFTED, NOW, True),
        (Reason.UNDERUTILIZED, NOW - MOVES_WITHIN_S + 1, True),
        (Reason.DRIFTED, NOW - MOVES_WITHIN_S, False),
        (Reason.PREEMPTED, NOW, False),
        (Reason.MACHINE_LOST, NOW, False),
    ],
)
def test_who_was_stopped_only_to_be_moved_goes_first(reason: Reason, since_s: float, expected: bool) -> None:
    moved = replace(gang(eviction=Eviction(reason, "x", NOW - 1)), since_s=since_s)
    assert is_moved(moved, NOW) is expected


def test_whoever_waits_for_quota_does_not_get_that_of_a_gang_that_is_being_moved() -> None:
    """It was stopped for its machine's sake, and then could not start again."""
    world = World(FleetBuilder().pool().team(quotas={"h100": {GPU: 8}}).queue().build())
    world.machine("m0")
    moved = Eviction(Reason.DRIFTED, "x", NOW - 1)
    world.waits(gang("first", created_s=NOW - 9000, gpu=4))
    for name in ("moved", "too"):
        world.runs(gang(name, gpu=4), ("m0", 1))
        world.gangs[f"uid-{name}"] = replace(world.gang(name), state=GangState.EVICTING, eviction=moved)
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert world.gang("first").reason == Reason.WAITING_FOR_QUOTA, "they will be back"
    for name in ("moved", "too"):
        world.gangs[f"uid-{name}"] = replace(world.gang(name), state=GangState.PENDING, pins=(), since_s=NOW)
        world.jobs[f"uid-{name}"] = job_of(world.gang(name))
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert world.gang("first").state == GangState.PENDING
    assert [world.gang(name).state for name in ("moved", "too")] == [GangState.ADMITTED] * 2


@pytest.mark.parametrize(
    ("pod", "created_s", "buys"),
    [
        pytest.param({"deleting": True, "deletion_at_s": NOW + 30}, NOW - 5, False, id="it ends in a moment"),
        pytest.param({"deleting": True, "deletion_at_s": NOW + 600}, NOW - 5, True, id="it takes ten minutes to end"),
        pytest.param({"deleting": True, "deletion_at_s": NOW + 30}, NOW - 600, True, id="waited for long enough"),
        pytest.param({}, NOW - 5, True, id="it stays"),
    ],
)
def test_what_is_about_to_be_free_is_not_bought(pod: dict[str, Any], created_s: float, buys: bool) -> None:
    """A job that was created running stood on the idle machines itself when it was admitted: two more were bought."""
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    world.stands(foreign_pod("theirs", "node-m0", amounts(8), **pod))
    world.waits(gang("g", gpu=8, created_s=created_s))
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert (len(world.claims) > 1) is buys
    assert world.gang("g").state is (GangState.RESERVED if buys else GangState.PENDING)
    world.pods.clear()
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    assert world.gang("g").state is (GangState.RESERVED if buys else GangState.ADMITTED)


@pytest.mark.parametrize(
    ("said", "run_s", "end_s"),
    [
        ({}, None, inf),
        ({"expected_run_s": 50.0}, 50.0, NOW + 20),
        ({"expected_run_s": 30.0}, 30.0, inf),
        ({"max_run_s": 50.0}, 50.0, NOW + 20),
        ({"max_run_s": 50.0, "ran_before_s": 10.0}, 40.0, NOW + 10),
        ({"max_run_s": 50.0, "expected_run_s": 60.0}, 50.0, NOW + 20),
        ({"max_run_s": 50.0, "expected_run_s": 40.0}, 40.0, NOW + 10),
    ],
)
def test_what_a_gang_says_of_its_end(said: dict[str, Any], run_s: float | None, end_s: float) -> None:
    runs = gang(state=GangState.ADMITTED, admitted_at_s=NOW - 30, **said)
    assert (runs_s(runs), ends_at_s(runs, NOW)) == (run_s, end_s)


def test_one_that_has_not_started_ends_a_run_from_now() -> None:
    assert ends_at_s(gang(state=GangState.RESERVED, expected_run_s=50.0), NOW) == NOW + 50


@pytest.mark.parametrize(
    ("evictions", "ago_s", "expected"),
    [(2, 0, False), (3, 59, True), (3, 60, False), (4, 119, True), (99, 3600, False)],
)
def test_the_right_to_evict_rests_longer_each_time(evictions: int, ago_s: float, expected: bool) -> None:
    waits = gang(evictions=evictions, eviction=Eviction("Preempted", "x", NOW - ago_s))
    assert preemption_backs_off(waits, NOW) is expected


def yard(**queue: Any) -> World:
    """Two machines of eight GPUs; one is taken for another hour."""
    builder = FleetBuilder().pool(limits={"nodes": 0}).team(quotas={"h100": {GPU: 16}})
    world = World(builder.queue(**queue).build())
    world.machine("m0")
    world.machine("m1")
    world.runs(gang("long", expected_run_s=5400.0), ("m0", 1), admitted_at_s=NOW - 1800)
    return world


def admitted(world: World) -> set[str]:
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    return {it.job.name for it in world.gangs.values() if it.state is GangState.ADMITTED} - {"long"}


@pytest.mark.parametrize(
    ("queue", "small", "expected"),
    [
        ({}, {}, {"small"}),
        ({"reserveAfter": "10m"}, {}, set()),
        ({"reserveAfter": "10m"}, {"expected_run_s": 3700.0}, set()),
        ({"reserveAfter": "10m"}, {"expected_run_s": 3600.0}, {"small"}),
        ({"reserveAfter": "11m"}, {}, {"small"}),
        ({"reserveAfter": "Never"}, {}, {"small"}),
    ],
)
def test_small_ones_run_around_what_is_kept_for_a_big_one(
    queue: dict[str, Any], small: dict[str, Any], expected: set[str]
) -> None:
    world = yard(**queue)
    world.waits(gang("big", count=2, gpu=8, created_s=NOW - 600), gang("small", gpu=1, **small))
    assert admitted(world) == expected


def test_the_sentence_says_when_enough_is_free() -> None:
    world = yard(preemption={"reclaim": "Never", "withinQueue": "Never"})
    world.waits(gang("big", count=2, gpu=8))
    assert not admitted(world)
    waiting = world.gang("big")
    assert waiting.reason == Reason.WAITING_FOR_QUOTA
    assert "enough is free at about 2027-01-15 09:00 UTC, when ns/long ends" in waiting.message
