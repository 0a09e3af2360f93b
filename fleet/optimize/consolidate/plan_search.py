"""Decides which machines to give back: greedy searches, then one integer programme over everything that can move."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from fleet.optimize.consolidate.consolidation_problem import (
    EPSILON_USD_H,
    ConsolidationEffort,
    ConsolidationHeuristic,
    ConsolidationProblem,
    ConsolidationSolution,
)
from fleet.optimize.consolidate.formulation import ConsolidationFormulation, upper_bound_usd_h
from fleet.optimize.consolidate.greedy import both_orders
from fleet.optimize.consolidate.instance import ConsolidationInstance, consolidation_instances
from fleet.optimize.consolidate.moves import applied, between, change_of
from fleet.optimize.consolidate.plan import ConsolidationPlan, IntegerPlan, idle, realized
from fleet.optimize.consolidate.steps import ChangeSplitter, PayingSteps
from fleet.optimize.master import MasterOptimum, PatternPool, PodPrices, PricingBudget, RestrictedMaster, generate
from fleet.optimize.packing import Floats, Ints, best_fills, holding
from fleet.optimize.solver import SolverFailed

_USUAL = ConsolidationEffort()
_RETRIES = 2
"""Further searches under stricter rules, when a plan breaks a rule."""
_LARGE = 1000
"""Columns from which on a programme is first solved with most of them fixed."""
_EACH = 2
"""Most patterns of a kind that are added in one round of pricing."""
_HELPS = 1e-7
"""Tolerance by which a reduced cost may be above the slack."""


def solve(problem: ConsolidationProblem, effort: ConsolidationEffort = _USUAL) -> ConsolidationSolution:
    """Returns the best plan within the effort: never worse than the greedy search, and never worse than nothing.

    The search goes on with what a plan would leave until there is nothing to do, so that a plan that has been carried
    out is not followed by another one.
    """
    answer = _once(problem, effort)
    splitter = ChangeSplitter(problem)
    rounds, nodes = 1, answer.nodes
    while answer.steps and rounds < effort.rounds:
        left = applied(problem, answer.steps)
        more = _once(left, effort, answer.gap_usd_h)  # the gap bounds what is left to find
        rounds, nodes = rounds + 1, nodes + more.nodes
        if not more.steps:
            break
        better = splitter.paying(between(problem, applied(left, more.steps)))
        if better.objective_usd_h <= answer.objective_usd_h:
            break
        answer = replace(answer, steps=better.steps, heuristic=_strongest([answer.heuristic, more.heuristic]))
    return replace(answer, rounds=rounds, nodes=nodes)


@dataclass(frozen=True, slots=True)
class _PlanAttempt:
    """A `_PlanAttempt` is a plan that was tried, by the steps of it that may be carried out."""

    kept: PayingSteps
    heuristic: ConsolidationHeuristic


def _once(problem: ConsolidationProblem, effort: ConsolidationEffort, most_usd_h: float = inf) -> ConsolidationSolution:
    """Searches everything once, and again under stricter rules where steps break a rule.

    `most_usd_h`: an upper bound of every plan's objective that is known already.
    """
    splitter, asked = ChangeSplitter(problem), problem
    answer: ConsolidationSolution | None = None
    best = _PlanAttempt(PayingSteps(()), ConsolidationHeuristic.NOTHING)
    for _ in range(1 + _RETRIES):
        parts = [(it, search(it, effort, most_usd_h)) for it in consolidation_instances(asked)]
        greedy = splitter.paying(change_of(asked, [(instance, found.greedy) for instance, found in parts]))
        solve_integer = splitter.paying(change_of(asked, [(instance, found.plan) for instance, found in parts]))
        heuristic = _strongest([found.heuristic for _, found in parts])
        tries = (best, _PlanAttempt(greedy, ConsolidationHeuristic.GREEDY), _PlanAttempt(solve_integer, heuristic))
        best = max(tries, key=lambda it: it.kept.objective_usd_h)
        answer = answer or _bounded([found for _, found in parts], greedy)
        if not (solve_integer.too_dear or solve_integer.too_few_types):
            break
        asked = _stricter(asked, solve_integer)
    heuristic = best.heuristic if best.kept.steps else ConsolidationHeuristic.NOTHING
    return replace(answer or ConsolidationSolution(), steps=best.kept.steps, heuristic=heuristic)


def _strongest(heuristics: list[ConsolidationHeuristic]) -> ConsolidationHeuristic:
    """Returns the heuristic that comes last in the order of their definition."""
    return next((it for it in reversed(ConsolidationHeuristic) if it in heuristics), ConsolidationHeuristic.NOTHING)


def _bounded(parts: "list[ConsolidationIncumbent]", greedy: PayingSteps) -> ConsolidationSolution:
    """Returns the solution without its steps: bounds, and the work it took."""
    return ConsolidationSolution(
        bound_usd_h=sum(found.bound_usd_h for found in parts),
        greedy_usd_h=greedy.objective_usd_h,
        nodes=sum(found.nodes for found in parts),
        failure="; ".join(sorted({found.failure for found in parts if found.failure})),
    )


def _stricter(problem: ConsolidationProblem, broken: PayingSteps) -> ConsolidationProblem:
    """Returns the problem changed so that its plans do not break the rules that were broken.

    Kinds count at their highest price, so that no step costs more at worst, and spot machines stay for which too few
    types were found.
    """
    kinds, standing = problem.kinds, problem.standing
    if broken.too_dear:
        kinds = tuple(replace(it, price_usd_h=it.dearest_usd_h) for it in kinds)
    if broken.too_few_types:
        standing = tuple(replace(it, may_go=it.may_go and it.name not in broken.too_few_types) for it in standing)
    return replace(problem, kinds=kinds, standing=standing)


# -- one independent part ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class ConsolidationIncumbent:
    """A `ConsolidationIncumbent` is the best plan for a part so far, with the best upper bound."""

    plan: ConsolidationPlan
    greedy: ConsolidationPlan
    heuristic: ConsolidationHeuristic
    bound_usd_h: float
    """Upper bound of every plan's objective."""
    nodes: int = 0
    failure: str = ""


