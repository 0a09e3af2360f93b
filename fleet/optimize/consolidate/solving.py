"""The call: which machines to give back."""

from dataclasses import dataclass, replace
from math import inf

from fleet.optimize.consolidate.answer import Answer, Way
from fleet.optimize.consolidate.change import applied, between
from fleet.optimize.consolidate.cut import grounds_of
from fleet.optimize.consolidate.effort import Effort
from fleet.optimize.consolidate.named import change_of
from fleet.optimize.consolidate.problem import Problem
from fleet.optimize.consolidate.search import Found, search
from fleet.optimize.consolidate.steps import Judge, Judged

_USUAL = Effort()
_RETRIES = 2
"""Stricter searches, when a plan breaks a rule."""


def solve(problem: Problem, effort: Effort = _USUAL) -> Answer:
    """The best plan within the effort: never worse than the greedy search, and never worse than nothing.

    The search goes on with what a plan would leave until there is nothing to do, so that a plan that has been carried
    out is not followed by another one.
    """
    answer = _once(problem, effort)
    judge = Judge(problem)
    rounds, nodes = 1, answer.nodes
    while answer.steps and rounds < effort.rounds:
        left = applied(problem, answer.steps)
        more = _once(left, effort, answer.gap_usd_h)  # what is found now could have been found before
        rounds, nodes = rounds + 1, nodes + more.nodes
        if not more.steps:
            break
        better = judge.judged(between(problem, applied(left, more.steps)))
        if better.objective_usd_h <= answer.objective_usd_h:
            break
        answer = replace(answer, steps=better.steps, way=_of_all([answer.way, more.way]))
    return replace(answer, rounds=rounds, nodes=nodes)


@dataclass(frozen=True, slots=True)
class _Try:
    judged: Judged
    way: Way


def _once(problem: Problem, effort: Effort, most_usd_h: float = inf) -> Answer:
    """One search of everything, where no plan is better than `most_usd_h`; stricter ones where steps break a rule."""
    judge, asked = Judge(problem), problem
    answer: Answer | None = None
    best = _Try(Judged(()), Way.NOTHING)
    for _ in range(1 + _RETRIES):
        parts = [(ground, search(ground, effort, most_usd_h)) for ground in grounds_of(asked)]
        greedy = judge.judged(change_of(asked, [(ground, found.greedy) for ground, found in parts]))
        whole = judge.judged(change_of(asked, [(ground, found.plan) for ground, found in parts]))
        way = _of_all([found.way for _, found in parts])
        tries = (best, _Try(greedy, Way.GREEDY), _Try(whole, way))
        best = max(tries, key=lambda it: it.judged.objective_usd_h)
        answer = answer or _certified([found for _, found in parts], greedy)
        if not (whole.too_dear or whole.too_few_types):
            break
        asked = _stricter(asked, whole)
    return replace(answer or Answer(), steps=best.judged.steps, way=best.way if best.judged.steps else Way.NOTHING)


def _of_all(ways: list[Way]) -> Way:
    """The last one in the order of their definition."""
    return next((way for way in reversed(Way) if way in ways), Way.NOTHING)


def _certified(parts: list[Found], greedy: Judged) -> Answer:
    """All but the steps."""
    return Answer(
        bound_usd_h=sum(found.bound_usd_h for found in parts),
        greedy_usd_h=greedy.objective_usd_h,
        nodes=sum(found.nodes for found in parts),
        failure="; ".join(sorted({found.failure for found in parts if found.failure})),
    )


def _stricter(problem: Problem, broken: Judged) -> Problem:
    """With kinds at their dearest, so that no step costs more at worst; without machines that must not be swapped."""
    kinds, standing = problem.kinds, problem.standing
    if broken.too_dear:
        kinds = tuple(replace(it, price_usd_h=it.dearest_usd_h) for it in kinds)
    if broken.too_few_types:
        standing = tuple(replace(it, may_go=it.may_go and it.name not in broken.too_few_types) for it in standing)
    return replace(problem, kinds=kinds, standing=standing)
