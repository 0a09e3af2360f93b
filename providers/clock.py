"""Time as a port: everything that waits or stamps takes a `Clock`, so that tests and simulations own the time."""

import threading
import time
from typing import Final, Protocol

CATCHES_UP: Final = 1.0
"""A steady clock that is behind the time of day goes faster by this part of its pace: an hour takes it an hour."""
HOLDS_BACK: Final = 0.5
"""One that is ahead goes slower by this part: an hour takes it two."""


class Clock(Protocol):
    """A source of time. `now` is UTC seconds since the epoch and may jump; `monotonic` never goes back."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; only differences mean anything."""
        return time.monotonic()


class SteadyClock:
    """The time of day without its jumps: it goes at the pace of the monotonic clock and drifts towards the time of day.

    Whatever is stamped and aged by it has an age of at least half and at most twice the true one, also where somebody
    sets the machine's clock. It never goes back: a machine that was launched after another was listed is so by its
    stamps. A new process starts from the time of day. Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at_s = clock.monotonic()
        self._now_s = clock.now()

    def now(self) -> float:
        """Seconds since the epoch, UTC; off the time of day by what is left of the latest jumps."""
        with self._lock:
            read_at_s = self._clock.monotonic()
            if read_at_s == self._read_at_s:
                return self._now_s
            elapsed_s = max(0.0, read_at_s - self._read_at_s)
            least_s = self._now_s + elapsed_s * (1.0 - HOLDS_BACK)
            most_s = self._now_s + elapsed_s * (1.0 + CATCHES_UP)
            self._read_at_s, self._now_s = read_at_s, min(max(self._clock.now(), least_s), most_s)
            return self._now_s

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; only differences mean anything."""
        return self._clock.monotonic()

    def start_anew(self) -> None:
        """Go to the time of day at once, as a new process does: for a clock by which nothing has been aged yet."""
        with self._lock:
            self._read_at_s, self._now_s = self._clock.monotonic(), self._clock.now()


class VirtualClock:
    """A clock that moves only when told to; `monotonic` and `now` move together."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self._now_s = now_s

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        return self._now_s

    def monotonic(self) -> float:
        """The same instant: virtual time never jumps back."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self._now_s += seconds

    def advance_to(self, instant_s: float) -> None:
        """Move forward to `instant_s`; an instant in the past leaves the clock where it is."""
        self._now_s = max(self._now_s, instant_s)