def search(
    instance: ConsolidationInstance, effort: ConsolidationEffort, most_usd_h: float = inf
) -> ConsolidationIncumbent:
    """Returns the best plan for a part within the effort. Without a solver, or when it fails, the best greedy one.

    `most_usd_h`: an upper bound of every plan's objective that is known already.
    """
    nothing = idle(instance)
    ignoring, counting = both_orders(instance, effort.sweeps)
    greedy = max((nothing, counting, ignoring), key=lambda it: it.objective_usd_h(instance))
    most = float(np.maximum(instance.price - instance.cost, 0.0)[instance.may_go].sum())
    bound_usd_h = max(min(most, most_usd_h), greedy.objective_usd_h(instance))
    heuristic = ConsolidationHeuristic.NOTHING if greedy is nothing else ConsolidationHeuristic.GREEDY
    best = ConsolidationIncumbent(greedy, greedy, heuristic, bound_usd_h)
    negligible = _negligible_usd_h(instance, effort)
    if not (effort.solver and most > EPSILON_USD_H and bound_usd_h > greedy.objective_usd_h(instance) + negligible):
        return best
    try:
        _improve(instance, best, (ignoring, counting), effort)
    except SolverFailed as error:
        best.failure = str(error)
    return best


def _improve(
    instance: ConsolidationInstance,
    best: ConsolidationIncumbent,
    starts: tuple[ConsolidationPlan, ...],
    effort: ConsolidationEffort,
) -> None:
    """Looks for a better plan by column generation and branch and bound. Raises `SolverFailed`."""
    formulation = ConsolidationFormulation(instance)
    best.bound_usd_h = min(best.bound_usd_h, upper_bound_usd_h(instance, formulation, effort.iterations))
    known, negligible = best.plan.objective_usd_h(instance), _negligible_usd_h(instance, effort)
    enough = known + negligible
    if best.bound_usd_h <= enough:
        return
    ungrouped: set[int] = set()
    for _ in range(1 + effort.splits):
        columns = _ReplacementSearch(instance, formulation, starts, effort)
        optimum = columns.optimum()
        if -optimum.cost_usd_h <= enough:
            return
        solve_integer = columns.solve_integer(known, optimum)
        best.nodes += solve_integer.nodes
        plan = realized(instance, formulation.groups, solve_integer)
        if plan is not None and plan.objective_usd_h(instance) > best.plan.objective_usd_h(instance) + EPSILON_USD_H:
            best.plan, best.heuristic = plan, ConsolidationHeuristic.WHOLE
        mixed = _machines_with_mixed_pods(formulation, solve_integer)
        if not mixed or -solve_integer.cost_usd_h - best.plan.objective_usd_h(instance) <= negligible:
            return
        ungrouped |= mixed
        formulation = ConsolidationFormulation(instance, ungrouped)


