"""`interruption`: what is on the queue, or what EC2 says of a machine, and what is done about it.

The queue, the parser, the answers and the poll of instance health are the agent's own; only SQS and EC2 are played.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from agent.inbox import Event, Noticed
from agent.sources import health_listener
from fleet.actions import SaveClaim
from fleet.nodeclaims.interruption import RULES, InterruptionAction, InterruptionResponse, respond
from fleet.snapshot import CapacityPool, Notice, NoticeKind
from providers.aws.health import notices_of
from providers.aws.queue import SqsNotices
from providers.aws.retry import Caller
from providers.clock import VirtualClock
from providers.ports import CloudError
from tests.conformance.cases import Case
from tests.support.fleets import P5, A, small_fleet
from tests.support.world import World

Given = Mapping[str, Any]
INSTANCE = "i-0123456789abcdef0"
URL = "http://127.0.0.1:1/1/queue"
SPOT = "EC2 Spot Instance Interruption Warning"


def run(case: Case) -> dict[str, Any]:
    """A message, many, a queue that fails, or the poll of instance health."""
    given = case["given"]
    if "receive_error" in given:
        return _failing(given["receive_error"])
    if "messages" in given:
        return _many(given)
    if "sqs_body" in given:
        return _one(given)
    return _health(given)


# -- the queue --------------------------------------------------------------------------------------------------------


@dataclass
class _Sqs:
    """As much of SQS as is called. It hands over all it has at once, as the double upstream tests with does."""

    messages: dict[str, str] = field(default_factory=dict)
    fails: str = ""
    receive_calls: int = 0

    def receive_message(self, **_asked: Any) -> dict[str, Any]:
        """All messages."""
        self.receive_calls += 1
        if self.fails:
            raise ClientError({"Error": {"Code": self.fails, "Message": self.fails}}, "ReceiveMessage")
        told = sorted(self.messages.items())
        return {"Messages": [{"MessageId": name, "ReceiptHandle": name, "Body": body} for name, body in told]}

    def delete_message_batch(self, **asked: Any) -> dict[str, Any]:
        """Forget some."""
        for entry in asked["Entries"]:
            self.messages.pop(entry["ReceiptHandle"], None)
        return {"Successful": asked["Entries"]}


def _notices(sqs: _Sqs) -> SqsNotices:
    clock = VirtualClock()
    client: Any = sqs
    return SqsNotices(client, URL, Caller(clock, sleep=clock.advance, rng=lambda: 0.0), clock)


def _failing(code: str) -> dict[str, Any]:
    try:
        _notices(_Sqs(fails=code)).receive(20)
    except CloudError:
        return {"error": True}
    return {"error": False}


def _many(given: Given) -> dict[str, Any]:
    world, sqs = World(small_fleet()), _Sqs()
    for number in range(given["messages"]):
        world.machine(f"m{number}")
        detail = {"instance-id": f"i-m{number}", "instance-action": "terminate"}
        event = {"version": "0", "source": "aws.ec2", "detail-type": given.get("kind", SPOT), "detail": detail}
        sqs.messages[f"{number:04}"] = json.dumps(event)
    count = len(sqs.messages)
    _, response = _handled(sqs, world)
    return {
        "receive_calls": sqs.receive_calls,
        "nodeclaims_deleted": len(_marked(response)),
        "messages_deleted": count - len(sqs.messages),
    }


def _handled(sqs: _Sqs, world: World) -> tuple[Sequence[Notice], InterruptionResponse]:
    """One receipt, answered and then forgotten, as the brain does it."""
    queue = _notices(sqs)
    heard = queue.receive(20)
    response = respond(heard, world.snapshot())
    queue.acknowledge(heard)
    return heard, response


def _one(given: Given) -> dict[str, Any]:
    sqs = _Sqs({"m": given["sqs_body"] if isinstance(given["sqs_body"], str) else json.dumps(given["sqs_body"])})
    node = given.get("node", {})
    world = _world(node)
    pool = world.claims["m0"].capacity_pool
    heard, response = _handled(sqs, world)
    kind = heard[0].kind if heard else NoticeKind.NO_OP
    marked = _marked(response)
    short = sorted(str(each) for each in response.shortages)
    return {
        "kind": kind,
        "action": RULES[kind].handling,
        "error": False,
        "message_deleted": not sqs.messages,
        "nodeclaims_deleted": len(marked),
        "disrupted_reason": kind if marked else None,
        "offering_marked_unavailable": _as_upstream(response) if short else None,
        "reservation_available_after": 0 if pool in response.shortages else node.get("available_count"),
        "parse_error": not heard,
    }


def _as_upstream(response: InterruptionResponse) -> str:
    """Type, capacity type and zone, as the cases write them."""
    [found] = response.shortages
    return f"{found.instance_type}:{found.capacity_type}:{found.zone}"


def _marked(response: InterruptionResponse) -> list[str]:
    return [action.claim.name for action in response.actions if isinstance(action, SaveClaim)]


def _world(node: Given) -> World:
    """One machine; of a reservation, or as the case says."""
    world = World(small_fleet())
    world.machine("m0")
    reserved = "reserved" if "capacity_reservation_id" in node else "on-demand"
    kind, zone = node.get("instance_type", P5.name), node.get("zone", A)
    pool = CapacityPool(node.get("capacity_type", reserved), kind, zone)
    world.claims["m0"] = replace(world.claims["m0"], instance_id=INSTANCE, capacity_pool=pool)
    return world


# -- instance health --------------------------------------------------------------------------------------------------

_CHECKS = {"instance_status": "InstanceStatus", "system_status": "SystemStatus", "event_status": "EventStatus"}
_HEALTHY = {"Status": "ok", "Details": []}
IMPAIRED = {"instance_status": "impaired", "impaired_for_s": 3600}


class _Ec2:
    """Tells the same of one instance each time."""

    def __init__(self, status: Given, now_s: float) -> None:
        self._status = status
        self._now_s = now_s

    def poll(self) -> Sequence[Notice]:
        """What it says."""
        return list(notices_of(self._status, self._now_s))


def _health(given: Given) -> dict[str, Any]:
    world = _world({})
    status = _status(given.get("describe_instance_status", IMPAIRED), world.now_s)
    counted: list[NoticeKind] = []
    events: list[Event] = []
    listen = health_listener(_Ec2(status, world.now_s), events.append, counted.append, act=not given.get("dry_run"))
    for _ in range(given.get("reconciles", 1)):
        listen()
    heard = [notice for event in events if isinstance(event, Noticed) for notice in event.notices]
    marked = _marked(respond(heard, world.snapshot()))
    kinds = {notice.kind for notice in heard}
    kind = next((each for each in RULES if each in kinds and RULES[each].handling is InterruptionAction.FORCE), None)
    kind = kind or next(iter(sorted(kinds)), None)
    return {
        "action": RULES[kind].handling if kind else InterruptionAction.NOTHING,
        "disrupted_reason": kind if marked else None,
        "metric_category": _CHECKS[counted[0]] if counted else None,
        "metric_incremented": len(counted),
        "termination_timestamp": "now" if kind and RULES[kind].handling is InterruptionAction.FORCE else None,
        "nodeclaim_deleted": bool(marked),
        "nodeclaims_deleted": len(marked),
    }


def _status(given: Given, now_s: float) -> dict[str, Any]:
    """An entry of `DescribeInstanceStatus`."""
    since = datetime.fromtimestamp(now_s, UTC) - timedelta(seconds=given.get("impaired_for_s", 0))
    told: dict[str, Any] = {"InstanceId": INSTANCE, "InstanceStatus": _HEALTHY, "SystemStatus": _HEALTHY}
    for name in ("instance_status", "system_status"):
        if name in given:
            details = [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}]
            told[_CHECKS[name]] = {"Status": given[name], "Details": details}
    events = given.get(
        "events", [given[name] for name in ("event", "event_status", "scheduled_event") if name in given]
    )
    told["Events"] = [each if isinstance(each, dict) else {"Code": str(each), "Description": ""} for each in events]
    return told
