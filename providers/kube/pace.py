"""How fast to try again: the gap between attempts that keep failing grows, and one healthy period forgives all."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pacing:
    """Gaps of `min_s` to `max_s`; an attempt that lasted `healthy_s` was a success, however it ended.

    The gaps are those of client-go's reflector (tools/cache/reflector.go: 800 ms, 30 s, doubling).
    """

    min_s: float = 0.8
    max_s: float = 30.0
    healthy_s: float = 10.0


class Pace:
    """Counts the failures in a row of one loop, and says how long it waits before its next attempt."""

    def __init__(self, pacing: Pacing, rng: random.Random) -> None:
        self._pacing = pacing
        self._rng = rng
        self.failures = 0

    def gap_s(self, lasted_s: float, *, in_order: bool) -> float:
        """Seconds to wait after an attempt of `lasted_s`; `in_order` when it ended as it should.

        An attempt that ended at once "in order" counts as a failure too: a proxy that answers every watch with an empty
        body must not be asked a thousand times a second.
        """
        if lasted_s >= self._pacing.healthy_s:
            self.failures = 0
            if in_order:
                return 0.0
        self.failures += 1
        widest_s = min(self._pacing.max_s, self._pacing.min_s * 2.0 ** min(self.failures, 30))
        return self._rng.uniform(self._pacing.min_s, widest_s)
