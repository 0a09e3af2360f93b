"""The API server's time of day, by which everything that it stamps is as old as it says."""

import threading
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final

from providers.clock import Clock, SteadyClock

DATE_S: Final = 1.0
"""The `Date` of an answer is cut off to whole seconds."""


class ServerClock:
    """The time of day as the API server's answers are dated, carried on by the machine's monotonic clock.

    A clock for everything that is compared with timestamps of the cluster: that of nodes, pods and jobs, and what an
    agent on another machine wrote. Before the first answer it is the machine's time of day. Thread-safe.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._first: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._ahead_s: float | None = None
        """By how much the server's time of day is ahead of the monotonic clock."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ahead_s = self._ahead_s
        return self._machine.now() if ahead_s is None else self._machine.monotonic() + ahead_s

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; only differences mean anything."""
        return self._machine.monotonic()

    def steady(self) -> SteadyClock:
        """Returns this clock without its jumps but one: it goes to the server's time of day with the first answer.

        Nothing is aged before that.
        """
        steady = SteadyClock(self)
        self._first = steady.start_anew
        return steady

    def told(self, date: str, asked_s: float) -> None:
        """An answer that was asked for at `asked_s` (monotonic), and came just now, has this `Date` header.

        At some instant between, the server's clock stood within the second of the date. As long as what is believed
        agrees with that, it stays; else it moves as little as it must. So answers that took their time say little, and
        a few quick ones tell the time better than to the second.
        """
        date_s = _epoch_s(date)
        if date_s is not None:
            self.told_s(date_s, asked_s)

    def told_s(self, date_s: float, asked_s: float) -> None:
        """As `told`, with the date in seconds since the epoch."""
        with self._lock:
            began, monotonic_s = self._ahead_s is None, self._machine.monotonic()
            believed_s = self._machine.now() - monotonic_s if self._ahead_s is None else self._ahead_s
            least_s, most_s = date_s - monotonic_s, date_s + DATE_S - asked_s
            self._ahead_s = min(max(believed_s, least_s), most_s)
        if began:
            self._first()


@lru_cache(maxsize=8)
def _epoch_s(date: str) -> float | None:
    """None for what is no date."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
