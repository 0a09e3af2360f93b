"""Client-side token buckets, so that the service's own are never drained.

Sizes: EC2 "Request throttling" (request and resource buckets). A bucket is shared by all actions of a group, which is
stricter than the service where it counts each action alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock

from providers.ports import CloudThrottled


class RateLimitGroup(StrEnum):
    """API actions of one group share a rate limit."""

    DESCRIBE = "describe"
    MUTATE = "mutate"
    TERMINATE = "terminate"
    TAG = "tag"
    LAUNCHED_INSTANCES = "launched-instances"
    TERMINATED_INSTANCES = "terminated-instances"
    PRICING = "pricing"
    SSM = "ssm"
    SQS = "sqs"
    IAM = "iam"


@dataclass(frozen=True, slots=True)
class BucketSize:
    """A bucket that holds `burst` tokens and gains `per_s` a second."""

    burst: float
    per_s: float


EC2_LIMITS: Mapping[RateLimitGroup, BucketSize] = {
    RateLimitGroup.DESCRIBE: BucketSize(100, 20),
    RateLimitGroup.MUTATE: BucketSize(50, 5),
    RateLimitGroup.TERMINATE: BucketSize(100, 5),
    RateLimitGroup.TAG: BucketSize(100, 10),
    RateLimitGroup.LAUNCHED_INSTANCES: BucketSize(1000, 2),
    RateLimitGroup.TERMINATED_INSTANCES: BucketSize(1000, 20),
    RateLimitGroup.PRICING: BucketSize(10, 10),
    RateLimitGroup.SSM: BucketSize(40, 40),
    RateLimitGroup.SQS: BucketSize(300, 300),
    RateLimitGroup.IAM: BucketSize(10, 2),
}


class TokenBucket:
    """A bucket that may go into debt: whoever takes is told how long to wait. Safe between threads.

    A `presumed` one counts only once the service has refused something for it (`drain`), until it is full again.
    """

    def __init__(self, size: BucketSize, monotonic: Callable[[], float], *, presumed: bool = False) -> None:
        self._size = size
        self._monotonic = monotonic
        self._presumed = presumed
        self._counts = not presumed
        self._tokens = size.burst
        self._at_s = monotonic()
        self._lock = Lock()

    def take(self, weight: float, max_wait_s: float) -> float:
        """Take `weight` tokens; seconds to wait before using them. Raises `CloudThrottled` beyond `max_wait_s`.

        More tokens than the bucket holds are given when it is full, so that no request waits for ever.
        """
        with self._lock:
            self._refill()
            if not self._counts:
                return 0.0
            wait_s = max(0.0, (min(weight, self._size.burst) - self._tokens) / self._size.per_s)
            if wait_s > max_wait_s:
                raise CloudThrottled(f"would have to wait {wait_s:.0f} s to stay under the request limit")
            self._tokens -= weight
            return wait_s

    def put_back(self, weight: float) -> None:
        """Tokens taken for something that then did not happen."""
        with self._lock:
            if self._counts:
                self._tokens = min(self._size.burst, self._tokens + weight)

    def drain(self) -> None:
        """Someone else emptied the service's bucket: start from nothing."""
        with self._lock:
            self._refill()
            self._counts = True
            self._tokens = min(self._tokens, 0.0)

    def _refill(self) -> None:
        now_s = self._monotonic()
        self._tokens = min(self._size.burst, self._tokens + (now_s - self._at_s) * self._size.per_s)
        self._at_s = now_s
        if self._presumed and self._tokens >= self._size.burst:
            self._counts = False


_PRESUMED = frozenset({RateLimitGroup.LAUNCHED_INSTANCES})
"""EC2 documents how many machines RunInstances may start, and no such limit for CreateFleet: with one from the outset
6,000 machines would take 42 minutes."""
_WHOLE = frozenset({RateLimitGroup.LAUNCHED_INSTANCES, RateLimitGroup.TERMINATED_INSTANCES})
"""Resource buckets refill so slowly that a fifth held back would keep 1,000 machines waiting for two minutes. Who else
launches machines in the account makes EC2 refuse some calls, and those are repeated."""


def buckets_for(
    monotonic: Callable[[], float], limits: Mapping[RateLimitGroup, BucketSize] = EC2_LIMITS, share: float = 0.8
) -> dict[RateLimitGroup, TokenBucket]:
    """A bucket for each group, holding `share` of the account's request limit: others use the account too."""
    parts = {group: 1.0 if group in _WHOLE else share for group in limits}
    return {
        group: TokenBucket(
            BucketSize(limit.burst * parts[group], limit.per_s * parts[group]), monotonic, presumed=group in _PRESUMED
        )
        for group, limit in limits.items()
    }
