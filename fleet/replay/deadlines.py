"""When something falls due that the deciders read off the clock, in a world in which nothing else happens."""

from collections.abc import Iterator
from contextlib import suppress
from math import inf

from fleet.disruption.expiry import expires_at_s
from fleet.disruption.layout_rollout import next_checkpoint_s
from fleet.nodeclaims.cutting import LOOK_S
from fleet.snapshot import Claim, Gang, Snapshot
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
    if any(pool.spec.sharing.mig and pool.spec.sharing.mig.rollout for pool in fleet.node_pools.values()):
        due = (*due, *(next_checkpoint_s(gang, snapshot.now_s) for gang in snapshot.gangs.values()))
    passed = [at_s for at_s in due if at_s > snapshot.now_s]
    return min([*passed, *window_openings(fleet, snapshot.now_s)], default=inf)


def of_machine(fleet: Fleet, snapshot: Snapshot, claim: Claim) -> Iterator[float]:
    """Yields when a machine expires, has been idle for long enough, or may return to what its pool prefers."""
    pool = fleet.node_pools.get(claim.node_pool)
    if pool is None or not claim.launched_at_s or claim.disruption is not None:
        return
    yield expires_at_s(snapshot, pool, claim)
    if claim.cut is not None or claim.recut_at_s > claim.ready_at_s:
        yield snapshot.now_s + LOOK_S
    yield claim.emptied_at_s + pool.spec.disruption.consolidate_after
    if (back := pool.spec.disruption.return_to_preferred) is not None:
        yield claim.launched_at_s + back.after


def of_gang(gang: Gang) -> Iterator[float]:
    """Yields when a gang has waited long enough after an eviction, and until when it is protected."""
    yield gang.requeue_at_s
    if gang.do_not_disrupt:
        yield gang.admitted_at_s + lasts_s(gang.do_not_disrupt)


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
