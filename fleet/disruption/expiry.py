"""Expiry: machines past their pool's maximum age. As in Karpenter budgets do not hold it back, but count it."""

from fleet.disruption.command import Command
from fleet.disruption.replace import replacing
from fleet.disruption.yard import Yard
from fleet.reasons import Reason


def expiry(yard: Yard) -> list[Command]:
    """Idle ones go at once; a gang's machine is replaced first, and goes without replacement where none can be had."""
    now = yard.snapshot.now_s
    commands: list[Command] = []
    fates: dict[str, tuple[Reason, str]] = {}
    born_before_s = {name: now - pool.spec.template.expire_after for name, pool in yard.fleet.node_pools.items()}
    for pool, claim in yard.candidates():
        age_s = now - claim.launched_at_s
        if pool is None or claim.launched_at_s > born_before_s[pool.name]:
            continue
        why = f"it is {age_s / 3600:.1f} h old, the pool allows {pool.spec.template.expire_after / 3600:.1f} h"
        if yard.is_empty(claim):
            yard.gone.add(claim.name)
            commands.append(Command((claim,), Reason.EXPIRED, why))
        else:
            fates[claim.name] = (Reason.EXPIRED, why)
    return commands + replacing(yard, fates, budgeted=False, insist=True)
