"""The cheapest machines for a batch of pods."""

from fleet.optimize.purchase.answer import Batch, Purchase, Steps, Way
from fleet.optimize.purchase.effort import GREEDY, Effort
from fleet.optimize.purchase.problem import InvalidProblem, Limit, MachineKind, PodClass, Problem, Room
from fleet.optimize.purchase.solving import karpenters, solve

__all__ = [
    "GREEDY",
    "Batch",
    "Effort",
    "InvalidProblem",
    "Limit",
    "MachineKind",
    "PodClass",
    "Problem",
    "Purchase",
    "Room",
    "Steps",
    "Way",
    "karpenters",
    "solve",
]
