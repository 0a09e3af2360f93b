"""What is answered: steps that stand each for itself, with what they save, and what no plan could exceed."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """How the plan was found."""

    NOTHING = "nothing"
    """There is nothing to do."""
    GREEDY = "greedy"
    """Empty machines, many for one, one by one, in Karpenter's order."""
    WHOLE = "whole"
    """As one optimisation."""


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """Pods of a class that leave a machine for another, which stands or is bought."""

    block: str
    pod_class: str
    origin: str
    target: str
    pods: int


@dataclass(frozen=True, slots=True)
class Bought:
    """A machine to buy."""

    name: str
    """Of the plan alone: `new-0`, ..."""
    kind: str
    pods: Mapping[str, int]
    """Class -> pods that come to it."""
    instead: tuple[str, ...]
    """Kinds that would do as well for less than what the step removes, cheapest first; `kind` is one of them.

    Limits are kept by `kind`; whether another one keeps them is for the launch to see.
    """


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the plan that needs no other part: machines that go, those bought for it, and all moves it takes.

    Any choice of a plan's steps is a plan, in any order; each of them saves more than it disrupts and keeps the rules.
    """

    removed: tuple[str, ...]
    bought: tuple[Bought, ...]
    moves: tuple[Move, ...]
    saving_usd_h: float
    disruption_usd_h: float

    @property
    def objective_usd_h(self) -> float:
        """Saving less disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def moved(self) -> int:
        """Pods that move."""
        return sum(it.pods for it in self.moves)


@dataclass(frozen=True, slots=True)
class Answer:
    """The best plan that was found, best step first."""

    steps: tuple[Step, ...] = ()
    bound_usd_h: float = 0.0
    """No plan has a higher objective: a linear programme over all machines at once."""
    greedy_usd_h: float = 0.0
    """The objective of the greedy search."""
    way: Way = Way.NOTHING
    rounds: int = 0
    """Times the search ran, the last of which found nothing more to do unless the effort ended it."""
    nodes: int = 0
    """Of branch and bound."""
    failure: str = ""
    """Why the solver was not used, or not to the end; then the plan is the best without it."""

    @property
    def removed(self) -> tuple[str, ...]:
        """The machines that go."""
        return tuple(sorted(name for step in self.steps for name in step.removed))

    @property
    def bought(self) -> tuple[Bought, ...]:
        """The machines to buy."""
        return tuple(it for step in self.steps for it in step.bought)

    @property
    def moves(self) -> tuple[Move, ...]:
        """What moves."""
        return tuple(it for step in self.steps for it in step.moves)

    @property
    def moved(self) -> int:
        """Pods that move."""
        return sum(step.moved for step in self.steps)

    @property
    def saving_usd_h(self) -> float:
        """What the machines that go cost more than those that come."""
        return sum(step.saving_usd_h for step in self.steps)

    @property
    def disruption_usd_h(self) -> float:
        """What moving counts."""
        return sum(step.disruption_usd_h for step in self.steps)

    @property
    def objective_usd_h(self) -> float:
        """Saving less disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def gap_usd_h(self) -> float:
        """What the objective may be short of at most."""
        return max(0.0, self.bound_usd_h - self.objective_usd_h)
