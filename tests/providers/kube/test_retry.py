"""What is tried again, how often, and how long the waits are; no test waits."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.kube.errors import Conflict, Expired, Invalid, KubeError, NotFound, TooManyRequests, Unreachable
from providers.kube.retry import Retrier, RetryPolicy
from providers.kube.wire import Cause

LOST = Unreachable("lost", maybe_applied=True)
DOWN = Unreachable("down", maybe_applied=False)
BUSY = TooManyRequests("busy", retry_after_s=3.0)
BLOCKED = TooManyRequests("pdb", causes=(Cause(reason="DisruptionBudget"),))


class Calls:
    """Raises each error once, then answers."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def retrier(waits: list[float], stop: threading.Event | None = None, **policy: float) -> Retrier:
    return Retrier(
        stop=stop or threading.Event(), rng=random.Random(7), sleep=waits.append, policy=RetryPolicy(**policy)
    )


@pytest.mark.parametrize(
    ("error", "idempotent", "tried_again"),
    [
        (LOST, True, True),
        (LOST, False, False),
        (DOWN, True, True),
        (DOWN, False, True),
        (BUSY, True, True),
        (BUSY, False, True),
        (BLOCKED, True, False),
        (BLOCKED, False, False),
        (Conflict("c"), True, False),
        (NotFound("n"), True, False),
        (Invalid("i"), True, False),
        (Expired("e"), True, False),
        (KubeError("k"), True, False),
        (RuntimeError("bug"), True, False),
    ],
)
def test_what_is_tried_again(error: Exception, idempotent: bool, tried_again: bool) -> None:
    calls = Calls(error)
    if tried_again:
        assert retrier([]).call(calls, idempotent=idempotent) == "done"
    else:
        with pytest.raises(type(error)):
            retrier([]).call(calls, idempotent=idempotent)
    assert calls.count == 1 + tried_again


def test_the_last_error_is_raised_after_the_last_attempt() -> None:
    calls, waits = Calls(*[LOST] * 10), list[float]()
    with pytest.raises(Unreachable):
        retrier(waits, attempts=4).call(calls, idempotent=True)
    assert (calls.count, len(waits)) == (4, 3)


@given(seed=st.integers(0, 2**32), failures=st.integers(0, 5))
def test_waits_are_fully_jittered_within_doubling_caps(seed: int, failures: int) -> None:
    waits: list[float] = []
    policy = RetryPolicy(attempts=10, base_s=0.5, cap_s=4.0, budget_s=1000.0)
    retry = Retrier(stop=threading.Event(), rng=random.Random(seed), sleep=waits.append, policy=policy)
    retry.call(Calls(*[LOST] * failures), idempotent=True)
    assert len(waits) == failures
    assert all(0.0 <= wait <= min(4.0, 0.5 * 2**n) for n, wait in enumerate(waits))


def test_retry_after_is_a_floor() -> None:
    waits: list[float] = []
    retrier(waits).call(Calls(BUSY), idempotent=False)
    assert 3.0 <= waits[0] <= 3.5


def test_a_wait_beyond_the_budget_is_not_begun() -> None:
    waits: list[float] = []
    with pytest.raises(TooManyRequests):
        retrier(waits, budget_s=60.0).call(Calls(TooManyRequests("x", retry_after_s=3600.0)), idempotent=True)
    assert waits == []


def test_nothing_is_tried_after_stop() -> None:
    stop, calls = threading.Event(), Calls(LOST)
    stop.set()
    with pytest.raises(Unreachable):
        retrier([], stop).call(calls, idempotent=True)
    assert calls.count == 1


def test_stop_ends_a_wait() -> None:
    stop, entered = threading.Event(), threading.Event()

    def fails() -> None:
        entered.set()
        raise TooManyRequests("x", retry_after_s=30.0)

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(Retrier(stop=stop, rng=random.Random(1)).call, fails, idempotent=True)
        assert entered.wait(5)
        stop.set()
        assert isinstance(call.exception(timeout=5), TooManyRequests)
