"""Admission checks: whose answers count, and what each of them leads to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, SaveGang
from fleet.gangs.admission_checks import checks_of, open_checks, retry_pause_s, verdict
from fleet.reasons import Reason
from fleet.snapshot import Check, CheckState, Gang, GangState
from model.fleet import Fleet
from model.upstream.cluster_queue import ClusterQueue
from model.upstream.tenancy import LocalQueue
from tests.support.fleets import NOW, FleetBuilder, gang
from tests.support.world import World

FLEET = FleetBuilder().pool().team().queue(admissionChecks=["licence", "budget"]).build()
READY, PENDING, RETRY, REJECTED = (
    Check(CheckState.READY),
    Check(CheckState.PENDING, "asks the server"),
    Check(CheckState.RETRY, "no seat", 300.0),
    Check(CheckState.REJECTED, "not allowed"),
)


def kueues() -> Fleet:
    body: dict[str, Any] = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "cluster"}}
    rules = [{"name": "everywhere"}, {"name": "spot-only", "onFlavors": ["spot"]}]
    queue = ClusterQueue.model_validate(body | {"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}})
    named: dict[str, Any] = {**body, "metadata": {"name": "local", "namespace": "ns"}}
    local = LocalQueue.model_validate(named | {"spec": {"clusterQueue": "cluster"}})
    return replace(FLEET, cluster_queues={"cluster": queue}, local_queues={"ns/local": local})


@pytest.mark.parametrize(
    ("queue", "flavors", "expected"),
    [
        ("q", {}, ("licence", "budget")),
        ("local", {"main": ("other",)}, ("everywhere",)),
        ("local", {"main": ("other",), "extra": ("spot",)}, ("everywhere", "spot-only")),
        ("local", {"main": ("other", "spot")}, ("everywhere", "spot-only")),
        ("local", {}, ()),
        ("cluster", {"main": ("spot",)}, ()),
    ],
)
def test_which_checks_a_gang_has_to_pass(
    queue: str, flavors: Mapping[str, tuple[str, ...]], expected: tuple[str, ...]
) -> None:
    assert checks_of(kueues(), gang(queue=queue, flavors=flavors)) == expected


@pytest.mark.parametrize(
    ("answers", "sentence", "told"),
    [
        ({}, "waits for admission checks: licence (Pending), budget (Pending)", None),
        ({"licence": READY}, "waits for admission checks: budget (Pending)", None),
        ({"licence": PENDING, "budget": READY}, "waits for admission checks: licence (Pending: asks the server)", None),
        ({"licence": READY, "budget": READY, "other": REJECTED}, "", None),
        (
            {"licence": RETRY, "budget": READY},
            "waits for admission checks: licence (Retry: no seat)",
            (Reason.CHECK_RETRY, "admission check licence wants it to try again: no seat"),
        ),
        (
            {"licence": RETRY, "budget": REJECTED},
            "waits for admission checks: licence (Retry: no seat), budget (Rejected: not allowed)",
            (Reason.CHECK_REJECTED, "admission check budget has rejected it: not allowed"),
        ),
    ],
)
def test_what_the_answers_come_to(answers: Mapping[str, Check], sentence: str, told: tuple[Reason, str] | None) -> None:
    asked = gang(checks=answers)
    assert open_checks(FLEET, asked) == sentence
    assert verdict(FLEET, asked) == told


@pytest.mark.parametrize(("pauses_s", "expected"), [((0.0, 0.0), 60.0), ((5.0, 0.0), 5.0), ((5.0, 7.0), 7.0)])
def test_the_longest_pause_counts(pauses_s: tuple[float, float], expected: float) -> None:
    answers = {
        name: Check(CheckState.RETRY, "", pause) for name, pause in zip(("licence", "budget"), pauses_s, strict=True)
    }
    assert retry_pause_s(FLEET, gang(checks=answers)) == expected


def waiting(fleet: Fleet = FLEET, machines: int = 1) -> World:
    world = World(fleet)
    for n in range(machines):
        world.machine(f"m{n}")
    world.waits(gang("g"))
    world.settle_down()
    return world


def answer(world: World, *checks: Check) -> Gang:
    named = dict(zip(("licence", "budget"), checks, strict=False))
    world.gangs["uid-g"] = replace(world.gang("g"), checks=named)
    world.settle_down()
    return world.gang("g")


def test_a_gang_holds_its_place_until_all_have_agreed() -> None:
    world = waiting()
    found = world.gang("g")
    assert (found.state, found.reason) == (GangState.RESERVED, "WaitingForAdmissionChecks")
    assert [pin.node for pin in found.pins] == ["node-m0"]
    assert world.jobs["uid-g"].suspended
    assert answer(world, READY).message == "waits for admission checks: budget (Pending)"
    assert answer(world, READY, READY).state is GangState.ADMITTED
    assert not world.jobs["uid-g"].suspended


def test_machines_are_bought_while_checks_are_open() -> None:
    world = World(FLEET)
    world.waits(gang("g"))
    assert any(isinstance(action, OpenClaims) for action in world.settle_down())
    assert (world.gang("g").state, world.gang("g").reason) == (GangState.RESERVED, "WaitingForAdmissionChecks")


def test_one_that_is_to_try_again_gives_everything_back_and_is_asked_again_after_the_pause() -> None:
    world = waiting()
    at_s = world.now_s
    found = answer(world, RETRY)
    assert (found.state, found.reason, found.requeue_at_s, found.active) == (
        GangState.PENDING,
        "BackOff",
        at_s + 300,
        True,
    )
    assert (found.checks, found.pins) == ({}, ())
    world.now_s = at_s + 300
    world.settle_down()
    assert world.gang("g").state is GangState.RESERVED


def test_one_that_is_rejected_is_deactivated() -> None:
    world = waiting()
    found = answer(world, READY, REJECTED)
    assert (found.state, found.reason, found.active) == (GangState.PENDING, "Deactivated", False)
    assert "(AdmissionCheckRejected: admission check budget has rejected it: not allowed)" in found.message


@pytest.mark.parametrize(
    ("check", "reason", "active", "back_s"),
    [(RETRY, "AdmissionCheck", True, 300), (REJECTED, "AdmissionCheckRejected", False, 0)],
)
def test_an_answer_against_one_that_runs_makes_it_leave(check: Check, reason: str, active: bool, back_s: int) -> None:
    world = waiting()
    assert answer(world, READY, READY).state is GangState.ADMITTED
    world.gangs["uid-g"] = replace(world.gang("g"), checks={"licence": check, "budget": READY})
    [save, *_] = [action for action in world.pass_once() if isinstance(action, SaveGang)]
    assert (save.gang.state, save.gang.reason) == (GangState.EVICTING, reason)
    world.settle_down()
    found = world.gang("g")
    assert (found.state, found.active) == (GangState.PENDING, active)
    assert found.requeue_at_s >= NOW + back_s or not back_s
