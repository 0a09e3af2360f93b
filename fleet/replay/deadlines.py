"""When something falls due that the deciders read off the clock, in a world in which nothing else happens."""

from collections.abc import Iterator
from contextlib import suppress
from math import inf

from fleet.disruption.expiry import expires_at_s
from fleet.disruption.pending import due_s
from fleet.disruption.rollout import REPUBLISHED_AFTER_S
from fleet.gangs.lost_machines import NODE_FAILURE_AFTER_S
from fleet.gangs.pods_ready import pods_ready_of
from fleet.nodeclaims.lifecycle import LAUNCH_TIMEOUT_S
from fleet.nodeclaims.registration import INITIALIZATION_TIMEOUT_S, REGISTRATION_TIMEOUT_S
from fleet.nodeclaims.repair import conditions_of, look_again_s, repair_policies
from fleet.placement.inventory import MOVES_WITHIN_S
from fleet.reasons import Reason
from fleet.scheduling.queue_order import BATCH_IDLE_S
from fleet.snapshot import Claim, Gang, GangState, Snapshot
from model.cron import Cron, InvalidCron, window_active
from model.fleet import Fleet
from model.upstream.do_not_disrupt import lasts_s


def next_deadline_s(fleet: Fleet, snapshot: Snapshot) -> float:
    """Returns when something falls due next that the deciders read off the clock (epoch seconds); inf = nothing.

    Machines expire, fall idle for long enough, or may return to what their pool prefers; gangs have waited long enough
    after an eviction, or are protected no longer; windows open.
    """
    machines = (at_s for claim in snapshot.claims.values() for at_s in of_machine(fleet, snapshot, claim))
    due = (*machines, *(at_s for gang in snapshot.gangs.values() for at_s in of_gang(gang)))
    passed = [at_s for at_s in due if at_s > snapshot.now_s]
    return min([*passed, *window_openings(fleet, snapshot.now_s)], default=inf)


def of_machine(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[float]:
    """Yields when a machine expires, has been idle for long enough, or may return to what its pool prefers."""
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None or not claim.launched_at_s or claim.disruption is not None:
        return
    yield expires_at_s(snapshot, pool, claim)
    yield claim.emptied_at_s + pool.spec.disruption.consolidate_after
    if (back := pool.spec.disruption.return_to_preferred) is not None:
        yield claim.launched_at_s + back.after


def of_gang(gang: Gang) -> Iterator[float]:
    """Yields when a gang has waited long enough after an eviction, and until when it is protected."""
    yield gang.requeue_at_s
    if gang.do_not_disrupt:
        yield gang.admitted_at_s + lasts_s(gang.do_not_disrupt)


def next_turn_s(fleet: Fleet, snapshot: Snapshot) -> float:
    """Returns when deciders may have something to do next if nothing happens till then (epoch seconds); inf = never.

    What `next_deadline_s` tells, and besides it time-outs of machines and pods, the end of a batch and the next look
    at proposals. A plan passes over these: its machines come and its pods start when they should.
    """
    claims = (at_s for claim in snapshot.claims.values() for at_s in _time_outs(fleet, snapshot, claim))
    gangs = (at_s for gang in snapshot.gangs.values() for at_s in _waits(fleet, snapshot, gang))
    due = (*claims, *gangs, *_looks(snapshot), *snapshot.shortages.values())
    turn_s = min((at_s for at_s in due if at_s > snapshot.now_s), default=inf)
    return min(turn_s, next_deadline_s(fleet, snapshot))


def _time_outs(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[float]:
    """Yields when a machine is late with its next step, unwell for too long, or has to go though it is not drained."""
    if claim.disruption is not None:
        yield claim.disruption.deadline_s
    elif claim.recut_at_s > claim.ready_at_s:
        yield claim.recut_at_s + INITIALIZATION_TIMEOUT_S
    elif claim.ready_at_s:
        yield claim.ready_at_s + MOVES_WITHIN_S
    elif claim.registered_at_s:
        yield claim.registered_at_s + INITIALIZATION_TIMEOUT_S
    elif claim.launched_at_s:
        yield claim.launched_at_s + REGISTRATION_TIMEOUT_S
    else:
        yield claim.created_at_s + LAUNCH_TIMEOUT_S
    if (node := snapshot.nodes.get(claim.node)) is not None and not node.ready:
        yield node.ready_changed_at_s + NODE_FAILURE_AFTER_S
        policies = repair_policies(fleet, claim.node_pool)
        yield snapshot.now_s + look_again_s(policies, conditions_of(node), snapshot.now_s)


def _waits(fleet: Fleet, snapshot: Snapshot, gang: Gang) -> Iterator[float]:
    """Yields when a gang's pods are late, its time to run is over, its batch closes, or it goes on as if unmoved."""
    if gang.state is GangState.ADMITTED:
        terms = pods_ready_of(fleet, gang)
        if gang.not_ready_since_s:
            yield gang.not_ready_since_s + terms.recovery_timeout
        elif not gang.pods_ready:
            yield gang.admitted_at_s + terms.start_timeout
        if gang.max_run_s is not None:
            yield snapshot.now_s + gang.max_run_s - gang.ran_s(snapshot.now_s)
    elif gang.state is GangState.PENDING and gang.reason == Reason.BATCHING:
        yield snapshot.now_s + BATCH_IDLE_S
    elif gang.eviction is not None:
        yield gang.since_s + MOVES_WITHIN_S


def _looks(snapshot: Snapshot) -> Iterator[float]:
    """Yields when what is proposed, or has been published, is looked at again."""
    yield from (due_s(proposal) for proposal in snapshot.outlook.proposals)
    if snapshot.layouts is not None and snapshot.layouts.at_s:
        yield snapshot.layouts.at_s + REPUBLISHED_AFTER_S


def window_openings(fleet: Fleet, now_s: float) -> Iterator[float]:
    """Yields when windows open; a window that ends is noticed as soon as steps are long enough."""
    budgets = (it for pool in fleet.node_pools.values() for it in pool.spec.disruption.budgets)
    windows = {(it.schedule, "", it.duration or 0.0) for it in budgets if it.schedule}
    own = (*fleet.policy.spec.freeze_windows, *fleet.policy.spec.allow_windows)
    windows |= {(it.schedule, it.time_zone, it.duration) for it in own}
    for schedule, zone, duration_s in sorted(windows):
        with suppress(InvalidCron):  # which the loader refuses
            cron = Cron.parse(schedule, zone)
            opens_s = cron.next_after(now_s)
            if opens_s is not None and not window_active(cron, duration_s, opens_s - 1.0):
                yield opens_s
