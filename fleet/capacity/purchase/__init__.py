"""The cheapest machines for a batch of pods."""

from fleet.capacity.purchase.answer import Batch, Purchase, Steps, Way
from fleet.capacity.purchase.problem import InvalidProblem, Limit, MachineKind, PodClass, Problem

__all__ = ["Batch", "InvalidProblem", "Limit", "MachineKind", "PodClass", "Problem", "Purchase", "Steps", "Way"]
