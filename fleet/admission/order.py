"""The order of waiting gangs within a queue, for people and for what has to be decided before the sweep."""

from fleet.reasons import Reason
from fleet.snapshot import Gang


def queue_key(gang: Gang) -> tuple[object, ...]:
    """Who already had others evicted for it, higher priority, older, uid (Kueue 2.2)."""
    sticky = gang.reason == Reason.WAITING_FOR_PREEMPTED
    return (not sticky, -gang.effective_priority, gang.created_at_s, gang.uid)
