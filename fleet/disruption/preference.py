"""The way back: machines of a later capacity type give way to an earlier one of their pool's order.

Where spot is short, a pool of spot and on-demand machines buys on demand in the same pass. Here those are replaced once
spot can be had again: after a minimum stay, replacement first, gangs whole, and only where what it saves pays for the
work that is lost, as in consolidation. Whether the earlier type can be had is found out by buying it: what is short is
remembered for a while, and then tried again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.actions import claim_subject
from fleet.cost.lost_work import PAYBACK_S
from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.eligibility import (
    keeps,
    minimum_stay,
    out_of_budget,
    preferred_to,
    spared,
    undeclared,
)
from fleet.disruption.evaluation import lost_usd
from fleet.disruption.outcomes import Blocked, Command, Due, Obstacle, first, no_reason
from fleet.disruption.replacement import claims_of, coming, complete, groups, replacement, unready
from fleet.disruption.simulation import CandidateGroup, turn_of
from fleet.fence import concerning
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.inventory import build_capacity
from fleet.placement.plan import PlacementPlan
from fleet.reasons import Reason, Refusal
from fleet.snapshot import Claim
from model.kinds import CapacityType, NodePool

_WHY: Final = "its pool prefers a capacity type that can be had again"


class PreferredCapacity:
    """Groups whose replacements are ready go; else at most one is replaced, and then the world is looked at anew."""

    name = "preference"
    reason = Reason.PREFERRED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns what is replaced by now, or a command for the first group for which there is something better."""
        stayed = self._stayed(context)
        if not stayed:
            return ()
        offers = PreferredOffers(context, build_capacity(context.fleet, context.snapshot))
        sold = [
            claim
            for pool, claim in stayed
            if claim.name in context.successors or offers.sells(pool, preferred_to(pool, claim))
        ]
        done, waiting = self._begun(context, offers, {claim.name: (self.reason, _WHY) for claim in sold})
        return done or self._first(context, offers, waiting)

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why a machine does not give way to one of a capacity type that its pool prefers."""
        pool = context.pool_of(claim)
        if pool is None:
            return undeclared(claim)
        return first(self._conditions(context, pool, claim))

    def _conditions(self, context: DisruptionContext, pool: NodePool, claim: Claim) -> Iterator[Blocked | None]:
        yield _unasked(pool, claim)
        yield _empty(context, claim)
        yield spared(context, claim)
        yield minimum_stay(context, pool, claim)
        yield keeps(context, claim, self.reason)
        yield replacement(context, claim)
        yield _unwanted(context, pool, claim)
        yield out_of_budget(context, pool, self.reason)

    def _stayed(self, context: DisruptionContext) -> list[tuple[NodePool, Claim]]:
        """Returns machines that have stayed for the minimum, and whose pools would rather have others."""
        pools = context.fleet.node_pools
        asking = {name for name, pool in pools.items() if pool.spec.disruption.return_to_preferred is not None}

        def look(pool: NodePool | None, claim: Claim) -> tuple[NodePool, Claim] | None:
            if claim.node_pool not in asking or pool is None or not preferred_to(pool, claim):
                return None
            return None if spared(context, claim) or minimum_stay(context, pool, claim) else (pool, claim)

        return found_at(context.candidates(), look) if asking else []

    def _begun(
        self, context: DisruptionContext, offers: "PreferredOffers", due: Due
    ) -> tuple[list[Command], list[CandidateGroup]]:
        """Returns (commands for groups whose replacements are ready, groups that a replacement may still pay for)."""
        done: list[Command] = []
        waiting: list[CandidateGroup] = []
        for group in groups(context, due):
            with concerning(claim_subject(group.names[0])):
                if unready(context, group.names) or context.pod_budget(group.claims, self.reason):
                    continue
                if complete(coming(context, group.names)):
                    context.taken.update(group.names)
                    done.append(Command(group.claims, self.reason, _WHY))
                elif offers.affordable_usd_h(group) > 0:
                    waiting.append(group)
        return done, waiting

    def _first(
        self, context: DisruptionContext, offers: "PreferredOffers", waiting: Sequence[CandidateGroup]
    ) -> list[Command]:
        for group in turn_of(waiting, context.snapshot.now_s):
            with concerning(claim_subject(group.names[0])):
                plans = context.simulate(group)
                if isinstance(plans, Refusal) or not offers.worth(group, plans):
                    continue
                begun = bool(coming(context, group.names))  # one was lost: the budgets count the group already
                if begun or context.may_take(group.claims, self.reason):
                    context.taken.update(group.names)
                    context.promise(group.gangs, plans)
                    bought = claims_of(plans, group, context.snapshot.now_s)
                    return [Command(group.claims, self.reason, _WHY, bought)]
        return []


def _unasked(pool: NodePool, claim: Claim) -> Blocked | None:
    """Blocks where the pool has no `returnToPreferred`, or prefers no capacity type to the machine's."""
    if pool.spec.disruption.return_to_preferred is None:
        return no_reason(Obstacle.POLICY, f"{pool.name} has no returnToPreferred")
    if not preferred_to(pool, claim):
        return no_reason(Obstacle.NOT_DUE, f"{pool.name} prefers nothing to {claim.capacity_pool.capacity_type}")
    return None


