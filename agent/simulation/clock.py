"""The clock of a simulated agent, which may depart from that of the world."""

from providers.clock import Clock


class AgentClock:
    """A time of day that is off by `offset_s`, or stands still; the monotonic clock goes on as the world's."""

    def __init__(self, world: Clock) -> None:
        self._world = world
        self._frozen_at_s: float | None = None
        self.offset_s = 0.0
        """Seconds by which it goes before the world's; a step changes it at once."""

    def now(self) -> float:
        """Seconds since the epoch, UTC, as this agent's machine has it."""
        return self._world.now() + self.offset_s if self._frozen_at_s is None else self._frozen_at_s

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return self._world.monotonic()

    def freeze(self) -> None:
        """Stand still: the time of day no longer passes."""
        self._frozen_at_s = self.now()

    def thaw(self) -> None:
        """Go on, with the world's time and the offset."""
        self._frozen_at_s = None
