"""What a disruption method may come to: a command, or a word about a machine that it leaves alone.

A condition of a method is a function that returns None where nothing stands against it and a `Blocked` where something
does: a method proposes the machines that no condition blocks, and tells of the others what the first one said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from fleet.reasons import Reason
from fleet.snapshot import Claim

Due = Mapping[str, tuple[Reason, str]]
"""Claim -> why a method wants its machine to go: the reason, and a sentence."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command tells machines to go. `replacements` are bought first; the machines stay until those are ready."""

    claims: tuple[Claim, ...]
    reason: Reason
    message: str
    replacements: tuple[Claim, ...] = ()


class Obstacle(StrEnum):
    """An obstacle is what holds a method back, or why it has nothing to do."""

    NONE = ""
    LEAVING = "Leaving"
    """It is on its way out already."""
    NOT_READY = "NotReady"
    RECUTTING = "Recutting"
    IN_HAND = "InHand"
    """An action on it is under way."""
    AWAITS_MOVE = "AwaitsMove"
    """It was bought to replace another, whose gang has not moved yet."""
    SET_ASIDE = "DecisionFailed"
    """A decision about it, its pool or a gang on it has failed lately, and is tried again later."""
    FREEZE = "FreezeWindow"
    TAKEN = "Taken"
    """A method before this one takes it."""
    NO_POOL = "NodePoolNotFound"
    FIXED_POOL = "FixedPool"
    """Its pool keeps a number of machines, whatever runs."""
    POLICY = "Policy"
    """Its pool does not ask for the method."""
    OCCUPIED = "Occupied"
    EMPTY = "Empty"
    QUIET_TIME = "QuietTime"
    MINIMUM_STAY = "MinimumStay"
    """It was bought for want of what its pool prefers, and stays for a while."""
    NOT_DUE = "NotDue"
    """Neither drifted nor old, unwell or announced to end."""
    BUDGET = "Budget"
    PODS = "DoNotDisrupt"
    """Its node, or a pod on it, may not be touched."""
    POD_BUDGET = "PodDisruptionBudget"
    """A PodDisruptionBudget does not let its gangs go now, whole."""
    SEVERAL_POD_BUDGETS = "SeveralPodDisruptionBudgets"
    GANG = "GangMayNotMove"
    NO_PLACE = "NoPlace"
    """Its gangs would find no other place, or no quota to come back to."""
    REPLACEMENT = "ReplacementComing"
    NO_SAVING = "NoSaving"
    BALANCE = "Balance"
    """The saving is out of proportion to the disruption, in a Balanced pool."""
    PAYBACK = "Payback"
    """The saving does not pay for the work that would be lost."""
    ROLLOUT = "Rollout"
    """Other pools of its roll-out come first, or it has stopped."""
    TURN = "Turn"
    """One machine is consolidated at a time, and others are tried first."""
    PROPOSED = "Proposed"
    """Consolidation means to take it, and looks again before it does."""
    POOL_UNWELL = "PoolUnwell"
    """So many nodes of the pool are unwell that the fault is somewhere else."""


class DisruptionOutcome(StrEnum):
    """What follows for a machine from what a method says of it."""

    GOES = "goes"
    """The method takes it now, or has taken it."""
    WAITS = "waits"
    """The method would take it, but for what the verdict names."""
    KEEPS = "keeps"
    """The method has no reason to take it."""


@dataclass(frozen=True, slots=True)
class DisruptionVerdict:
    """A verdict is what a method says of one machine, with the sentence for people."""

    method: str
    outcome: DisruptionOutcome
    obstacle: Obstacle
    message: str
    until_s: float = 0.0
    """When time alone lifts the obstacle (epoch seconds); 0 = it takes more than time."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """One thing holds a method back from a machine (Karpenter tells such in `DisruptionBlocked` events)."""

    obstacle: Obstacle
    message: str
    until_s: float = 0.0
    concerns: bool = True
    """Whether the method would take the machine otherwise."""

    def says(self, method: str) -> DisruptionVerdict:
        """Returns the verdict of a method that is held back by this."""
        outcome = DisruptionOutcome.WAITS if self.concerns else DisruptionOutcome.KEEPS
        return DisruptionVerdict(method, outcome, self.obstacle, self.message, self.until_s)

    def although(self, why: str) -> "Blocked":
        """Returns the same of a machine that should go because of `why`; more than time stands against it."""
        return replace(self, message=f"{why}; {self.message}", until_s=0.0, concerns=True)


def first(conditions: Iterable[Blocked | None]) -> Blocked:
    """Returns what the first condition that blocks says; at least the last one has to."""
    return next(it for it in conditions if it is not None)


def no_reason(obstacle: Obstacle, message: str, until_s: float = 0.0) -> Blocked:
    """Returns that the method has nothing to do with the machine, for now."""
    return Blocked(obstacle, message, until_s, concerns=False)
