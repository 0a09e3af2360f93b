"""Giving machines back: which go, what is bought instead and where their pods come to, as one optimisation."""

from fleet.capacity.purchase.problem import InvalidProblem, Limit
from fleet.capacity.repack.answer import Answer, Bought, Move, Step, Way
from fleet.capacity.repack.change import applied
from fleet.capacity.repack.effort import GREEDY, Effort
from fleet.capacity.repack.problem import Block, Buyable, PodClass, Problem, Rules, Standing
from fleet.capacity.repack.solving import solve

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
