"""Giving machines back: which go, what is bought instead and where their pods come to, as one optimisation."""

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