def _negligible_usd_h(instance: ConsolidationInstance, effort: ConsolidationEffort) -> float:
    """Returns the saving in USD an hour for which a better plan is not looked for."""
    return max(EPSILON_USD_H, effort.close_enough * float(instance.price.sum()))


def _machines_with_mixed_pods(formulation: ConsolidationFormulation, solve_integer: IntegerPlan) -> set[int]:
    """Returns machines of groups that receive several classes: singly they may lack the room for them."""
    several = (solve_integer.received > 0).sum(axis=1) > 1
    return {it for group, mixes in zip(formulation.groups, several.tolist(), strict=True) if mixes for it in group[1:]}


Optimum = MasterOptimum[PodPrices]


class _ReplacementSearch:
    """A `_ReplacementSearch` finds what to buy in the formulation: column generation, then an integer solution."""

    def __init__(
        self,
        instance: ConsolidationInstance,
        formulation: ConsolidationFormulation,
        starts: tuple[ConsolidationPlan, ...],
        effort: ConsolidationEffort,
    ) -> None:
        self._instance, self._formulation, self._effort = instance, formulation, effort
        self._pool = PatternPool(len(instance.requests))
        for kind, pods in _first_patterns(instance, formulation):
            self._pool.add(kind, pods)
        for plan in starts:
            self._pool.add_all(plan.kinds, plan.pods)
        self._master = RestrictedMaster(instance.kinds, self._pool, formulation)

    def optimum(self) -> Optimum:
        """Returns the optimum in fractions when no more patterns help. Raises `SolverFailed`."""
        return generate(self._master, self._price, PricingBudget(self._effort.pricing, self._effort.iterations))

    def _price(self, found: Optimum) -> bool:
        """Adds improving patterns. Returns whether there were some."""
        part = self._instance.kinds
        if not len(part.price) or not len(part.demand):
            return False
        kinds, pods = best_fills(part, np.arange(len(part.price)), found.prices.worth, part.demand)
        return self._pool.add_improving(found.prices, kinds, pods, _EACH)

    def solve_integer(self, at_least_usd_h: float, optimum: Optimum) -> IntegerPlan:
        """Returns the best integer solution within the effort, of patterns that can better `at_least_usd_h`.

        In a large programme what the fractional optimum has at whole numbers is first fixed; that is the answer where
        it is close enough, or where gangs have too many options for more. Raises `SolverFailed`.
        """
        patterns = np.flatnonzero(optimum.reduced <= -optimum.cost_usd_h - at_least_usd_h + _HELPS)
        near = self._formulation.options > self._effort.gang_options
        if len(optimum.values) > _LARGE or near:
            enough = inf if near else self._effort.near * float(self._instance.price.sum())
            with suppress(SolverFailed):  # within limits this may have no solution
                found = self._solve_among(patterns, optimum.values, near=near)
                if found.cost_usd_h - optimum.cost_usd_h <= enough:
                    return found
        return self._solve_among(patterns, None)

    def _solve_among(self, patterns: Ints, with_fixed: Floats | None, *, near: bool = False) -> IntegerPlan:
        """Returns the best integer solution over some patterns, near a fractional solution if one is given."""
        programme = None if with_fixed is None else self._formulation.with_fixed(with_fixed, near=near)
        values, bought, nodes = self._master.solve_integer(patterns, self._effort.nodes, programme=programme)
        price = self._instance.kinds.price[np.repeat(bought.kinds, bought.machines)]
        cost_usd_h = self._formulation.cost_usd_h(values) + float(price.sum())
        return IntegerPlan(*self._formulation.read(values), bought, cost_usd_h, nodes)


def _first_patterns(
    instance: ConsolidationInstance, formulation: ConsolidationFormulation
) -> Iterator[tuple[int, Ints]]:
    """Yields, for each row, the machine on which it alone is cheapest; then the cheapest for all on a machine."""
    part = instance.kinds
    if not len(part.price):
        return
    for row in range(len(part.demand)):
        if part.fits[row].any():
            kind = int(part.price_alone[row].argmin())
            pods = np.zeros(len(part.demand), dtype=np.int64)
            pods[row] = part.holds[row, kind]
            yield kind, pods
    first = [group[0] for group in formulation.groups]
    for machine, holds in zip(first, holding(part, instance.independent[first]), strict=True):
        kind = int(holds.argmax())
        if holds[kind] and part.price[kind] < instance.price[machine] and instance.independent[machine].any():
            yield kind, instance.independent[machine]
