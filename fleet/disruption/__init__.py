"""Giving machines back, one file a method behind one small interface.

A method looks at a `Yard` and returns commands; it changes nothing but the yard's notes. Methods run in this order and
each sees what the ones before it took from the budgets: capacity blocks that end, emptiness, rebalance, drift, expiry,
preference, consolidation. The last one keeps what it means to do in mind for a while before it does it.
"""

from collections.abc import Callable, Sequence

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.disruption.command import Command
from fleet.disruption.consolidation import consolidate
from fleet.disruption.drift import drift
from fleet.disruption.emptiness import emptiness
from fleet.disruption.ending import ending
from fleet.disruption.expiry import expiry
from fleet.disruption.preference import prefer
from fleet.disruption.proposals import considered, given_up
from fleet.disruption.rebalance import rebalance
from fleet.disruption.yard import Yard
from fleet.snapshot import Disruption, Snapshot
from model.cron import Cron, window_active
from model.fleet import Fleet

METHODS: tuple[Callable[[Yard], Sequence[Command]], ...] = (
    ending,
    emptiness,
    rebalance,
    drift,
    expiry,
    prefer,
    consolidate,
)


def decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    """Voluntary disruption of this moment; none while a freeze window blocks it."""
    yard = Yard.of(fleet, snapshot)
    actions: list[Action] = []
    if window := frozen(fleet, snapshot.now_s, "Disruption"):
        given_up(yard, f"freeze window {window} is open")
    else:
        for method in METHODS:
            for command in method(yard):
                actions += _actions(yard, command)
    return [*actions, *considered(yard)]


def frozen(fleet: Fleet, now_s: float, activity: str) -> str:
    """The freeze window that blocks `activity` (`Sync`, `Disruption`) now; empty when none does."""
    for window in fleet.policy.spec.freeze_windows:
        if activity in window.blocks and window_active(Cron.parse(window.schedule), window.duration, now_s):
            return window.name
    return ""


def _actions(yard: Yard, command: Command) -> list[Action]:
    if command.replacements:
        return [OpenClaims(command.replacements)]
    now = yard.snapshot.now_s
    return [
        SaveClaim(claim.with_disruption(Disruption(command.reason, command.message, now, yard.deadline_s(claim))))
        for claim in command.claims
    ]
