"""The order of waiting gangs within a queue, and the times that bound their waiting and their runs.

The order is for people and for what has to be decided before the sweep.

Single pods gather for a moment before machines are bought for them: many little purchases become a good one
(Karpenter's batching window: `BATCH_IDLE_DURATION`, `BATCH_MAX_DURATION`; reference 2.1). Gangs do not wait: what they
buy is theirs. Nor does who finds room on machines that are there.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from fleet.quota.admission_fair_sharing import local_queue_of, usage_order_values
from fleet.quota.build_tree import current_quota_specs
from fleet.quota.queue_binding import QueueBinding, binding_of, boosted_priority
from fleet.reasons import Reason, Refusal
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


TIRED_AFTER: Final = 3
"""Evictions after which a gang's right to evict others rests for a while."""
TIRED_BASE_S: Final = 60.0
TIRED_MOST_S: Final = 3600.0
"""How long it rests, the first time and at most."""


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


IDLE_S: Final = 1.0
"""They are bought for when no other has come for this long,"""


MOST_S: Final = 10.0
"""and no later than this after the first of them came."""


def gathering(waiting: Iterable[Gang], now_s: float) -> frozenset[str]:
    """Uids of the single pods for which nothing is bought yet."""
    young = [gang for gang in waiting if sum(pods.count for pods in gang.pod_sets) == 1 and gang.created_at_s <= now_s]
    ages_s = {gang.uid: now_s - gang.created_at_s for gang in young}
    full = any(gang.reason == Reason.BATCHING and ages_s[gang.uid] >= MOST_S for gang in young)
    if full or not any(age_s < IDLE_S for age_s in ages_s.values()):
        return frozenset()
    return frozenset(uid for uid, age_s in ages_s.items() if age_s < MOST_S)


def put_off() -> Refusal:
    """What such a pod waits for."""
    return Refusal(
        Reason.BATCHING,
        f"single pods buy machines together: waits until no further one has come for {IDLE_S:.0f} s, "
        f"and {MOST_S:.0f} s at most",
    )
