"""What limits a pool: limits used and left, budgets and freezes now, shortages, the way to its offers, who waits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.disruption.budgets import BUDGET_REASONS
from fleet.disruption.context import DisruptionContext
from fleet.offerings.conditions import condition_steps
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offering, Offerings
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.flavor_nodes import nodes_of_flavor
from fleet.placement.inventory import build_capacity
from fleet.quota.build_tree import quota_specs
from fleet.quota.queue_binding import binding_of
from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, ClaimState, Gang, GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.cron import Cron, window_active
from model.fleet import Fleet
from model.kinds import Budget, NodePool


@dataclass(frozen=True, slots=True)
class PoolLimit:
    """The use of one limit of a pool. Amounts of resources are canonical, money is USD an hour."""

    name: str
    """`nodes`, `usdPerHour` or a resource."""
    used: float
    most: float

    @property
    def left(self) -> float:
        """Returns what is left; it is negative where the limit was lowered."""
        return self.most - self.used


@dataclass(frozen=True, slots=True)
class ScheduleWindow:
    """A budget or freeze window, and whether its schedule has it open now."""

    name: str
    open: bool
    opens_s: float | None
    """The next opening (epoch seconds); None = it is always open, or never opens again."""


@dataclass(frozen=True, slots=True)
class FunnelStep:
    """The offers that are left once one more condition of the pool is applied."""

    condition: str
    """In the words of the declaration."""
    offers: int
    types: int
    zones: int
    ruled_out: int
    """Offers that met every condition before this one."""

    @property
    def empties(self) -> bool:
        """Returns whether this condition is the one that leaves nothing."""
        return not self.offers and bool(self.ruled_out)


@dataclass(frozen=True, slots=True)
class PoolView:
    """Everything that bounds what a pool buys and gives back at one instant."""

    pool: NodePool
    machines: Mapping[str, int]
    """State -> machines in it."""
    bounds: tuple[PoolLimit, ...]
    budgets: tuple[ScheduleWindow, ...]
    may_go: Mapping[str, int]
    """Reason of disruption -> how many machines more the budgets let go for it now."""
    freezes: tuple[ScheduleWindow, ...]
    shortages: Mapping[CapacityPool, float]
    """Capacity pool of one of its offers -> until when it counts as short."""
    steps: tuple[FunnelStep, ...]
    waiting: tuple[Gang, ...]
    """Gangs that lack machines and whose queue could have them from this pool, longest waiting first."""
    coming: tuple[Gang, ...]
    """Gangs for which machines of this pool are being bought."""


def pool_view(fleet: Fleet, snapshot: Snapshot, name: str) -> PoolView:
    """Returns the view of a declared pool; KeyError for another."""
    pool = fleet.node_pools[name]
    capacity = build_capacity(fleet, snapshot, may_buy=False)
    claims = claims_by_pool(snapshot).get(name, ())
    context = DisruptionContext.of(fleet, snapshot)
    return PoolView(
        pool,
        _states(claims),
        tuple(_bounds(pool, capacity.headroom[name])),
        tuple(_budget(budget, snapshot.now_s) for budget in pool.spec.disruption.budgets),
        {word: context.budget(name, reason) for reason, word in BUDGET_REASONS.items()},
        tuple(_freezes(fleet, snapshot.now_s)),
        _shortages(pool, capacity),
        funnel(pool, capacity),
        tuple(_waiting(fleet, snapshot, pool)),
        tuple(_coming(snapshot, {claim.name for claim in claims if claim.state is not ClaimState.READY})),
    )


def _states(claims: Sequence[Claim]) -> Mapping[str, int]:
    states = [claim.state for claim in claims]
    return {str(state): states.count(state) for state in ClaimState if state in states}


def _shortages(pool: NodePool, capacity: BuyableCapacity) -> Mapping[CapacityPool, float]:
    keys = {offering.offer.pool_key for offering in capacity.offerings.of(pool)}
    return {key: until_s for key, until_s in sorted(capacity.shortages.items()) if key in keys}


def _bounds(pool: NodePool, left: PoolHeadroom) -> Iterator[PoolLimit]:
    limits = pool.spec.limits
    if limits.nodes is not None and left.nodes is not None:
        yield PoolLimit("nodes", limits.nodes - left.nodes, limits.nodes)
    if limits.usd_per_hour is not None and left.usd_h is not None:
        yield PoolLimit("usdPerHour", limits.usd_per_hour - left.usd_h, limits.usd_per_hour)
    for resource, most in sorted(limits.resources.items()):
        yield PoolLimit(resource, most - left.resources[resource], most)


def _budget(budget: Budget, now_s: float) -> ScheduleWindow:
    reasons = ", ".join(budget.reasons) or "every reason"
    words = f"{budget.nodes} of its machines at once, for {reasons}"
    if not budget.schedule:
        return ScheduleWindow(words, open=True, opens_s=None)
    return _window(f"{words}, {budget.schedule!r}", Cron.parse(budget.schedule), budget.duration or 0.0, now_s)


def _freezes(fleet: Fleet, now_s: float) -> Iterator[ScheduleWindow]:
    for window in fleet.policy.spec.freeze_windows:
        if "Disruption" in window.blocks:
            yield _window(window.name, window.opening, window.duration, now_s)


def _window(name: str, cron: Cron, duration_s: float, now_s: float) -> ScheduleWindow:
    is_open = window_active(cron, duration_s, now_s)
    return ScheduleWindow(name, is_open, None if is_open else cron.next_after(now_s))


LACKING = frozenset({Reason.NO_OFFER, Reason.POOL_LIMIT, Reason.NO_CAPACITY, Reason.TOPOLOGY, Reason.BATCHING})
"""Reasons of gangs that have quota and no machines."""


def _waiting(fleet: Fleet, snapshot: Snapshot, pool: NodePool) -> Iterator[Gang]:
    pending = (gang for gang in snapshot.gangs.values() if gang.state is GangState.PENDING and gang.reason in LACKING)
    for gang in sorted(pending, key=lambda gang: (gang.created_at_s, gang.name, gang.uid)):
        if pool.name in _pools_of(fleet, gang):
            yield gang


def _pools_of(fleet: Fleet, gang: Gang) -> set[str]:
    """Returns the pools behind the flavors of a gang's queue."""
    binding = binding_of(fleet, gang.namespace, gang.queue)
    if binding is None or (queue := quota_specs(fleet).queues.get(binding.name)) is None:
        return set()
    behind = (nodes_of_flavor(fleet, name) for group in queue.groups for name in group.flavors)
    return {pool.name for nodes in behind if nodes is not None for pool in nodes.pools}


