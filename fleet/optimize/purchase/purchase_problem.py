"""Defines the purchase problem: pods to buy machines for, the effort to spend, and the solution."""

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
    """A `PodDemand` is `count` equal pods to buy machines for."""

    count: int
    group: str = ""
    """Classes of one group stand on machines of one domain, all of their pods or none; empty = no group."""


@dataclass(frozen=True, slots=True)
class ExistingMachine:
    """An `ExistingMachine` is there already: what is free on it costs nothing. Classes name it as they name a kind."""

    name: str
    free: Mapping[str, int]
    domain: str = ""


@dataclass(frozen=True, slots=True)
class PurchaseProblem:
    """A `PurchaseProblem` is a batch of pods to buy machines for. Raises `InvalidProblem` if inconsistent."""

    resources: tuple[str, ...]
    """Every resource that counts, in the order by which pods are sorted (`cpu`, `memory`, ...)."""
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
        for name, capacity in {id(it.capacity): (it.name, it.capacity) for it in self.kinds}.values():
            check_amounts(f"kind {name}", capacity)
        for machine in self.existing:
            check_amounts(f"machine {machine.name}", machine.free)
        for limit in self.limits:
            if limit.counted not in {*self.resources, MACHINES, USD_H} or not limit.most >= 0:
                raise InvalidProblem(f"limit {limit.name}: at most {limit.most} of {limit.counted} makes no sense")

    @property
    def pods(self) -> int:
        """Returns how many pods there are."""
        return sum(it.count for it in self.classes)


_MOST_TIMES = 30.0
"""Most times of `close_enough` that count as little, however large a problem is."""

# -- how hard to try --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PurchaseEffort(SolverEffort):
    """A `PurchaseEffort` bounds the search for a purchase.

    The usual one spends about a second on a part of 130 classes and 20 kinds, and about as much on larger ones. Without
    the bounds `work`, `whole_pairs` and `whole_patterns` it takes four times as long there, and saves a tenth of a
    percent more.
    """

    value_classes: int = 60
    """Parts with more classes are filled by value only once the solver has prices of pods."""
    pattern_pairs: int = 40_000
    """Parts with more pairs of a class and a kind that may hold it are left to the greedy heuristics."""
    insertion_pods: int = 20_000_000
    """Parts with more pods times classes are not bought for by insertion."""
    eager_pairs: int = 4_000
    """Parts with more pairs are searched by patterns only where they could save more than a `little`."""
    bulk_pairs: int = 10_000
    """Parts with more pairs get no bound from machines in bulk without a search: it takes too long there."""
    exact_pairs: int = 1_000
    """Parts with more pairs of a class and a kind are priced by filling alone, which costs little and proves less."""
    search_pairs: float = 250.0
    """A search is begun if it may save `close_enough` of a known purchase for each so many (class, kind) pairs."""
    rounds: int = 200
    """Rounds of pricing for each part."""
    work: int = 10_000_000
    """Work of pricing for each part, in machines filled times classes, programmes included; about a second."""
    work_a_pod: int = 3_000
    """Work of pricing for each pod, where there are so few that a second would be too much for what they cost."""
    exact_rounds: int = 3
    """Rounds of exact pricing for each part; the last of them proves the bound."""
    exact_nodes: int = 200
    """Nodes of branch and bound for each kind in such a round."""
    nodes: int = 60
    """Nodes of branch and bound over patterns, for each part."""
    whole_pairs: float = 100.0
    """Branch and bound is tried if it may save `close_enough` for each so many (class, kind) pairs of the part."""
    whole_known: float = 20.0
    """And also for each so many patterns that are known: it takes the longer, and diving finds nearly as much."""
    whole_patterns: int = 150
    """Patterns that branch and bound chooses from, for each part, besides those of the incumbent."""
    trials: int = 24
    """Choices of domains for the groups that are compared by the greedy heuristics."""
    domains: int = 3
    """Most choices of domains that are searched in full."""
    close_enough: float = 1e-4
    """A part that could save less than this fraction of the whole purchase is good enough."""

    def little(self, pairs: int) -> float:
        """Returns the fraction of a purchase that is not worth a search of so many pairs of a class and a kind."""
        return self.close_enough * min(max(1.0, pairs / self.search_pairs), _MOST_TIMES)


GREEDY = PurchaseEffort(solver=False)
"""The best of the greedy heuristics, with a bound by one resource and without a solver."""

# -- what is answered -------------------------------------------------------------------------------------------------


class PurchaseHeuristic(StrEnum):
    """A `PurchaseHeuristic` names what found the machines of a part."""

    BASELINE = "baseline"
    """Pod by pod in Karpenter's order."""
    CHOICE = "choice"
    """Each class on the kind that is cheapest for it by itself."""
    INSERTION = "insertion"
    """Each pod where it makes the purchase dearer by least."""
    VALUE = "value"
    """Greedy by value for money."""
    ROUNDED = "rounded"
    """The fractional mix of patterns, rounded."""
    DIVED = "dived"
    """The same, solved anew after each rounding for the pods that were left."""
    INTEGER = "integer"
    """The best whole mix of patterns that the solver found."""


@dataclass(frozen=True, slots=True)
class MachineBatch:
    """A `MachineBatch` is `machines` equal machines that are filled alike."""

    kind: str
    pods: Mapping[str, int]
    """Class -> pods on each machine."""
    machines: int


@dataclass(frozen=True, slots=True)
class SearchSteps:
    """`SearchSteps` counts the work of a search, which depends on the problem alone."""

    rounds: int = 0
    """Rounds of pricing: linear programmes over patterns."""
    patterns: int = 0
    """Patterns known in the end."""
    nodes: int = 0
    """Nodes of branch and bound."""

    def __add__(self, other: "SearchSteps") -> "SearchSteps":
        return SearchSteps(self.rounds + other.rounds, self.patterns + other.patterns, self.nodes + other.nodes)


@dataclass(frozen=True, slots=True)
class PurchaseSolution:
    """A `PurchaseSolution` is the best set of machines found, with a lower bound that proves how good it is."""

    batches: tuple[MachineBatch, ...] = ()
    cost_usd_h: float = 0.0
    bound_usd_h: float = 0.0
    """Lower bound: no purchase that holds the same pods costs less."""
    baseline_usd_h: float = 0.0
    """What Karpenter's order would pay for the same pods; infinite where it finds no place for them."""
    baseline_machines: int = 0
    """Machines that Karpenter's order would buy."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Class -> pods for which no machine was found: none fits, or the limits are reached."""
    worth_usd_h: Mapping[str, float] = field(default_factory=dict)
    """Class -> the price of one pod that proves the bound."""
    domains: Mapping[str, str] = field(default_factory=dict)
    """Group -> the domain where all of it stands."""
    heuristics: tuple[PurchaseHeuristic, ...] = ()
    """What found each independent part, dearest part first."""
    steps: SearchSteps = field(default_factory=SearchSteps)
    failure: str = ""
    """Why the solver was not used, or not to the end; the machines are then the best found without it."""
