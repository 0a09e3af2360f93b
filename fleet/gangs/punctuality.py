"""How long a gang may be without all of its pods, and what becomes of one that takes longer.

Source: Kueue `waitForPodsReady`.
"""

from typing import Final

from fleet.reasons import Reason
from fleet.snapshot import Gang
from model.fleet import Fleet
from model.kinds import PodsReady

MOST_DOUBLINGS: Final = 30
"""More could only be of use to pauses that never end."""


def pods_ready_of(fleet: Fleet, gang: Gang) -> PodsReady:
    """What the gang's queue says; the defaults when it is not declared any more."""
    queue = fleet.queues.get(gang.queue)
    return queue.spec.pods_ready if queue else PodsReady()


def late(terms: PodsReady, gang: Gang, message: str) -> tuple[Reason, str]:
    """Why a gang leaves that has not come together in time: to try again, or for good."""
    if terms.backoff_limit is None or gang.timeouts < terms.backoff_limit:
        return Reason.PODS_READY_TIMEOUT, message
    return Reason.REQUEUING_LIMIT, f"{message}, for the {gang.timeouts + 1}. time"


def requeue_pause_s(terms: PodsReady, timeouts: int) -> float:
    """How long a gang pauses after its n-th time-out: `base * 2^(n-1)`, and no longer than is declared."""
    return min(terms.backoff_max, terms.backoff_base * 2.0 ** min(max(timeouts, 1) - 1, MOST_DOUBLINGS))
