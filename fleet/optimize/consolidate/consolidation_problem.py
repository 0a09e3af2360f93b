"""The consolidation problem: machines that stand, pods that could move, what could be bought, and what comes of it.

What may not move is not declared as a block: its pods are missing in the free room, and its machine does not go
(`may_go`). What may stand where arrives as names of kinds.
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
"""What moving one pod counts when nobody says what it costs: `docs/design/0008-repack.md` has the curve."""
PAYBACK_H = PAYBACK_S / 3600
"""The saving of this long has to pay for work that is lost."""
SPOT_TYPES = 15
"""Types that one spot machine in place of another must be able to come as (Karpenter's rule for spot to spot)."""
EPSILON_USD_H = 1e-6
"""Rounding must not make a plan of what saves nothing."""

# -- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StandingMachine:
    """A machine that is there and may go, or receive pods."""

    name: str
    kind: str
    price_usd_h: float
    free: Mapping[str, int]
    """What is left beside all of its pods; nothing where no pod may come."""
    pool: str = ""
    """Whose disruption budget it counts against when it goes."""
    domain: str = ""
    """Its topology domain: the zone."""
    spot: bool = False
    may_go: bool = True


@dataclass(frozen=True, slots=True)
class PodBlock:
    """Pods that are moved together, or of which each may be moved: a gang, a pod, the equal pods of a machine."""

    name: str
    places: Mapping[str, Mapping[str, int]]
    """Machine -> class -> pods."""
    moving_usd: float | None = None
    """The work that is lost when all of it moves; None = `ConsolidationRules.per_pod_usd_h` for each pod."""
    whole: bool = True
    """All its pods move or none: else only the pods on machines that go move, at their share of the price."""
    one_domain: bool = False
    """A whole block that moves has to stand in one domain."""

    @property
    def pods(self) -> int:
        """How many pods the block has."""
        return sum(sum(held.values()) for held in self.places.values())

    @property
    def in_gangs(self) -> bool:
        """Whether its pods cannot be looked at machine by machine: all move, or none."""
        return self.whole and (len(self.places) > 1 or self.keeps_domain)

    @property
    def keeps_domain(self) -> bool:
        """Whether it matters that its pods stand in one domain."""
        return self.whole and self.one_domain and self.pods > 1


@dataclass(frozen=True, slots=True)
class ReplacementKind(MachineKind):
    """A kind of machine that can be bought in place of those that go, and what its launch may come to."""

    worst_usd_h: float | None = None
    """The dearest the launch can end at; None = its price."""
    spot: bool = False
    type: str = ""
    """The instance type, of which several kinds may be the layouts or zones; empty = the name."""

    @property
    def dearest_usd_h(self) -> float:
        """The price that the launch comes to at worst."""
        return self.price_usd_h if self.worst_usd_h is None else self.worst_usd_h


@dataclass(frozen=True, slots=True)
class ConsolidationRules:
    """What every plan keeps, and how moving is weighed against saving."""

    per_pod_usd_h: float = PER_POD_USD_H
    payback_h: float = PAYBACK_H
    spot_types: int = SPOT_TYPES
    most_bought: int | None = None
    """Machines that all of the plan may buy; None = no end."""


@dataclass(frozen=True, slots=True)
class ConsolidationProblem:
    """Machines to be given back. Raises `InvalidProblem`."""

    resources: tuple[str, ...]
    classes: tuple[PodClass, ...]
    standing: tuple[StandingMachine, ...]
    blocks: tuple[PodBlock, ...] = ()
    kinds: tuple[ReplacementKind, ...] = ()
    budgets: Mapping[str, int] = field(default_factory=dict)
    """Pool -> how many of its machines may go; a pool that is not named has no bound."""
    limits: tuple[Limit, ...] = ()
    """On what is bought."""
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
        """What it costs an hour that so many pods of a block move, to be weighed against the saving."""
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
    """Ends of the search for a plan."""

    sweeps: int = 2
    """Of the greedy search over all machines one by one."""
    pricing: int = 30
    """Rounds of finding patterns to buy, for each part."""
    nodes: int = 20
    """Of branch and bound, for each part."""
    splits: int = 2
    """Times that equal machines are looked at one by one, for each part, since they hold less than they do together."""
    close_enough: float = 1e-3
    """Of a part's bill: where fractions promise no more than this, whole numbers are not looked for."""
    near: float = 2e-3
    """Of a part's bill: how far a large programme may stay behind the optimum in fractions."""
    ways: int = 20
    """Of gangs on several machines to move, for each part: where there are more, whole numbers are only looked for near
    the fractions. Else they take three to ten times as long as all the rest, and find 0.3 % of the bill more."""
    rounds: int = 4
    """Of the whole search, each on what the one before left."""


GREEDY = ConsolidationEffort(solver=False)
"""No solver: the better one of the greedy searches, or nothing."""

# -- what is answered -------------------------------------------------------------------------------------------------


class ConsolidationHeuristic(StrEnum):
    """What found the plan."""

    NOTHING = "nothing"
    """There is nothing to do."""
    GREEDY = "greedy"
    """Empty machines, many for one, one by one, in Karpenter's order."""
    WHOLE = "whole"
    """The integer programme over everything."""


@dataclass(frozen=True, slots=True, order=True)
class PodMove:
    """Pods of a class that leave a machine for another, which stands or is bought."""

    block: str
    pod_class: str
    origin: str
    target: str
    pods: int


@dataclass(frozen=True, slots=True)
class ReplacementMachine:
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
class ConsolidationStep:
    """A part of the plan that needs no other part: machines that go, those bought for it, and all moves it takes.

    Any choice of a plan's steps is a plan, in any order; each of them saves more than it disrupts and keeps the rules.
    """

    removed: tuple[str, ...]
    bought: tuple[ReplacementMachine, ...]
    moves: tuple[PodMove, ...]
    saving_usd_h: float
    disruption_usd_h: float

    @property
    def objective_usd_h(self) -> float:
        """The saving less the disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def moved(self) -> int:
        """How many pods move."""
        return sum(it.pods for it in self.moves)


@dataclass(frozen=True, slots=True)
class ConsolidationSolution:
    """The best plan that was found, best step first."""

    steps: tuple[ConsolidationStep, ...] = ()
    bound_usd_h: float = 0.0
    """No plan has a higher objective: a linear programme over all machines at once."""
    greedy_usd_h: float = 0.0
    """The objective of the greedy search."""
    heuristic: ConsolidationHeuristic = ConsolidationHeuristic.NOTHING
    rounds: int = 0
    """Times the search ran, the last of which found nothing more to do unless the effort ended it."""
    nodes: int = 0
    """Of branch and bound."""
    failure: str = ""
    """Why the solver was not used, or not to the end; then the plan is the best without it."""

    @property
    def removed(self) -> tuple[str, ...]:
        """The names of the machines that go, sorted."""
        return tuple(sorted(name for step in self.steps for name in step.removed))

    @property
    def bought(self) -> tuple[ReplacementMachine, ...]:
        """The machines to buy."""
        return tuple(it for step in self.steps for it in step.bought)

    @property
    def moves(self) -> tuple[PodMove, ...]:
        """The moves of all steps."""
        return tuple(it for step in self.steps for it in step.moves)

    @property
    def moved(self) -> int:
        """How many pods move."""
        return sum(step.moved for step in self.steps)

    @property
    def saving_usd_h(self) -> float:
        """What the machines that go cost more than those that come."""
        return sum(step.saving_usd_h for step in self.steps)

    @property
    def disruption_usd_h(self) -> float:
        """What all moves cost, as the problem weighs them."""
        return sum(step.disruption_usd_h for step in self.steps)

    @property
    def objective_usd_h(self) -> float:
        """The saving less the disruption."""
        return self.saving_usd_h - self.disruption_usd_h

    @property
    def gap_usd_h(self) -> float:
        """By how much the objective may be below that of the best plan, at most."""
        return max(0.0, self.bound_usd_h - self.objective_usd_h)
