import json
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.snapshot import NoticeKind
from providers.aws.health import notices_of
from providers.aws.interruption import UnparsableNotice, parse_notice
from tests.support.shared import shared_path

RECEIVED_S = 1_800_000_000.0


def event(detail_type, detail, **changes):
    return json.dumps(
        {
            "version": "0",
            "id": "11111111-2222-3333-4444-555555555555",
            "account": "000000000001",
            "region": "us-east-1",
            "time": "2026-01-01T00:00:00Z",
            "source": "aws.ec2",
            "detail-type": detail_type,
            "resources": [],
            "detail": detail,
            **changes,
        }
    )


def test_conformance_of_the_kinds():
    cases = json.loads(shared_path("conformance/karpenter/interruption.json").read_text())["cases"]
    checked = 0
    for case in cases:
        body = case["given"].get("sqs_body")
        if body is None:
            continue
        notice = parse_notice(json.dumps(body), "m-1", RECEIVED_S)
        wanted = case["expect"].get("kind", "spot_interrupted")
        assert notice.kind == NoticeKind(wanted), case["id"]
        instance = body["detail"].get("instance-id", "i-0123456789abcdef0")
        assert notice.instance_ids == (() if wanted == "no_op" else (instance,)), case["id"]
        assert notice.at_s == 1767225600.0
        checked += 1
    assert checked == 9


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", NoticeKind.INSTANCE_STOPPED),
        ("stopped", NoticeKind.INSTANCE_STOPPED),
        ("shutting-down", NoticeKind.INSTANCE_TERMINATED),
        ("terminated", NoticeKind.INSTANCE_TERMINATED),
        ("pending", NoticeKind.NO_OP),
        ("running", NoticeKind.NO_OP),
        (None, NoticeKind.NO_OP),
    ],
)
def test_state_changes(state, kind):
    body = event("EC2 Instance State-change Notification", {"instance-id": "i-1", "state": state})
    assert parse_notice(body, "m", RECEIVED_S).kind is kind


def test_one_health_event_may_name_many_instances():
    entities = [{"entityValue": "i-2"}, {"entityValue": "i-1"}, {"entityValue": "i-2"}, {}, "odd", {"entityValue": 3}]
    detail = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities}
    notice = parse_notice(event("AWS Health Event", detail, source="aws.health"), "m", RECEIVED_S)
    assert (notice.kind, notice.instance_ids) == (NoticeKind.SCHEDULED_CHANGE, ("i-1", "i-2"))


@pytest.mark.parametrize(
    ("said", "due_s"),
    [
        ({"startTime": "Thu, 01 Jan 2026 12:00:00 GMT"}, 1767268800.0),
        ({"startTime": "Thu, 01 Jan 2026 12:00:00 -0000"}, 1767268800.0),
        ({"startTime": "soon"}, inf),
        ({"startTime": None}, inf),
        ({}, inf),
    ],
)
def test_when_it_begins_is_read_where_it_is_said(said, due_s):
    detail = {"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": [], **said}
    notice = parse_notice(event("AWS Health Event", detail, source="aws.health"), "m", RECEIVED_S)
    assert (notice.due_s, notice.source) == (due_s, "AWS Health")


@pytest.mark.parametrize(
    ("detail_type", "due_s"),
    [
        ("EC2 Spot Instance Interruption Warning", 1767225720.0),
        ("EC2 Capacity Reservation Instance Interruption Warning", 1767225720.0),
        ("EC2 Instance Rebalance Recommendation", inf),
    ],
)
def test_a_warning_comes_two_minutes_before(detail_type, due_s):
    notice = parse_notice(event(detail_type, {"instance-id": "i-1"}), "m", RECEIVED_S)
    assert (notice.at_s, notice.due_s, notice.source) == (1767225600.0, due_s, "EC2")


@pytest.mark.parametrize(
    ("events", "due_s"),
    [
        ([], None),
        ([{"Description": "[Completed] reboot", "NotBefore": datetime(2026, 1, 1, tzinfo=UTC)}], None),
        ([{"Description": "reboot", "NotBefore": datetime(2026, 1, 1, tzinfo=UTC)}], 1767225600.0),
        ([{"Description": "stop"}, {"NotBefore": datetime(2026, 1, 1, tzinfo=UTC)}], 1767225600.0),
        ([{"Description": "stop"}], inf),
    ],
)
def test_when_an_announced_event_begins(events, due_s):
    found = list(notices_of({"InstanceId": "i-1", "Events": events}, RECEIVED_S))
    assert [(it.kind, it.due_s) for it in found] == ([(NoticeKind.EVENT_STATUS, due_s)] if due_s else [])


@pytest.mark.parametrize(
    "changes",
    [{"version": "1"}, {"source": "aws.spot"}, {"detail-type": "EC2 Something New"}, {"version": 0}, {"source": ["a"]}],
)
def test_the_whole_key_decides(changes):
    body = event("EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}, **changes)
    assert parse_notice(body, "m", RECEIVED_S).kind is NoticeKind.NO_OP


@pytest.mark.parametrize("time", [None, "soon", 5, "2026-13-01T00:00:00Z"])
def test_a_warning_is_not_lost_for_its_time(time):
    body = event("EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"}, time=time)
    notice = parse_notice(body, "m", RECEIVED_S)
    assert (notice.kind, notice.at_s) == (NoticeKind.SPOT_INTERRUPTED, RECEIVED_S)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "[]",
        "3",
        "null",
        "[" * 100_000,
        event("EC2 Spot Instance Interruption Warning", {}),
        event("EC2 Spot Instance Interruption Warning", {"instance-id": 7}),
        event("EC2 Spot Instance Interruption Warning", {"instance-id": ""}),
        event("EC2 Spot Instance Interruption Warning", None),
        event("EC2 Instance State-change Notification", {"state": "stopped"}),
        event("AWS Health Event", {"service": "EC2", "eventTypeCategory": "scheduledChange"}, source="aws.health"),
    ],
)
@pytest.mark.usefixtures("deep_texts")
def test_what_cannot_be_parsed_says_so(body):
    with pytest.raises(UnparsableNotice):
        parse_notice(body, "m", RECEIVED_S)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.sampled_from(["EC2 Spot Instance Interruption Warning", "AWS Health Event", "x"]), json_values)
def test_no_message_breaks_the_parser(detail, detail_type, time):
    for source in ("aws.ec2", "aws.health"):
        try:
            parse_notice(event(detail_type, detail, source=source, time=time), "m", RECEIVED_S)
        except UnparsableNotice:
            continue
