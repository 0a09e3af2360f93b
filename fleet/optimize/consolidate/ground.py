"""A part of a problem as arrays: what the search works on. `cut.py` makes them."""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.purchase.part import Bools, Floats, Ints, Part

EPSILON_USD_H = 1e-6
"""Rounding must not make a plan of what saves nothing."""


@dataclass(frozen=True, eq=False)
class Gang:
    """A block that moves whole, from S machines."""

    block: int
    machines: Ints
    """[S]"""
    seats: Floats
    """[S, R] what it takes there."""
    ways: tuple[Ints, ...]
    """Each [S, C]: its pods as rows of classes when it moves so (to that lane); at least one."""
    cost_usd_h: float
    """What moving it counts."""


@dataclass(frozen=True, eq=False)
class Ground:
    """M machines, C rows of classes (a class; for blocks that keep to a lane one for each lane), K kinds to buy."""

    requests: Floats
    """[C, R], scaled by what divides all requests of a resource."""
    price: Floats
    """[M] USD an hour."""
    free: Floats
    """[M, R]"""
    fits: Bools
    """[C, M]: the class may stand there."""
    loose: Ints
    """[M, C] pods that may each be moved by itself."""
    cost: Floats
    """[M] USD an hour that moving them off counts."""
    may_go: Bools
    """[M]"""
    spot: Bools
    """[M]"""
    kind: Ints
    """[M] the column of the machine's own kind among `kinds`, -1 where it cannot be bought."""
    budget: Ints
    """[M] the row of `budgets` that a machine that goes counts against, -1 where none binds."""
    budgets: Ints
    """[P]"""
    gangs: tuple[Gang, ...]
    kinds: Part
    """What can be bought, `demand` being all pods that may move."""
    worst: Floats
    """[K] USD an hour at worst."""
    spots: Bools
    """[K]"""
    most_bought: float
    """inf without an end."""
    machines: Ints
    """[M] their numbers in the problem."""
    classes: tuple[tuple[int, ...], ...]
    """[C] the numbers of the problem's classes that are counted as one row."""

    def holds(self, free: Floats, fits: Bools) -> Ints:
        """[C, N] pods of one class for which there is room in `free` [N, R], no more than there are to move."""
        found = np.repeat(self.kinds.demand[:, None].astype(np.float64), len(free), axis=1)
        for resource in range(self.requests.shape[1]):
            asking = np.flatnonzero(self.requests[:, resource])
            times = np.floor(free[None, :, resource] / self.requests[asking, resource, None])
            found[asking] = np.minimum(found[asking], times)
        whole: Ints = np.where(fits, np.maximum(found, 0.0), 0.0).astype(np.int64)
        return whole


@dataclass(frozen=True, eq=False)
class Plan:
    """What becomes of a ground: N machines bought."""

    removed: Bools
    """[M]"""
    ways: Ints
    """[gangs] the way in which each moves, -1 where it stays."""
    received: Ints
    """[M, C] pods that come to machines that stay."""
    kinds: Ints
    """[N]"""
    pods: Ints
    """[N, C]"""

    def disruption_usd_h(self, ground: Ground) -> float:
        """What moving counts."""
        gangs = sum(gang.cost_usd_h for gang, way in zip(ground.gangs, self.ways.tolist(), strict=True) if way >= 0)
        return float(ground.cost[self.removed].sum()) + gangs

    def saving_usd_h(self, ground: Ground) -> float:
        """What goes less what comes."""
        return float(ground.price[self.removed].sum() - ground.kinds.price[self.kinds].sum())

    def objective_usd_h(self, ground: Ground) -> float:
        """Saving less disruption."""
        return self.saving_usd_h(ground) - self.disruption_usd_h(ground)


def nothing(ground: Ground) -> Plan:
    """The plan that leaves all as it is."""
    machines, classes = ground.loose.shape
    none = np.zeros(0, dtype=np.int64)
    return Plan(
        np.zeros(machines, dtype=bool),
        np.full(len(ground.gangs), -1),
        np.zeros((machines, classes), dtype=np.int64),
        none,
        np.zeros((0, classes), dtype=np.int64),
    )


def displaced(ground: Ground, plan: Plan) -> Ints:
    """[C] pods that need another place."""
    wanted: Ints = ground.loose[plan.removed].sum(axis=0)
    for gang, way in zip(ground.gangs, plan.ways.tolist(), strict=True):
        if way >= 0:
            wanted = wanted + gang.ways[way].sum(axis=0)
    return wanted


def room(ground: Ground, plan: Plan) -> Floats:
    """[M, R] what is free once gangs have left."""
    free = ground.free.copy()
    for gang, way in zip(ground.gangs, plan.ways.tolist(), strict=True):
        if way >= 0:
            free[gang.machines] += gang.seats
    return free


def valid(ground: Ground, plan: Plan) -> bool:
    """Whether every pod that leaves has one place that holds it, gangs are whole, and nothing exceeds a bound."""
    part, bought = ground.kinds, np.bincount(plan.kinds, minlength=len(ground.kinds.price)).astype(np.float64)
    going = plan.removed
    whole = all(
        way >= 0 or not going[gang.machines].any() for gang, way in zip(ground.gangs, plan.ways.tolist(), strict=True)
    )
    left = plan.received.sum(axis=0) + plan.pods.sum(axis=0) == displaced(ground, plan)
    counted = ground.budget[going]
    spent = np.bincount(counted[counted >= 0], minlength=len(ground.budgets))
    return bool(
        whole
        and left.all()
        and not (going & ~ground.may_go).any()
        and not plan.received[going].any()
        and not ((plan.received.T > 0) & ~ground.fits).any()
        and (plan.received @ ground.requests <= room(ground, plan)).all()
        and not ((plan.pods.T > 0) & ~part.fits[:, plan.kinds]).any()
        and (plan.pods @ ground.requests <= part.capacity[plan.kinds]).all()
        and (spent <= ground.budgets).all()
        and affordable(ground, bought)
    )


def affordable(ground: Ground, bought: Floats) -> bool:
    """Whether so many machines of each kind [K] may be bought."""
    part = ground.kinds
    within = (part.usage @ bought <= part.limits * (1 + 1e-9) + 1e-9).all()
    return bool(bought.sum() <= ground.most_bought and (bought <= part.most).all() and within)
