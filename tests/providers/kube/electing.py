"""Electors with clocks of their own before a lease that fails to order; time passes only when told to."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from providers.kube.elector import ElectionTiming, Elector, FencingToken
from providers.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from providers.kube.lease import LeaseRecord


@dataclass
class ElectionWorld:
    """True time, in seconds."""

    now_s: float = 0.0


class SkewedClock:
    """Runs `rate` seconds a second; its time of day is off by `offset_s` and may jump."""

    def __init__(self, world: ElectionWorld, rate: float = 1.0, offset_s: float = 0.0) -> None:
        self.world = world
        self.rate = rate
        self.offset_s = offset_s
        self.jumped_s = 0.0

    def monotonic(self) -> float:
        return self.world.now_s * self.rate + self.offset_s

    def now(self) -> float:
        return self.monotonic() + self.jumped_s


class MemoryLease:
    """One lease with optimistic concurrency; `before` and `after` run around each commit and may raise or dawdle."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.writes = 0
        self.lives = 0
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None

    def read(self, *, timeout_s: float) -> LeaseRecord | None:
        self.before("read")
        found = self.record
        self.after("read")
        return found

    def create(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        self.before("create")
        if self.record is not None:
            raise AlreadyExists("there")
        self.lives += 1
        stored = self._commit(replace(record, uid=f"uid-{self.lives}"))
        self.after("create")
        return stored

    def update(self, record: LeaseRecord, *, now_s: float, timeout_s: float) -> LeaseRecord:
        self.before("update")
        if self.record is None:
            raise NotFound("gone")
        if record.resource_version != self.record.resource_version:
            raise Conflict("stale")
        stored = self._commit(record)
        self.after("update")
        return stored

    def _commit(self, record: LeaseRecord) -> LeaseRecord:
        self.writes += 1
        self.record = replace(record, resource_version=str(self.writes))
        return self.record

    def fail(self, error: KubeError, *, committed: bool = False, verb: str = "") -> None:
        """The next call (of `verb`) fails, before or after its effect."""

        def once(called: str) -> None:
            if verb in {"", called}:
                self.before = self.after = lambda _: None
                raise error

        if committed:
            self.after = once
        else:
            self.before = once


class ElectionCandidate:
    """An elector and what it was told."""

    def __init__(
        self,
        world: ElectionWorld,
        lease: MemoryLease,
        name: str,
        timing: ElectionTiming,
        clock: SkewedClock | None = None,
    ) -> None:
        self.clock = clock or SkewedClock(world)
        self.started: list[FencingToken] = []
        self.lost: list[str] = []
        self.elector = Elector(
            lease,
            name,
            self.started.append,
            self.lost.append,
            clock=self.clock,
            rng=random.Random(name),
            timing=timing,
        )
        self.name = name
        self.next_s = self.clock.monotonic()
        self.stepping = False

    def step(self) -> None:
        self.stepping = True
        try:
            self.next_s = self.elector.step()
        finally:
            self.stepping = False

    def due(self) -> bool:
        return self.clock.monotonic() >= self.next_s
