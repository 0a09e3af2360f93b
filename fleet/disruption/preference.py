"""The way back: machines of a later capacity type give way to an earlier one of their pool's order.

Where spot is short, a pool of spot and on-demand machines buys on demand in the same pass. Here those are replaced once
spot can be had again: after a minimum stay, replacement first, gangs whole, and only where what it saves pays for the
work that is lost, as in consolidation. Whether the earlier type can be had is found out by buying it: what is short is
remembered for a while, and then tried again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.cost.lost import PAYBACK_S
from fleet.disruption.command import Command
from fleet.disruption.consolidation import turn_of
from fleet.disruption.replace import Unit, claims_of, coming, complete, move, units
from fleet.disruption.stay import preferred_to, stays_until_s
from fleet.disruption.weigh import lost_usd
from fleet.disruption.yard import Yard
from fleet.placement.inventory import BuyableCapacity, build_capacity
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim, ClaimState
from model.kinds import CapacityType, NodePool

_WHY = "its pool prefers a capacity type that can be had again"


def prefer(yard: Yard) -> list[Command]:
    """Units whose replacements are ready go; else at most one is replaced: then the world is looked at anew."""
    if all(pool.spec.disruption.return_to_preferred is None for pool in yard.fleet.node_pools.values()):
        return []
    stayed = [(pool, claim) for pool, claim in yard.volunteers() if pool is not None and _stayed(yard, pool, claim)]
    if not stayed:
        return []
    market = Market(yard, build_capacity(yard.fleet, yard.snapshot))
    fates = {
        claim.name: (Reason.PREFERRED, _WHY)
        for pool, claim in stayed
        if claim.name in yard.successors or market.sells(pool, preferred_to(pool, claim))
    }
    done, waiting = [], []
    for unit in units(yard, fates):
        pending = coming(yard, unit.names)
        if any(claim.state is not ClaimState.READY for claim in pending):
            continue
        if yard.pod_budget(unit.claims, Reason.PREFERRED) is not None:
            continue
        if complete(pending):
            yard.gone.update(unit.names)
            done.append(Command(unit.claims, Reason.PREFERRED, _WHY))
        elif market.affordable_usd_h(unit) > 0:
            waiting.append(unit)
    return done or _first(yard, market, waiting)


def _stayed(yard: Yard, pool: NodePool, claim: Claim) -> bool:
    """Whether a machine has stayed for the minimum, and its pool would rather have another."""
    if pool.spec.disruption.return_to_preferred is None or not preferred_to(pool, claim):
        return False
    return yard.snapshot.now_s >= stays_until_s(pool, claim)


def _first(yard: Yard, market: "Market", waiting: Sequence[Unit]) -> list[Command]:
    for unit in turn_of(waiting, yard.snapshot.now_s):
        plans = move(yard, unit)
        if isinstance(plans, Refusal) or not market.worth(unit, plans):
            continue
        begun = bool(coming(yard, unit.names))  # one of them was lost: the budgets count the unit already
        if begun or yard.may_take(unit.claims, Reason.PREFERRED):
            yard.gone.update(unit.names)
            yard.promise(unit.gangs, plans)
            buys = any(plan.purchases for plan in plans.values())
            bought = claims_of(plans, unit, yard.snapshot.now_s) if buys else ()
            return [Command(unit.claims, Reason.PREFERRED, _WHY, bought)]
    return []


@dataclass(frozen=True, slots=True)
class Market:
    """What can be had, and what it is expected to cost."""

    yard: Yard
    supply: BuyableCapacity
    _sold: dict[tuple[str, Sequence[CapacityType]], bool] = field(default_factory=dict)

    def sells(self, pool: NodePool, capacity_types: Sequence[CapacityType]) -> bool:
        """Whether the pool may buy one of these that is not known to be short."""
        if (pool.name, capacity_types) not in self._sold:
            self._sold[pool.name, capacity_types] = any(
                offering.offer.capacity_type in capacity_types and offering.offer.pool_key not in self.supply.shortages
                for offering in self.supply.offerings.of(pool)
            )
        return self._sold[pool.name, capacity_types]

    def affordable_usd_h(self, unit: Unit) -> float:
        """What the replacement may cost: the price of the machines, less what pays for the work lost."""
        lost_usd_h = lost_usd(unit.gangs, self.yard.snapshot) * 3600 / PAYBACK_S
        return sum(claim.price_usd_h for claim in unit.claims) - lost_usd_h

    def worth(self, unit: Unit, plans: Mapping[str, PlacementPlan]) -> bool:
        """Whether the gangs come to machines that are preferred, or theirs already, for less than is affordable."""
        lots = [lot for plan in plans.values() for lot in plan.purchases]
        expected_usd_h = sum(self.supply.expected_usd_h(lot.offering.offer) * lot.count for lot in lots)
        wanted = frozenset[CapacityType].intersection(*(self._wanted(claim) for claim in unit.claims))
        return (
            expected_usd_h < self.affordable_usd_h(unit)
            and all(lot.offering.offer.capacity_type in wanted for lot in lots)
            and all(self._welcome(unit, plan, wanted) for plan in plans.values())
        )

    def _wanted(self, claim: Claim) -> frozenset[CapacityType]:
        return frozenset(preferred_to(self.yard.fleet.node_pools[claim.node_pool], claim))

    def _welcome(self, unit: Unit, plan: PlacementPlan, wanted: frozenset[CapacityType]) -> bool:
        theirs = {pin.claim for gang in unit.gangs for pin in gang.pins}
        claims = self.yard.snapshot.claims
        stands = (claims[seat.slot.claim] for seat in plan.assignments if seat.slot.claim in claims)
        return all(claim.name in theirs or claim.capacity_pool.capacity_type in wanted for claim in stands)
