"""Finds the cheapest machines for a batch of pods."""

from fleet.optimize.inputs import InvalidProblem, Limit, MachineKind
from fleet.optimize.purchase.purchase_problem import (
    GREEDY,
    ExistingMachine,
    MachineBatch,
    PodDemand,
    PurchaseEffort,
    PurchaseHeuristic,
    PurchaseProblem,
    PurchaseSolution,
    SearchSteps,
)
from fleet.optimize.purchase.purchasing import (
    PurchaseParts,
    cheaper,
    close_enough,
    in_karpenters_order,
    quick_bound_usd_h,
    solve,
    split,
)

__all__ = [
    "GREEDY",
    "ExistingMachine",
    "InvalidProblem",
    "Limit",
    "MachineBatch",
    "MachineKind",
    "PodDemand",
    "PurchaseEffort",
    "PurchaseHeuristic",
    "PurchaseParts",
    "PurchaseProblem",
    "PurchaseSolution",
    "SearchSteps",
    "cheaper",
    "close_enough",
    "in_karpenters_order",
    "quick_bound_usd_h",
    "solve",
    "split",
]
