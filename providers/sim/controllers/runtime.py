"""The shape of a controller and what most of them are made of: a queue of keys, timers and one reconcile function."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Generic, Protocol, TypeVar

import structlog

from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.store import ApiError, StoreConflict, StoreNotFound

_log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)


class Controller(Protocol):
    """Something that acts on the store when it changes or when time has come; told to step by the kernel."""

    @property
    def name(self) -> str:
        """What errors and logs call it."""
        ...

    def step(self, now: float) -> float | None:
        """Do all that is due at `now` (UTC epoch seconds); returns when the next timed work is due, or None."""
        ...


class WorkQueue(Generic[K]):
    """Keys to look at, each once, first come first served, and one timer per key."""

    def __init__(self) -> None:
        self._ready: dict[K, None] = {}
        self._timers: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def add(self, key: K) -> None:
        """Look at `key` in the next batch."""
        self._ready[key] = None

    def at(self, key: K, instant_s: float | None) -> None:
        """Look at `key` at that instant, instead of an earlier wish for the same key; None forgets the wish."""
        if instant_s is None:
            self._timers.pop(key, None)
        elif self._timers.get(key) != instant_s:
            self._count += 1
            self._timers[key] = instant_s
            heapq.heappush(self._heap, (instant_s, self._count, key))

    def due(self, now: float) -> bool:
        """Whether there may be something to take."""
        return bool(self._ready) or (bool(self._heap) and self._heap[0][0] <= now)

    def take(self, now: float) -> list[K]:
        """Everything due by `now`, timers last."""
        while self._heap and self._heap[0][0] <= now:
            instant_s, _, key = heapq.heappop(self._heap)
            if self._timers.get(key) == instant_s:
                del self._timers[key]
                self._ready[key] = None
        batch = list(self._ready)
        self._ready.clear()
        return batch

    def next_at(self, now: float) -> float | None:
        """`now` while keys wait, else the first timer."""
        if self._ready:
            return now
        while self._heap and self._timers.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Reconciler(ABC, Generic[K]):
    """A controller that looks at one key at a time and makes the world agree with it."""

    name: ClassVar[str]
    retry_s: ClassVar[float] = 5.0
    """The wait after a first failure; it doubles with every further one, up to the cap."""
    retry_cap_s: ClassVar[float] = 300.0

    def __init__(self, cluster: MirroredCluster) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[K] = WorkQueue()
        self._attempts: dict[K, int] = {}

    @abstractmethod
    def reconcile(self, key: K, now: float) -> float | None:
        """Level-triggered and idempotent; returns when to look again even if nothing changes."""

    def step(self, now: float) -> float | None:
        """Reconcile every key that is due; keys that come up meanwhile are for the next step."""
        self._cluster.sync()
        if not self._queue.due(now):
            return self._queue.next_at(now)
        batch = self._queue.take(now)
        for position, key in enumerate(batch):
            try:
                self._queue.at(key, self._attempt(key, now))
            except Exception:
                self._queue.at(key, now + self._retry_s(key))
                for unseen in batch[position + 1 :]:  # a defect must neither lose the rest nor stand in its way
                    self._queue.add(unseen)
                raise
            self._cluster.sync()
        return self._queue.next_at(now)

    def _attempt(self, key: K, now: float) -> float | None:
        try:
            wake = self.reconcile(key, now)
        except StoreConflict:
            return now  # somebody wrote in between: look again with what they wrote
        except StoreNotFound:
            return None  # gone in between: its removal is on its way here
        except ApiError as error:
            delay_s = self._retry_s(key)
            _log.warning("reconcile refused", controller=self.name, key=key, error=error.message, retry_s=delay_s)
            return now + delay_s
        self._attempts.pop(key, None)
        return wake

    def _retry_s(self, key: K) -> float:
        """How long to leave a key alone that could not be reconciled; ever longer."""
        failures = self._attempts[key] = self._attempts.get(key, 0) + 1
        return min(self.retry_cap_s, self.retry_s * 2.0 ** min(failures - 1, 10))
