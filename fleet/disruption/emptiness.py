"""Emptiness: machines on which nothing has run for the pool's quiet time."""

from collections.abc import Sequence

from fleet.disruption.context import DisruptionContext, found_at
from fleet.disruption.eligibility import out_of_budget, quiet, spared, undeclared
from fleet.disruption.outcomes import Blocked, Command, Obstacle, no_reason
from fleet.nodeclaims.capacity_buffers import buffer_of
from fleet.reasons import Reason, some_of
from fleet.snapshot import Claim
from model.kinds import NodePool
from model.plain_text import counted


class Emptiness:
    """Idle machines go, as many as the budgets let go; fixed pools keep theirs."""

    name = "emptiness"
    reason = Reason.EMPTY

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns one command a machine."""

        def look(pool: NodePool | None, claim: Claim) -> Command | None:
            if pool is None or not context.is_empty(claim) or self._kept(context, pool, claim):
                return None
            if not context.may_take([claim], self.reason):
                return None
            idle_s = context.snapshot.now_s - claim.emptied_at_s
            return Command((claim,), self.reason, f"nothing has run on it for {idle_s:.0f} s")

        return found_at(context.idle(), look)

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns why a machine is not given back as idle."""
        pool = context.pool_of(claim)
        if pool is None:
            return undeclared(claim)
        return self._kept(context, pool, claim) or out_of_budget(context, pool, self.reason)

    def _kept(self, context: DisruptionContext, pool: NodePool, claim: Claim) -> Blocked | None:
        if pool.spec.replicas is not None:
            return no_reason(
                Obstacle.FIXED_POOL, f"{pool.name} keeps {counted(pool.spec.replicas, 'machine')}, idle or not"
            )
        if not context.is_empty(claim):
            return no_reason(Obstacle.OCCUPIED, _occupants(context, claim))
        quiet_s = pool.spec.disruption.consolidate_after
        return spared(context, claim) or quiet(context.snapshot.now_s, claim.emptied_at_s or None, quiet_s)


def _occupants(context: DisruptionContext, claim: Claim) -> str:
    gangs = [gang.name for gang in context.gangs_on(claim) if not (gang.ordinary or buffer_of(gang))]
    buffers = sorted({buffer_of(gang) for gang in context.gangs_on(claim)} - {""})
    others = sum(1 for pod in context.snapshot.node_pods.get(claim.node, ()) if not pod.workload)
    named = [some_of(gangs)] if gangs else []
    named += [f"{others} pod{'s' if others > 1 else ''} of no gang"] if others else []
    named += [f"room for the CapacityBuffer {some_of(buffers)}"] if buffers else []
    return f"{' and '.join(named) or 'work'} on it"
