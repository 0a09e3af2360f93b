"""Leader election on a Lease: at most one leader at any instant, as long as clocks run at about the same rate.

The rules are client-go's (tools/leaderelection): nobody's time of day is believed. A candidate counts from the moment
it *saw* the lease change and waits the whole lease duration; the leader counts from the moment *before* it sent its
last good renewal and stops acting after the shorter renew deadline. So the leader is out first, even if its clock runs
slower by the ratio of the two. `leading` compares with the clock and is no flag, so a process that was suspended knows
the moment it wakes (the time of day, which may go on where the monotonic clock stood still, can end a term early, never
prolong it).

Two things differ: a holder that lost its lease, or a new process under an old name, waits like any other candidate;
and each term, not each change of name, gets a new number: a `FencingToken` fences off what an earlier term left behind.

Deleting the Lease by hand is a way to take leadership away: the leader notices at its next renewal, and a candidate
that knew the lease waits its duration, but a process that starts just then may lead for up to that renewal as well.
"""

import math
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from providers.clock import Clock
from providers.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from providers.kube.lease import LeaseRecord, LeaseStore

log = structlog.get_logger(__name__)


class FencingToken(NamedTuple):
    """The number of a term: grows with each, within the life (`uid`) of one Lease object."""

    transitions: int
    uid: str


