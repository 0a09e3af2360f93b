"""Giving machines back and replacing them: one file a method behind one small interface.

A method looks at a `DisruptionContext` and proposes commands; it changes nothing but the notes of what is taken there.
`METHODS` run in their order and each sees what the ones before it took from the budgets. The last one keeps what it
means to do in mind for a while before it does it.
"""

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

from fleet.actions import Action, OpenClaims, SaveClaim, claim_subject
from fleet.disruption.budgets import BUDGET_REASONS
from fleet.disruption.capacity_blocks import CapacityBlocks
from fleet.disruption.consolidation import Consolidation
from fleet.disruption.context import DisruptionContext
from fleet.disruption.drift import DriftMethod
from fleet.disruption.emptiness import Emptiness
from fleet.disruption.expiry import Expiry
from fleet.disruption.outcomes import Blocked, Command
from fleet.disruption.pending import remembered, withdraw_all
from fleet.disruption.preference import PreferredCapacity
from fleet.disruption.rebalance import Rebalance
from fleet.disruption.replacement import outdated, unused
from fleet.fence import Decided, concerning, together
from fleet.reasons import Reason
from fleet.scheduling.prefilter import frozen
from fleet.snapshot import Claim, NodeDisruption, Snapshot
from model.cron import Cron, window_active, window_end
from model.fleet import Fleet
from model.kinds.policy import AllowWindow


class DisruptionMethod(Protocol):
    """A disruption method is one reason to give machines back or to replace them (Karpenter's `Method`).

    To add one: a class in a file of its own that meets this, with its conditions as functions that both of its methods
    ask; its place in `METHODS`; its reason in `fleet.reasons`, and in `budgets.BUDGET_REASONS` if budgets can name it;
    `tests/fleet/disruption/test_<its file>.py`; a row in `docs/guides/asking-why.md`.
    """

    @property
    def name(self) -> str:
        """Returns what `muster explain node` calls the method."""

    @property
    def reason(self) -> Reason:
        """Returns why the machines that the method takes go."""

    def propose(self, context: DisruptionContext) -> Sequence[Command]:
        """Returns commands for the machines that no condition blocks: they go, or are replaced, now.

        What is proposed is taken: from the budgets, and from what the methods after this one look at.
        """

    def why_not(self, context: DisruptionContext, claim: Claim) -> Blocked:
        """Returns what blocks a candidate which was not proposed: the first condition that does.

        The context is as it was before the method proposed anything.
        """


METHODS: tuple[DisruptionMethod, ...] = (
    CapacityBlocks(),
    Emptiness(),
    Rebalance(),
    DriftMethod(),
    Expiry(),
    PreferredCapacity(),
    Consolidation(),
)
"""In the order of a pass: earlier methods take from the budgets first."""


def decide(fleet: Fleet, snapshot: Snapshot) -> Sequence[Decided]:
    """Returns the voluntary disruption of this moment: none while a freeze window blocks it."""
    return together(snapshot, partial(_decide, fleet))


def _decide(fleet: Fleet, snapshot: Snapshot) -> list[Action]:
    context = DisruptionContext.of(fleet, snapshot)
    actions: list[Action] = []
    if words := frozen(fleet, snapshot.now_s, "Disruption"):
        withdraw_all(context, words)
    else:
        for command in outdated(context):
            actions += _actions(context, command)
        for method in METHODS:
            for command in method.propose(context):
                actions += _actions(context, command)
        for command in unused(context):
            actions += _actions(context, command)
    return [*actions, *remembered(context)]


def frozen_until(fleet: Fleet, now_s: float, activity: str) -> tuple[str, float]:
    """Returns what blocks an activity now, and from when on nothing does (epoch seconds; inf = never).

    Windows may follow each other without a gap; beyond a year nobody looks for one.
    """
    spec = fleet.policy.spec
    blocking = [window for window in spec.freeze_windows if activity in window.blocks]
    allowing = [window for window in spec.allow_windows if activity in window.allows]
    until_s, before_s = now_s, -inf
    while before_s < until_s < now_s + _YEAR_S:
        before_s = until_s
        ends = (window_end(window.opening, window.duration, until_s) for window in blocking)
        until_s = _allowed_from(allowing, max(ends, default=until_s))
    return frozen(fleet, now_s, activity), until_s if until_s < now_s + _YEAR_S else inf


def _allowed_from(windows: Sequence[AllowWindow], now_s: float) -> float:
    """Returns when one of the windows is open: now, or at the next opening."""
    if not windows or any(window_active(window.opening, window.duration, now_s) for window in windows):
        return now_s
    return min((opens_s for it in windows if (opens_s := it.opening.next_after(now_s)) is not None), default=inf)


_YEAR_S: Final = 366 * 86_400.0


def ended_window(fleet: Fleet, pool_name: str, reason: str, now_s: float, within_s: float) -> str:
    """Returns which window ended within the last seconds that kept machines of a pool from going; empty = none did.

    A freeze window, or that of a budget: while it is open its machines are held back, afterwards they go.
    """
    for window in fleet.policy.spec.freeze_windows:
        if "Disruption" in window.blocks and _ended(window.opening, window.duration, now_s, within_s):
            return f"freeze window {window.name!r}"
    for allowing in fleet.policy.spec.allow_windows:
        opened_s = allowing.opening.next_after(now_s - within_s)
        if "Disruption" in allowing.allows and opened_s is not None and opened_s <= now_s:
            return f"the time before allow window {allowing.name!r}"
    pool, name = fleet.node_pools.get(pool_name), _BUDGET_NAMES.get(reason)
    for budget in pool.spec.disruption.budgets if pool and name else ():
        meant = not budget.reasons or name in budget.reasons
        if meant and budget.schedule and _ended(Cron.parse(budget.schedule), budget.duration or 0.0, now_s, within_s):
            return f"the window of a budget of {pool_name} ({budget.schedule!r})"
    return ""


_BUDGET_NAMES: Final = {str(reason): name for reason, name in BUDGET_REASONS.items()}


def _ended(cron: Cron, duration_s: float, now_s: float, within_s: float) -> bool:
    opened = cron.next_after(now_s - within_s - duration_s)
    return opened is not None and opened + duration_s <= now_s and not window_active(cron, duration_s, now_s)


def _actions(context: DisruptionContext, command: Command) -> list[Action]:
    if command.replacements:
        return [OpenClaims(command.replacements)]
    return [_told(context, command, claim) for claim in command.claims]


def _told(context: DisruptionContext, command: Command, claim: Claim) -> Action:
    with concerning(claim_subject(claim.name)):
        now_s, deadline_s = context.snapshot.now_s, context.deadline_s(claim)
        return SaveClaim(claim.with_disruption(NodeDisruption(command.reason, command.message, now_s, deadline_s)))
