"""Exposure is the most that the pools of a fleet may cost an hour: what their limits let the agent spend.

The bill of a plan is what the gangs that wait now would cost. A limit with three zeros too many changes no bill until
somebody submits a job; the exposure shows it at once, without a cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf

from fleet.offerings.offerings import Offering, offerings_now
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.kinds import NodePool


@dataclass(frozen=True, slots=True)
class Exposure:
    """What each pool may cost at most."""

    by_pool: Mapping[str, float]
    """Pool -> USD an hour, in order of name; inf where neither limits nor replicas bound it."""

    @property
    def usd_h(self) -> float:
        """Returns the sum over the pools that have a bound."""
        return sum(usd_h for usd_h in self.by_pool.values() if not isinf(usd_h))

    @property
    def unbounded(self) -> tuple[str, ...]:
        """Returns the pools that nothing bounds but what queues ask for."""
        return tuple(name for name, usd_h in self.by_pool.items() if isinf(usd_h))


def exposure_of(fleet: Fleet, snapshot: Snapshot) -> Exposure:
    """Returns what a fleet may cost at the prices of the snapshot's catalogue, also for what is short just now."""
    offerings = offerings_now(fleet, snapshot)
    return Exposure({name: ceiling_usd_h(pool, offerings.of(pool)) for name, pool in sorted(fleet.node_pools.items())})


def ceiling_usd_h(pool: NodePool, offerings: Sequence[Offering]) -> float:
    """Returns the most that a pool may cost (USD an hour); inf without limits, 0 for one that can buy nothing.

    Each limit alone bounds it: so many machines of the dearest offering, so much money, or so much of a resource in
    the machines that cost most for what they have of it. The least of these holds. A machine out of a reservation adds
    next to nothing.
    """
    priced = [it for it in offerings if it.offer.price_usd_h > 0]
    if not priced:
        return 0.0
    limits, dearest = pool.spec.limits, max(it.offer.price_usd_h for it in priced)
    bounds = [count * dearest for count in (limits.nodes, pool.spec.replicas) if count is not None]
    if limits.usd_per_hour is not None:
        bounds.append(limits.usd_per_hour)
    for resource, most in limits.resources.items():
        bounds.append(most * max(_usd_h_each(it, resource) for it in priced))
    return min(bounds, default=inf)


def _usd_h_each(offering: Offering, resource: str) -> float:
    """Returns what a machine costs for each unit of a resource; inf where it has none, so that no limit on it holds."""
    amount = offering.offer.instance_type.capacity.get(resource, 0)
    return offering.offer.price_usd_h / amount if amount else inf
