import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from hypothesis import given
from hypothesis import strategies as st

from providers.aws.buckets import EC2_LIMITS, BucketSize, RateLimitGroup, TokenBucket
from providers.aws.errors import code_of, translate
from providers.aws.retry import Caller, pages
from providers.clock import VirtualClock
from providers.ports import CloudDenied, CloudRejected, CloudThrottled, CloudUnreachable


def client_error(code, status=400):
    return ClientError(
        {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Op"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error("RequestLimitExceeded", 503), CloudThrottled),
        (client_error("Throttling"), CloudThrottled),
        (client_error("SomethingNew", 429), CloudThrottled),
        (client_error("UnauthorizedOperation", 403), CloudDenied),
        (client_error("AuthFailure", 401), CloudDenied),
        (client_error("ExpiredToken"), CloudDenied),
        (client_error("InternalError", 500), CloudUnreachable),
        (client_error("Unavailable", 503), CloudUnreachable),
        (client_error("Whatever", 502), CloudUnreachable),
        (client_error("InvalidAMIID.NotFound"), CloudRejected),
        (client_error("VcpuLimitExceeded"), CloudRejected),
        (NoCredentialsError(), CloudDenied),
        (ParamValidationError(report="no"), CloudRejected),
        (ReadTimeoutError(endpoint_url="x"), CloudUnreachable),
        (ConnectTimeoutError(endpoint_url="x"), CloudUnreachable),
        (EndpointConnectionError(endpoint_url="x"), CloudUnreachable),
    ],
)
def test_errors_drive_behaviour(error, kind):
    translated = translate(error)
    assert type(translated) is kind
    assert translated.transient is (kind in {CloudThrottled, CloudUnreachable})
    assert code_of(translated) == code_of(error)


class ScriptedCall:
    """A call that does what it is told, one step at a time."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


@pytest.fixture
def pauses():
    return []


@pytest.fixture
def caller(clock, pauses):
    def sleep(seconds):
        pauses.append(seconds)
        clock.advance(seconds)

    return Caller(clock, sleep=sleep, rng=lambda: 0.5)


def test_throttling_is_repeated_with_full_jitter(caller, pauses):
    call = ScriptedCall(client_error("RequestLimitExceeded"), client_error("RequestLimitExceeded"), "done")
    assert caller.once(RateLimitGroup.DESCRIBE, call) == "done"
    # Jitter, then one token of the drained bucket (16 a second) as far as the pause did not bring it.
    assert pauses == [0.25, 0.5]


def test_a_lost_answer_is_repeated_only_where_that_is_harmless(caller):
    lost = ReadTimeoutError(endpoint_url="x")
    once = ScriptedCall(lost, "never")
    with pytest.raises(CloudUnreachable):
        caller.once(RateLimitGroup.MUTATE, once)
    assert once.calls == 1
    assert caller.idempotent(RateLimitGroup.MUTATE, ScriptedCall(lost, "done")) == "done"


def test_it_gives_up(caller, pauses):
    call = ScriptedCall(*[client_error("Throttling")] * 9)
    with pytest.raises(CloudThrottled):
        caller.idempotent(RateLimitGroup.DESCRIBE, call)
    assert call.calls == 4
    assert len(pauses) == 3


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidParameterValue"])
def test_refusals_are_not_repeated(caller, code):
    call = ScriptedCall(client_error(code), "never")
    with pytest.raises((CloudDenied, CloudRejected)):
        caller.idempotent(RateLimitGroup.DESCRIBE, call)
    assert call.calls == 1


def test_bugs_are_not_swallowed(caller):
    with pytest.raises(ZeroDivisionError):
        caller.idempotent(RateLimitGroup.DESCRIBE, lambda: 1 // 0)


def test_throttling_slows_everyone_of_the_group(caller, pauses):
    with pytest.raises(CloudThrottled):
        caller.once(RateLimitGroup.MUTATE, ScriptedCall(*[client_error("Throttling")] * 4))
    pauses.clear()
    caller.once(RateLimitGroup.MUTATE, ScriptedCall("done"))
    assert pauses == [pytest.approx(1 / 4)]  # 80 % of 5 a second


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 4)), min_size=1, max_size=60))
def test_no_window_holds_more_than_the_bucket_allows(steps):
    clock, size = VirtualClock(0.0), BucketSize(burst=5, per_s=2)
    bucket = TokenBucket(size, clock.monotonic)
    spent: list[tuple[float, int]] = []
    for pause_s, weight in steps:
        clock.advance(pause_s)
        spent.append((clock.monotonic() + bucket.take(weight, 1e9), weight))
    for start, (since, _) in enumerate(spent):
        used = 0
        for at, weight in spent[start:]:
            used += weight
            assert used <= size.burst + size.per_s * (at - since) + 1e-6


def test_more_than_the_bucket_holds_passes_when_it_is_full(clock):
    bucket = TokenBucket(BucketSize(burst=10, per_s=1), clock.monotonic)
    assert bucket.take(25, max_wait_s=0) == 0
    with pytest.raises(CloudThrottled):
        bucket.take(1, max_wait_s=15)
    assert bucket.take(1, max_wait_s=16) == pytest.approx(16)


def test_a_presumed_limit_counts_from_a_refusal_until_it_is_full_again(clock):
    bucket = TokenBucket(BucketSize(burst=10, per_s=1), clock.monotonic, presumed=True)
    assert [bucket.take(10, max_wait_s=0) for _ in range(3)] == [0, 0, 0]
    bucket.drain()
    with pytest.raises(CloudThrottled):
        bucket.take(5, max_wait_s=4)
    assert bucket.take(5, max_wait_s=5) == pytest.approx(5)
    bucket.put_back(5)
    clock.advance(10.0)
    assert [bucket.take(10, max_wait_s=0) for _ in range(3)] == [0, 0, 0]


def test_a_refused_wait_takes_nothing(clock):
    bucket = TokenBucket(BucketSize(burst=1, per_s=1), clock.monotonic)
    bucket.take(1, 0)
    for _ in range(10):
        with pytest.raises(CloudThrottled):
            bucket.take(1, 0.5)
    assert bucket.take(1, 1) == pytest.approx(1)


def test_every_group_has_a_limit():
    assert set(EC2_LIMITS) == set(RateLimitGroup)


def test_pages_end_when_a_token_repeats(caller):
    answers = [{"NextToken": "a"}, {"NextToken": "b"}, {"NextToken": "a"}, {"never": 1}]
    tokens = []

    def call(**arguments):
        tokens.append(arguments.get("NextToken"))
        return answers.pop(0)

    assert len(list(pages(caller, RateLimitGroup.DESCRIBE, call, MaxResults=5))) == 3
    assert tokens == [None, "a", "b"]
