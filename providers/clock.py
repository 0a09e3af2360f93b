"""Time as a port: everything that waits or stamps takes a `Clock`, so that tests and simulations own the time."""

import time
from typing import Protocol


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
