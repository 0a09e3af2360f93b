"""The search for one part: greedy starts, then one programme over everything."""

from dataclasses import dataclass

import numpy as np

from fleet.capacity.purchase.solver import SolverFailed
from fleet.capacity.repack.answer import Way
from fleet.capacity.repack.bound import relaxed
from fleet.capacity.repack.effort import Effort
from fleet.capacity.repack.frame import Frame
from fleet.capacity.repack.greedy import karpenter_order
from fleet.capacity.repack.ground import EPSILON_USD_H, Ground, Plan, nothing
from fleet.capacity.repack.master import Master, Whole
from fleet.capacity.repack.realize import realized


@dataclass(eq=False)
class Found:
    """The best of a part."""

    plan: Plan
    greedy: Plan
    way: Way
    bound_usd_h: float
    nodes: int = 0
    failure: str = ""


def search(ground: Ground, effort: Effort) -> Found:
    """The best plan for a part within the effort. Without a solver, or when it fails, the best greedy one."""
    idle = nothing(ground)
    bold, careful = (karpenter_order(ground, effort.sweeps, per_move=per_move) for per_move in (False, True))
    greedy = max((idle, careful, bold), key=lambda it: it.objective_usd_h(ground))
    most = float(np.maximum(ground.price - ground.cost, 0.0)[ground.may_go].sum())
    found = Found(greedy, greedy, Way.NOTHING if greedy is idle else Way.GREEDY, most)
    if not (effort.solver and most > EPSILON_USD_H):
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
    known = found.plan.objective_usd_h(ground)
    little = max(EPSILON_USD_H, effort.close_enough * float(ground.price.sum()))
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


def _mixed(frame: Frame, whole: Whole) -> set[int]:
    """The machines of groups to which pods of several classes come: they may have no room for them one by one."""
    several = (whole.received > 0).sum(axis=1) > 1
    return {it for group, mixes in zip(frame.groups, several.tolist(), strict=True) if mixes for it in group[1:]}
