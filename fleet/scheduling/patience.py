"""How long a gang has to put up with waiting and with being evicted, and what it says of its end."""

from math import inf

from fleet.quota.queue_binding import QueueBinding
from fleet.snapshot import Gang

TIRED_AFTER = 3
"""Evictions after which a gang's right to evict others rests for a while."""
TIRED_BASE_S, TIRED_MOST_S = 60.0, 3600.0


def tired(gang: Gang, now_s: float) -> bool:
    """Whether a gang that was evicted again and again may not evict others for now; the rest doubles each time.

    Three gangs can each have more right than the next (priority over entitlement over share) and would evict each other
    for ever; it is still admitted wherever there is room (docs/design/0002).
    """
    if gang.eviction is None or gang.evictions < TIRED_AFTER:
        return False
    rest_s = min(TIRED_MOST_S, TIRED_BASE_S * 2.0 ** min(gang.evictions - TIRED_AFTER, 10))
    return now_s < gang.eviction.at_s + rest_s


def overdue(gang: Gang, line: QueueBinding, now_s: float) -> bool:
    """Whether what becomes free is kept for a gang because it has waited too long (Volcano's `sla-waiting-time`).

    It waits from its creation, or from its last eviction. Where the queue says how long everybody waits, a gang may ask
    for later and not for sooner.
    """
    if line.reserve_after_s is None and gang.sla_waiting_s is None:
        return False
    queued_at_s = max(gang.created_at_s, gang.eviction.at_s if gang.eviction else 0.0)
    return now_s - queued_at_s >= max(line.reserve_after_s or 0.0, gang.sla_waiting_s or 0.0)


def runs_s(gang: Gang) -> float | None:
    """How long a run of the gang takes at most, as far as anybody says: its own estimate, or what it may still run."""
    left_s = gang.max_run_s - gang.ran_before_s if gang.max_run_s is not None else inf
    said_s = min(gang.expected_run_s or inf, max(0.0, left_s))
    return said_s if said_s < inf else None


def ends_at_s(gang: Gang, now_s: float) -> float:
    """When a gang that holds capacity will have ended (epoch seconds); inf = it does not say, or has been wrong."""
    run_s = runs_s(gang)
    if run_s is None:
        return inf
    end_s = (gang.admitted_at_s or now_s) + run_s
    return end_s if end_s > now_s else inf
