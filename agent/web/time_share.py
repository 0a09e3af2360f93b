"""How much of the process's time the page may take: the brain and the page share one interpreter."""

from collections.abc import Callable
from typing import Final

SHARE: Final = 0.05
"""Part of the time that rendering may take in the long run: a turn beside it takes no more than a tenth longer."""
AT_ONCE_S: Final = 1.0
"""Seconds that may be saved up and taken at once, for whoever opens the page after a while."""


class TimeShare:
    """A token bucket of CPU seconds. Whoever has taken too much lets the others wait."""

    def __init__(self, monotonic: Callable[[], float], share: float = SHARE, at_once_s: float = AT_ONCE_S) -> None:
        self._monotonic = monotonic
        self._share, self._at_once_s = share, at_once_s
        self._saved_s, self._at_s = at_once_s, monotonic()

    def spend(self, cpu_s: float) -> None:
        """Take so many seconds, which have been taken already."""
        self._saved_s = self._left() - cpu_s

    def wait_s(self) -> float:
        """Returns how long to wait until something may be taken again; 0 = not at all."""
        return max(0.0, -self._left() / self._share)

    def saved_s(self) -> float:
        """Returns the seconds that may be taken at once now."""
        return max(0.0, self._left())

    def _left(self) -> float:
        now_s = self._monotonic()
        self._saved_s = min(self._at_once_s, self._saved_s + (now_s - self._at_s) * self._share)
        self._at_s = now_s
        return self._saved_s
