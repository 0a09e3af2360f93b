"""Where the priority of a gang comes from, and what it changes."""

from dataclasses import replace

import pytest

from fleet.actions import OpenGang
from fleet.gangs import lifecycle
from fleet.quota.queue_binding import Priority, boosted_priority, priority_of
from fleet.scheduling import cycle
from fleet.snapshot import GangState, Snapshot
from model.fleet import Fleet
from tests.support.fleets import NOW, FleetBuilder, gang, job_of
from tests.support.world import World

PLAIN = FleetBuilder().pool().team().queue().priority("high", 100).priority("idle", -1, preempts=False)
BARE = PLAIN.build()
WITH_DEFAULT = PLAIN.priority("default", 5, preempts=False).build()
PODS = {"system": 1000, "meek": 50, "": 3}


@pytest.mark.parametrize(
    ("fleet", "named", "of_pods", "expected"),
    [
        (BARE, "high", "system", Priority(100)),
        (BARE, "idle", "system", Priority(-1, preempts=False)),
        (BARE, "unknown", "system", Priority(0)),
        (BARE, "", "system", Priority(1000)),
        (BARE, "", "meek", Priority(50, preempts=False)),
        (BARE, "", "", Priority(3)),
        (BARE, "", "unknown", Priority(0)),
        (WITH_DEFAULT, "", "system", Priority(5, preempts=False)),
        (WITH_DEFAULT, "high", "system", Priority(100)),
        (WITH_DEFAULT, "unknown", "system", Priority(0)),
    ],
)
def test_the_first_that_says_one_counts(fleet: Fleet, named: str, of_pods: str, expected: Priority) -> None:
    seen = Snapshot(now_s=NOW, pod_priorities=PODS, meek_pod_priorities=frozenset({"meek"}))
    job = replace(job_of(gang(priority_class=named)), pod_priority_class=of_pods)
    assert priority_of(fleet, seen, job) == expected
    opened = lifecycle.new_gang(fleet, seen, job)
    assert (opened.priority, opened.preempts, opened.priority_class) == (*expected, named)


def test_an_opened_gang_has_the_priority_of_its_pods() -> None:
    job = replace(job_of(gang()), pod_priority_class="meek")
    seen = Snapshot(now_s=NOW, jobs={job.ref.uid: job}, pod_priorities=PODS, meek_pod_priorities=frozenset({"meek"}))
    [opened] = lifecycle.decide(BARE, seen)
    assert isinstance(opened, OpenGang)
    assert (opened.gang.priority, opened.gang.preempts) == (50, False)


def contest(**waiting: object) -> World:
    """One machine, taken by a gang of priority 10; another gang waits for it."""
    world = World(FleetBuilder().pool(limits={"nodes": 0}).team().queue().build())
    world.machine("m0")
    world.runs(gang("old", priority=10), ("m0", 1))
    world.waits(gang("new", **waiting))  # type: ignore[arg-type]
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    return world


@pytest.mark.parametrize(
    ("waiting", "evicts"),
    [
        ({"priority": 10}, False),
        ({"priority": 10, "priority_boost": 1}, True),
        ({"priority": 20}, True),
        ({"priority": 20, "priority_boost": -10}, False),
        ({"priority": 20, "preempts": False}, False),
    ],
)
def test_a_boost_counts_and_whoever_may_not_preempt_does_not(waiting: dict[str, object], evicts: bool) -> None:
    world = contest(**waiting)
    assert (world.gang("old").state is GangState.EVICTING) == evicts
    assert world.gang("new").state is GangState.PENDING


@pytest.mark.parametrize(
    ("priority", "boost", "allowed", "expected"),
    [
        (0, 5, (), 5),
        (0, 500, (), 100),
        (0, 500, ("low",), 10),
        (50, 500, ("low",), 50),
        (50, -500, ("low",), -450),
    ],
)
def test_a_boost_lifts_nobody_above_the_classes_of_its_team(
    priority: int, boost: int, allowed: tuple[str, ...], expected: int
) -> None:
    builder = FleetBuilder().pool().team(priorityClasses=list(allowed)).queue()
    fleet = builder.priority("low", 10).priority("high", 100).build()
    assert boosted_priority(fleet, gang(priority=priority, priority_boost=boost)) == expected


def test_without_classes_there_is_nothing_to_lift_it_above() -> None:
    assert boosted_priority(FleetBuilder().pool().team().queue().build(), gang(priority_boost=500)) == 500
