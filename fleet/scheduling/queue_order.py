"""Orders waiting gangs within a queue, and computes the times that bound their waiting and their runs.

Single pods wait for a moment before machines are bought for them, so that many small purchases become one (Karpenter's
batching window: `BATCH_IDLE_DURATION`, `BATCH_MAX_DURATION`; reference 2.1). Gangs do not wait for others, nor does a
pod that finds room on a machine that stands.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from fleet.placement.cluster_state import PODS, ClusterState, NodeSlot
from fleet.placement.inventory import MOVED, MOVES_WITHIN_S
from fleet.quota.admission_fair_sharing import local_queue_of, usage_order_values
from fleet.quota.build_tree import current_quota_specs
from fleet.quota.queue_binding import QueueBinding, binding_of, boosted_priority
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Gang, GangState, Pod, Snapshot
from model.fleet import Fleet
from model.index import followed_each
from model.quantity import Resources, plus


def queue_key(gang: Gang, usage: float = 0.0, priority: int | None = None) -> tuple[object, ...]:
    """Returns the sort key of a gang in its queue (Kueue 2.2).

    First a gang that had others evicted for it already, then less recent usage, higher priority, older, uid. Without
    `priority` (`boosted_priority`) the gang's own priority and boost count.
    """
    sticky = gang.reason == Reason.WAITING_FOR_PREEMPTED
    rank = gang.effective_priority if priority is None else priority
    return (not sticky, usage, -rank, gang.created_at_s, gang.uid)


def pending_in_order(fleet: Fleet, snapshot: Snapshot) -> list[Gang]:
    """Returns all pending gangs; those of one queue are in the order in which they are considered."""
    usage = usage_order_values(fleet, snapshot)

    def key(gang: Gang) -> tuple[object, ...]:
        return queue_key(gang, usage.get(local_queue_of(gang), 0.0), boosted_priority(fleet, gang))

    return sorted(pending(snapshot).values(), key=key)


def pending(snapshot: Snapshot) -> Mapping[str, Gang]:
    """Returns the pending gangs by uid."""
    return _pending(snapshot.index, snapshot.gangs)


@followed_each()
def _pending(gang: Gang) -> Gang | None:
    return gang if gang.state is GangState.PENDING else None


def pending_in_same_queue(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Sequence[Gang]:
    """Returns the pending gangs of the queue that a gang is in, by whatever local queue, in order."""
    own = binding_of(fleet, gang.namespace, gang.queue)
    if own is None:
        return [gang]
    bound = ((other, binding_of(fleet, other.namespace, other.queue)) for other in pending_in_order(fleet, snapshot))
    return [other for other, binding in bound if binding is not None and binding.name == own.name]


def places_in_queues(fleet: Fleet, snapshot: Snapshot) -> Mapping[str, int]:
    """Returns uid -> place among the pending gangs of its queue, from 1; those in no declared queue are missing."""
    taken: Counter[str] = Counter()
    found: dict[str, int] = {}
    for gang in pending_in_order(fleet, snapshot):
        if (binding := binding_of(fleet, gang.namespace, gang.queue)) is not None:
            taken[binding.name] += 1
            found[gang.uid] = taken[binding.name]
    return found


def usage_of_local_queues(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> list[tuple[str, float]]:
    """Returns (local queue, recent usage) of those with pending gangs in the gang's queue, the least used first.

    Usage decays and is weighted (Kueue's admission fair sharing). Empty where usage does not order the queue.
    """
    binding = binding_of(fleet, gang.namespace, gang.queue)
    if binding is None or not current_quota_specs(fleet, snapshot).queues[binding.name].usage_ordered:
        return []
    usage = usage_order_values(fleet, snapshot)
    names = {local_queue_of(other) for other in pending_in_same_queue(fleet, snapshot, gang)}
    return sorted(((name, usage.get(name, 0.0)) for name in names), key=lambda entry: (entry[1], entry[0]))


PREEMPTION_BACKOFF_AFTER: Final = 3
"""Evictions after which a gang may not evict others for a while."""
PREEMPTION_BACKOFF_BASE_S: Final = 60.0
PREEMPTION_BACKOFF_MAX_S: Final = 3600.0
"""The first pause lasts `PREEMPTION_BACKOFF_BASE_S` seconds, each further one twice as long up to this."""


def preemption_backs_off(gang: Gang, now_s: float) -> bool:
    """Returns whether a gang that was evicted again and again may not evict others for now.

    Three gangs can each have more right than the next (priority over entitlement over share) and would evict each other
    for ever; it is still admitted wherever there is room (docs/design/0002). The pause doubles each time.
    """
    return now_s < backs_off_until_s(gang)


def backs_off_until_s(gang: Gang) -> float:
    """Returns until when a gang may not evict others (epoch seconds); 0 = it was not evicted that often."""
    if gang.eviction is None or gang.evictions < PREEMPTION_BACKOFF_AFTER:
        return 0.0
    pause_s = min(
        PREEMPTION_BACKOFF_MAX_S, PREEMPTION_BACKOFF_BASE_S * 2.0 ** min(gang.evictions - PREEMPTION_BACKOFF_AFTER, 10)
    )
    return gang.eviction.at_s + pause_s


def is_moved(gang: Gang, now_s: float) -> bool:
    """Returns whether a gang was stopped only to be moved, and is on its way: for as long as machines wait for it.

    It goes before all others, who would take the quota that it comes from, and does not count as leaving.
    """
    if gang.eviction is None or gang.eviction.reason not in MOVED:
        return False
    return gang.state is GangState.EVICTING or now_s < gang.since_s + MOVES_WITHIN_S


def made_room_for(snapshot: Snapshot) -> frozenset[str]:
    """Returns the uids of gangs that others have left their places to, while these are not back yet."""
    there = _those_who_make_room(snapshot.index, snapshot.gangs).values()
    found = (gang for gang in there if is_moved(gang, snapshot.now_s))
    return frozenset(gang.eviction.room_for for gang in found if gang.eviction is not None)


def making_room(snapshot: Snapshot) -> tuple[Gang, ...]:
    """Returns the gangs that leave their places to others and have not left yet."""
    there = _those_who_make_room(snapshot.index, snapshot.gangs).values()
    return tuple(gang for gang in there if gang.state is GangState.EVICTING)


@followed_each()
def _those_who_make_room(gang: Gang) -> Gang | None:
    return gang if makes_room(gang) else None


def makes_room(gang: Gang) -> bool:
    """Returns whether a gang was told to leave its place to another one, and is to come back elsewhere."""
    return gang.eviction is not None and bool(gang.eviction.room_for)


def overdue(gang: Gang, binding: QueueBinding, now_s: float) -> bool:
    """Returns whether freed capacity is kept for a gang because it waits too long (Volcano's `sla-waiting-time`)."""
    return now_s >= overdue_at_s(gang, binding)


def overdue_at_s(gang: Gang, binding: QueueBinding) -> float:
    """Returns from when on freed capacity is kept for a gang that waits (epoch seconds); inf = never.

    It waits from its creation, or from its last eviction. Where the queue says how long everybody waits, a gang may ask
    for later and not for sooner.
    """
    if binding.reserve_after_s is None and gang.sla_waiting_s is None:
        return inf
    queued_at_s = max(gang.created_at_s, gang.eviction.at_s if gang.eviction else 0.0)
    return queued_at_s + max(binding.reserve_after_s or 0.0, gang.sla_waiting_s or 0.0)


def runs_s(gang: Gang) -> float | None:
    """Returns the longest time in seconds that a run of the gang takes: its own estimate, or what it may still run.

    None where nothing bounds it.
    """
    left_s = gang.max_run_s - gang.ran_before_s if gang.max_run_s is not None else inf
    said_s = min(gang.expected_run_s or inf, max(0.0, left_s))
    return said_s if said_s < inf else None


def ends_at_s(gang: Gang, now_s: float) -> float:
    """Returns when a gang that holds capacity will have ended (epoch seconds).

    inf where it does not say, or has outrun what it said.
    """
    run_s = runs_s(gang)
    if run_s is None:
        return inf
    end_s = (gang.admitted_at_s or now_s) + run_s
    return end_s if end_s > now_s else inf


BATCH_IDLE_S: Final = 1.0
"""A batch of single pods closes when no other has come for this long (Karpenter's `BATCH_IDLE_DURATION`)."""


BATCH_MAX_S: Final = 10.0
"""A batch closes at the latest this long after its first pod came (Karpenter's `BATCH_MAX_DURATION`)."""


def open_batch(waiting: Iterable[Gang], now_s: float) -> frozenset[str]:
    """Returns the uids of the single pods that wait for others before machines are bought; empty once it is closed."""
    due = [gang for gang in waiting if gang.created_at_s <= now_s]
    single = [gang for gang in due if sum([pods.count for pods in gang.pod_sets]) == 1]
    ages_s = {gang.uid: now_s - gang.created_at_s for gang in single}
    full = any(gang.reason == Reason.BATCHING and ages_s[gang.uid] >= BATCH_MAX_S for gang in single)
    if full or not any(age_s < BATCH_IDLE_S for age_s in ages_s.values()):
        return frozenset()
    return frozenset(uid for uid, age_s in ages_s.items() if age_s < BATCH_MAX_S)


SOON_S: Final = 60.0
"""Pods that will have ended by then leave room that need not be bought."""


def soon_free(snapshot: Snapshot, state: ClusterState, buying: Iterable[Gang]) -> Mapping[str, Refusal]:
    """Returns by uid the gangs for which pods of no gang leave room on ready machines, as they end within a minute.

    So it is after a job was created running: its own pods stand on the idle machines until it is suspended. Nobody
    waits for such room for longer than two minutes.
    """
    fresh = [gang for gang in buying if snapshot.now_s < gang.created_at_s + 2 * SOON_S]
    if not fresh:
        return {}
    leaving = {node: left for node, pods in snapshot.node_pods.items() if (left := _left_by(pods, snapshot.now_s))}
    if not leaving:
        return {}
    slots = [slot for slot in state.slots.values() if slot.node and not slot.only_for]
    later = [replace(slot, free=plus(slot.free, leaving.get(slot.node, {}))) for slot in slots]
    words = f"pods that end within {SOON_S:.0f} s leave room for it on machines that stand"
    return {gang.uid: Refusal(Reason.BATCHING, words) for gang in fresh if _fits(gang, later)}


def _left_by(pods: Iterable[Pod], now_s: float) -> Resources:
    """Returns what pods of no gang on one node give back soon."""
    ending = [pod for pod in pods if pod.deleting and not pod.workload and pod.deletion_at_s <= now_s + SOON_S]
    left: Resources = {PODS: len(ending)} if ending else {}
    for pod in ending:
        left = plus(left, pod.requests)
    return left


def _fits(gang: Gang, slots: Iterable[NodeSlot]) -> bool:
    return all(
        sum(slot.room_for(pod_set.requests) for slot in slots) >= pod_set.count
        for pod_set in gang.pod_sets
        if pod_set.count
    )


def keeps_turn(gang: Gang, refusal: Refusal) -> bool:
    """Returns whether a gang that others were evicted for only waits for a batch, and is not told so.

    It would no longer be known that it goes first, another be tried before it and evicted for it, and so on in turns.
    """
    return refusal.reason is Reason.BATCHING and gang.reason == Reason.WAITING_FOR_PREEMPTED


def batching_refusal() -> Refusal:
    """Returns the refusal of a single pod that waits for others, so that machines are bought for all together."""
    return Refusal(
        Reason.BATCHING,
        f"single pods buy machines together: waits until no further one has come for {BATCH_IDLE_S:.0f} s, "
        f"and {BATCH_MAX_S:.0f} s at most",
    )
