"""Karpenter's interruption suite, row by row: parser, rules, queue and health checks together (karpenter@2266468)."""

import json
from typing import Any

import pytest

from agent.inbox import Noticed
from agent.sources import health_listener, notices_listener
from fleet.actions import SaveClaim
from fleet.nodeclaims.interruption import RULES, respond
from fleet.snapshot import CapacityPool, Claim, Launch, Notice, NoticeKind, Snapshot
from providers.aws.health import notices_of
from providers.aws.interruption import parse_notice
from providers.ports import CloudDenied, CloudError, CloudRejected
from tests.support.shared import shared_path

NOW_S = 1_800_000_000.0


def _rows() -> list[Any]:
    return json.loads(shared_path("conformance/karpenter/interruption.json").read_text())["cases"]


def _claim(instance_id: str, node: dict[str, Any]) -> Claim:
    capacity_type = "reserved" if "capacity_reservation_id" in node else node.get("capacity_type", "on-demand")
    pool = CapacityPool(capacity_type, node.get("instance_type", "t3.large"), node.get("zone", "us-west-2a"))
    return Claim(
        f"claim-{instance_id}",
        "uid",
        "pool",
        "v1-x",
        pool,
        1.0,
        Launch("g", 0, 1),
        NOW_S - 999,
        instance_id=instance_id,
    )


def _snapshot(*claims: Claim) -> Snapshot:
    return Snapshot(NOW_S, claims={claim.name: claim for claim in claims})


class _NoticeQueue:
    def __init__(self, notices: list[Notice], error: CloudError | None = None) -> None:
        self.notices, self.error, self.acknowledged, self.calls = notices, error, [], 0

    def receive(self, wait_s: float) -> list[Notice]:
        self.calls += 1
        if self.error:
            raise self.error
        return self.notices

    def acknowledge(self, notices: Any) -> None:
        self.acknowledged += notices


class _Unwell:
    def __init__(self, notices: list[Notice]) -> None:
        self.notices = notices

    def poll(self) -> list[Notice]:
        return self.notices


def _message(given: dict[str, Any], expect: dict[str, Any]) -> None:
    notice = parse_notice(json.dumps(given["sqs_body"]), "m-1", NOW_S)
    known = "nodeclaims_deleted" not in expect
    claims = [_claim(instance_id, given.get("node", {})) for instance_id in notice.instance_ids] if known else []
    response = respond([notice], _snapshot(*claims))
    if "kind" in expect:
        assert notice.kind == expect["kind"]
        assert RULES[notice.kind].handling == expect["action"]
        assert bool(response.actions) == (expect["action"] == "CordonAndDrain")
    if "nodeclaims_deleted" in expect:
        assert len(response.actions) == expect["nodeclaims_deleted"]
    if "offering_marked_unavailable" in expect:
        assert [str(pool) for pool in response.shortages] == [expect["offering_marked_unavailable"]]
    if "reservation_available_after" in expect:
        assert [pool.capacity_type for pool in response.shortages] == ["reserved"]


def _broken_queue(given: dict[str, Any], expect: dict[str, Any]) -> None:
    error = {"QueueDoesNotExist": CloudRejected, "AccessDenied": CloudDenied}[given["receive_error"]]
    heard: list[Any] = []
    pause_s = notices_listener(_NoticeQueue([], error(given["receive_error"])), heard.append)()
    assert (heard, pause_s > 0) == ([], expect["error"])


def _many(given: dict[str, Any], expect: dict[str, Any]) -> None:
    notices = [Notice(f"m-{n}", NoticeKind.SPOT_INTERRUPTED, (f"i-{n}",), NOW_S) for n in range(given["messages"])]
    queue, heard = _NoticeQueue(notices), []
    notices_listener(queue, heard.append)()
    assert queue.calls == expect["receive_calls"]
    response = respond(heard[0].notices, _snapshot(*(_claim(n.instance_ids[0], {}) for n in notices)))
    assert len([a for a in response.actions if isinstance(a, SaveClaim)]) == expect["nodeclaims_deleted"]
    queue.acknowledge(heard[0].notices)
    assert len(queue.acknowledged) == expect["messages_deleted"]


def _status(given: dict[str, Any], expect: dict[str, Any]) -> None:
    from datetime import UTC, datetime

    seen = given.get("describe_instance_status", {"instance_status": "impaired", "impaired_for_s": 3600})
    since = datetime.fromtimestamp(NOW_S - seen["impaired_for_s"], UTC)
    checks = {"Status": seen["instance_status"], "Details": [{"Name": "reachability", "ImpairedSince": since}]}
    notices = list(notices_of({"InstanceId": "i-1", "InstanceStatus": checks}, NOW_S))
    counted: list[NoticeKind] = []
    heard: list[Noticed] = []
    listen = health_listener(_Unwell(notices), heard.append, counted.append, act=not given.get("dry_run", False))
    for _ in range(given.get("reconciles", 1)):
        listen()
    if "metric_incremented" in expect:
        assert len(counted) == expect["metric_incremented"]
    if given.get("dry_run"):
        assert not heard
    if expect.get("action") == "ForcefulTermination":
        [action] = respond(heard[0].notices, _snapshot(_claim("i-1", {}))).actions
        assert action.claim.disruption.deadline_s <= NOW_S
        assert counted == [expect["disrupted_reason"]]


@pytest.mark.parametrize("row", _rows(), ids=lambda row: row["id"])
def test_row(row: dict[str, Any]) -> None:
    given, expect = row["given"], row["expect"]
    if "sqs_body" in given:
        _message(given, expect)
    elif "receive_error" in given:
        _broken_queue(given, expect)
    elif "messages" in given:
        _many(given, expect)
    else:
        _status(given, expect)
