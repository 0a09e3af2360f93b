"""A pass that found nothing to do is not made again before something changes, or an instant comes that it reads."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.scheduling.again import LOOKED_AGAIN_S, NOT_COMPARED, next_instant_s, nothing_to_do
from fleet.snapshot import Eviction, Snapshot
from model.fleet import Fleet
from model.index import Index
from tests.fleet.scheduling.test_cycle_properties import worlds
from tests.support.fleets import NOW, FleetBuilder, capacity_pool, gang
from tests.support.world import World


def settled(world: World) -> Snapshot:
    """Lets passes follow each other until one finds nothing to do; returns what that one has seen."""
    index = Index()
    for _ in range(12):
        seen = replace(world.snapshot(), index=index)
        actions = cycle.decide(world.fleet, seen)
        if not actions:
            return seen
        world.apply(actions)
    raise AssertionError("it does not come to rest")


def left_out(fleet: Fleet, seen: Snapshot) -> bool:
    return nothing_to_do(fleet, seen)


def made(fleet: Fleet, seen: Snapshot) -> Any:
    """Returns what a pass finds that remembers nothing."""
    return cycle.decide(fleet, replace(seen, index=Index()))


def yard(**queue: Any) -> World:
    """A machine that a gang takes as a whole, and none to be bought."""
    fleet = FleetBuilder().priority("high", 9).pool(limits={"nodes": 1}).team(budget={"usdPerMonth": 100})
    world = World(fleet.queue(**queue).build())
    world.machine("m0")
    return world


def paused() -> World:
    world = yard()
    world.waits(gang("g", requeue_at_s=NOW + 30))
    return world


def protected() -> World:
    world = yard(protectedRunTime="5m", preemption={"withinQueue": "LowerPriority"})
    world.runs(gang("old", admitted_at_s=NOW - 270), ("m0", 1))
    world.gangs["uid-old"] = replace(world.gang("old"), admitted_at_s=NOW - 270)
    world.waits(gang("g", priority=9))
    return world


def evicted_often() -> World:
    world = yard(preemption={"withinQueue": "LowerPriority"})
    world.runs(gang("old"), ("m0", 1))
    world.waits(gang("g", priority=9, evictions=3, eviction=Eviction(Reason.PREEMPTED, "x", NOW - 30)))
    return world


def sold_out() -> World:
    world = World(FleetBuilder().pool(zones=["us-east-1a"]).team().queue().build())
    world.waits(gang("g"))
    sold = ((it.instance_type.name, it.zone, it.capacity_type) for it in world.catalog.offers)
    world.shortages = {capacity_pool(*it): NOW + 30 for it in sold}
    return world


@pytest.mark.parametrize("case", [paused, protected, evicted_often, sold_out])
def test_an_instant_that_a_rule_reads_off_the_clock(case: Callable[[], World]) -> None:
    world = case()
    seen = settled(world)
    assert next_instant_s(world.fleet, seen) == NOW + 30
    early, due = (replace(seen, now_s=NOW + after_s) for after_s in (29.9, 30.0))
    assert left_out(world.fleet, early)
    assert not made(world.fleet, early)
    assert not left_out(world.fleet, due)
    assert cycle.decide(world.fleet, due)


def test_what_slips_without_an_instant_is_looked_at_once_a_minute() -> None:
    world = yard()
    world.runs(gang("old"), ("m0", 1))
    world.waits(gang("g"))
    seen = settled(world)
    assert left_out(world.fleet, replace(seen, now_s=NOW + LOOKED_AGAIN_S - 0.1))
    assert not left_out(world.fleet, replace(seen, now_s=NOW + LOOKED_AGAIN_S))
    seen = settled(world)
    assert not left_out(world.fleet, replace(seen, now_s=NOW - 1)), "the clock was set back"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({}, True, id="nothing"),
        pytest.param({"busy": frozenset({"gang/uid-x"})}, False, id="an action is under way"),
        pytest.param({"set_aside": frozenset({"gang/uid-x"})}, False, id="somebody is set aside"),
        pytest.param({"spent_usd": {"t": 99.0}}, True, id="more of the month is spent"),
        pytest.param({"spent_usd": {"t": 100.0}}, False, id="the month is spent"),
        pytest.param({"instances_at_s": NOW + 5, "reservations_at_s": NOW + 5}, True, id="the cloud says the same"),
        pytest.param({"nodes": {}}, False, id="other machines"),
        pytest.param({"gang_pods": {}}, False, id="another table that says the same"),
    ],
)
def test_what_makes_a_pass_be_made_again(change: dict[str, Any], same: bool) -> None:
    world = yard()
    world.runs(gang("old"), ("m0", 1))
    world.waits(gang("g"))
    seen = settled(world)
    assert left_out(world.fleet, replace(seen, now_s=NOW + 1, **change)) is same


def test_another_fleet_is_another_pass() -> None:
    world = yard()
    world.runs(gang("old"), ("m0", 1))
    world.waits(gang("g"))
    seen = settled(world)
    assert not left_out(yard().fleet, seen)


def test_a_pass_that_may_not_buy_is_no_answer_for_one_that_may() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.waits(gang("g"))
    refused = replace(world.snapshot(), index=Index())
    for _ in range(2):
        told = cycle.decide(world.fleet, refused, may_buy=False)
        world.apply(told)
        refused = replace(world.snapshot(), index=refused.index)
    assert not told
    assert cycle.decide(world.fleet, refused)


def test_a_pass_that_asks_for_anything_is_made_again_until_it_is_done() -> None:
    world = yard()
    world.waits(gang("g"))
    seen = world.snapshot()
    assert cycle.decide(world.fleet, seen) == cycle.decide(world.fleet, seen) != []


_read: set[str] = set()


class ReadSnapshot(Snapshot):
    """A snapshot that notes which of its fields are read."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        _read.add(name)
        return super().__getattribute__(name)


@settings(max_examples=60, deadline=None)
@given(worlds(), st.floats(0, 600))
def test_what_is_left_out_would_have_found_nothing(world: World, after_s: float) -> None:
    seen = settled(world)
    later = replace(seen, now_s=NOW + after_s)
    if left_out(world.fleet, later):
        assert not made(world.fleet, later)


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_a_pass_does_not_read_what_is_not_compared(world: World) -> None:
    seen = world.snapshot()
    watched = ReadSnapshot(**{it.name: getattr(seen, it.name) for it in fields(Snapshot)})
    _read.clear()
    cycle.decide(world.fleet, watched)
    compared_otherwise = {"now_s", "index", "spent_usd", "local_usage", "reservations_at_s"}
    assert "gangs" in _read
    assert not _read & (NOT_COMPARED - compared_otherwise)
