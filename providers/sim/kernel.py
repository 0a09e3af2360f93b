"""What makes the simulated controllers go: a kernel that steps them until nothing is due, and two drivers of time.

`VirtualDriver` jumps a virtual clock from wake to wake, so that a day passes in seconds; `KernelThread` runs in real
time and wakes on store events. The controllers cannot tell which one drives them.
"""

import threading
from collections.abc import Callable, Container, Iterable
from math import inf
from typing import Self

import structlog

from providers.clock import Clock, VirtualClock
from providers.sim.controllers.runtime import Controller
from providers.sim.store import Resource, Store, StoreEvent

_log = structlog.get_logger(__name__)

_RETRY_S = 1.0


class Restless(RuntimeError):
    """The controllers do not come to rest: two of them undo each other's work, or one asks to be woken in the past."""


class _Slot:
    """One controller, when it wants to be woken, how far it has seen the store, and what holds it up."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.wake: float | None = None
        self.seen = -1
        self.unasked = False
        self.lag: Callable[[], float] | None = None
        self._late_at: float | None = None
        self._held_until = -inf

    def due(self, now: float, version: int) -> bool:
        """Whether it has something to do and nothing holds it up any more."""
        wake, lag = self.wake, self.lag
        if self.seen == version and (wake is None or wake > now) and (not self.unasked or lag is not None):
            return False
        if now < self._held_until:
            return False
        if lag is None:
            return True
        if self._late_at is None:
            self._late_at = now + lag()
        return self._late_at <= now

    def step(self, now: float, version: int) -> None:
        """Let it work on all that happened up to that version."""
        self.seen, self.unasked, self._late_at = version, False, None
        self.wake = self.controller.step(now)

    def hold(self, until: float) -> None:
        """Let it stand still until that instant."""
        self._held_until = until

    def next_at(self, now: float) -> float | None:
        """The earliest instant at which it will do something by itself."""
        wake = self._late_at if self._late_at is not None and self.lag is not None else self.wake
        return max(self._held_until, now if wake is None else wake) if now < self._held_until else wake


class Kernel:
    """Steps controllers in the given order, round after round, until a whole round has nothing due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        controllers: Iterable[Controller],
        *,
        max_rounds: int = 10_000,
        moves: Callable[[], int] | None = None,
        renewed: Iterable[Resource] = (),
        polling: Container[Controller] = (),
    ) -> None:
        """`moves`: a number that grows with every change that is no store event, so that such changes wake as well.

        `renewed`: kinds whose objects only say that somebody is alive: none of the controllers acts on their changes.
        `polling`: controllers that look at every instant at which anybody wakes, before the others have done anything.
        """
        self._store = store
        self._moves = moves
        self._renewals = 0
        for resource in renewed:
            store.subscribe(self._told_of_renewed, resource=resource)
        self._clock = clock
        self._slots = [_Slot(controller) for controller in controllers]
        self._polling = [slot for slot in self._slots if slot.controller in polling]
        self._max_rounds = max_rounds
        self._now = -inf

    @property
    def clock(self) -> Clock:
        """The clock the controllers live by."""
        return self._clock

    def lag(self, controller: str, draw: Callable[[], float] | None) -> None:
        """Let the controller of that name act late: `draw()` seconds (one draw each time) after it got work.

        None ends it. Work that comes meanwhile is done with it. Unknown names raise KeyError.
        """
        self._slot(controller).lag = draw

    def stand_still(self, controller: str, until: float) -> None:
        """Let the controller of that name do nothing before `until` (UTC epoch seconds), then all that waited."""
        self._slot(controller).hold(until)

    def _slot(self, controller: str) -> _Slot:
        found = {slot.controller.name: slot for slot in self._slots}
        return found[controller]

    def run_until_quiet(
        self,
        now: float | None = None,
        *,
        on_error: Callable[[str, Exception], None] | None = None,
        only_time_passed: bool = False,
    ) -> float | None:
        """Do all that is due at `now` (default: the clock's) and return the next wake.

        Every controller is stepped at least once, because faults and machines change without a store event. Where
        `only_time_passed` since the last run, nobody has given such a fault, and what happens by itself is in `moves`:
        then only those are stepped that have something to do. Raises Restless after `max_rounds` rounds. What a
        controller raises comes through; with `on_error` (name, error) it is handed over instead, the others go on, and
        the failed one is tried again a second later.
        """
        instant = self._now = self._clock.now() if now is None else now
        counts = self._moves is not None and only_time_passed
        for slot in self._polling if counts else self._slots:
            slot.unasked = True
        for _ in range(self._max_rounds):
            if not self._round(instant, on_error):
                return self.next_wake()
        names = sorted(slot.controller.name for slot in self._slots if slot.due(instant, self._version))
        raise Restless(f"still busy at {instant:.3f} after {self._max_rounds} rounds: {', '.join(names)}")

    def next_wake(self) -> float | None:
        """The earliest instant a controller asked for; None when only a store event can bring work."""
        return min((at for slot in self._slots if (at := slot.next_at(self._now)) is not None), default=None)

    @property
    def _version(self) -> int:
        version = self._store.resource_version - self._renewals
        return version if self._moves is None else version + self._moves()

    def _told_of_renewed(self, event: StoreEvent) -> None:
        self._renewals += event.type == "MODIFIED"

    def _round(self, now: float, on_error: Callable[[str, Exception], None] | None) -> bool:
        stepped, version = False, self._version
        for slot in self._slots:
            wake = slot.wake
            if slot.seen == version and not slot.unasked and (wake is None or wake > now):
                continue  # the common answer, thirty times a wake
            if slot.due(now, version):
                try:
                    slot.step(now, version)
                except Exception as error:
                    if on_error is None:
                        raise
                    on_error(slot.controller.name, error)
                    slot.wake = now + _RETRY_S
                stepped, version = True, self._version
        return stepped


