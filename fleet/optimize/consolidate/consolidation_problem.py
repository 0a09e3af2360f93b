"""Defines the consolidation problem: standing machines, pods that may move, what can be bought, and the solution.

Pods that may not move are no block: they are missing in the free room, and their machine is not removed (`may_go`).
What may stand where arrives as names of kinds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.cost.lost_work import PAYBACK_S
from fleet.optimize.inputs import (
    InvalidProblem,
    Limit,
    MachineKind,
    PodClass,
    SolverEffort,
    check_amounts,
    check_classes,
    check_names,
)

PER_POD_USD_H = 1.0
"""Cost of moving one pod in USD an hour where nobody says otherwise; `docs/design/0008-repack.md` has the curve."""
PAYBACK_H = PAYBACK_S / 3600
"""Hours within which the saving has to pay for lost work."""
SPOT_TYPES = 15
"""Least number of instance types for one spot machine that replaces another (Karpenter's spot to spot)."""
EPSILON_USD_H = 1e-6
"""A smaller saving counts as rounding."""

# -- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StandingMachine:
    """A `StandingMachine` is a machine that is there; it may be removed, or receive pods."""

    name: str
    kind: str
    price_usd_h: float
    free: Mapping[str, int]
    """Amounts left beside all of its pods; empty where no pod may come."""
    pool: str = ""
    """The pool whose disruption budget counts the machine when it is removed."""
    domain: str = ""
    """Its topology domain: the zone."""
    spot: bool = False
    may_go: bool = True


@dataclass(frozen=True, slots=True)
class PodBlock:
    """A `PodBlock` is pods that move together or one by one: a gang, a pod, the equal pods of a machine."""

    name: str
    places: Mapping[str, Mapping[str, int]]
    """Machine -> class -> pods."""
    moving_usd: float | None = None
    """Cost in USD of the work that is lost when all of it moves; None = `ConsolidationRules.per_pod_usd_h` a pod."""
    whole: bool = True
    """Whether all its pods move or none; else only pods on removed machines move, at their share of the cost."""
    one_domain: bool = False
    """Whether a whole block that moves has to stand in one domain."""

    @property
    def pods(self) -> int:
        """Returns how many pods the block has."""
        return sum(sum(held.values()) for held in self.places.values())

    @property
    def in_gangs(self) -> bool:
        """Returns whether its pods, of several machines or held to a domain, all move or none."""
        return self.whole and (len(self.places) > 1 or self.keeps_domain)

    @property
    def keeps_domain(self) -> bool:
        """Returns whether its pods have to stand in one domain after a move."""
        return self.whole and self.one_domain and self.pods > 1


@dataclass(frozen=True, slots=True)
class ReplacementKind(MachineKind):
    """A `ReplacementKind` is a kind of machine that can be bought instead of those removed."""

    worst_usd_h: float | None = None
    """Highest price that the launch may end at; None = its price."""
    spot: bool = False
    type: str = ""
    """The instance type; kinds may be its layouts or zones. Empty = the name."""

    @property
    def dearest_usd_h(self) -> float:
        """Returns the highest price that the launch may end at, in USD an hour."""
        return self.price_usd_h if self.worst_usd_h is None else self.worst_usd_h


@dataclass(frozen=True, slots=True)
class ConsolidationRules:
    """`ConsolidationRules` are what every plan keeps, and the weight of moving against saving."""

    per_pod_usd_h: float = PER_POD_USD_H
    payback_h: float = PAYBACK_H
    spot_types: int = SPOT_TYPES
    most_bought: int | None = None
    """Most machines that the whole plan may buy; None = no bound."""


@dataclass(frozen=True, slots=True)
class ConsolidationProblem:
    """A `ConsolidationProblem` asks which machines to give back. Raises `InvalidProblem` if inconsistent."""

    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    standing: tuple[StandingMachine, ...]
    blocks: tuple[PodBlock, ...] = ()
    kinds: tuple[ReplacementKind, ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Pool -> how many of its machines may be removed; a pool that is not named has no bound."""
    limits: tuple[Limit, ...] = ()
    """Limits on what is bought."""
    rules: ConsolidationRules = field(default_factory=ConsolidationRules)

    def __post_init__(self) -> None:
        for what, names in (
            ("resource", self.resources),
            ("class", [it.name for it in self.classes]),
            ("machine", [it.name for it in self.standing]),
            ("block", [it.name for it in self.blocks]),
            ("kind", [it.name for it in self.kinds]),
        ):
            check_names(what, names)
        check_classes(self.classes, self.resources)
        for machine in self.standing:
            _check_prices(f"machine {machine.name}", machine.price_usd_h)
            check_amounts(f"machine {machine.name}", machine.free)
        for kind in self.kinds:
            _check_prices(f"kind {kind.name}", kind.price_usd_h, kind.dearest_usd_h)
            check_amounts(f"kind {kind.name}", kind.capacity)
        _check_prices("rules", self.rules.per_pod_usd_h)
        if not self.rules.payback_h > 0:
            raise InvalidProblem(f"rules: a payback of {self.rules.payback_h} hours makes no sense")
        self._check_blocks()

    def _check_blocks(self) -> None:
        machines = {it.name for it in self.standing}
        classes = {it.name for it in self.classes}
        for block in self.blocks:
            _check_prices(f"block {block.name}", block.moving_usd or 0.0)
            for machine, held in block.places.items():
                if machine not in machines:
                    raise InvalidProblem(f"block {block.name} has pods on {machine}, which is no machine")
                if unknown := held.keys() - classes:
                    raise InvalidProblem(f"block {block.name} has pods of {min(unknown)}, which is no class")
                check_amounts(f"block {block.name}", held)

    def disruption_usd_h(self, block: PodBlock, moved: int) -> float:
        """Returns what moving so many pods of a block costs an hour, to be weighed against the saving."""
        if block.moving_usd is None:
            return self.rules.per_pod_usd_h * moved
        return block.moving_usd / self.rules.payback_h * moved / max(block.pods, 1)


def _check_prices(where: str, *prices: float) -> None:
    for price in prices:
        if not 0 <= price < float("inf"):
            raise InvalidProblem(f"{where}: a price of {price} USD makes no sense")


# -- how hard to try --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsolidationEffort(SolverEffort):
    """A `ConsolidationEffort` bounds the search for a plan."""

    sweeps: int = 2
    """Sweeps of the greedy search over all machines one by one."""
    pricing: int = 30
    """Rounds of finding patterns to buy, for each part."""
    nodes: int = 20
    """Nodes of branch and bound for each part."""
    splits: int = 2
    """Times that groups of equal machines are split up, for each part: singly they hold less than together."""
    close_enough: float = 1e-3
    """Fraction of a part's bill: if the fractional optimum saves no more than this, no integer plan is looked for."""
    near: float = 2e-3
    """Fraction of a part's bill: how far a large programme may stay behind the optimum in fractions."""
    gang_options: int = 20
    """Options to move gangs on several machines, for each part: where there are more, integer plans are only looked for
    near the fractional optimum. Else they take three to ten times as long as all the rest, and find 0.3 % of the
    bill more."""
    rounds: int = 4
    """Rounds of the whole search, each on what the one before left."""


GREEDY = ConsolidationEffort(solver=False)
"""The better one of the greedy searches, or nothing; without a solver."""

# -- what is answered -------------------------------------------------------------------------------------------------


class ConsolidationHeuristic(StrEnum):
    """A `ConsolidationHeuristic` names what found the plan."""

    NOTHING = "nothing"
    """There is nothing to do."""
    GREEDY = "greedy"
    """Empty machines, many for one, one by one, in Karpenter's order."""
    WHOLE = "whole"
    """The integer programme over everything."""


@dataclass(frozen=True, slots=True, order=True)
class PodMove:
    """A `PodMove` is pods of a class that leave one machine for another, which stands or is bought."""

    block: str
    pod_class: str
    origin: str
    target: str
    pods: int


@dataclass(frozen=True, slots=True)
class ReplacementMachine:
    """A `ReplacementMachine` is a machine to buy."""

    name: str
    """Name within the plan: `new-0`, ..."""
    kind: str
    pods: Mapping[str, int]
    """Class -> pods that come to it."""
    instead: tuple[str, ...]
    """Kinds that would do as well for less than what the step removes, cheapest first; `kind` is one of them.

    Limits are kept by `kind`; whether another one keeps them is for the launch to see.
    """


@dataclass(frozen=True, slots=True)
class ConsolidationStep:
    """A `ConsolidationStep` is an independent part of the plan: machines removed, machines bought, all moves.

    Any choice of a plan's steps is a plan, in any order; each of them saves more than it disrupts and keeps the rules.
    """

    removed: tuple[str, ...]
    bought: tuple[ReplacementMachine, ...]
    moves: tuple[PodMove, ...]
    saving_usd_h: float
    disruption_usd_h: float

    @property
    def objective_usd_h(self) -> float:
        """Returns the saving less the disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def moved(self) -> int:
        """Returns how many pods move."""
        return sum(it.pods for it in self.moves)


@dataclass(frozen=True, slots=True)
class ConsolidationSolution:
    """A `ConsolidationSolution` is the best plan that was found, best step first."""

    steps: tuple[ConsolidationStep, ...] = ()
    bound_usd_h: float = 0.0
    """Upper bound of every plan's objective, by a linear programme over all machines."""
    greedy_usd_h: float = 0.0
    """The objective of the greedy search."""
    heuristic: ConsolidationHeuristic = ConsolidationHeuristic.NOTHING
    rounds: int = 0
    """Rounds of the search; the last found nothing more unless the effort ended it."""
    nodes: int = 0
    """Nodes of branch and bound."""
    failure: str = ""
    """Why the solver was not used, or not to the end; the plan is then the best found without it."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Returns the names of the removed machines, sorted."""
        return tuple(sorted(name for step in self.steps for name in step.removed))

    @property
    def bought(self) -> tuple[ReplacementMachine, ...]:
        """Returns the machines to buy."""
        return tuple(it for step in self.steps for it in step.bought)

    @property
    def moves(self) -> tuple[PodMove, ...]:
        """Returns the moves of all steps."""
        return tuple(it for step in self.steps for it in step.moves)

    @property
    def moved(self) -> int:
        """Returns how many pods move."""
        return sum(step.moved for step in self.steps)

    @property
    def saving_usd_h(self) -> float:
        """Returns what the removed machines cost more than those bought."""
        return sum(step.saving_usd_h for step in self.steps)

    @property
    def disruption_usd_h(self) -> float:
        """Returns what all moves cost, as the problem weighs them."""
        return sum(step.disruption_usd_h for step in self.steps)

    @property
    def objective_usd_h(self) -> float:
        """Returns the saving less the disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def gap_usd_h(self) -> float:
        """Returns by how much the objective may be below that of the best plan, at most."""
        return max(0.0, self.bound_usd_h - self.objective_usd_h)
