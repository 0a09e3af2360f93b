"""EventBridge messages about instances -> `Notice`s.

An exact parser: (version, source, detail-type) chooses how to read `detail`, as in Karpenter
(`pkg/controllers/interruption/messages`); anything it has no rule for is a notice of kind `NO_OP`.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from fleet.snapshot import Notice, NoticeKind
from model.kinds import NEVER

_Detail = Mapping[str, Any]
_Read = tuple[NoticeKind, tuple[str, ...]]
_NOTHING: _Read = (NoticeKind.NO_OP, ())
_DUE_AFTER_S: Mapping[NoticeKind, float] = {
    NoticeKind.SPOT_INTERRUPTED: 120.0,
    NoticeKind.CAPACITY_RESERVATION_INTERRUPTED: 120.0,
}
"""How long after a warning was written EC2 takes the machine (EC2 User Guide, "Spot Instance interruption notices")."""


class UnparsableNotice(ValueError):
    """The message is no EventBridge event, or lacks what its kind must say."""


def notice_of(
    message_id: str, kind: NoticeKind, instance_ids: tuple[str, ...], at_s: float, due_s: float = NEVER
) -> Notice:
    """A notice of EC2's, with what no message says: who wrote it, and when a machine goes after a warning."""
    source = "AWS Health" if kind is NoticeKind.SCHEDULED_CHANGE else "EC2"
    warned_s = _DUE_AFTER_S.get(kind)
    return Notice(message_id, kind, instance_ids, at_s, due_s if warned_s is None else at_s + warned_s, source)


def parse_notice(body: str, message_id: str, received_s: float) -> Notice:
    """The notice in the body of queue message `message_id`; raises `UnparsableNotice`.

    An event without a readable time counts as written when it was received: a warning must not be lost for that.
    """
    event = _object(body)
    key = (event.get("version"), event.get("source"), event.get("detail-type"))
    reader = _READERS.get(key) if all(isinstance(part, str) for part in key) else None
    if reader is None:
        return notice_of(message_id, *_NOTHING, _written_s(event, received_s))
    detail = event.get("detail")
    if not isinstance(detail, Mapping):
        raise UnparsableNotice(f"{event['detail-type']}: no detail")
    return notice_of(message_id, *reader(detail), _written_s(event, received_s), _begins_s(detail))


def _begins_s(detail: _Detail) -> float:
    """When AWS Health says that it begins; NEVER where it does not, or nobody could read it."""
    try:
        begins = parsedate_to_datetime(detail["startTime"])
    except (KeyError, TypeError, ValueError):
        return NEVER
    return begins.replace(tzinfo=begins.tzinfo or UTC).timestamp()


def _object(body: str) -> Mapping[str, Any]:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnparsableNotice(f"not JSON: {error}") from None
    if not isinstance(event, Mapping):
        raise UnparsableNotice(f"a JSON {type(event).__name__}, not an event")
    return event


def _written_s(event: Mapping[str, Any], received_s: float) -> float:
    try:
        written = datetime.fromisoformat(event["time"])
    except (KeyError, TypeError, ValueError):
        return received_s
    return written.replace(tzinfo=written.tzinfo or UTC).timestamp()


def _instance(detail: _Detail) -> tuple[str, ...]:
    instance_id = detail.get("instance-id")
    if not isinstance(instance_id, str) or not instance_id:
        raise UnparsableNotice("detail has no instance-id")
    return (instance_id,)


def _always(kind: NoticeKind) -> Callable[[_Detail], _Read]:
    return lambda detail: (kind, _instance(detail))


def _state_change(detail: _Detail) -> _Read:
    kind = _STATES.get(str(detail.get("state")))
    return (kind, _instance(detail)) if kind else _NOTHING


def _health(detail: _Detail) -> _Read:
    """Only what EC2 schedules for an instance; other services and other categories do not move anything."""
    if (detail.get("service"), detail.get("eventTypeCategory")) != ("EC2", "scheduledChange"):
        return _NOTHING
    entities = detail.get("affectedEntities")
    if not isinstance(entities, list):
        raise UnparsableNotice("detail has no affectedEntities")
    values = (entity.get("entityValue") for entity in entities if isinstance(entity, Mapping))
    return NoticeKind.SCHEDULED_CHANGE, tuple(sorted({value for value in values if isinstance(value, str) and value}))


_STATES = {
    "stopping": NoticeKind.INSTANCE_STOPPED,
    "stopped": NoticeKind.INSTANCE_STOPPED,
    "shutting-down": NoticeKind.INSTANCE_TERMINATED,
    "terminated": NoticeKind.INSTANCE_TERMINATED,
}

_READERS: Mapping[tuple[Any, Any, Any], Callable[[_Detail], _Read]] = {
    ("0", "aws.ec2", "EC2 Spot Instance Interruption Warning"): _always(NoticeKind.SPOT_INTERRUPTED),
    ("0", "aws.ec2", "EC2 Instance Rebalance Recommendation"): _always(NoticeKind.REBALANCE_RECOMMENDATION),
    ("0", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _always(
        NoticeKind.CAPACITY_RESERVATION_INTERRUPTED
    ),
    ("0", "aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("0", "aws.health", "AWS Health Event"): _health,
}
