"""What falls due by the clock is known before, so that nobody has to ask every second."""

from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from fleet.replay.deadlines import due_again_s, next_deadline_s
from fleet.snapshot import CapacityPool, GangState, Outlook, Proposal, Snapshot
from model.fleet import Fleet
from model.loader import load
from tests.agent.scenes import doc, files, pool, queue, team
from tests.support.fleets import NOW, P5, A, catalog, gang, offering, ready_claim, small_fleet

POOL = CapacityPool("p5.48xlarge", "us-east-1a", "spot")
READY = ready_claim(offering(small_fleet(), catalog(), "h100", P5.name, A, "on-demand"), "c", emptied_at_s=0.0)
RUNS = replace(gang("g"), state=GangState.ADMITTED, admitted_at_s=NOW - 60, pods_ready=True)
IDLE = Snapshot(now_s=NOW)


def fleet(*more: str) -> Fleet:
    return load({path: text.encode() for path, text in files(pool(), team(), queue(), *more).items()})


def utc_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def freeze(schedule: str, duration: str, zone: str) -> str:
    window = {"name": "nights", "schedule": schedule, "duration": duration, "timeZone": zone, "blocks": ["Sync"]}
    return doc("FleetPolicy", "p", freezeWindows=[window])


@pytest.mark.parametrize(
    ("seen", "due_in_s"),
    [
        pytest.param(IDLE, inf, id="nothing is there"),
        pytest.param(replace(IDLE, shortages={POOL: NOW + 90, replace(POOL, zone="b"): NOW - 1}), 90, id="a shortage"),
        pytest.param(replace(IDLE, gangs={"g": replace(gang("g"), requeue_at_s=NOW + 30)}), 30, id="an eviction"),
        pytest.param(replace(IDLE, gangs={"g": replace(RUNS, max_run_s=100.0, ran_before_s=10.0)}), 30, id="a run"),
    ],
)
def test_when_something_falls_due(seen: Snapshot, due_in_s: float) -> None:
    assert next_deadline_s(fleet(), seen) == NOW + due_in_s


@pytest.mark.parametrize(
    ("now", "edge"),
    [
        pytest.param("2026-03-28T12:00", "2026-03-28T21:00", id="it opens at ten in the evening, in winter"),
        pytest.param("2026-03-28T23:00", "2026-03-29T03:00", id="it closes six hours later, whatever the clocks do"),
        pytest.param("2026-03-29T12:00", "2026-03-29T20:00", id="it opens an hour sooner by UTC, in summer"),
        pytest.param("2026-10-25T12:00", "2026-10-25T21:00", id="and later again in autumn"),
    ],
)
def test_windows_open_and_close_in_their_time_zone(now: str, edge: str) -> None:
    """Berlin changed to summer time on 2026-03-29 and back on 2026-10-25."""
    frozen = fleet(freeze("0 22 * * *", "6h", "Europe/Berlin"))
    assert next_deadline_s(frozen, replace(IDLE, now_s=utc_s(now))) == utc_s(edge)


@pytest.mark.parametrize(
    ("seen", "at_once"),
    [
        pytest.param(replace(IDLE, gangs={"g": RUNS}, claims={"c": READY}), False, id="all is at rest"),
        pytest.param(replace(IDLE, gangs={"g": replace(RUNS, pods_ready=False)}), True, id="pods come"),
        pytest.param(replace(IDLE, gangs={"g": replace(RUNS, state=GangState.EVICTING)}), True, id="a gang leaves"),
        pytest.param(replace(IDLE, gangs={"g": gang("g")}), False, id="one that waits is asked about ever later"),
        pytest.param(replace(IDLE, claims={"c": replace(READY, ready_at_s=0.0)}), True, id="a machine comes"),
        pytest.param(replace(IDLE, claims={"c": replace(READY, deleting=True)}), True, id="a machine leaves"),
        pytest.param(replace(IDLE, claims={"c": replace(READY, recut_at_s=NOW)}), True, id="a machine is cut anew"),
        pytest.param(replace(IDLE, busy=frozenset({"gang/g"})), True, id="something is being written"),
        pytest.param(
            replace(IDLE, outlook=Outlook((Proposal(("c",), ("g",), (), 1.0, 1.0, "", NOW),))), True, id="a proposal"
        ),
        pytest.param(replace(IDLE, outlook=Outlook(seen=("x",), sought=True)), True, id="not all were looked at"),
        pytest.param(replace(IDLE, outlook=Outlook(seen=("x",), sought=True, done=True)), False, id="all were"),
    ],
)
def test_what_is_half_done_is_asked_about_at_once(seen: Snapshot, at_once: bool) -> None:
    assert (due_again_s(fleet(), seen) <= NOW) == at_once


def test_a_plan_for_many_machines_that_rests_is_asked_for_when_it_has_rested() -> None:
    resting = replace(IDLE, outlook=Outlook(seen=("x",), rests_until_s=NOW + 40))
    assert due_again_s(fleet(), resting) == NOW + 40
