import json

import pytest
from botocore.stub import Stubber
from structlog.testing import capture_logs

from fleet.snapshot import Notice, NoticeKind
from providers.aws.clients import connect_queue
from providers.aws.queue import SqsNotices
from providers.aws.retry import Caller
from providers.ports import CloudDenied, CloudRejected

URL = "http://127.0.0.1:1/1/queue"


@pytest.fixture
def client(session):
    return connect_queue("us-east-1", endpoint_url="http://127.0.0.1:1", session=session)


@pytest.fixture
def stub(client):
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def notices(client, clock):
    return SqsNotices(client, URL, Caller(clock, sleep=clock.advance, rng=lambda: 0.0), clock)


def warning(instance):
    return json.dumps(
        {
            "version": "0",
            "source": "aws.ec2",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": "2026-01-01T00:00:00Z",
            "detail": {"instance-id": instance, "instance-action": "terminate"},
        }
    )


def message(number, body=None):
    return {"MessageId": f"m-{number}", "ReceiptHandle": f"r-{number}", "Body": body or warning(f"i-{number}")}


def receive(stub, *messages, wait=20):
    stub.add_response(
        "receive_message",
        {"Messages": list(messages)} if messages else {},
        {"QueueUrl": URL, "MaxNumberOfMessages": 10, "WaitTimeSeconds": wait, "VisibilityTimeout": 30},
    )


def delete(stub, *receipts, failed=()):
    entries = [{"Id": str(index), "ReceiptHandle": receipt} for index, receipt in enumerate(receipts)]
    stub.add_response(
        "delete_message_batch",
        {"Successful": [], "Failed": [{"Id": i, "Code": "x", "SenderFault": fault} for i, fault in failed]},
        {"QueueUrl": URL, "Entries": entries},
    )


def test_received_then_acknowledged(notices, stub):
    receive(stub, message(1), message(2))
    delete(stub, "r-1", "r-2")
    got = notices.receive(60.0)
    assert [(notice.id, notice.kind, notice.instance_ids) for notice in got] == [
        ("m-1", NoticeKind.SPOT_INTERRUPTED, ("i-1",)),
        ("m-2", NoticeKind.SPOT_INTERRUPTED, ("i-2",)),
    ]
    notices.acknowledge(got)
    notices.acknowledge(got)  # nothing left to delete


@pytest.mark.parametrize(("wait_s", "asked"), [(0.0, 0), (3.7, 3), (-1.0, 0), (1e9, 20)])
def test_the_wait_is_what_sqs_can(notices, stub, wait_s, asked):
    receive(stub, wait=asked)
    assert notices.receive(wait_s) == []


def test_garbage_is_logged_counted_and_deleted(notices, stub):
    receive(stub, message(1, "garbage"), message(2), message(3, "[]"))
    delete(stub, "r-1", "r-3")
    with capture_logs() as logs:
        assert [notice.id for notice in notices.receive(20.0)] == ["m-2"]
    assert notices.unparsable == 2
    assert [entry["message"] for entry in logs] == ["m-1", "m-3"]


def test_events_without_a_rule_are_handed_on_to_be_acknowledged(notices, stub):
    receive(stub, message(1, json.dumps({"version": "0", "source": "aws.s3", "detail-type": "x"})))
    (notice,) = notices.receive(20.0)
    assert (notice.kind, notice.instance_ids) == (NoticeKind.NO_OP, ())


def test_a_message_that_comes_again_is_deleted_by_its_latest_receipt(notices, stub):
    receive(stub, message(1))
    receive(stub, {**message(1), "ReceiptHandle": "r-1-again"})
    delete(stub, "r-1-again")
    first, second = notices.receive(20.0), notices.receive(20.0)
    assert first == second
    notices.acknowledge([*first, *second])


def test_deletes_go_ten_at_a_time(notices, stub):
    receive(stub, *(message(number) for number in range(10)))
    receive(stub, *(message(number) for number in range(10, 13)))
    delete(stub, *(f"r-{number}" for number in range(10)))
    delete(stub, "r-10", "r-11", "r-12")
    got = [*notices.receive(20.0), *notices.receive(20.0)]
    notices.acknowledge(got)


def test_a_failed_delete_is_tried_again_once_and_then_left(notices, stub):
    receive(stub, message(1), message(2), message(3))
    delete(stub, "r-1", "r-2", "r-3", failed=[("0", True), ("2", False)])
    delete(stub, "r-3", failed=[("0", False)])
    delete(stub, "r-3")
    got = notices.receive(20.0)
    with capture_logs() as logs:
        notices.acknowledge(got)
    assert [entry["count"] for entry in logs] == [1]
    notices.acknowledge(got)  # only the one that failed is still known


def test_notices_of_someone_else_are_skipped(notices, stub):
    notices.acknowledge([Notice("m-9", NoticeKind.NO_OP, (), 0.0)])


@pytest.mark.parametrize(
    ("code", "kind"),
    [("AWS.SimpleQueueService.NonExistentQueue", CloudRejected), ("AccessDenied", CloudDenied)],
)
def test_a_missing_queue_is_an_error(notices, stub, code, kind):
    stub.add_client_error("receive_message", code)
    with pytest.raises(kind):
        notices.receive(20.0)


def test_garbage_that_cannot_be_deleted_costs_no_warning(notices, stub):
    receive(stub, message(1, "garbage"), message(2))
    stub.add_client_error("delete_message_batch", "AccessDenied")
    assert [notice.id for notice in notices.receive(20.0)] == ["m-2"]
