"""What is answered: which machines with which pods on each, what they cost, and what no purchase could undercut."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf


class Way(StrEnum):
    """How the machines were found."""

    BASELINE = "baseline"
    """Pod by pod in Karpenter's order."""
    CHOICE = "choice"
    """Each class on the kind that is cheapest for it by itself."""
    VALUE = "value"
    """Greedy by value for money."""
    ROUNDED = "rounded"
    """The fractional mix of patterns, rounded."""
    INTEGER = "integer"
    """The best whole mix of patterns that the solver found."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`machines` equal machines that are filled in the same way."""

    kind: str
    pods: Mapping[str, int]
    """Class -> pods on each machine."""
    machines: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The work it took, which depends on the problem alone."""

    rounds: int = 0
    """Of pricing: linear programmes over patterns."""
    patterns: int = 0
    """Known in the end."""
    nodes: int = 0
    """Of branch and bound."""

    def __add__(self, other: "Steps") -> "Steps":
        return Steps(self.rounds + other.rounds, self.patterns + other.patterns, self.nodes + other.nodes)


@dataclass(frozen=True, slots=True)
class Purchase:
    """The best set of machines that was found, with its certificate."""

    batches: tuple[Batch, ...] = ()
    cost_usd_h: float = 0.0
    bound_usd_h: float = 0.0
    """No purchase that holds the same pods costs less."""
    baseline_usd_h: float = 0.0
    """What Karpenter's order would pay for the same pods; infinite where it finds no place for them."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Class -> pods for which no machine was found: none fits, or the limits are reached."""
    worth_usd_h: Mapping[str, float] = field(default_factory=dict)
    """Class -> the price of one pod that proves the bound."""
    lanes: Mapping[str, str] = field(default_factory=dict)
    """Group -> where all of it stands."""
    ways: tuple[Way, ...] = ()
    """How the parts were found that have nothing to do with each other, dearest part first."""
    steps: Steps = field(default_factory=Steps)
    failure: str = ""
    """Why the solver was not used, or not to the end; then the machines are the best that was found without it."""

    @property
    def gap(self) -> float:
        """By what part of the bound the cost is above it: no purchase saves more."""
        if self.cost_usd_h <= self.bound_usd_h:
            return 0.0
        return self.cost_usd_h / self.bound_usd_h - 1.0 if self.bound_usd_h else inf

    @property
    def saving(self) -> float:
        """The part of the baseline's cost that is saved; 0 where the baseline finds no place for the same pods."""
        return 1.0 - self.cost_usd_h / self.baseline_usd_h if 0 < self.baseline_usd_h < inf else 0.0
