"""The cheapest machines for a batch of pods."""

from fleet.capacity.purchase.answer import Batch, Purchase, Steps, Way
from fleet.capacity.purchase.effort import GREEDY, Effort
from fleet.capacity.purchase.problem import InvalidProblem, Limit, MachineKind, PodClass, Problem, Room
from fleet.capacity.purchase.solving import karpenters, solve

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
