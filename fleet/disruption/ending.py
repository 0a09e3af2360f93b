"""Machines of a capacity block that ends: idle ones go, busy ones when there is another place for their gangs.

No budget holds it back, since the machines go in any case; what finds no replacement leaves at the last moment
(`fleet.nodeclaims.ending`).
"""

from fleet.disruption.command import Command
from fleet.disruption.replace import replacing
from fleet.disruption.yard import Yard
from fleet.nodeclaims.interruption import block_ends_message, closing
from fleet.reasons import Reason


def ending(yard: Yard) -> list[Command]:
    """Work leaves ahead of EC2, by the pool's lead time, its replacements first."""
    if not any(known.kind == "capacity-block" for known in yard.snapshot.reservations.values()):
        return []
    commands: list[Command] = []
    fates: dict[str, tuple[Reason, str]] = {}
    for _, claim in yard.candidates():
        block = closing(yard.fleet, yard.snapshot, claim)
        if block is None:
            continue
        if yard.is_empty(claim):
            yard.gone.add(claim.name)
            commands.append(Command((claim,), Reason.BLOCK_ENDS, block_ends_message(block)))
        else:
            fates[claim.name] = (Reason.BLOCK_ENDS, block_ends_message(block))
    return commands + replacing(yard, fates, budgeted=False)
