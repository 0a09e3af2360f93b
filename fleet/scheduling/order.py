"""The order of waiting gangs within a queue, for people and for what has to be decided before the sweep."""

from collections.abc import Sequence

from fleet.quota.admission_fair_sharing import local_queue_of, usage_order_values
from fleet.quota.build_tree import current_quota_specs
from fleet.quota.queue_binding import binding_of, boosted_priority
from fleet.reasons import Reason
from fleet.snapshot import Gang, GangState, Snapshot
from model.fleet import Fleet


def queue_key(gang: Gang, usage: float = 0.0, priority: int | None = None) -> tuple[object, ...]:
    """Who already had others evicted for it, less used lately, higher priority, older, uid (Kueue 2.2).

    Without `priority` (`boosted_priority`) what the gang's own priority and boost come to.
    """
    sticky = gang.reason == Reason.WAITING_FOR_PREEMPTED
    rank = gang.effective_priority if priority is None else priority
    return (not sticky, usage, -rank, gang.created_at_s, gang.uid)


def in_line(fleet: Fleet, snapshot: Snapshot) -> list[Gang]:
    """All that are pending; those of one queue in the order in which they are looked at."""
    usage = usage_order_values(fleet, snapshot)
    waiting = (gang for gang in snapshot.gangs.values() if gang.state is GangState.PENDING)

    def key(gang: Gang) -> tuple[object, ...]:
        return queue_key(gang, usage.get(local_queue_of(gang), 0.0), boosted_priority(fleet, gang))

    return sorted(waiting, key=key)


def line_with(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Sequence[Gang]:
    """Everybody who waits in the same queue as a gang, whatever local queue leads there, in order."""
    own = binding_of(fleet, gang.namespace, gang.queue)
    if own is None:
        return [gang]
    lines = ((other, binding_of(fleet, other.namespace, other.queue)) for other in in_line(fleet, snapshot))
    return [other for other, line in lines if line is not None and line.name == own.name]


def by_use(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> list[tuple[str, float]]:
    """What the local queues that wait where the gang does used lately, decayed and weighted, the least first.

    Nothing where use does not order the queue.
    """
    line = binding_of(fleet, gang.namespace, gang.queue)
    if line is None or not current_quota_specs(fleet, snapshot).queues[line.name].usage_ordered:
        return []
    usage = usage_order_values(fleet, snapshot)
    names = {local_queue_of(other) for other in line_with(fleet, snapshot, gang)}
    return sorted(((name, usage.get(name, 0.0)) for name in names), key=lambda entry: (entry[1], entry[0]))
