"""Rebalance: machines that EC2 expects to take soon, of pools that ask to move away before."""

from dataclasses import replace

from fleet.disruption.command import Command
from fleet.disruption.replace import replacing
from fleet.disruption.yard import Yard
from fleet.reasons import Reason
from fleet.snapshot import Claim
from model.kinds import NEVER, NodePool


def rebalance(yard: Yard) -> list[Command]:
    """Idle ones go at once; those with gangs when their replacements are ready; both under budget.

    A replacement comes from a capacity pool of which no such advice has come: there it would be the next to go.
    """
    if not any(pool.spec.disruption.on_rebalance == "Replace" for pool in yard.fleet.node_pools.values()):
        return []
    advised = [claim for pool, claim in yard.volunteers() if _acts(pool, claim)]
    if not advised:
        return []
    why = "EC2 expects to take the machine soon"
    idle = [claim for claim in advised if yard.is_empty(claim) and yard.may_take([claim], Reason.REBALANCED)]
    short = {**yard.snapshot.shortages, **{claim.capacity_pool: NEVER for claim in advised}}
    elsewhere = replace(yard, snapshot=replace(yard.snapshot, shortages=short))
    busy = {claim.name: (Reason.REBALANCED, why) for claim in advised if not yard.is_empty(claim)}
    return [Command((claim,), Reason.REBALANCED, why) for claim in idle] + replacing(elsewhere, busy)


def _acts(pool: NodePool | None, claim: Claim) -> bool:
    return bool(claim.advised_at_s) and pool is not None and pool.spec.disruption.on_rebalance == "Replace"
