"""Whether machines of a pool join at all (reference 3, `NodeRegistrationHealthy`)."""

from collections.abc import Sequence
from typing import Final, Literal

RING: Final = 4
"""Launches of a pool that are remembered."""
TOO_MANY_FAILURES: Final = RING // 2

LaunchHealth = Literal["Unknown", "Healthy", "Unhealthy"]


def launch_health(outcomes: Sequence[bool]) -> LaunchHealth:
    """What the last launches of a pool say, oldest first (True = the machine registered); the last four count."""
    recent = outcomes[-RING:]
    if not recent:
        return "Unknown"
    return "Unhealthy" if sum(not outcome for outcome in recent) >= TOO_MANY_FAILURES else "Healthy"
