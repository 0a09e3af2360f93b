"""Describes plans for the machines of an instance, checks them, and makes them of integer solutions.

The integer programme counts equal machines as one group; here it is decided which of them are removed and who stands
where, and smaller machines are bought where those will do.
"""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.instance import ConsolidationInstance
from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Floats, Ints, holding


@dataclass(frozen=True, eq=False)
class ConsolidationPlan:
    """A `ConsolidationPlan` says what becomes of the M machines of an instance, and buys N others."""

    removed: Bools
    """[M] whether the machine is removed."""
    options: Ints
    """[gangs] index of the `MovableGang.options` by which each moves, -1 where it stays."""
    received: Ints
    """[M, C] pods that come to machines that stay."""
    kinds: Ints
    """[N] kinds of the machines that are bought."""
    pods: Ints
    """[N, C] pods on the machines that are bought."""

    def disruption_usd_h(self, instance: ConsolidationInstance) -> float:
        """Returns what the moves cost, as the instance weighs them, in USD an hour."""
        gangs = sum(
            gang.cost_usd_h for gang, option in zip(instance.gangs, self.options.tolist(), strict=True) if option >= 0
        )
        return float(instance.cost[self.removed].sum()) + gangs

    def saving_usd_h(self, instance: ConsolidationInstance) -> float:
        """Returns what the removed machines cost more than those bought, in USD an hour."""
        return float(instance.price[self.removed].sum() - instance.kinds.price[self.kinds].sum())

    def objective_usd_h(self, instance: ConsolidationInstance) -> float:
        """Returns the saving less the disruption."""
        return self.saving_usd_h(instance) - self.disruption_usd_h(instance)


def idle(instance: ConsolidationInstance) -> ConsolidationPlan:
    """Returns the plan that changes nothing."""
    machines, classes = instance.independent.shape
    none = np.zeros(0, dtype=np.int64)
    return ConsolidationPlan(
        np.zeros(machines, dtype=bool),
        np.full(len(instance.gangs), -1),
        np.zeros((machines, classes), dtype=np.int64),
        none,
        np.zeros((0, classes), dtype=np.int64),
    )


def displaced(instance: ConsolidationInstance, plan: ConsolidationPlan) -> Ints:
    """Returns [C] pods that need another place under a plan."""
    wanted: Ints = instance.independent[plan.removed].sum(axis=0)
    for gang, option in zip(instance.gangs, plan.options.tolist(), strict=True):
        if option >= 0:
            wanted = wanted + gang.options[option].sum(axis=0)
    return wanted


def freed(instance: ConsolidationInstance, plan: ConsolidationPlan) -> Floats:
    """Returns [M, R] what is free once the gangs that a plan moves have left."""
    free = instance.free.copy()
    for gang, option in zip(instance.gangs, plan.options.tolist(), strict=True):
        if option >= 0:
            free[gang.machines] += gang.used
    return free


def valid(instance: ConsolidationInstance, plan: ConsolidationPlan) -> bool:
    """Returns whether a plan places every displaced pod once, keeps gangs whole, and exceeds no bound."""
    part, bought = instance.kinds, np.bincount(plan.kinds, minlength=len(instance.kinds.price)).astype(np.float64)
    going = plan.removed
    whole = all(
        option >= 0 or not going[gang.machines].any()
        for gang, option in zip(instance.gangs, plan.options.tolist(), strict=True)
    )
    left = plan.received.sum(axis=0) + plan.pods.sum(axis=0) == displaced(instance, plan)
    counted = instance.budget[going]
    spent = np.bincount(counted[counted >= 0], minlength=len(instance.budgets))
    return bool(
        whole
        and left.all()
        and not (going & ~instance.may_go).any()
        and not plan.received[going].any()
        and not ((plan.received.T > 0) & ~instance.fits).any()
        and (plan.received @ instance.requests <= freed(instance, plan)).all()
        and not ((plan.pods.T > 0) & ~part.fits[:, plan.kinds]).any()
        and (plan.pods @ instance.requests <= part.capacity[plan.kinds]).all()
        and (spent <= instance.budgets).all()
        and instance.affordable(bought)
    )


# -- from whole numbers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class IntegerPlan:
    """An `IntegerPlan` is an integer solution of the programme, by groups of equal machines."""

    going: Ints
    """[G] machines of each group that are removed."""
    options: Ints
    """[gangs] index of the `MovableGang.options` by which each moves, -1 where it stays."""
    received: Ints
    """[G, C] pods that come to each group."""
    bought: PatternMix
    cost_usd_h: float
    """Cost of moves and purchases less that of removed machines, by the programme."""
    nodes: int
    """Nodes of branch and bound that it took."""


