"""Expiry: machines past their pool's maximum age. As in Karpenter budgets do not hold it back, but count it."""

from collections.abc import Container, Sequence

from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.eligibility import undeclared
from fleet.disruption.outcomes import Blocked, Command, Obstacle, no_reason
from fleet.disruption.replacement import whatever_budgets_say, why_not_replaced
from fleet.reasons import Reason
from fleet.snapshot import Claim
from model.kinds import NEVER, NodePool
from model.plain_text import age


class Expiry:
    """Idle machines go at once; those with gangs are replaced first, or go without where none can be had."""

    name = "expiry"
    reason = Reason.EXPIRED

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for idle machines one by one, then for the busy ones."""
        return whatever_budgets_say(context, self._due(context), insist=True)

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns that the machine is not too old yet, or why it cannot go."""
        pool = context.pool_of(claim)
        if pool is None:
            return undeclared(claim)
        most_s, ends_s = pool.spec.template.expire_after, expires_at_s(context.snapshot.never_expire, pool, claim)
        if most_s == NEVER:
            return no_reason(Obstacle.NOT_DUE, "machines of its pool never expire")
        if context.snapshot.now_s < ends_s:
            return no_reason(Obstacle.NOT_DUE, f"the pool allows {age(most_s)}", ends_s)
        return why_not_replaced(context, claim, self._due(context), budgeted=False)

    def _due(self, context: DisruptionContext) -> dict[str, tuple[Reason, str]]:
        """Returns all machines that are too old."""
        now_s = context.snapshot.now_s

        def look(pool: NodePool | None, claim: Claim) -> tuple[str, tuple[Reason, str]] | None:
            if pool is None or now_s < expires_at_s(context.snapshot.never_expire, pool, claim):
                return None
            old, most = age(now_s - claim.launched_at_s), age(pool.spec.template.expire_after)
            return claim.name, (self.reason, f"it is {old} old, the pool allows {most}")

        return dict(found_at(context.older_than(lambda pool: pool.spec.template.expire_after), look))


def expires_at_s(never_expire: Container[str], pool: NodePool, claim: Claim) -> float:
    """Returns when the machine is too old (epoch seconds)."""
    if claim.name in never_expire:
        return NEVER
    return claim.launched_at_s + pool.spec.template.expire_after
