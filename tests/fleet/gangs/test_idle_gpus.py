"""Gangs that hold GPUs and do nothing: named after a time, stopped where their queue says so, and never unread."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import SaveGang
from fleet.gangs import lifecycle
from fleet.gangs.idle_gpus import LEAST_READINGS, UNREAD_AFTER_S, idle_gpus, idle_too_long, missing_readings
from fleet.reasons import Reason
from fleet.snapshot import GangState, IdleGpus
from fleet.snapshot.gpus import FRESH_S, GpuHolders, GpuReading, MeasuredUse
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

AFTER_S = 1800.0


def use(
    node: str, gpu: str, *, idle_s: float | None = 2 * AFTER_S, age_s: float = 10.0, readings: int = 99
) -> MeasuredUse:
    reading = GpuReading(node, gpu, "", "", "NVIDIA H100", "ns", "p", 0.0, 1.0, 1.0)
    since_s = None if idle_s is None else NOW - idle_s
    return MeasuredUse(reading, 100, NOW - 9000, NOW - age_s, 0.0, 1.0, 0.0, since_s, readings)


def world(action: str = "Stop", after: str = "30m", running_s: float = 7200.0, gpus: int = 2) -> World:
    fleet = FleetBuilder().pool().team().queue(idleGpus={"after": after, "action": action}).build()
    made = World(fleet)
    made.machine("m0")
    made.runs(gang("g", gpu=gpus), ("m0", 1), admitted_at_s=NOW - running_s)
    return made


POD = "ns/g-node-m0-0"


def told(made: World, *uses: MeasuredUse) -> World:
    made.gpu_uses[POD] = uses
    return made


def verdicts(made: World) -> tuple[IdleGpus | None, Reason | None]:
    snapshot = made.snapshot()
    found = idle_too_long(made.fleet, snapshot, made.gang("g"))
    return idle_gpus(made.fleet, snapshot, made.gang("g")), found[0] if found else None


A, B = "GPU-a", "GPU-b"
IDLE, BUSY = use("node-m0", A), use("node-m0", B, idle_s=None)
TWO = (IDLE, use("node-m0", B))


@pytest.mark.parametrize(
    ("uses", "idle", "stops"),
    [
        pytest.param(TWO, 2, True, id="all of them"),
        pytest.param((IDLE, BUSY), 1, False, id="one of two is told of and not stopped"),
        pytest.param((BUSY, replace(BUSY, last=replace(BUSY.last, gpu=A))), 0, False, id="none"),
        pytest.param((), 0, False, id="no readings at all"),
        pytest.param((IDLE,), 0, False, id="readings of one of two"),
        pytest.param((IDLE, use("node-m0", B, age_s=FRESH_S + 1)), 0, False, id="an old reading"),
        pytest.param((IDLE, use("node-m0", B, readings=LEAST_READINGS - 1)), 1, False, id="too few in a row"),
        pytest.param((IDLE, use("node-m0", B, idle_s=AFTER_S - 1)), 1, False, id="not for long enough"),
        pytest.param((IDLE, use("elsewhere", B)), 0, False, id="told of by another node"),
    ],
)
def test_who_is_named_and_who_is_stopped(uses: tuple[MeasuredUse, ...], idle: int, stops: bool) -> None:
    said, reason = verdicts(told(world(), *uses))
    assert (said.idle if said else 0) == idle
    assert (reason is Reason.IDLE_GPUS) is stops


@pytest.mark.parametrize(
    ("made", "idle", "stops"),
    [
        pytest.param(world(action="Warn"), 2, False, id="a queue that only warns"),
        pytest.param(world(action="Warn", after="Never"), 0, False, id="one that does not look"),
        pytest.param(world(running_s=AFTER_S - 1), 0, False, id="a gang younger than the time"),
        pytest.param(world(running_s=AFTER_S + 10), 2, True, id="one that is as old, by its last reading"),
        pytest.param(world(gpus=0), 0, False, id="a gang that asks for no GPU"),
    ],
)
def test_what_a_queue_bears(made: World, idle: int, stops: bool) -> None:
    said, reason = verdicts(told(made, *TWO))
    assert (said.idle if said else 0) == idle
    assert (reason is Reason.IDLE_GPUS) is stops


def test_what_was_said_stays_while_nothing_is_read_and_goes_when_a_gpu_is_used() -> None:
    made = told(world(action="Warn"), *TWO)
    before = IdleGpus(NOW - 3600, 2, 2, AFTER_S)
    made.gangs["uid-g"] = replace(made.gang("g"), idle=before)
    told(made)
    assert verdicts(made)[0] is before
    made.gpu_uses.clear()
    assert verdicts(made)[0] is before
    told(made, BUSY, replace(BUSY, last=replace(BUSY.last, gpu=A)))
    assert verdicts(made)[0] is None


def saves(made: World) -> list[Any]:
    return [it for it in lifecycle.decide(made.fleet, made.snapshot()) if isinstance(it, SaveGang)]


def test_it_is_written_once() -> None:
    made = told(world(action="Warn"), *TWO)
    [save] = saves(made)
    assert save.gang.idle == IdleGpus(NOW - 3600, 2, 2, AFTER_S)
    assert save.gang.state is GangState.ADMITTED
    made.gangs["uid-g"] = save.gang
    assert saves(made) == []


def test_a_gang_that_is_stopped_is_deactivated_with_the_reason_and_starts_anew_when_it_is_activated() -> None:
    made = told(world(), *TWO)
    made.settle_down()
    found = made.gang("g")
    assert (found.active, found.state, found.reason) == (False, GangState.PENDING, Reason.DEACTIVATED)
    assert found.idle is None
    words = (
        "IdleGPUs: it has done nothing with any of its 2 GPUs or slices for 30m or longer, and queue 'q' stops who does"
    )
    assert words in found.message
    assert made.jobs["uid-g"].suspended
    made.gangs["uid-g"] = replace(found, active=True)
    made.gpu_uses.clear()
    made.settle_down()
    assert made.gang("g").state is GangState.ADMITTED


def test_a_pod_that_has_just_started_is_not_idle_since_before_it() -> None:
    """Its name and its GPU may be those of a pod before it."""
    made = told(world(), *TWO)
    made.pods[POD] = replace(made.pods[POD], started_at_s=NOW - 60)
    assert verdicts(made) == (None, None)


@pytest.mark.parametrize(
    ("action", "running_s", "read", "said"),
    [
        pytest.param("Stop", UNREAD_AFTER_S + 1, False, True, id="nothing is read"),
        pytest.param("Stop", UNREAD_AFTER_S - 1, False, False, id="not yet"),
        pytest.param("Stop", UNREAD_AFTER_S + 1, True, False, id="it is read"),
        pytest.param("Warn", UNREAD_AFTER_S + 1, False, False, id="nobody would be stopped"),
    ],
)
def test_a_queue_that_would_stop_who_is_idle_says_that_nothing_is_read(
    action: str, running_s: float, read: bool, said: bool
) -> None:
    made = world(action, running_s=running_s)
    if read:
        told(made, BUSY)
    words = missing_readings(made.fleet, made.snapshot())
    assert bool(words) is said
    if said:
        assert words == "ns/g would not be stopped (idleGpus): no dcgm-exporter has told of their GPUs lately"


@pytest.mark.parametrize("read", [False, True])
def test_a_pool_that_would_cut_idle_gpus_says_that_nothing_is_read(read: bool) -> None:
    builder = FleetBuilder().layout("thick", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    mig = {"layouts": ["thick"], "recutIdleGpus": True}
    made = World(builder.pool(sharing={"mig": mig}).team().queue().build())
    made.machine("m0", ready_at_s=NOW - 7200)
    if read:
        made.gpu_holders = {"node-m0": GpuHolders(NOW, (frozenset(),) * 8, {})}
    words = missing_readings(made.fleet, made.snapshot())
    told_of = "idle GPUs of m0 are not cut (recutIdleGpus): no dcgm-exporter has told of their GPUs lately"
    assert words == ("" if read else told_of)
