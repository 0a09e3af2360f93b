"""Machines that go because they are too old: at once, or replaced first; budgets count them and do not hold them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.disruption.context import DisruptionContext
from fleet.disruption.outcomes import Obstacle
from fleet.snapshot import Claim
from model.index import Index
from tests.support.disruption import (
    GOES,
    KEEPS,
    NOTHING,
    ROLLS,
    WAITS,
    Row,
    busy,
    check,
    gone,
    idle,
    of_claim,
    opened,
    spared,
    standing,
    told,
    world_of,
)
from tests.support.fleets import NOW, P5, gang, small_fleet
from tests.support.world import World

ROWS: list[Row] = [
    ("old and idle", lambda: world_of(**ROLLS, disruption={"consolidateAfter": "Never"}), {"m0": 0}, GOES, NOTHING,
     "116m old"),
    ("old and busy", lambda: busy(**ROLLS), {"m0": 1}, GOES, NOTHING, "1 machine bought first"),
    ("old and protected", lambda: busy(**ROLLS, run={"do_not_disrupt": "true"}), {}, WAITS, Obstacle.GANG,
     "the pool allows 60m; ns/g says"),
    ("young", busy, {}, KEEPS, Obstacle.NOT_DUE, "the pool allows 30d"),
    ("never expires", lambda: busy(template={"expireAfter": "Never"}), {}, KEEPS, Obstacle.NOT_DUE, "never"),
    ("spared and old", lambda: spared(world_of(**ROLLS)), {"m0": 0}, GOES, NOTHING, "116m old"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("expiry", row)


@pytest.mark.parametrize(
    ("age_s", "expire_after", "goes"),
    [
        (3599, "1h", False),
        (3600, "1h", True),
        (9e9, "Never", False),
        (720 * 3600, None, True),
        (719 * 3600, None, False),
    ],
)
def test_expiry(age_s: float, expire_after: str | None, goes: bool) -> None:
    world = idle(since_s=1, template={"expireAfter": expire_after} if expire_after else {})
    of_claim(launched_at_s=NOW - age_s)(world)
    assert gone(world) == ({"m0": "Expired"} if goes else {})


def test_expiry_does_not_wait_for_budgets_but_counts() -> None:
    world = idle(4, disruption={"budgets": [{"nodes": 1}]}, template={"expireAfter": "1h"})
    for name in ("m0", "m1"):
        it: Claim = world.claims[name]
        world.claims[name] = replace(it, launched_at_s=NOW - 9999, emptied_at_s=NOW)
    for name in ("m2", "m3"):
        world.claims[name] = replace(world.claims[name], emptied_at_s=NOW, launched_at_s=NOW)
    assert gone(world) == {"m0": "Expired", "m1": "Expired"}


def test_expiry_insists_where_nothing_can_be_bought() -> None:
    world = standing(1, template={"expireAfter": "1h"}, limits={"nodes": 1}, disruption={"budgets": [{"nodes": 0}]})
    world.runs(gang("a"), ("m0", 1))
    assert told(world.disrupted()) == {"m0": "Expired"}


def test_expiry_replaces_first_where_it_can() -> None:
    world = standing(1, template={"expireAfter": "1h"}, disruption={"budgets": [{"nodes": 0}]})
    world.runs(gang("a"), ("m0", 1))
    assert opened(world.disrupted()) == [(P5.name, "uid-a", ("m0",))]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(("m0", "m1", "m2", "m3")), st.integers(0, 5)), min_size=1, max_size=5))
def test_the_oldest_machines_are_known_as_machines_come_and_go(ages_h: list[dict[str, int]]) -> None:
    index = Index()
    for found_h in ages_h:
        world = World(small_fleet())
        for name, age_h in found_h.items():
            world.machine(name, launched_at_s=NOW - 3600 * age_h)
        seen = world.snapshot()
        carried, anew = (
            DisruptionContext.of(world.fleet, it).older_than(lambda _pool: 3 * 3600)
            for it in (replace(seen, index=index), replace(seen, index=Index()))
        )
        assert [it.name for _, it in carried] == [it.name for _, it in anew]
        assert bool(anew) is any(age_h >= 3 for age_h in found_h.values())
