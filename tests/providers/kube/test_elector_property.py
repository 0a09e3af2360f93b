"""Whatever fails and however clocks disagree: never two leaders, and terms in order."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from providers.kube.elector import ElectionTiming, FencingToken
from providers.kube.errors import KubeError, Unreachable
from tests.providers.kube.electing import ElectionCandidate, ElectionWorld, MemoryLease, SkewedClock

TIMING = ElectionTiming(lease_s=15, renew_s=10.0, retry_s=2.0)
# 15 / 10 is the skew the timings allow; these rates stay inside it.
RATES = st.sampled_from([0.85, 0.95, 1.0, 1.05, 1.2])
DELAYS = st.sampled_from([0.0, 0.0, 0.1, 1.0, 1.9, 4.0, 9.9, 30.0])
FAULTS = st.sampled_from(["", "", "", "before", "after"])


class Electors(RuleBasedStateMachine):
    """Three candidates; calls take time, fail before or after their effect, and others act in the middle of them."""

    @initialize(
        rates=st.tuples(RATES, RATES, RATES),
        offsets=st.tuples(*[st.floats(-1e6, 1e6, allow_nan=False)] * 3),
    )
    def begin(self, rates: tuple[float, ...], offsets: tuple[float, ...]) -> None:
        self.world = ElectionWorld()
        self.lease = MemoryLease()
        self.candidates = [
            ElectionCandidate(self.world, self.lease, name, TIMING, SkewedClock(self.world, rate, offset))
            for name, rate, offset in zip("abc", rates, offsets, strict=True)
        ]
        self.terms: list[FencingToken] = []
        for candidate in self.candidates:
            candidate.elector._on_started = self.began
        self.calm()

    def began(self, token: FencingToken) -> None:
        assert not self.terms or token > self.terms[-1], f"{token} after {self.terms[-1]}"
        self.terms.append(token)
        self.never_two()

    def calm(self) -> None:
        self.lease.before = self.lease.after = lambda _: None

    @rule(who=st.integers(0, 2))
    def step(self, who: int) -> None:
        self.calm()
        self.candidates[who].step()

    @rule(
        who=st.integers(0, 2),
        faults=st.lists(FAULTS, max_size=3),
        delays=st.lists(DELAYS, max_size=6),
        meddlers=st.lists(st.integers(-6, 2), max_size=6),
    )
    def step_in_bad_weather(self, who: int, faults: list[str], delays: list[float], meddlers: list[int]) -> None:
        """Around each call of the step (and of the steps that others take meanwhile) something may happen."""

        def weather(moment: str) -> None:
            if delays:
                self.world.now_s += delays.pop()
                self.never_two()
            if meddlers and (other := meddlers.pop()) >= 0 and not self.candidates[other].stepping:
                self.candidates[other].step()
            if faults and faults[-1] == moment:
                faults.pop()
                raise Unreachable(f"{moment} the effect")
            if faults and not faults[-1]:
                faults.pop()

        self.lease.before = lambda _: weather("before")
        self.lease.after = lambda _: weather("after")
        self.candidates[who].step()
        self.calm()

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 5.0, 8.0, 9.0, 14.0, 20.0]), watching=st.sets(st.integers(0, 2)))
    def wait(self, seconds: float, watching: set[int]) -> None:
        """Time passes, and then the first to look may be any of them."""
        self.calm()
        self.world.now_s += seconds
        for who in sorted(watching):
            self.candidates[who].step()
            self.never_two()

    @rule(who=st.integers(0, 2), seconds=st.sampled_from([-100.0, -1.0, 1.0, 100.0]))
    def time_of_day_jumps(self, who: int, seconds: float) -> None:
        self.candidates[who].clock.jumped_s += seconds

    @precondition(lambda self: self.lease.record is not None)
    @rule(who=st.integers(0, 2))
    def release(self, who: int) -> None:
        self.calm()
        self.candidates[who].elector.release()

    @invariant()
    def never_two(self) -> None:
        if hasattr(self, "candidates"):
            leaders = [candidate.name for candidate in self.candidates if candidate.elector.leading()]
            assert len(leaders) <= 1, leaders

    @invariant()
    def a_leader_holds_the_newest_term(self) -> None:
        if hasattr(self, "candidates"):
            for candidate in self.candidates:
                if (token := candidate.elector.token) is not None:
                    assert token == self.terms[-1]


TestElectors = Electors.TestCase
TestElectors.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_somebody_leads_most_of_the_time_on_a_bad_day() -> None:
    """Safety without liveness is easy: over hours with every tenth call failing, the lease is seldom vacant."""
    world, lease, rng = ElectionWorld(), MemoryLease(), random.Random(5)
    candidates = [
        ElectionCandidate(world, lease, name, TIMING, SkewedClock(world, 0.9 + 0.1 * n)) for n, name in enumerate("ab")
    ]

    def flaky(_: str) -> None:
        if rng.random() < 0.05:
            raise Unreachable("now and then")

    lease.before = lease.after = flaky
    led = 0
    for _ in range(40_000):
        world.now_s += 0.25
        for candidate in candidates:
            if candidate.due():
                candidate.step()
        led += any(candidate.elector.leading() for candidate in candidates)
    assert led > 0.98 * 40_000
    assert issubclass(Unreachable, KubeError)
