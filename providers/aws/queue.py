"""`SqsNotices`: the `Notices` port on an SQS queue that EventBridge writes to."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from fleet.snapshot import Notice
from providers.aws.buckets import RateLimitGroup
from providers.aws.interruption import UnparsableNotice, parse_notice
from providers.aws.retry import Caller
from providers.clock import Clock
from providers.ports import CloudError

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

BATCH = 10
"""Messages in one call, the most SQS allows."""
LONGEST_WAIT_S = 20
_REMEMBERED = 20_000
"""Receipts kept for messages not yet acknowledged; the oldest go first, and their messages simply come again."""

_log = structlog.get_logger(__name__)


class SqsNotices:
    """Receives interruption messages. A message comes again unless acknowledged, and may come twice even so.

    `Notice.id` is the id of the queue message. Messages that cannot be parsed are logged, counted in `unparsable` and
    deleted, since they would come again for ever.
    """

    def __init__(
        self, client: "SQSClient", queue_url: str, caller: Caller, clock: Clock, *, visibility_s: int = 30
    ) -> None:
        self._client = client
        self._queue_url = queue_url
        self._caller = caller
        self._clock = clock
        self._visibility_s = visibility_s
        self._receipts: OrderedDict[str, str] = OrderedDict()
        self.unparsable = 0

    def receive(self, wait_s: float) -> Sequence[Notice]:
        """Up to ten notices, waiting at most `wait_s` (20 s is the most SQS offers); raises `CloudError`."""
        answer = self._caller.idempotent(
            RateLimitGroup.SQS,
            lambda: self._client.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=BATCH,
                WaitTimeSeconds=max(0, min(LONGEST_WAIT_S, int(wait_s))),
                VisibilityTimeout=self._visibility_s,
            ),
        )
        notices: list[Notice] = []
        broken: list[tuple[str, str]] = []
        for message in answer.get("Messages", ()):
            message_id, receipt = message["MessageId"], message["ReceiptHandle"]
            try:
                notices.append(parse_notice(message.get("Body", ""), message_id, self._clock.now()))
                self._remember(message_id, receipt)
            except UnparsableNotice as error:
                broken.append((message_id, receipt))
                _log.warning("interruption message deleted", message=message_id, error=str(error))
        self.unparsable += len(broken)
        try:
            self._delete(broken)
        except CloudError as error:
            _log.warning("interruption messages not deleted, they will come again", error=str(error))
        return notices

    def acknowledge(self, notices: Iterable[Notice]) -> None:
        """Delete messages that have been acted on; one that is not known any more is skipped. Raises `CloudError`."""
        known = {notice.id: self._receipts.get(notice.id) for notice in notices}
        self._delete([(message_id, receipt) for message_id, receipt in known.items() if receipt])

    def _remember(self, message_id: str, receipt: str) -> None:
        self._receipts[message_id] = receipt
        self._receipts.move_to_end(message_id)
        while len(self._receipts) > _REMEMBERED:
            self._receipts.popitem(last=False)

    def _delete(self, receipts: Sequence[tuple[str, str]]) -> None:
        for start in range(0, len(receipts), BATCH):
            some = receipts[start : start + BATCH]
            again = self._delete_batch(some)
            failed = self._delete_batch(again) if again else ()
            if failed:
                _log.warning("interruption messages not deleted, they will come again", count=len(failed))
            for message_id, _ in set(some) - set(failed):
                self._receipts.pop(message_id, None)

    def _delete_batch(self, receipts: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Those that the service failed to delete; receipts it calls invalid will never work and count as done."""
        entries: Any = [{"Id": str(index), "ReceiptHandle": receipt} for index, (_, receipt) in enumerate(receipts)]
        answer = self._caller.idempotent(
            RateLimitGroup.SQS, lambda: self._client.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)
        )
        return [receipts[int(entry["Id"])] for entry in answer.get("Failed", ()) if not entry.get("SenderFault")]