def _coming(snapshot: Snapshot, unready: set[str]) -> Iterator[Gang]:
    for _, gang in sorted(snapshot.gangs.items(), key=lambda entry: (entry[1].name, entry[0])):
        if gang.state is not GangState.PENDING and any(pin.claim in unready for pin in gang.pins):
            yield gang


# -- the way from everything on sale to what the pool could buy now ----------------------------------------------------


def funnel(pool: NodePool, capacity: BuyableCapacity) -> tuple[FunnelStep, ...]:
    """Goes from all offers to those the pool could buy one machine of now, and tells what each condition rules out.

    Conditions on types come first, then zones, capacity types, sharing; limits and shortages are the last two steps.
    Each step asks for the offerings of a pool that declares no more than the conditions so far: the same function that
    says what is bought, so that the way ends where the pool's own offerings are.
    """
    steps: list[FunnelStep] = []
    for condition, left in (*_declared(pool, capacity.offerings), *_present(pool, capacity)):
        offers = {offering.offer.pool_key: offering.offer for offering in left}
        before = steps[-1].offers if steps else len(offers)
        types, zones = {key.instance_type for key in offers}, {key.zone for key in offers}
        steps.append(FunnelStep(condition, len(offers), len(types), len(zones), before - len(offers)))
    return tuple(steps)


def _declared(pool: NodePool, offerings: Offerings) -> Iterator[tuple[str, Iterable[Offering]]]:
    for condition, left in condition_steps(pool, offerings):
        yield condition.words if condition else "on sale", left


def _present(pool: NodePool, capacity: BuyableCapacity) -> Iterator[tuple[str, Iterable[Offering]]]:
    """Yields what is left by that which stands against one machine more at present."""
    headroom = capacity.headroom[pool.name]
    affordable = [offering for offering in capacity.offerings.of(pool) if headroom.most(offering) > 0]
    yield "room within the limits", affordable
    yield "not short now", [offering for offering in affordable if offering.offer.pool_key not in capacity.shortages]
