"""What limits a pool: limits used and left, budgets and freezes now, shortages, the way to its offers, who waits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fleet.disruption.budgets import BUDGET_REASONS
from fleet.disruption.context import DisruptionContext
from fleet.explain.funnel import Step, funnel
from fleet.offerings.limits import PoolHeadroom
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.placement.inventory import build_capacity
from fleet.quota.compile import quota_specs
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, ClaimState, Gang, GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.cron import Cron, window_active
from model.fleet import Fleet
from model.kinds import Budget, NodePool


@dataclass(frozen=True, slots=True)
class Bound:
    """One limit of a pool. Amounts of resources are canonical, money is USD an hour, nodes are counted."""

    name: str
    """`nodes`, `usdPerHour` or a resource."""
    used: float
    most: float

    @property
    def left(self) -> float:
        """May be negative where the limit was lowered."""
        return self.most - self.used


@dataclass(frozen=True, slots=True)
class Window:
    """A budget or freeze window that a schedule opens."""

    name: str
    open: bool
    opens_s: float | None
    """The next opening (epoch seconds); None = it is always open, or never opens again."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """Everything that bounds what a pool buys and gives back, at one instant."""

    pool: NodePool
    machines: Mapping[str, int]
    """State -> machines in it."""
    bounds: tuple[Bound, ...]
    budgets: tuple[Window, ...]
    may_go: Mapping[str, int]
    """Reason of disruption -> how many machines more the budgets let go for it now."""
    freezes: tuple[Window, ...]
    shortages: Mapping[CapacityPool, float]
    """Capacity pool of one of its offers -> until when it counts as short."""
    steps: tuple[Step, ...]
    waiting: tuple[Gang, ...]
    """Gangs that lack machines and whose queue could have them from this pool, longest waiting first."""
    coming: tuple[Gang, ...]
    """Gangs for which machines of this pool are being bought."""


def pool_view(fleet: Fleet, snapshot: Snapshot, name: str) -> PoolView:
    """The view of a declared pool; KeyError for another."""
    pool = fleet.node_pools[name]
    supply = build_capacity(fleet, snapshot, may_buy=False)
    claims = claims_by_pool(snapshot).get(name, ())
    keys = {offering.offer.pool_key for offering in supply.offerings.of(pool)}
    states = [claim.state for claim in claims]
    context = DisruptionContext.of(fleet, snapshot)
    return PoolView(
        pool,
        {str(state): states.count(state) for state in ClaimState if state in states},
        tuple(_bounds(pool, supply.headroom[name])),
        tuple(_budget(budget, snapshot.now_s) for budget in pool.spec.disruption.budgets),
        {word: context.budget(name, reason) for reason, word in BUDGET_REASONS.items()},
        tuple(_freezes(fleet, snapshot.now_s)),
        {pool: until for pool, until in sorted(supply.shortages.items()) if pool in keys},
        funnel(pool, supply),
        tuple(_waiting(fleet, snapshot, pool)),
        tuple(_coming(snapshot, {claim.name for claim in claims if claim.state is not ClaimState.READY})),
    )


def _bounds(pool: NodePool, left: PoolHeadroom) -> Iterator[Bound]:
    limits = pool.spec.limits
    if limits.nodes is not None and left.nodes is not None:
        yield Bound("nodes", limits.nodes - left.nodes, limits.nodes)
    if limits.usd_per_hour is not None and left.usd_h is not None:
        yield Bound("usdPerHour", limits.usd_per_hour - left.usd_h, limits.usd_per_hour)
    for resource, most in sorted(limits.resources.items()):
        yield Bound(resource, most - left.resources[resource], most)


def _budget(budget: Budget, now_s: float) -> Window:
    reasons = ", ".join(budget.reasons) or "every reason"
    words = f"{budget.nodes} of its machines at once, for {reasons}"
    if not budget.schedule:
        return Window(words, open=True, opens_s=None)
    return _window(f"{words}, {budget.schedule!r}", budget.schedule, budget.duration or 0.0, now_s)


def _freezes(fleet: Fleet, now_s: float) -> Iterator[Window]:
    for window in fleet.policy.spec.freeze_windows:
        if "Disruption" in window.blocks:
            yield _window(window.name, window.schedule, window.duration, now_s)


def _window(name: str, schedule: str, duration_s: float, now_s: float) -> Window:
    cron = Cron.parse(schedule)
    is_open = window_active(cron, duration_s, now_s)
    return Window(name, is_open, None if is_open else cron.next_after(now_s))


LACKING = frozenset({Reason.NO_OFFER, Reason.POOL_LIMIT, Reason.NO_CAPACITY, Reason.TOPOLOGY, Reason.BATCHING})
"""Reasons of gangs that have quota and no machines."""


def _waiting(fleet: Fleet, snapshot: Snapshot, pool: NodePool) -> Iterator[Gang]:
    pending = (gang for gang in snapshot.gangs.values() if gang.state is GangState.PENDING and gang.reason in LACKING)
    for gang in sorted(pending, key=lambda gang: (gang.created_at_s, gang.name, gang.uid)):
        if pool.name in _pools_of(fleet, gang):
            yield gang


def _pools_of(fleet: Fleet, gang: Gang) -> set[str]:
    """Pools behind the flavors of a gang's queue."""
    line = binding_of(fleet, gang.namespace, gang.queue)
    queue = quota_specs(fleet).queues.get(line.name) if line is not None else None
    names = (name for group in queue.groups for name in group.flavors) if queue is not None else ()
    grounds = (nodes_of_flavor(fleet, name) for name in names)
    return {pool.name for ground in grounds if ground is not None for pool in ground.pools}


def _coming(snapshot: Snapshot, unready: set[str]) -> Iterator[Gang]:
    for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: (entry[1].name, entry[0])):
        if gang.state is not GangState.PENDING and any(pin.claim in unready for pin in gang.pins):
            yield gang
