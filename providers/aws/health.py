"""Instance health as EC2 sees it (`DescribeInstanceStatus`): impaired machines and announced events, as notices."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from fleet.snapshot import Notice, NoticeKind
from model.kinds import NEVER
from providers.aws.buckets import RateLimitGroup
from providers.aws.interruption import notice_of
from providers.aws.retry import Caller, pages
from providers.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

IMPAIRED_FOR_S: Final = 120.0
"""A check that fails for less may recover (Karpenter `pkg/controllers/interruption`: 2 minutes)."""
_CHECKS: Final = (("InstanceStatus", NoticeKind.INSTANCE_STATUS), ("SystemStatus", NoticeKind.SYSTEM_STATUS))
_OVER: Final = ("[Completed]", "[Canceled]")
"""EC2 keeps finished events in the list for a week, marked so."""


class InstanceHealth:
    """Asks for the status of all instances that need attention."""

    def __init__(self, caller: Caller, client: "EC2Client", clock: Clock) -> None:
        self._caller = caller
        self._client = client
        self._clock = clock

    def poll(self) -> Sequence[Notice]:
        """Machines impaired for two minutes or with an event announced, sorted; raises `CloudError`."""
        found = [notice for status in self._statuses() for notice in notices_of(status, self._clock.now())]
        return sorted(found, key=lambda notice: notice.id)

    def _statuses(self) -> Iterator[Mapping[str, Any]]:
        for page in pages(
            self._caller, RateLimitGroup.DESCRIBE, self._client.describe_instance_status, MaxResults=1000
        ):
            yield from page.get("InstanceStatuses", ())


def notices_of(status: Mapping[str, Any], now_s: float) -> Iterator[Notice]:
    """What one entry of the answer says that calls for action."""
    instance_id = status["InstanceId"]
    for field, kind in _CHECKS:
        since_s = _impaired_since_s(status.get(field) or {})
        if since_s is not None and now_s - since_s >= IMPAIRED_FOR_S:
            yield notice_of(f"{kind}/{instance_id}", kind, (instance_id,), since_s)
    events = [it for it in status.get("Events") or () if not str(it.get("Description", "")).startswith(_OVER)]
    if events:
        kind = NoticeKind.EVENT_STATUS
        yield notice_of(f"{kind}/{instance_id}", kind, (instance_id,), now_s, min(map(_begins_s, events)))


def _begins_s(event: Mapping[str, Any]) -> float:
    begins = event.get("NotBefore")
    return begins.timestamp() if isinstance(begins, datetime) else NEVER


def _impaired_since_s(summary: Mapping[str, Any]) -> float | None:
    """Since when a check has failed; None while it passes, is unknown, or does not say since when."""
    if summary.get("Status") != "impaired":
        return None
    stamps = [detail.get("ImpairedSince") for detail in summary.get("Details") or ()]
    known = [stamp.timestamp() for stamp in stamps if isinstance(stamp, datetime)]
    return min(known, default=None)
