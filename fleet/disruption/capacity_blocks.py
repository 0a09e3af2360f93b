"""Machines of a capacity block that ends: idle ones go, busy ones when there is another place for their gangs."""

from collections.abc import Sequence

from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.outcomes import Blocked, Command, Obstacle, no_reason
from fleet.disruption.replacement import whatever_budgets_say, why_not_replaced
from fleet.nodeclaims.interruption import block_ends_message
from fleet.offerings.reservations import closes_s, reservation_of
from fleet.reasons import Reason
from fleet.snapshot import Claim
from model.kinds import NodePool


class CapacityBlocks:
    """Work leaves a capacity block before it ends, by the pool's lead time; its replacements are bought first.

    No budget holds it back, since the machines go in any case; what finds no replacement leaves at the last moment
    (`fleet.nodeclaims.interruption`).
    """

    name = "block"
    reason = Reason.BLOCK_ENDS

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for idle machines one by one, then for the busy ones."""
        if not any(known.ends_machines for known in context.snapshot.reservations.values()):
            return ()
        return whatever_budgets_say(context, self._due(context))

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why the machine is not left although it may be of a capacity block."""
        open_ = self._open(context, context.pool_of(claim), claim)
        return open_ or why_not_replaced(context, claim, self._due(context), budgeted=False)

    def _due(self, context: DisruptionContext) -> dict[str, tuple[Reason, str]]:
        """Returns all machines of blocks that end."""

        def look(pool: NodePool | None, claim: Claim) -> tuple[str, tuple[Reason, str]] | None:
            known = reservation_of(context.snapshot, claim)
            if known is None or self._open(context, pool, claim):
                return None
            return claim.name, (self.reason, block_ends_message(known))

        return dict(found_at(context.candidates(), look))

    def _open(self, context: DisruptionContext, pool: NodePool | None, claim: Claim) -> Blocked | None:
        """Blocks a machine of no capacity block, or of one that does not end soon."""
        known = reservation_of(context.snapshot, claim)
        if known is None or not known.ends_machines:
            return no_reason(Obstacle.NOT_DUE, "it is of no capacity block")
        closes_at_s = closes_s(pool, known)
        if context.snapshot.now_s < closes_at_s:
            return no_reason(Obstacle.NOT_DUE, f"capacity block {known.id} is open", closes_at_s)
        return None