def _empty(context: DisruptionContext, claim: Claim) -> Blocked | None:
    words = "no gang runs on it: the method emptiness takes idle machines"
    return no_reason(Obstacle.EMPTY, words) if context.is_empty(claim) else None


def _unwanted(context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked | None:
    """Tells why nothing that is preferred comes in the machine's place now."""
    offers = PreferredOffers(context, build_capacity(context.fleet, context.snapshot))
    if not offers.sells(pool, preferred_to(pool, claim)):
        return Blocked(Obstacle.NO_PLACE, f"all offers of {', '.join(preferred_to(pool, claim))} are short")
    group = context.group([claim])
    plans = context.simulate(group)
    if isinstance(plans, Refusal):
        return Blocked(Obstacle.NO_PLACE, f"its gangs would find no other place: {plans.message}")
    if offers.worth(group, plans):
        return None
    words = (
        "the machines its gangs would move to are not of the preferred capacity type, or do not pay for the work lost"
    )
    return Blocked(Obstacle.PAYBACK, words)


@dataclass(frozen=True, slots=True)
class PreferredOffers:
    """What of preferred capacity can be had, and what it is expected to cost."""

    context: DisruptionContext
    capacity: BuyableCapacity
    _sold: dict[tuple[str, Sequence[CapacityType]], bool] = field(default_factory=dict)

    def sells(self, pool: NodePool, capacity_types: Sequence[CapacityType]) -> bool:
        """Returns whether the pool may buy one of these that is not known to be short."""
        if (pool.name, capacity_types) not in self._sold:
            self._sold[pool.name, capacity_types] = any(
                offering.offer.capacity_type in capacity_types
                and offering.offer.pool_key not in self.capacity.shortages
                for offering in self.capacity.offerings.of(pool)
            )
        return self._sold[pool.name, capacity_types]

    def affordable_usd_h(self, group: CandidateGroup) -> float:
        """Returns what the replacement may cost: what the machines do, less what pays for the work lost."""
        lost_usd_h = lost_usd(group.gangs, self.context.snapshot) * 3600 / PAYBACK_S
        return sum(claim.price_usd_h + self.capacity.machine_usd_h for claim in group.claims) - lost_usd_h

    def worth(self, group: CandidateGroup, plans: Mapping[str, PlacementPlan]) -> bool:
        """Returns whether the gangs come to preferred machines, or stay on theirs, for less than is affordable."""
        bought = [each for plan in plans.values() for each in plan.purchases]
        expected_usd_h = sum(self.capacity.expected_usd_h(each.offering.offer) * each.count for each in bought)
        wanted = frozenset[CapacityType].intersection(*(self._wanted(claim) for claim in group.claims))
        return (
            expected_usd_h < self.affordable_usd_h(group)
            and all(each.offering.offer.capacity_type in wanted for each in bought)
            and all(self._welcome(group, plan, wanted) for plan in plans.values())
        )

    def _wanted(self, claim: Claim) -> frozenset[CapacityType]:
        return frozenset(preferred_to(self.context.fleet.node_pools[claim.node_pool], claim))

    def _welcome(self, group: CandidateGroup, plan: PlacementPlan, wanted: frozenset[CapacityType]) -> bool:
        theirs = {pin.claim for gang in group.gangs for pin in gang.pins}
        claims = self.context.snapshot.claims
        stands = (claims[it.slot.claim] for it in plan.assignments if it.slot.claim in claims)
        return all(claim.name in theirs or claim.capacity_pool.capacity_type in wanted for claim in stands)