def realized(instance: ConsolidationInstance, groups: list[list[int]], whole: IntegerPlan) -> ConsolidationPlan | None:
    """Returns the plan of an integer solution; None where no valid plan comes of it."""
    removed = np.zeros(len(instance.price), dtype=bool)
    for group, going in zip(groups, whole.going.tolist(), strict=True):
        removed[group[len(group) - going :]] = True
    moving = [bool(removed[gang.machines].any()) for gang in instance.gangs]
    options = np.where(np.array(moving, dtype=bool), whole.options, -1)
    empty = idle(instance)
    plan = ConsolidationPlan(removed, options, empty.received, empty.kinds, empty.pods)
    missing, free = displaced(instance, plan), freed(instance, plan)
    received = empty.received.copy()
    for group, wanted in zip(groups, whole.received, strict=True):
        staying = [machine for machine in group if not removed[machine]]
        _place(instance, staying, np.minimum(wanted, missing), free, received, missing)
    kinds, pods = _filled(instance, whole.bought, missing)
    if missing.any():
        _place(instance, np.flatnonzero(~removed).tolist(), missing.copy(), free, received, missing)
    if missing.any():
        kinds, pods = _buy_missing(instance, kinds, pods, missing)
    if missing.any():
        return None
    plan = ConsolidationPlan(removed, options, received, *_on_cheapest_kinds(instance, kinds, pods))
    return plan if valid(instance, plan) else None


def _place(
    instance: ConsolidationInstance, machines: list[int], wanted: Ints, free: Floats, received: Ints, missing: Ints
) -> None:
    """Places pods `wanted` [C] on some machines, first fit, largest first.

    What finds a place is added to `received` [M, C], and taken off `free` [M, R] and `missing` [C].
    """
    wanted = wanted.copy()
    for machine in machines:
        for row in np.flatnonzero((wanted > 0) & instance.fits[:, machine]).tolist():
            asked = instance.requests[row]
            pods = _pods_that_fit(asked, free[machine], int(wanted[row]))
            free[machine] -= pods * asked
            received[machine, row] += pods
            wanted[row] -= pods
            missing[row] -= pods


def _pods_that_fit(asked: Floats, free: Floats, most: int) -> int:
    """Returns how many pods that ask for `asked` [R] fit into `free` [R], at most `most`."""
    asks = asked > 0
    times = int((free[asks] // asked[asks]).min(initial=float(most)))
    return max(0, min(times, most))


def _filled(instance: ConsolidationInstance, bought: PatternMix, missing: Ints) -> tuple[list[int], list[Ints]]:
    """Returns the bought machines, each with those pods of its pattern that are missing; empty ones are left out."""
    every_kind, every_pods = np.repeat(bought.kinds, bought.machines), np.repeat(bought.pods, bought.machines, axis=0)
    kinds: list[int] = []
    pods: list[Ints] = []
    for at in np.argsort(instance.kinds.price[every_kind], kind="stable").tolist():
        held = np.minimum(every_pods[at], missing)
        if held.any():
            missing -= held
            kinds.append(int(every_kind[at]))
            pods.append(held)
    return kinds, pods


def _buy_missing(
    instance: ConsolidationInstance, kinds: list[int], pods: list[Ints], missing: Ints
) -> tuple[list[int], list[Ints]]:
    """Buys further machines for missing pods: the cheapest for each pod of the largest class, and so on."""
    part = instance.kinds
    while missing.any():
        row = int(np.flatnonzero(missing)[0])
        holds = np.minimum(part.holds[row], missing[row])
        if not holds.any():
            break
        kind = int(np.where(holds > 0, part.price / np.maximum(holds, 1), np.inf).argmin())
        held = np.zeros(len(missing), dtype=np.int64)
        free = part.capacity[kind].copy()
        for other in [row, *np.flatnonzero((missing > 0) & part.fits[:, kind]).tolist()]:
            asked = instance.requests[other]
            count = _pods_that_fit(asked, free, int(missing[other] - held[other]))
            held[other] += count
            free -= count * asked
        missing -= held
        kinds.append(kind)
        pods.append(held)
    return kinds, pods


def _on_cheapest_kinds(instance: ConsolidationInstance, kinds: list[int], pods: list[Ints]) -> tuple[Ints, Ints]:
    """Returns each machine on the cheapest kind that holds its pods, as far as bounds allow."""
    part, classes = instance.kinds, len(instance.requests)
    chosen = np.array(kinds, dtype=np.int64)
    held = np.array(pods, dtype=np.int64).reshape(len(pods), classes)
    for at, holds in enumerate(holding(part, held)):
        for kind in np.flatnonzero(holds[: chosen[at]]).tolist():
            changed = chosen.copy()
            changed[at] = kind
            if instance.affordable(np.bincount(changed, minlength=len(part.price)).astype(np.float64)):
                chosen = changed
                break
    return chosen, held