class VirtualDriver:
    """Drives a kernel under a virtual clock."""

    def __init__(self, kernel: Kernel, clock: VirtualClock) -> None:
        self._kernel = kernel
        self._clock = clock

    def settle(self) -> None:
        """Do what is due now, without moving the clock."""
        self._kernel.run_until_quiet(self._clock.now())

    def advance(self, to: float) -> None:
        """Let time pass until `to` (UTC epoch seconds), stopping at every wake on the way."""
        wake = self._kernel.run_until_quiet(self._clock.now())
        while wake is not None and wake <= to:
            self._clock.advance_to(wake)
            wake = self._kernel.run_until_quiet(self._clock.now(), only_time_passed=True)
        if to > self._clock.now():
            self._clock.advance_to(to)
            self._kernel.run_until_quiet(self._clock.now())

    def advance_by(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.advance(self._clock.now() + seconds)

    def advance_until(self, done: Callable[[], bool], *, within_s: float) -> bool:
        """Let time pass, wake by wake, until `done()` holds; False when it does not within `within_s`."""
        deadline = self._clock.now() + within_s
        while True:
            wake = self._kernel.run_until_quiet(self._clock.now())
            if done():
                return True
            if wake is None or wake > deadline:
                self.advance(deadline)
                return done()
            self._clock.advance_to(wake)


class KernelThread:
    """Drives a kernel in real time in a thread of its own; a context manager."""

    def __init__(self, kernel: Kernel, store: Store, *, on_error: Callable[[Exception], None] | None = None) -> None:
        self._kernel = kernel
        self._store = store
        self._on_error = on_error
        self._event = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="sim-kernel", daemon=True)

    def start(self) -> Self:
        """Begin; returns itself."""
        self._unsubscribe = self._store.subscribe(self._woken)
        self._thread.start()
        return self

    def wake(self) -> None:
        """Look now: something changed that is no store event (a fault, a machine)."""
        self._event.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread and wait for it; safe to call twice."""
        self._stopping = True
        self._event.set()
        if self._thread.is_alive():
            self._unsubscribe()
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _woken(self, _event: StoreEvent) -> None:
        self._event.set()

    def _run(self) -> None:
        while not self._stopping:
            self._event.clear()
            wake = self._settle()
            self._event.wait(None if wake is None else max(0.0, wake - self._kernel.clock.now()))

    def _settle(self) -> float | None:
        """The next wake; one controller that fails, or two that quarrel, do not stop the world."""
        try:
            return self._kernel.run_until_quiet(on_error=self._failed)
        except Restless as error:
            self._failed("kernel", error)
            return self._kernel.clock.now() + _RETRY_S

    def _failed(self, controller: str, error: Exception) -> None:
        _log.error("a controller failed", controller=controller, exc_info=error)
        if self._on_error is not None:
            self._on_error(error)
