"""Rebalance: machines that the cloud expects to take soon, of pools that ask to move away before."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.eligibility import out_of_budget, spared, undeclared
from fleet.disruption.outcomes import Blocked, Command, Obstacle, no_reason
from fleet.disruption.replacement import replacing, why_not_replaced
from fleet.reasons import Reason
from fleet.snapshot import Claim
from model.kinds import NEVER, NodePool

_WHY: Final = "the cloud expects to take the machine soon"


class Rebalance:
    """Idle machines go at once; those with gangs when their replacements are ready; both under budget.

    A replacement comes from a capacity pool of which no such advice has come: there it would be the next to go.
    """

    name = "rebalance"
    reason = Reason.REBALANCED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for idle machines one by one, then for the busy ones."""
        advised = self._advised(context)
        if not advised:
            return ()
        idle = [
            Command((claim,), self.reason, _WHY)
            for claim in advised
            if context.is_empty(claim) and context.may_take([claim], self.reason)
        ]
        return [*idle, *replacing(_elsewhere(context, advised), self._due(context, advised))]

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why a machine is not left on the cloud's advice; or that there is none."""
        pool = context.pool_of(claim)
        if pool is None:
            return undeclared(claim)
        kept = self._kept(context, pool, claim)
        if kept is not None:
            return kept
        if context.is_empty(claim) or context.budget(pool.name, self.reason) < 1:
            return out_of_budget(context, pool, self.reason)
        advised = self._advised(context)
        return why_not_replaced(_elsewhere(context, advised), claim, self._due(context, advised))

    def _kept(self, context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked | None:
        if pool.spec.disruption.on_rebalance == "Ignore":
            return no_reason(Obstacle.POLICY, f"{pool.name} ignores the cloud's advice")
        if not claim.advised_at_s:
            return no_reason(Obstacle.NOT_DUE, "the cloud has not advised to leave it")
        return spared(context, claim)

    def _advised(self, context: DisruptionContext) -> list[Claim]:
        """Returns the machines that should be left."""

        def look(pool: NodePool | None, claim: Claim) -> Claim | None:
            return None if pool is None or self._kept(context, pool, claim) else claim

        return found_at(context.advised(), look)

    def _due(self, context: DisruptionContext, advised: Collection[Claim]) -> dict[str, tuple[Reason, str]]:
        """Returns those that have work on them."""
        return {claim.name: (self.reason, _WHY) for claim in advised if not context.is_empty(claim)}


def _elsewhere(context: DisruptionContext, advised: Collection[Claim]) -> DisruptionContext:
    """Returns the same pass, in which nothing is bought where the cloud has advised to leave."""
    short = {**context.snapshot.shortages, **{claim.capacity_pool: NEVER for claim in advised}}
    return replace(context, snapshot=replace(context.snapshot, shortages=short))
