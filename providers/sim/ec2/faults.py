"""What goes wrong, as data: each countdown is spent by the next events it applies to."""

from dataclasses import dataclass
from typing import Literal

Countdown = Literal[
    "throttled_calls",
    "dropped_calls",
    "lost_answers",
    "slow_boots",
    "never_boots",
    "late_listings",
    "duplicate_messages",
    "late_messages",
]


@dataclass(slots=True)
class CloudFaults:
    """Holds the faults to come. Each count is of the next events that fail so; 0 = none.

    - `throttled_calls`: API calls refused with RequestLimitExceeded before anything happens.
    - `dropped_calls`: API calls whose connection breaks before anything happens.
    - `lost_answers`: launches that happen but whose caller sees a broken connection.
    - `slow_boots`: machines that need `slow_boot_s` longer until they run.
    - `never_boots`: machines that run, and bill, but never become a node.
    - `late_listings`: machines that the API does not know until `late_listing_s` after launch, as EC2 is eventually
      consistent.
    - `duplicate_messages`: queue messages that come twice, with the same event id.
    - `late_messages`: queue messages that come `late_by_s` after the event.
    - `shortage_after`: machines that can still be had; then every pool is out. None: no such end.
    """

    throttled_calls: int = 0
    dropped_calls: int = 0
    lost_answers: int = 0
    slow_boots: int = 0
    slow_boot_s: float = 600.0
    never_boots: int = 0
    late_listings: int = 0
    late_listing_s: float = 5.0
    duplicate_messages: int = 0
    late_messages: int = 0
    late_by_s: float = 180.0
    shortage_after: int | None = None

    def spend(self, countdown: Countdown) -> bool:
        """Whether the fault strikes this event; counts it off if so."""
        left: int = getattr(self, countdown)
        if left <= 0:
            return False
        setattr(self, countdown, left - 1)
        return True
