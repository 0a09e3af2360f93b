"""Signals as EventBridge writes them on an SQS queue.

Source: EventBridge "Events from AWS services"; EC2 User Guide "Automate Amazon EC2 using EventBridge"; AWS Health User
Guide "Event schema".
"""

import json
from datetime import UTC, datetime

from fleet.snapshot import NoticeKind
from providers.sim.ec2.vm import Signal

_DETAIL_TYPES = {
    NoticeKind.SPOT_INTERRUPTED: "EC2 Spot Instance Interruption Warning",
    NoticeKind.REBALANCE_RECOMMENDATION: "EC2 Instance Rebalance Recommendation",
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: "EC2 Capacity Reservation Instance Interruption Warning",
    NoticeKind.SCHEDULED_CHANGE: "AWS Health Event",
    NoticeKind.INSTANCE_STOPPED: "EC2 Instance State-change Notification",
    NoticeKind.INSTANCE_TERMINATED: "EC2 Instance State-change Notification",
}
_WARNINGS = {NoticeKind.SPOT_INTERRUPTED, NoticeKind.CAPACITY_RESERVATION_INTERRUPTED}


def body(signal: Signal, *, account_id: str, region: str) -> str:
    """The message body of a signal."""
    health = signal.kind == NoticeKind.SCHEDULED_CHANGE
    return json.dumps(
        {
            "version": "0",
            "id": signal.id,
            "detail-type": _DETAIL_TYPES[signal.kind],
            "source": "aws.health" if health else "aws.ec2",
            "account": account_id,
            "time": _time(signal.at_s),
            "region": region,
            "resources": [f"arn:aws:ec2:{region}:{account_id}:instance/{signal.instance_id}"],
            "detail": _health(signal, account_id, region) if health else _detail(signal),
        }
    )


def _detail(signal: Signal) -> dict[str, str]:
    detail = {"instance-id": signal.instance_id}
    if signal.kind in _WARNINGS:
        detail["instance-action"] = "terminate"
    if signal.state:
        detail["state"] = signal.state
    return detail


def _health(signal: Signal, account_id: str, region: str) -> dict[str, object]:
    code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
    return {
        "eventArn": f"arn:aws:health:{region}::event/EC2/{code}/{signal.id}",
        "service": "EC2",
        "eventTypeCode": code,
        "eventTypeCategory": "scheduledChange",
        "startTime": _health_time(signal.at_s),
        "eventDescription": [
            {"language": "en_US", "latestDescription": "The instance's host is scheduled for retirement."}
        ],
        "affectedEntities": [{"entityValue": signal.instance_id}],
        "affectedAccount": account_id,
    }


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _health_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
