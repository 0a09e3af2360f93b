"""Decides as one optimisation which machines to give back, what to buy instead and where their pods go."""

from fleet.optimize.consolidate.consolidation_problem import (
    GREEDY,
    ConsolidationEffort,
    ConsolidationHeuristic,
    ConsolidationProblem,
    ConsolidationRules,
    ConsolidationSolution,
    ConsolidationStep,
    PodBlock,
    PodMove,
    ReplacementKind,
    ReplacementMachine,
    StandingMachine,
)
from fleet.optimize.consolidate.moves import applied
from fleet.optimize.consolidate.plan_search import solve
from fleet.optimize.inputs import InvalidProblem, Limit, PodClass

__all__ = [
    "GREEDY",
    "ConsolidationEffort",
    "ConsolidationHeuristic",
    "ConsolidationProblem",
    "ConsolidationRules",
    "ConsolidationSolution",
    "ConsolidationStep",
    "InvalidProblem",
    "Limit",
    "PodBlock",
    "PodClass",
    "PodMove",
    "ReplacementKind",
    "ReplacementMachine",
    "StandingMachine",
    "applied",
    "solve",
]
