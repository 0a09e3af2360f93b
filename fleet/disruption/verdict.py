"""What a disruption method says of a machine."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What follows for the machine."""

    GOES = "goes"
    """The method takes it now, or has taken it."""
    WAITS = "waits"
    """The method would take it, but for what the verdict names."""
    KEEPS = "keeps"
    """The method has no reason to take it."""


class Obstacle(StrEnum):
    """What holds a method back, or why it has nothing to do."""

    NONE = ""
    LEAVING = "Leaving"
    """It is on its way out already."""
    NOT_READY = "NotReady"
    RECUTTING = "Recutting"
    IN_HAND = "InHand"
    """An action on it is under way."""
    AWAITS_MOVE = "AwaitsMove"
    """It was bought to replace another, whose gang has not moved yet."""
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
    TURN = "Turn"
    """One machine is consolidated at a time, and others are tried first."""
    PROPOSED = "Proposed"
    """Consolidation means to take it, and looks again before it does."""
    POOL_UNWELL = "PoolUnwell"
    """So many nodes of the pool are unwell that the fault is somewhere else."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A method's word on one machine, with the sentence for people."""

    method: str
    outcome: Outcome
    obstacle: Obstacle
    message: str
    until_s: float = 0.0
    """When time alone lifts the obstacle (epoch seconds); 0 = it takes more than time."""


@dataclass(frozen=True, slots=True)
class Held:
    """One thing that holds a method back."""

    obstacle: Obstacle
    message: str
    until_s: float = 0.0
    concerns: bool = True
    """Whether the method would take the machine otherwise."""

    def says(self, method: str) -> Verdict:
        """The verdict of a method that is held back by this."""
        outcome = Outcome.WAITS if self.concerns else Outcome.KEEPS
        return Verdict(method, outcome, self.obstacle, self.message, self.until_s)


def no_reason(obstacle: Obstacle, message: str, until_s: float = 0.0) -> Held:
    """The method has nothing to do with the machine, for now."""
    return Held(obstacle, message, until_s, concerns=False)
