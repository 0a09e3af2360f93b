"""The purchase problem: pods to buy machines for, how hard to try, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from fleet.optimize.inputs import (
    MACHINES,
    USD_H,
    InvalidProblem,
    Limit,
    MachineKind,
    PodClass,
    SolverEffort,
    check_amounts,
    check_classes,
    check_names,
)

# -- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodDemand(PodClass):
    """`count` equal pods to buy machines for."""

    count: int
    group: str = ""
    """All classes of a group stand on machines of one domain, all of their pods or none; empty = each for itself."""


@dataclass(frozen=True, slots=True)
class ExistingMachine:
    """A machine that is there already: what is still free on it costs nothing. Pods name it as they name a kind."""

    name: str
    free: Mapping[str, int]
    domain: str = ""


@dataclass(frozen=True, slots=True)
class PurchaseProblem:
    """A batch of pods to buy machines for. Raises `InvalidProblem`."""

    resources: tuple[str, ...]
    """Every resource that counts, the one that orders pods first in front (`cpu`, `memory`, ...)."""
    classes: tuple[PodDemand, ...]
    kinds: tuple[MachineKind, ...]
    limits: tuple[Limit, ...] = ()
    existing: tuple[ExistingMachine, ...] = ()

    def __post_init__(self) -> None:
        if not self.resources:
            raise InvalidProblem("no resource counts")
        check_names("resource", self.resources)
        check_names("class", (it.name for it in self.classes))
        check_names("kind or machine", [*(it.name for it in self.kinds), *(it.name for it in self.existing)])
        check_names("limit", (it.name for it in self.limits))
        for pods in self.classes:
            if pods.count < 0:
                raise InvalidProblem(f"class {pods.name}: count {pods.count} is negative")
        check_classes(self.classes, self.resources)
        for kind in self.kinds:
            if not 0 <= kind.price_usd_h < inf or (kind.most is not None and kind.most < 0):
                raise InvalidProblem(f"kind {kind.name}: price {kind.price_usd_h} or bound {kind.most} makes no sense")
            check_amounts(f"kind {kind.name}", kind.capacity)
        for machine in self.existing:
            check_amounts(f"machine {machine.name}", machine.free)
        for limit in self.limits:
            if limit.counted not in {*self.resources, MACHINES, USD_H} or not limit.most >= 0:
                raise InvalidProblem(f"limit {limit.name}: at most {limit.most} of {limit.counted} makes no sense")

    @property
    def pods(self) -> int:
        """How many pods there are."""
        return sum(it.count for it in self.classes)


# -- how hard to try --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PurchaseEffort(SolverEffort):
    """Ends of the search for a purchase.

    The usual one spends about a second on a part of 130 classes and 20 kinds, whatever it holds more. Without ends of
    `work`, `whole_pairs` and `whole_patterns` it takes four times as long there, and saves a tenth of a percent more.
    """

    value_classes: int = 60
    """Parts with more are not filled by value until the solver says what pods are worth."""
    pattern_pairs: int = 40_000
    """Of a class and a kind that may hold it. Parts with more are left as the greedy heuristics have them."""
    exact_pairs: int = 1_000
    """Of a class and a kind. Parts with more are priced by filling alone, which costs little and proves less."""
    rounds: int = 200
    """Of pricing, for each part."""
    work: int = 10_000_000
    """Of pricing, for each part: machines filled times classes, and what programmes take in that measure; a second."""
    exact_rounds: int = 3
    """Of pricing that misses nothing, for each part; the last of them proves the bound."""
    exact_nodes: int = 200
    """Of branch and bound, for each kind in such a round."""
    nodes: int = 60
    """Of branch and bound over patterns, for each part."""
    whole_pairs: float = 100.0
    """Of a class and a kind: for each so many, branch and bound has to promise another `close_enough` to be tried."""
    whole_patterns: int = 150
    """Among which branch and bound chooses, for each part, besides those of the best so far."""
    trials: int = 24
    """Choices of domains for the groups that are compared by the greedy heuristics."""
    domains: int = 3
    """Choices of domains that are searched in full at most."""
    close_enough: float = 1e-4
    """A part that could save less than this of the whole purchase is good enough."""


GREEDY = PurchaseEffort(solver=False)
"""No solver: the best of the greedy heuristics, with a bound by one resource."""

# -- what is answered -------------------------------------------------------------------------------------------------


class PurchaseHeuristic(StrEnum):
    """What found the machines of a part."""

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
class MachineBatch:
    """`machines` equal machines that are filled in the same way."""

    kind: str
    pods: Mapping[str, int]
    """Class -> pods on each machine."""
    machines: int


@dataclass(frozen=True, slots=True)
class SearchSteps:
    """The work it took, which depends on the problem alone."""

    rounds: int = 0
    """Of pricing: linear programmes over patterns."""
    patterns: int = 0
    """Known in the end."""
    nodes: int = 0
    """Of branch and bound."""

    def __add__(self, other: "SearchSteps") -> "SearchSteps":
        return SearchSteps(self.rounds + other.rounds, self.patterns + other.patterns, self.nodes + other.nodes)


@dataclass(frozen=True, slots=True)
class PurchaseSolution:
    """The best set of machines that was found, and a lower bound that proves how good it is."""

    batches: tuple[MachineBatch, ...] = ()
    cost_usd_h: float = 0.0
    bound_usd_h: float = 0.0
    """No purchase that holds the same pods costs less."""
    baseline_usd_h: float = 0.0
    """What Karpenter's order would pay for the same pods; infinite where it finds no place for them."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Class -> pods for which no machine was found: none fits, or the limits are reached."""
    worth_usd_h: Mapping[str, float] = field(default_factory=dict)
    """Class -> the price of one pod that proves the bound."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """Group -> where all of it stands."""
    heuristics: tuple[PurchaseHeuristic, ...] = ()
    """What found the parts that have nothing to do with each other, dearest part first."""
    steps: SearchSteps = field(default_factory=SearchSteps)
    failure: str = ""
    """Why the solver was not used, or not to the end; then the machines are the best that was found without it."""