@dataclass(frozen=True, slots=True)
class ElectionTiming:
    """Times in seconds: how long candidates wait (`lease_s`), and a leader acts without a good renewal (`renew_s`)."""

    lease_s: int = 15
    renew_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse timings under which two could lead, or one never could."""
        if not self.lease_s > self.renew_s > self.retry_s * 1.2 > 0:
            raise ValueError(f"need lease_s > renew_s > 1.2 * retry_s > 0, got {self}")


class Elector:
    """One candidate. `identity` must be unique to the process (a pod name or host name with a random part).

    Drive it by `run`, or by calling `step` no later than the instant it returns. Callbacks run in that thread:
    `on_started(token)`, and `on_lost(reason)` which should return only when nothing acts any more. Workers check
    `leading()` before every action, since `on_lost` may come late when the process was suspended.
    """

    def __init__(
        self,
        lease: LeaseStore,
        identity: str,
        on_started: Callable[[FencingToken], None],
        on_lost: Callable[[str], None],
        *,
        clock: Clock,
        rng: random.Random,
        timing: ElectionTiming = ElectionTiming(),
    ) -> None:
        if not identity:
            raise ValueError("an elector needs an identity")
        self._lease = lease
        self._identity = identity
        self._on_started = on_started
        self._on_lost = on_lost
        self._clock = clock
        self._rng = rng
        self._timing = timing
        self._seen: LeaseRecord | None = None
        self._seen_at_s = -math.inf
        self._token: FencingToken | None = None
        self._acts_until_s = -math.inf
        self._acts_until_wall_s = -math.inf

    def leading(self) -> bool:
        """Whether this process may act at this instant; cheap, from any thread."""
        return self._clock.monotonic() < self._acts_until_s and self._clock.now() < self._acts_until_wall_s

    @property
    def token(self) -> FencingToken | None:
        """The term this process leads, None when it does not."""
        token = self._token
        return token if self.leading() else None

    @property
    def holder(self) -> str:
        """Who held the lease when last seen; may be this process, or nobody (empty)."""
        return self._seen.holder if self._seen else ""

    def step(self) -> float:
        """Renew, acquire or look; returns the monotonic instant of the next step."""
        if self._token is not None and not self.leading():
            self._lose("not renewed in time")
        began_s = self._clock.monotonic()
        try:
            if self._token is not None:
                self._renew(self._token)
            else:
                self._try_acquire()
        except KubeError as error:
            log.warning("lease_trouble", error=str(error), leading=self.leading())
        return self._next_s(began_s)

    def run(self, stop: threading.Event) -> None:
        """Step until `stop`, then release; so too when a callback raises, which is then the caller's."""
        try:
            while not stop.is_set():
                next_s = self.step()
                stop.wait(max(0.0, next_s - self._clock.monotonic()))
        finally:
            self.release()

    def release(self) -> None:
        """Stop leading (`on_lost` first) and leave the lease to whoever comes; failing that, it expires by itself."""
        if self._token is None:
            return
        was_good = self.leading()
        self._lose("released")
        if not was_good or self._seen is None:
            return
        try:
            self._write(replace(self._seen, holder="", duration_s=1), self._timing.retry_s)
        except KubeError as error:
            log.warning("lease_not_released", error=str(error))

    # -- the leader ---------------------------------------------------------------------------------------------------

    def _renew(self, token: FencingToken) -> None:
        """One renewal; a lease that is no longer this term's ends it at once."""
        try:
            self._extend()
        except NotFound:
            self._seen = None
            self._lose("the lease was deleted")
        except Conflict:
            # Somebody wrote: an earlier renewal of ours whose answer was lost, a bystander, or a new leader.
            self._look(self._left_s())
            if self._is_ours(token):
                self._extend()
            else:
                self._lose(f"taken by {self.holder or 'nobody'}")

    def _extend(self) -> None:
        assert self._seen is not None  # noqa: S101 - a term begins with a record
        sent_s, sent_wall_s = self._clock.monotonic(), self._clock.now()
        self._write(self._seen, self._left_s())
        self._act_from(sent_s, sent_wall_s)

    def _is_ours(self, token: FencingToken) -> bool:
        seen = self._seen
        return seen is not None and (seen.holder, seen.transitions, seen.uid) == (self._identity, *token)

    def _act_from(self, sent_s: float, sent_wall_s: float) -> None:
        self._acts_until_s = sent_s + self._timing.renew_s
        self._acts_until_wall_s = sent_wall_s + self._timing.renew_s

    def _left_s(self) -> float:
        """Time a call may take without the term running out underneath it."""
        return max(0.1, min(self._timing.retry_s, self._acts_until_s - self._clock.monotonic()))

    def _lose(self, reason: str) -> None:
        self._token, self._acts_until_s = None, -math.inf
        log.info("leadership_lost", identity=self._identity, reason=reason)
        self._on_lost(reason)

    # -- the candidate ------------------------------------------------------------------------------------------------

    def _try_acquire(self) -> None:
        """Look; take what nobody holds, or what nobody renewed for its whole duration as this process saw it."""
        self._look(self._timing.retry_s)
        if not self._is_free():
            return
        sent_s, sent_wall_s = self._clock.monotonic(), self._clock.now()
        try:
            taken = self._take()
        except (AlreadyExists, Conflict):
            return  # somebody was faster; the next look tells who
        self._token = FencingToken(taken.transitions, taken.uid)
        self._act_from(sent_s, sent_wall_s)
        log.info("leadership_gained", identity=self._identity, transitions=taken.transitions)
        self._on_started(self._token)

    def _is_free(self) -> bool:
        if self._seen is not None and not self._seen.holder:
            return True
        duration_s = (self._seen.duration_s if self._seen else 0) or self._timing.lease_s
        return self._clock.monotonic() >= self._seen_at_s + duration_s

    def _take(self) -> LeaseRecord:
        seen, duration_s = self._seen, self._timing.lease_s
        if seen is None:
            fresh = LeaseRecord(self._identity, duration_s, transitions=0)
            self._saw(self._lease.create(fresh, now_s=self._clock.now(), timeout_s=self._timing.retry_s))
        else:
            mine = replace(seen, holder=self._identity, duration_s=duration_s, transitions=seen.transitions + 1)
            self._write(mine, self._timing.retry_s)
        assert self._seen is not None  # noqa: S101 - just written
        return self._seen

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _look(self, timeout_s: float) -> None:
        self._saw(self._lease.read(timeout_s=timeout_s))

    def _write(self, record: LeaseRecord, timeout_s: float) -> None:
        self._saw(self._lease.update(record, now_s=self._clock.now(), timeout_s=timeout_s))

    def _saw(self, record: LeaseRecord | None) -> None:
        """Remember the lease, and when it last changed: from the instant *after* the answer, which only errs late."""
        if record != self._seen:
            self._seen, self._seen_at_s = record, self._clock.monotonic()

    def _next_s(self, began_s: float) -> float:
        if self._token is None:
            return self._clock.monotonic() + self._timing.retry_s * self._rng.uniform(1.0, 1.2)
        return min(began_s + self._timing.retry_s, self._acts_until_s)
