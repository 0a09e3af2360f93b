"""Emptiness: machines on which nothing has run for the pool's quiet time."""

from fleet.disruption.command import Command
from fleet.disruption.yard import Yard
from fleet.reasons import Reason


def emptiness(yard: Yard) -> list[Command]:
    """Every idle machine the budgets let go; fixed pools keep theirs."""
    commands = []
    now = yard.snapshot.now_s
    for pool, claim in yard.volunteers():
        if pool is None or pool.spec.replicas is not None or not claim.emptied_at_s or not yard.is_empty(claim):
            continue
        idle_s = now - claim.emptied_at_s
        if idle_s >= pool.spec.disruption.consolidate_after and yard.may_take([claim], Reason.EMPTY):
            commands.append(Command((claim,), Reason.EMPTY, f"nothing has run on it for {idle_s:.0f} s"))
    return commands
