"""The one place where calls to AWS are paced, retried and translated; botocore's own retries are off."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from providers.aws.buckets import RateLimitGroup, buckets_for
from providers.aws.errors import translate
from providers.clock import Clock
from providers.ports import CloudThrottled, CloudUnreachable

T = TypeVar("T")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0


class Caller:
    """Performs calls: a token from the group's bucket first, then the call, then full-jitter pauses and again.

    `sleep` and `rng` (uniform in [0, 1)) are injected; `max_wait_s` bounds the wait for a token. Raises `CloudError`s
    only.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        sleep: Callable[[float], None] = time.sleep,
        rng: Callable[[], float] | None = None,
        attempts: int = 4,
        max_wait_s: float = 15.0,
    ) -> None:
        self._buckets = buckets_for(clock.monotonic)
        self._sleep = sleep
        self._rng = rng or Random().random
        self._attempts = attempts
        self._max_wait_s = max_wait_s

    def idempotent(self, group: RateLimitGroup, call: Callable[[], T]) -> T:
        """A call that changes nothing, or may safely happen twice: repeated on throttling and on lost answers."""
        return self._retry(group, call, (CloudThrottled, CloudUnreachable))

    def once(self, group: RateLimitGroup, call: Callable[[], T]) -> T:
        """A call that changes something: repeated only when the service refused it for the rate."""
        return self._retry(group, call, (CloudThrottled,))

    def pace(self, group: RateLimitGroup, weight: int) -> None:
        """Wait until `weight` resources may be used (launched or terminated instances)."""
        self._wait_for_token(group, weight)

    def pause(self, seconds: float) -> None:
        """Wait until what was changed has reached everybody."""
        self._sleep(seconds)

    def refused(self, group: RateLimitGroup) -> None:
        """The service refused something for its rate, perhaps for that of this group."""
        self._buckets[group].drain()

    def unused(self, group: RateLimitGroup, weight: int) -> None:
        """Give back what `pace` waited for and was not used."""
        self._buckets[group].put_back(weight)

    def _retry(self, group: RateLimitGroup, call: Callable[[], T], again: tuple[type[Exception], ...]) -> T:
        retrying: Retrying = Retrying(
            stop=stop_after_attempt(self._attempts),
            wait=self._full_jitter,
            retry=retry_if_exception_type(again),
            sleep=self._sleep,
            reraise=True,
        )
        result: T = retrying(self._once, group, call)
        return result

    def _once(self, group: RateLimitGroup, call: Callable[[], T]) -> T:
        self._wait_for_token(group, 1)
        try:
            return call()
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            translated = translate(error)
            if isinstance(translated, CloudThrottled):
                self._buckets[group].drain()
            raise translated from error

    def _wait_for_token(self, group: RateLimitGroup, weight: int) -> None:
        wait_s = self._buckets[group].take(weight, self._max_wait_s)
        if wait_s > 0:
            self._sleep(wait_s)

    def _full_jitter(self, state: RetryCallState) -> float:
        """Uniform below a doubling bound (AWS Architecture Blog, "Exponential Backoff and Jitter")."""
        bound_s: float = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (state.attempt_number - 1))
        return self._rng() * bound_s


def pages(caller: Caller, group: RateLimitGroup, call: Callable[..., Any], **arguments: Any) -> Iterator[Any]:
    """Every page of a listing, each one paced and retried; a token that comes twice ends it."""
    seen = {""}
    token = ""
    while True:
        page = caller.idempotent(group, partial(call, **arguments, **({"NextToken": token} if token else {})))
        yield page
        token = page.get("NextToken") or ""
        if token in seen:
            return
        seen.add(token)
