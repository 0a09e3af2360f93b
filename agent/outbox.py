"""The outbox: notifications wait for their receivers, on a thread that nothing waits for, in bounded number.

Each sink has a queue of its own. What fails in a way that passes is tried again, later and later, and its sink rests
meanwhile, so that one that is down costs the others one attempt at a time.
"""

import hashlib
import hmac
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

import structlog

from model.plain_text import instant
from providers.clock import Clock

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 200
"""Messages of one sink; the oldest is dropped for the next."""
KEPT_S: Final = 3600.0
"""A message that could not be sent for so long is dropped: it is no news any more."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0
SIGNATURE: Final = "X-Muster-Signature-256"
TOLD_AFTER: Final = 3
"""Attempts in a row after which a sink that may answer later is told of as failing; one that will not is so at once."""
LOOKS_AGAIN_S: Final = 30.0
"""So often it is looked whether a sink that lacks something here has it by now."""
_SEND_S = 5.0
_TOO_MANY = 429


class Delivery(NamedTuple):
    """What came of one attempt. `again`: worth another one, after `pause_s` at least where the receiver says so."""

    sent: bool
    again: bool = False
    pause_s: float = 0.0
    why: str = ""
    """Why it was not sent, without the address."""
    unusable: bool = False
    """The address is none: nobody was asked."""
    still: Callable[[], str] | None = None
    """Says why nothing can be sent now, empty where something may be; sends nothing, raises nothing. None: that is not
    known before something is sent."""


Attempt = Callable[[], Delivery]
Count = Callable[[str, str], object]
"""(sink, outcome): `sent`, `retried`, `refused` by the receiver, `expired`, or `overflowed`."""


@dataclass(slots=True)
class _SinkQueue:
    waiting: deque[tuple[float, Attempt]] = field(default_factory=deque)
    due_s: float = 0.0
    failures: int = 0
    trouble: str = ""
    """Why nothing reaches the sink; empty while something does, or nobody knows."""
    still: Callable[[], str] | None = None
    """As of the delivery that the trouble is of."""
    looked_s: float = 0.0
    """When that was asked last."""
    failing_since_s: float | None = None
    """When the first of the attempts was that have failed since (epoch); None = the last one did not."""

    @property
    def words(self) -> str:
        """Returns the trouble with since when it is so, and what ends it."""
        further = "" if self.still else "; what waits is tried again" if self.waiting else "; tried with the next news"
        return f"{self.trouble} (since {instant(self.failing_since_s or 0.0)}{further})"


class Outbox:
    """Sends what is put into it. `step` is all it does; a thread of its own repeats that."""

    def __init__(self, count: Count, clock: Clock) -> None:
        self._count = count
        self._clock = clock
        self._changed = threading.Condition()
        self._sinks: dict[str, _SinkQueue] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)

    def put(self, sink: str, attempt: Attempt) -> None:
        """Send it when there is time; never waits. `attempt` raises nothing."""
        with self._changed:
            if self._closed:
                return
            queue = self._sinks.setdefault(sink, _SinkQueue())
            if len(queue.waiting) >= MOST_WAITING:
                queue.waiting.popleft()
                self._count(sink, "overflowed")
            queue.waiting.append((self._clock.monotonic(), attempt))
            self._changed.notify()

    def troubles(self) -> Mapping[str, str]:
        """Sink -> why nothing reaches it; without those that something has reached since."""
        with self._changed:
            return {name: it.words for name, it in sorted(self._sinks.items()) if it.trouble}

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def close(self) -> None:
        """Send no more; what is being sent has its five seconds, the rest is dropped."""
        with self._changed:
            self._closed = True
            self._sinks.clear()
            self._changed.notify()
        self._thread.join(2 * _SEND_S)

    def step(self) -> float | None:
        """Makes one attempt, or looks whether a sink has by now what it lacked; whatever is due first.

        Returns the seconds until the next of them is due, None while there is none.
        """
        now_s = self._clock.monotonic()
        with self._changed:
            at_s, looks, sink = min(self._dues(), default=(inf, False, ""))
            if at_s > now_s:
                return at_s - now_s if at_s < inf else None
            queue = self._sinks[sink]
            first = queue.waiting[0] if not looks else None
        if first is None:
            self._look(queue)
            return 0.0
        delivery = first[1]()
        with self._changed:
            self._settle(sink, queue, first, delivery)
        return 0.0

    def _dues(self) -> Iterator[tuple[float, bool, str]]:
        """Yields when something is due of a sink, and whether that is a look alone."""
        for name, it in self._sinks.items():
            if it.waiting:
                yield it.due_s, False, name
            if it.still is not None:
                yield it.looked_s + LOOKS_AGAIN_S, True, name

    def _look(self, queue: _SinkQueue) -> None:
        why = queue.still() if queue.still is not None else ""
        with self._changed:
            queue.trouble, queue.looked_s = why, self._clock.monotonic()
            if not why:
                queue.still, queue.failing_since_s = None, None

    def _settle(self, sink: str, queue: _SinkQueue, first: tuple[float, Attempt], delivery: Delivery) -> None:
        now_s = self._clock.monotonic()
        if delivery.sent:
            queue.failing_since_s = None
        elif queue.failing_since_s is None:
            queue.failing_since_s = self._clock.now()
        if delivery.sent or not delivery.again or queue.failures + 1 >= TOLD_AFTER:
            queue.trouble, queue.still, queue.looked_s = delivery.why, delivery.still, now_s
        expired = delivery.again and now_s - first[0] >= KEPT_S
        if not delivery.again or expired:
            if queue.waiting and queue.waiting[0] is first:  # else it was dropped for a newer one meanwhile
                queue.waiting.popleft()
            self._count(sink, "sent" if delivery.sent else "expired" if expired else "refused")
        if not delivery.again:
            queue.failures, queue.due_s = 0, now_s
            return
        pause_s = max(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(queue.failures, 20)), delivery.pause_s)
        queue.failures, queue.due_s = queue.failures + 1, now_s + min(pause_s, KEPT_S)
        if not expired:
            self._count(sink, "retried")

    def _run(self) -> None:
        while True:
            pause_s = self.step()
            with self._changed:
                if self._closed:
                    return
                if pause_s != 0.0 and not self._due():
                    self._changed.wait(pause_s)

    def _due(self) -> bool:
        """Whether something came in since `step` looked."""
        now_s = self._clock.monotonic()
        return any(it.waiting and it.due_s <= now_s for it in self._sinks.values())


def post_json(sink: str, address: str, body: Mapping[str, Any], secret: str = "") -> Delivery:
    """One POST, no redirects, five seconds; failures are logged without the address. With a secret it is signed.

    The signature is the HMAC-SHA256 of the body as it is sent: `X-Muster-Signature-256: sha256=<hex>`. The body of the
    answer is not read, so that a server cannot make the agent hold or wait for one without an end. Addresses are the
    operator's own, so private ones are allowed: receivers often stand in the same cluster.
    """
    import urllib3

    raw = json.dumps(dict(body), ensure_ascii=True).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "muster"}
    if secret:
        headers[SIGNATURE] = "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    limits = urllib3.Timeout(total=_SEND_S)
    with urllib3.PoolManager(num_pools=1) as pool:
        try:
            answer = pool.request(
                "POST",
                address,
                body=raw,
                headers=headers,
                timeout=limits,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.LocationValueError, ValueError) as error:
            log.warning("notification_failed", sink=sink, why=type(error).__name__)
            return Delivery(sent=False, why=f"its address cannot be used ({type(error).__name__})", unusable=True)
        except urllib3.exceptions.HTTPError as error:
            log.warning("notification_failed", sink=sink, why=type(error).__name__)
            return Delivery(sent=False, again=True, why=f"it does not answer ({type(error).__name__})")
        after = answer.headers.get("Retry-After", "")
        answer.close()
    if answer.status < 300:
        return Delivery(sent=True)
    log.warning("notification_refused", sink=sink, status=answer.status)
    again = answer.status == _TOO_MANY or answer.status >= 500
    pause_s = float(after) if again and after.isdecimal() else 0.0
    return Delivery(sent=False, again=again, pause_s=pause_s, why=f"it answers with status {answer.status}")
