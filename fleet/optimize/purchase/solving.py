"""The call: the cheapest machines for a batch of pods."""

from collections import ChainMap
from collections.abc import Sequence
from math import inf

from fleet.optimize.purchase.answer import Purchase, Steps, Way
from fleet.optimize.purchase.baseline import karpenter_order
from fleet.optimize.purchase.cut import parts_of
from fleet.optimize.purchase.effort import Effort
from fleet.optimize.purchase.lanes import Lanes, solve_grouped
from fleet.optimize.purchase.named import batches, by_class
from fleet.optimize.purchase.part import Ints, Member, Part
from fleet.optimize.purchase.problem import Problem
from fleet.optimize.purchase.search import Found, greedy, improved

_USUAL = Effort()


def solve(problem: Problem, effort: Effort = _USUAL) -> Purchase:
    """The best purchase within the effort; never costlier than Karpenter's order for as many pods."""
    if any(it.group and it.count for it in problem.classes):
        return solve_grouped(problem, effort, _solved)
    return _solved(problem, {}, effort)


def _solved(problem: Problem, lanes: Lanes, effort: Effort) -> Purchase:
    """With the groups in their lanes, but maybe not all of their pods."""
    parts, unfit = parts_of(problem, lanes)
    quick = [greedy(part, effort) for part in parts]
    enough_usd_h = effort.close_enough * sum(it.cost_usd_h for it in quick)
    found = [improved(it, effort, enough_usd_h) for it in quick]
    left = dict(unfit)
    for part, it in zip(parts, found, strict=True):
        left |= _missing(part, it.part.members, it.mix.placed)
    worths = [by_class(it.part, it.certificate.worth.tolist()) for it in found]
    dearest = sorted(found, key=lambda it: (-it.cost_usd_h, it.part.members))
    return Purchase(
        batches=tuple(batch for it in found for batch in batches(it.part, it.mix)),
        cost_usd_h=sum(it.cost_usd_h for it in found),
        bound_usd_h=sum(it.bound_usd_h for it in found),
        baseline_usd_h=sum(_baseline(it) for it in found),
        left=left,
        worth_usd_h=dict(ChainMap(*worths)),
        lanes=dict(lanes),
        ways=tuple(it.way for it in dearest),
        steps=sum((it.steps for it in found), Steps()),
        failure="; ".join(sorted({it.failure for it in found if it.failure})),
    )


def karpenters(problem: Problem) -> Purchase:
    """What Karpenter's order would buy; groups are not kept together."""
    parts, unfit = parts_of(problem, {})
    mixes = [(part, karpenter_order(part)) for part in parts]
    cost_usd_h = sum(mix.cost_usd_h(part) for part, mix in mixes)
    left = dict(unfit)
    for part, mix in mixes:
        left |= _missing(part, part.members, mix.placed)
    return Purchase(
        batches=tuple(batch for part, mix in mixes for batch in batches(part, mix)),
        cost_usd_h=cost_usd_h,
        baseline_usd_h=cost_usd_h,
        left=left,
        ways=(Way.BASELINE,) * len(parts),
    )


def _baseline(found: Found) -> float:
    placed = found.baseline.placed
    return found.baseline.cost_usd_h(found.part) if (placed >= found.mix.placed).all() else inf


def _missing(part: Part, members: Sequence[Sequence[Member]], placed: Ints) -> dict[str, int]:
    """Class -> pods of the part without a machine. The search may have left out what there is no room for."""
    held: dict[str, int] = {}
    for group, count in zip(members, placed.tolist(), strict=True):
        rest = count
        for name, pods in group:
            held[name] = min(rest, pods)
            rest -= held[name]
    every = ((name, pods) for group in part.members for name, pods in group)
    return {name: pods - held.get(name, 0) for name, pods in every if pods > held.get(name, 0)}
