"""The search for one part: greedy starts, then one programme over everything."""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.answer import Way
from fleet.optimize.consolidate.bound import relaxed
from fleet.optimize.consolidate.effort import Effort
from fleet.optimize.consolidate.frame import Frame
from fleet.optimize.consolidate.greedy import both_orders
from fleet.optimize.consolidate.ground import EPSILON_USD_H, Ground, Plan, nothing
from fleet.optimize.consolidate.master import Master, Whole
from fleet.optimize.consolidate.realize import realized
from fleet.optimize.purchase.solver import SolverFailed


@dataclass(eq=False)
class Found:
    """The best of a part."""

    plan: Plan
    greedy: Plan
    way: Way
    bound_usd_h: float
    nodes: int = 0
    failure: str = ""


def search(ground: Ground, effort: Effort, most_usd_h: float = np.inf) -> Found:
    """The best plan for a part within the effort. Without a solver, or when it fails, the best greedy one.

    `most_usd_h`: no plan is known to be better than that.
    """
    idle = nothing(ground)
    bold, careful = both_orders(ground, effort.sweeps)
    greedy = max((idle, careful, bold), key=lambda it: it.objective_usd_h(ground))
    most = float(np.maximum(ground.price - ground.cost, 0.0)[ground.may_go].sum())
    bound_usd_h = max(min(most, most_usd_h), greedy.objective_usd_h(ground))
    found = Found(greedy, greedy, Way.NOTHING if greedy is idle else Way.GREEDY, bound_usd_h)
    little = _little_usd_h(ground, effort)
    if not (effort.solver and most > EPSILON_USD_H and bound_usd_h > greedy.objective_usd_h(ground) + little):
        return found
    try:
        _improve(ground, found, (bold, careful), effort)
    except SolverFailed as error:
        found.failure = str(error)
    return found


def _improve(ground: Ground, found: Found, starts: tuple[Plan, ...], effort: Effort) -> None:
    """Raises `SolverFailed`."""
    frame = Frame(ground)
    found.bound_usd_h = min(found.bound_usd_h, relaxed(ground, frame, effort.iterations))
    known, little = found.plan.objective_usd_h(ground), _little_usd_h(ground, effort)
    enough = known + little
    if found.bound_usd_h <= enough:
        return
    apart: set[int] = set()
    for _ in range(1 + effort.splits):
        master = Master(ground, frame)
        for start in starts:
            master.know_all(start)
        optimum = master.generate(effort.pricing, effort.iterations)
        if -optimum.objective <= enough:
            return
        whole = master.whole(effort, known, optimum)
        found.nodes += whole.nodes
        plan = realized(ground, frame.groups, whole)
        if plan is not None and plan.objective_usd_h(ground) > found.plan.objective_usd_h(ground) + EPSILON_USD_H:
            found.plan, found.way = plan, Way.WHOLE
        mixed = _mixed(frame, whole)
        if not mixed or -whole.cost_usd_h - found.plan.objective_usd_h(ground) <= little:
            return
        apart |= mixed
        frame = Frame(ground, apart)


def _little_usd_h(ground: Ground, effort: Effort) -> float:
    """So little more is not looked for."""
    return max(EPSILON_USD_H, effort.close_enough * float(ground.price.sum()))


def _mixed(frame: Frame, whole: Whole) -> set[int]:
    """The machines of groups to which pods of several classes come: they may have no room for them one by one."""
    several = (whole.received > 0).sum(axis=1) > 1
    return {it for group, mixes in zip(frame.groups, several.tolist(), strict=True) if mixes for it in group[1:]}
