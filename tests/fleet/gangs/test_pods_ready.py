"""Gangs whose pods are not ready in time: how long they have, how long they pause, and how often."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.gangs.pods_ready import late, pods_ready_of, requeue_pause_s
from fleet.reasons import Reason
from fleet.snapshot import GangState
from model.kinds import NEVER, PodsReady
from tests.support.fleets import FleetBuilder, gang
from tests.support.world import World


@pytest.mark.parametrize(
    ("terms", "pauses_s"),
    [
        ({}, [60, 120, 240, 480, 960, 1920, 3600, 3600]),
        ({"backoffBase": "10s", "backoffMax": "30s"}, [10, 20, 30, 30]),
        ({"backoffBase": "0s"}, [0, 0]),
        ({"backoffBase": "2h"}, [3600]),
        ({"backoffMax": "Never"}, [60, 120, 240]),
        ({"backoffBase": "Never", "backoffMax": "Never"}, [NEVER]),
    ],
)
def test_the_pause_doubles_up_to_the_longest(terms: dict[str, str], pauses_s: list[float]) -> None:
    said = PodsReady.model_validate(terms)
    assert [requeue_pause_s(said, n) for n in range(1, len(pauses_s) + 1)] == pauses_s
    assert requeue_pause_s(said, 10_000) <= said.backoff_max


@pytest.mark.parametrize(
    ("limit", "timeouts", "reason"),
    [
        (None, 10_000, Reason.PODS_READY_TIMEOUT),
        (0, 0, Reason.REQUEUING_LIMIT),
        (2, 1, Reason.PODS_READY_TIMEOUT),
        (2, 2, Reason.REQUEUING_LIMIT),
    ],
)
def test_as_often_as_the_limit_it_is_queued_again(limit: int | None, timeouts: int, reason: Reason) -> None:
    found, message = late(PodsReady(backoff_limit=limit), gang(timeouts=timeouts), "1 of 2")
    assert found is reason
    assert message.startswith("1 of 2")


def test_a_gang_of_no_queue_has_the_defaults() -> None:
    assert pods_ready_of(FleetBuilder().build(), gang()) == PodsReady()


def stuck(**terms: Any) -> World:
    """A gang, just admitted, one pod of which never becomes ready."""
    world = World(FleetBuilder().pool().team().queue(podsReady=terms).build())
    world.machine("m0")
    world.waits(gang("g"))
    world.settle_down()
    return world


def misses_its_time(world: World, after_s: float) -> None:
    """Its pod is not ready from the start on."""
    running = world.gang("g")
    assert running.state is GangState.ADMITTED
    world.pods = {key: replace(pod, ready=False) for key, pod in world.pods.items()}
    world.jobs["uid-g"] = replace(world.jobs["uid-g"], ready_pods=0)
    world.gangs["uid-g"] = replace(running, pods_ready=False, not_ready_since_s=0.0)
    world.now_s = running.admitted_at_s + after_s - 1
    world.pass_once()
    assert world.gang("g").state is GangState.ADMITTED
    world.now_s += 1
    world.settle_down()


def test_the_queue_says_how_long_and_how_often() -> None:
    world = stuck(startTimeout="2m", backoffBase="30s", backoffLimit=1)
    misses_its_time(world, 120)
    found = world.gang("g")
    assert (found.state, found.reason, found.timeouts) == (GangState.PENDING, "BackOff", 1)
    world.now_s = found.requeue_at_s
    world.settle_down()
    misses_its_time(world, 120)
    found = world.gang("g")
    assert (found.state, found.reason, found.active, found.timeouts) == (GangState.PENDING, "Deactivated", False, 0)
    assert "(RequeuingLimitExceeded: 0 of 1 pod was ready after 2m, for the 2. time)" in found.message


def test_a_preemption_is_no_time_out() -> None:
    world = stuck(startTimeout="2m", backoffLimit=0)
    world.fleet = FleetBuilder().pool().team().queue(podsReady={"backoffLimit": 0}, stopPolicy="HoldAndDrain").build()
    world.settle_down()
    found = world.gang("g")
    assert (found.active, found.evictions, found.timeouts) == (True, 1, 0)
