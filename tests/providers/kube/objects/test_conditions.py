"""What the conditions of a Workload, a NodeClaim and a report say in each state."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fleet.snapshot import Claim, Gang, GangState, NodeDisruption
from providers.kube.objects import (
    Condition,
    FlavorUsage,
    SyncAttempt,
    claim_status,
    event_object,
    queue_status,
    remembered,
    workload_status,
)
from providers.kube.objects.conditions import Finding, condition_reason, decode_standing, written
from providers.kube.objects.reports import HISTORY_MAX
from tests.providers.kube.objects import samples
from tests.providers.kube.objects.values import NOW_S

EVICTION = samples.BACKING_OFF.eviction
RESERVED = replace(samples.ADMITTED, state=GangState.RESERVED, reason="Buying", pods_ready=False, admitted_at_s=0.0)
EVICTING = replace(samples.ADMITTED, state=GangState.EVICTING, eviction=EVICTION)
WAITING_AGAIN = replace(samples.BACKING_OFF, requeue_at_s=NOW_S - 1)
ADMITTED_AGAIN = replace(samples.ADMITTED, eviction=EVICTION, evictions=1)
FINISHED = replace(samples.ADMITTED, state=GangState.FINISHED, reason="Succeeded", message="Done", pods_ready=False)
UP = "Launched True Launched, Registered True Registered, Initialized True Initialized"
AWAITED = "Registered False AwaitingNode, Initialized False AwaitingResources"
CANCELLED = replace(samples.PENDING, state=GangState.FINISHED, reason="Failed")


def said(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: f"{one['status']} {one['reason']}" for one in status["status"]["conditions"]}


@pytest.mark.parametrize(
    ("gang", "conditions"),
    [
        pytest.param(
            samples.PENDING,
            {
                "QuotaReserved": "False WaitingForQuota",
                "Admitted": "False NoReservation",
                "PodsReady": "False WaitForStart",
            },
            id="pending",
        ),
        pytest.param(
            RESERVED,
            {"QuotaReserved": "True QuotaReserved", "Admitted": "False Buying", "PodsReady": "False WaitForStart"},
            id="reserved",
        ),
        pytest.param(
            samples.ADMITTED,
            {"QuotaReserved": "True QuotaReserved", "Admitted": "True Admitted", "PodsReady": "True Started"},
            id="running",
        ),
        pytest.param(
            EVICTING,
            {
                "QuotaReserved": "True QuotaReserved",
                "Admitted": "True Admitted",
                "PodsReady": "True Started",
                "Evicted": "True Preempted",
            },
            id="evicting",
        ),
        pytest.param(
            samples.BACKING_OFF,
            {
                "QuotaReserved": "False Backoff",
                "Admitted": "False NoReservation",
                "PodsReady": "False WaitForStart",
                "Evicted": "True Preempted",
                "Requeued": "False BackOff",
            },
            id="backing off",
        ),
        pytest.param(
            WAITING_AGAIN,
            {
                "QuotaReserved": "False Backoff",
                "Admitted": "False NoReservation",
                "PodsReady": "False WaitForStart",
                "Evicted": "True Preempted",
                "Requeued": "True BackoffFinished",
            },
            id="waiting again",
        ),
        pytest.param(
            ADMITTED_AGAIN,
            {
                "QuotaReserved": "True QuotaReserved",
                "Admitted": "True Admitted",
                "PodsReady": "True Started",
                "Evicted": "False QuotaReserved",
                "Requeued": "True BackoffFinished",
            },
            id="admitted again",
        ),
        pytest.param(
            FINISHED,
            {
                "QuotaReserved": "True QuotaReserved",
                "Admitted": "True Admitted",
                "PodsReady": "False WaitForStart",
                "Finished": "True Succeeded",
            },
            id="finished",
        ),
        pytest.param(
            CANCELLED,
            {
                "QuotaReserved": "False Failed",
                "Admitted": "False NoReservation",
                "PodsReady": "False WaitForStart",
                "Finished": "True Failed",
            },
            id="finished without having run",
        ),
    ],
)
def test_workload(gang: Gang, conditions: dict[str, str]) -> None:
    assert said(workload_status(gang, NOW_S)) == conditions


@pytest.mark.parametrize(
    ("before", "ready", "reason"),
    [
        ("WaitForStart", True, "Started"),
        ("Started", True, "Started"),
        ("Started", False, "WaitForRecovery"),
        ("WaitForRecovery", False, "WaitForRecovery"),
        ("WaitForRecovery", True, "Recovered"),
        ("Recovered", True, "Recovered"),
        ("Recovered", False, "WaitForRecovery"),
    ],
)
def test_pods_lost_and_found(before: str, *, ready: bool, reason: str) -> None:
    previous = (Condition("PodsReady", before in {"Started", "Recovered"}, before, "", 5.0),)
    status = workload_status(replace(samples.ADMITTED, pods_ready=ready), NOW_S, previous)
    assert said(status)["PodsReady"] == f"{ready} {reason}"


@pytest.mark.parametrize(
    ("claim", "conditions"),
    [
        (
            samples.BORN,
            f"Launched False AwaitingLaunch, {AWAITED}, Ready False Pending",
        ),
        (
            replace(samples.BORN, launched_at_s=1.0),
            f"Launched True Launched, {AWAITED}, Ready False Launched",
        ),
        (
            replace(samples.LEAVING, disruption=None),
            f"{UP}, Ready True Ready",
        ),
        (
            samples.LEAVING,
            f"{UP}, Ready False Drifted, Disrupted True Drifted, Drifted True Drifted",
        ),
        (
            replace(samples.LEAVING, disruption=NodeDisruption("Expired", "Older than 30 days", 1.0, 2.0)),
            f"{UP}, Ready False Expired, Disrupted True Expired",
        ),
    ],
)
def test_claim(claim: Claim, conditions: str) -> None:
    assert ", ".join(f"{kind} {text}" for kind, text in said(claim_status(claim, NOW_S)).items()) == conditions


def test_time_moves_only_with_the_status() -> None:
    previous = (
        Condition("A", True, "Old", "", 100.0),
        Condition("B", False, "Old", "", 200.0),
        Condition("D", True, "", "", 0.0),
    )
    findings = (
        Finding("A", True, "New"),
        Finding("B", True, "New"),
        Finding("C", None, "New"),
        Finding("D", True, "New"),
    )
    times = {one["type"]: one["lastTransitionTime"][-9:] for one in written(findings, previous, 300.0)}
    assert times == {"A": "00:01:40Z", "B": "00:05:00Z", "C": "00:05:00Z", "D": "00:05:00Z"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [("WaitingForQuota", "WaitingForQuota"), ("", "Unspecified"), ("no quota", "Unspecified"), ("9", "Unspecified")],
)
def test_reasons_are_what_the_api_takes(text: str, reason: str) -> None:
    assert condition_reason(text) == reason


def test_history_counts_equal_attempts_and_keeps_the_last_twenty() -> None:
    history: tuple[SyncAttempt, ...] = ()
    for second, outcome in enumerate("AABBBCDEFF"):
        history = remembered(history, SyncAttempt("main@sha1:1", outcome, second, second, duration_s=second / 10))
    assert [(one.outcome, one.first_at_s, one.last_at_s, one.count) for one in history] == [
        ("F", 8, 9, 2),
        ("E", 7, 7, 1),
        ("D", 6, 6, 1),
        ("C", 5, 5, 1),
        ("B", 2, 4, 3),
        ("A", 0, 1, 2),
    ]
    assert history[0].duration_s == 0.9
    for number in range(HISTORY_MAX):
        history = remembered(history, SyncAttempt(f"r{number}", "Applied", 100, 100))
    assert [one.revision for one in history] == [f"r{number}" for number in reversed(range(HISTORY_MAX))]


def test_conditions_say_which_generation_they_are_about() -> None:
    stored = {"metadata": {"generation": 7}, "status": {"conditions": written([Finding("A", True, "X")], (), 100.0)}}
    previous, generation = decode_standing(msgspec.json.encode(stored))
    assert generation == 7
    (again,) = written([Finding("A", True, "X")], previous, 200.0, generation)
    assert (again["observedGeneration"], again["lastTransitionTime"][-9:]) == (7, "00:01:40Z")
    assert "observedGeneration" not in stored["status"]["conditions"][0], "where it is not known, nothing is said"
    assert decode_standing(b"{}") == ((), 0)


def test_the_same_revision_again_with_another_outcome_is_another_line() -> None:
    one, other = SyncAttempt("r", "Applied", 1, 1), SyncAttempt("r", "Refused", 2, 2)
    assert remembered(remembered((), one), other) == (other, one)


def test_a_queue_without_gpus_shows_none() -> None:
    usage = (FlavorUsage("cpu", "cpu", 1000, 500),)
    assert queue_status(replace(samples.QUEUE, usage=usage), NOW_S)["status"]["gpus"] == ""


def test_a_long_message_is_cut_to_what_the_api_takes() -> None:
    message = event_object(replace(samples.ANNOUNCE, message="é" * 2000), NOW_S)["message"]
    assert len(message.encode()) <= 1024
    assert message.endswith("é...")


def test_an_event_about_a_cluster_scoped_object_lives_in_default() -> None:
    about = replace(samples.JOB, kind="NodeClaim", namespace="")
    event = event_object(replace(samples.ANNOUNCE, about=about), NOW_S)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]
