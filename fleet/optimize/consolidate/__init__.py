"""Giving machines back: which go, what is bought instead and where their pods come to, as one optimisation."""

from fleet.optimize.consolidate.answer import Answer, Bought, Move, Step, Way
from fleet.optimize.consolidate.change import applied
from fleet.optimize.consolidate.effort import GREEDY, Effort
from fleet.optimize.consolidate.problem import Block, Buyable, PodClass, Problem, Rules, Standing
from fleet.optimize.consolidate.solving import solve
from fleet.optimize.purchase.problem import InvalidProblem, Limit

__all__ = [
    "GREEDY",
    "Answer",
    "Block",
    "Bought",
    "Buyable",
    "Effort",
    "InvalidProblem",
    "Limit",
    "Move",
    "PodClass",
    "Problem",
    "Rules",
    "Standing",
    "Step",
    "Way",
    "applied",
    "solve",
]
