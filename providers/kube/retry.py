"""Retries at the boundary to the API: only what is transient, never a write whose repetition could do it twice."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.nap import sleep_using_event

from providers.kube.errors import KubeError, Unreachable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `attempts` calls and `budget_s` seconds of waiting, each wait drawn from [0, base_s * 2^n], n from 0."""

    attempts: int = 6
    base_s: float = 0.5
    cap_s: float = 20.0
    budget_s: float = 60.0


class Retrier:
    """Calls with retries; thread-safe. After `stop` is set nothing is tried again and no wait goes on."""

    def __init__(
        self,
        *,
        stop: threading.Event,
        rng: random.Random,
        sleep: Callable[[float], None] | None = None,
        policy: RetryPolicy = RetryPolicy(),
    ) -> None:
        self._stop = stop
        self._rng = rng
        self._sleep = sleep_using_event(stop) if sleep is None else sleep
        self._policy = policy

    def call(self, action: Callable[[], T], *, idempotent: bool) -> T:
        """The result of `action`, or the error of its last try.

        Idempotent are reads, server-side apply, merge patches without a resourceVersion, and deletes; a create is when
        its caller takes `AlreadyExists` for its own earlier try, a replace when it re-reads after `Conflict`. Anything
        else is repeated only after errors that prove the server did nothing.
        """
        refused: KubeError | None = None
        try:
            return action()  # most often that is all, and preparing for more takes longer than a write to a fake
        except KubeError as error:
            refused = error

        def again() -> T:
            nonlocal refused
            first, refused = refused, None
            if first is not None:
                raise first
            return action()

        retrying = Retrying(
            retry=retry_if_exception(can_repeat if idempotent else proves_nothing_happened),
            wait=self._wait_s,
            stop=self._gives_up,
            sleep=self._sleep,
            reraise=True,
        )
        return retrying(again)

    def _wait_s(self, state: RetryCallState) -> float:
        """Full jitter (AWS architecture blog, 2015), and no sooner than the server asks for."""
        step_s = min(self._policy.cap_s, self._policy.base_s * 2.0 ** min(state.attempt_number - 1, 30))
        jitter_s = self._rng.uniform(0.0, step_s)
        return (_asked_s(state) or 0.0) + jitter_s

    def _gives_up(self, state: RetryCallState) -> bool:
        spent_s = state.idle_for + state.upcoming_sleep
        return self._stop.is_set() or state.attempt_number >= self._policy.attempts or spent_s > self._policy.budget_s


def can_repeat(error: BaseException) -> bool:
    """Whether another try can help at all. A disruption budget is not a matter of seconds: its caller decides."""
    return isinstance(error, KubeError) and error.transient and not getattr(error, "disruption_budget", False)


def proves_nothing_happened(error: BaseException) -> bool:
    """Whether the server certainly did not act on the request: it refused, or was never reached."""
    return can_repeat(error) and not (isinstance(error, Unreachable) and error.maybe_applied)


def _asked_s(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after_s if isinstance(error, KubeError) else None
