"""Pauses after failures, by subject: what failed is left alone for a while, longer each time.

Many that fail together (EC2 refuses a burst of launches for its rate) do not come again together: each pause is
shortened by up to a half, by the subject's name and the number of its failures, so that it is the same in every run.
"""

from dataclasses import dataclass, field
from math import inf
from zlib import crc32

BASE_S = 0.25
MOST_S = 60.0
FORGOTTEN_BEYOND = 10_000
"""Failures of subjects that are long gone are let go beyond this many."""
_NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class Backoff:
    """Exponential pauses; a success forgets them."""

    _failures: dict[str, int] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def failed(self, subject: str, now_s: float) -> None:
        """Lengthen the subject's pause."""
        count = self._failures.get(subject, 0) + 1
        self._failures[subject] = count
        self._until[subject] = now_s + min(MOST_S, BASE_S * 2.0 ** min(count - 1, 10)) * _spread(subject, count)

    def pause(self, subject: str, until_s: float) -> None:
        """Leave a subject alone until then, without counting a failure."""
        self._until[subject] = max(until_s, self._until.get(subject, 0.0))

    def succeeded(self, subject: str) -> None:
        """Ends the subject's pause."""
        self._failures.pop(subject, None)
        self._until.pop(subject, None)

    @property
    def ends_s(self) -> float:
        """Returns when the next pause ends (epoch seconds); inf = nobody pauses."""
        return min(self._until.values(), default=inf)

    def pausing(self, now_s: float) -> frozenset[str]:
        """Returns the subjects to leave alone now."""
        if not self._until and len(self._failures) <= FORGOTTEN_BEYOND:
            return _NOBODY
        self._until = {subject: until for subject, until in self._until.items() if until > now_s}
        if len(self._failures) > FORGOTTEN_BEYOND:
            self._failures = {s: n for s, n in self._failures.items() if s in self._until}
        return frozenset(self._until)


def _spread(subject: str, count: int) -> float:
    """From 0.5 to 1."""
    return 1.0 - crc32(f"{subject}/{count}".encode()) / (1 << 33)
