"""Timestamps of an agent whose clock was ahead."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import SaveClaim, SaveGang
from fleet.clock_skew import TOLERANCE_S, decide
from fleet.reasons import Reason
from fleet.snapshot import NodeDisruption
from fleet.snapshot.gangs import Eviction
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

HOUR_S = 3600.0
AHEAD_S = NOW + HOUR_S


def world() -> World:
    made = World(FleetBuilder().pool().team().queue().build())
    made.machine("m0")
    made.runs(gang("g"), ("m0", 1))
    return made


@pytest.mark.parametrize(
    ("written", "right"),
    [
        pytest.param({"launched_at_s": AHEAD_S}, {"launched_at_s": NOW}, id="it joins too late in an hour and more"),
        pytest.param({"emptied_at_s": AHEAD_S}, {"emptied_at_s": NOW}, id="it is idle from now on"),
        pytest.param(
            {"ready_at_s": NOW - 5, "recut_at_s": AHEAD_S},
            {"ready_at_s": NOW - 5, "recut_at_s": NOW},
            id="no more",
        ),
        pytest.param(
            {"disruption": NodeDisruption("Drifted", "x", AHEAD_S, AHEAD_S + 300)},
            {"disruption": NodeDisruption("Drifted", "x", NOW, NOW + 300)},
            id="its drain may take as long as was said",
        ),
    ],
)
def test_a_claim(written: dict[str, Any], right: dict[str, Any]) -> None:
    it = world()
    it.claims["m0"] = replace(it.claims["m0"], **written)
    (saved,) = decide(it.fleet, it.snapshot())
    assert isinstance(saved, SaveClaim)
    assert saved.claim == replace(it.claims["m0"], **right)
    it.claims["m0"] = saved.claim
    assert list(decide(it.fleet, it.snapshot())) == []


def test_a_gang() -> None:
    it = world()
    evicted = Eviction(Reason.PREEMPTED, "x", AHEAD_S)
    it.gangs["uid-g"] = replace(it.gang("g"), since_s=AHEAD_S, eviction=evicted, requeue_at_s=AHEAD_S + 60)
    (saved,) = decide(it.fleet, it.snapshot())
    assert isinstance(saved, SaveGang)
    assert (saved.gang.since_s, saved.gang.requeue_at_s) == (NOW, NOW + 60)
    assert saved.gang.eviction == replace(evicted, at_s=NOW)


def test_what_clocks_of_well_kept_machines_differ_by_and_what_is_under_way_is_left_alone() -> None:
    it = world()
    it.claims["m0"] = replace(it.claims["m0"], emptied_at_s=NOW + TOLERANCE_S)
    assert list(decide(it.fleet, it.snapshot())) == []
    it.claims["m0"] = replace(it.claims["m0"], emptied_at_s=AHEAD_S)
    it.busy = frozenset({"claim/m0"})
    assert list(decide(it.fleet, it.snapshot())) == []
