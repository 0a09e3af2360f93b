"""What budgets do not let go: machines whose gangs span more of a pool than it may lose, or that pods' budgets hold.

Budgets are hard: the former stay until their gangs end, the latter for now. Whoever reads a plan should know.
"""

from collections import Counter
from collections.abc import Mapping

from fleet.disruption.budgets import allowed
from fleet.disruption.replace import Unit, units
from fleet.disruption.yard import Yard
from fleet.reasons import Reason


def held_back(yard: Yard, fates: Mapping[str, tuple[Reason, str]]) -> dict[str, str]:
    """Claim -> why it stays for now, for the busy machines among `fates`."""
    found: dict[str, str] = {}
    for unit in units(yard, fates):
        if words := _over_budget(yard, unit, fates[unit.names[0]][0]):
            found |= dict.fromkeys(unit.names, words)
    return found


def waiting(yard: Yard, fates: Mapping[str, tuple[Reason, str]]) -> dict[str, str]:
    """Claim -> which PodDisruptionBudget it waits for, for the busy machines among `fates`."""
    found: dict[str, str] = {}
    for unit in units(yard, fates) if yard.snapshot.pod_budgets else ():
        held = yard.pod_budget(unit.claims, fates[unit.names[0]][0])
        if held is not None:
            found |= dict.fromkeys(unit.names, f"waits: {held.message}")
    return found


def _over_budget(yard: Yard, unit: Unit, reason: Reason) -> str:
    for name, count in sorted(Counter(claim.node_pool for claim in unit.claims).items()):
        pool = yard.fleet.node_pools.get(name)
        if pool is None:
            continue
        ready = sum(1 for claim in yard.members.get(name, ()) if claim.ready_at_s)
        most = allowed(pool, reason, ready, 0, yard.snapshot.now_s)
        if count > most:
            gangs = ", ".join(gang.name for gang in unit.gangs[:3])
            return f"stays until {gangs} end: {count} machines go together, the budget of {name} allows {most}"
    return ""
