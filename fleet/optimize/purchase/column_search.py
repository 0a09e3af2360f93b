"""Searches one independent part: greedy heuristics, column generation, and the best integer mix of its patterns.

Improving patterns are looked for by filling machines greedily, in neighbourhoods of which each finds what those before
it miss. Most come from small changes of what the optimum buys at present: those are few machines, and prices that are
right for them are right for their neighbours. Only where all changes fail the kinds are filled from nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.optimize.master import (
    MasterOptimum,
    PatternMix,
    PatternPool,
    PricingBudget,
    RestrictedMaster,
    generate,
)
from fleet.optimize.packing import Floats, Ints, PackingInstance, best_fills, filled_up, holding
from fleet.optimize.purchase.bounds import (
    EACH,
    LowerBound,
    PurchasePrices,
    by_bulk,
    by_fullest_machines,
    by_one_resource,
)
from fleet.optimize.purchase.heuristics import by_choice, by_value, provisioning_order, worths_alone
from fleet.optimize.purchase.insertion import by_insertion
from fleet.optimize.purchase.mix import trimmed, within_limits
from fleet.optimize.purchase.purchase_problem import PurchaseEffort, PurchaseHeuristic, SearchSteps
from fleet.optimize.solver import Programme, SolverFailed, SparseMatrix

_BEGUN = 300_000
"""Most machines times classes that `_from_each_class` fills at once."""
_WHOLE = 1e-6
"""Fractions this near to the next whole number are rounded up."""

_SAME = 1e-8
"""Bounds are a little lower than they need to be, for what floating point loses."""
Optimum = MasterOptimum[PurchasePrices]
Fills = tuple[Ints, Ints]
"""Kinds [M] and pods [M, C]."""
Neighbourhood = Callable[[PackingInstance, PatternMix, Floats], Fills]
"""A function that fills machines, given what is bought and the worth of a pod of each class [C]."""


@dataclass(eq=False)
class PurchaseIncumbent:
    """A `PurchaseIncumbent` is the best purchase for a part so far, with the best lower bound."""

    part: PackingInstance
    mix: PatternMix
    heuristic: PurchaseHeuristic
    baseline: PatternMix
    bound: LowerBound
    steps: SearchSteps = field(default_factory=SearchSteps)
    failure: str = ""

    @property
    def cost_usd_h(self) -> float:
        """Returns what its machines cost in USD an hour."""
        return self.mix.cost_usd_h(self.part)

    @property
    def bound_usd_h(self) -> float:
        """Returns the lower bound in USD an hour, which is never above the cost."""
        return min(self.bound.usd_h, self.cost_usd_h)

    def offer(self, mix: PatternMix, heuristic: PurchaseHeuristic) -> None:
        """Replaces the purchase if another one holds more pods, or as many for less, within the limits.

        Fractions of the solver keep limits within its tolerances only; here they are kept exactly.
        """
        if within_limits(self.part, mix) and self._rank(mix) < self._rank(self.mix):
            self.mix, self.heuristic = mix, heuristic

    def raise_bound(self, bound: LowerBound) -> None:
        """Replaces the lower bound if another one is higher."""
        self.bound = max(self.bound, bound, key=lambda it: it.usd_h)

    def cannot_be_beaten(self) -> bool:
        """Returns whether it holds all pods and costs no more than its bound: nothing else is worth looking for."""
        pods_left, cost_usd_h = self._rank(self.mix)
        return not pods_left and cost_usd_h - self.bound_usd_h <= _SAME * cost_usd_h

    def _rank(self, mix: PatternMix) -> tuple[int, float]:
        """Returns (pods without a place, cost): lower is better."""
        return int((self.part.demand - mix.placed).sum()), round(mix.cost_usd_h(self.part), 9)


def greedy(part: PackingInstance, effort: PurchaseEffort) -> PurchaseIncumbent:
    """Returns the best purchase of the heuristics that need no solver, with a bound that needs none."""
    baseline = provisioning_order(part)
    best = PurchaseIncumbent(part, baseline, PurchaseHeuristic.BASELINE, baseline, by_one_resource(part))
    if best.cannot_be_beaten():
        return best
    best.offer(by_choice(part), PurchaseHeuristic.CHOICE)
    if _pays_to_insert(part, effort):
        best.offer(by_insertion(part), PurchaseHeuristic.INSERTION)
    for worth in worths_alone(part) if len(part.demand) <= effort.value_classes else ():
        best.offer(by_value(part, worth), PurchaseHeuristic.VALUE)
    return best


def _pays_to_insert(part: PackingInstance, effort: PurchaseEffort) -> bool:
    """Returns whether machines hold few pods whatever their size, or there is no better way for so many classes."""
    few = bool(part.apart.any()) or part.fits.sum() > effort.pattern_pairs
    return few and not part.open.any() and len(part.demand) * int(part.demand.sum()) <= effort.insertion_pods


def quick_bound(part: PackingInstance, effort: PurchaseEffort) -> LowerBound:
    """Returns the best bound that needs no search, whether the solver works or not."""
    bound, pairs = by_one_resource(part), int(part.fits.sum())
    if not effort.solver or pairs > effort.bulk_pairs or (pairs > effort.eager_pairs and not _pays(part, effort)):
        return bound
    try:
        return max(bound, by_bulk(part, effort.iterations), key=lambda it: it.usd_h)
    except SolverFailed:
        return bound


def improved(best: PurchaseIncumbent, effort: PurchaseEffort, whole_usd_h: float) -> PurchaseIncumbent:
    """Returns the best purchase within the effort, or one near enough to its bound to be good enough.

    Without a solver, or where it fails, that is what was found already. `whole_usd_h` is what all parts cost so far.
    """
    if not (effort.solver and best.mix.placed.any() and _pays(best.part, effort)):
        return best
    if (best.mix.placed < best.part.demand).any():  # the solver is not asked for pods that limits leave no room for
        best = _without_unplaced_pods(best)
    try:
        _improve(best, effort, whole_usd_h)
    except SolverFailed as error:
        best.failure = str(error)
    return best


def _pays(part: PackingInstance, effort: PurchaseEffort) -> bool:
    """Returns whether a search by patterns pays: not for too many pairs, nor where hardly two machines are alike."""
    varied = bool(part.apart.any()) and len(part.demand) > effort.value_classes
    return not varied and int(part.fits.sum()) <= effort.pattern_pairs


def _without_unplaced_pods(best: PurchaseIncumbent) -> PurchaseIncumbent:
    """Returns the incumbent of the part without the pods that have no place."""
    wanted = best.mix.placed
    kept = wanted > 0
    part = best.part.with_demand(wanted)
    mix = PatternMix(best.mix.kinds, best.mix.pods[:, kept], best.mix.machines)
    baseline = PatternMix(best.baseline.kinds, best.baseline.pods[:, kept], best.baseline.machines)
    return replace(best, part=part, mix=mix, baseline=baseline, bound=by_one_resource(part))


def _improve(best: PurchaseIncumbent, effort: PurchaseEffort, whole_usd_h: float) -> None:
    """Takes the steps that need the solver, each only while it may save enough. Raises `SolverFailed`."""
    enough_usd_h, pairs = effort.close_enough * whole_usd_h, int(best.part.fits.sum())
    if best.cost_usd_h - best.bound_usd_h <= enough_usd_h:
        return
    bound = by_bulk(best.part, effort.iterations)
    best.raise_bound(bound)
    if pairs > effort.eager_pairs:  # its prices are nearly those that a search ends with
        best.offer(by_value(best.part, bound.worth), PurchaseHeuristic.VALUE)
        enough_usd_h = effort.little(pairs) * whole_usd_h
    if best.cost_usd_h - best.bound_usd_h > enough_usd_h:
        _ColumnSearch(best, effort, effort.close_enough * whole_usd_h).run(bound.worth)


class _ColumnSearch:
    """A `_ColumnSearch` runs column generation for one part and makes integer mixes of its patterns."""

    def __init__(self, best: PurchaseIncumbent, effort: PurchaseEffort, enough_usd_h: float) -> None:
        self._best, self._part = best, best.part
        self._effort, self._enough_usd_h = effort, enough_usd_h
        self._pool = PatternPool(len(self._part.demand))
        self._master = RestrictedMaster(self._part, self._pool, _CoveringFormulation(self._part))
        work = min(effort.work, effort.work_a_pod * int(self._part.demand.sum()))
        self._budget = PricingBudget(effort.rounds, effort.iterations, work, enough_usd_h)

    def run(self, worth: Floats) -> None:
        """Searches, starting from a worth of a pod of each class [C]. Raises `SolverFailed`."""
        best, part, effort = self._best, self._part, self._effort
        for mix in (best.baseline, best.mix):
            self._pool.add_all(mix.kinds, mix.pods)
        for it in (worth, *(worths_alone(part) if len(part.demand) > effort.value_classes else ())):
            self._offer(by_value(part, it), PurchaseHeuristic.VALUE)
        optimum = self._fractional_optimum()
        self._offer(self._rounded(optimum), PurchaseHeuristic.ROUNDED)
        if not self._exact_pricing:  # pricing has missed patterns: machines for the pods that rounding leaves over
            optimum = generate(self._master, self._price, self._budget)
            self._offer(self._rounded(optimum), PurchaseHeuristic.ROUNDED)
        if self._promises(optimum, part.fits.sum() / effort.whole_pairs):
            self._solve_integer(optimum)
        best.steps += SearchSteps(rounds=self._budget.rounds, patterns=len(self._pool))

    @property
    def _exact_pricing(self) -> bool:
        """Returns whether the part is small enough for pricing that misses no pattern."""
        return bool(self._part.fits.sum() <= self._effort.exact_pairs)

    def _fractional_optimum(self) -> Optimum:
        """Returns the optimum in fractions; exact pricing adds patterns and raises the bound where it is affordable."""
        optimum = generate(self._master, self._price, self._budget)
        for _ in range(self._effort.exact_rounds if self._exact_pricing else 0):
            bound, fresh = by_fullest_machines(self._part, self._pool, optimum.prices, self._effort.exact_nodes)
            self._best.raise_bound(bound)
            if not fresh:
                break
            optimum = generate(self._master, self._price, self._budget)
        return optimum

    def _price(self, found: Optimum) -> bool:
        """Adds improving patterns of the first neighbourhood that has any. Returns whether there were some."""
        bought = self._pool.bought(found.amounts)
        for neighbourhood in NEIGHBOURHOODS:
            kinds, pods = neighbourhood(self._part, bought, found.prices.worth)
            self._budget.filled(pods)
            if self._pool.add_improving(found.prices, kinds, pods, EACH):
                return True
        return False

    def _offer(self, mix: PatternMix, heuristic: PurchaseHeuristic) -> None:
        """Offers a mix to the incumbent, and adds its patterns."""
        self._pool.add_all(mix.kinds, mix.pods)
        self._best.offer(mix, heuristic)

    def _rounded(self, optimum: Optimum) -> PatternMix:
        """Returns the fractions rounded down, with machines by value for the pods that are then missing."""
        down = np.zeros(len(self._pool))
        down[: len(optimum.amounts)] = np.floor(optimum.amounts + _WHOLE)
        return by_value(self._part, optimum.prices.worth, self._pool.mix(down))

    def _promises(self, optimum: Optimum, times: float) -> bool:
        """Returns whether whole mixes may save so many times what is enough, at least once."""
        promised = self._best.cost_usd_h - max(optimum.cost_usd_h, self._best.bound_usd_h)
        return bool(promised > self._enough_usd_h * max(1.0, times))

    def _dived(self, optimum: Optimum) -> PatternMix:
        """Returns a mix that takes the whole machines of the fractions, then solves anew for the pods that are left.

        Where there is no whole machine, one of the pattern with the largest fraction is taken: diving without going
        back (Vanderbeck, "Branching in branch-and-price"), as far as patterns are known. Raises `SolverFailed`.
        """
        part, amounts = self._part, optimum.amounts
        kinds, pods = self._pool.patterns(np.arange(len(amounts)))
        taken, left, useful = np.zeros(len(self._pool)), part.demand.copy(), np.arange(len(amounts))
        while True:
            whole = np.floor(amounts + _WHOLE)
            if not whole.any():
                whole[amounts.argmax()] = 1.0
            taken[useful] += whole
            left = np.maximum(left - whole.astype(np.int64) @ pods[useful], 0)
            rows = np.flatnonzero(left)
            if not len(rows):
                return trimmed(part, self._pool.mix(taken))
            useful = np.flatnonzero(pods[:, rows].any(axis=1))
            held = np.minimum(pods[useful][:, rows], left[rows]).astype(np.float64)
            programme = Programme(left[rows].astype(np.float64), np.full(len(rows), np.inf))
            programme.add_columns(part.price[kinds[useful]], SparseMatrix.of(held))
            amounts = programme.solve(self._effort.iterations).values

    def _solve_integer(self, optimum: Optimum) -> None:
        """Looks for an integer mix of the incumbent's patterns and of others with small reduced costs.

        Patterns that alone would cost more than what is known are left out. Integer mixes also need patterns by which
        the fractions would cost more, though not more than that: what is cheapest in fractions is not what fits
        together in the end.
        """
        slack_usd_h = self._best.cost_usd_h - optimum.cost_usd_h
        bought = self._pool.bought(optimum.amounts)
        for neighbourhood in NEIGHBOURHOODS:
            fills = neighbourhood(self._part, bought, optimum.prices.worth)
            self._pool.add_improving(optimum.prices, *fills, EACH, slack_usd_h)
        optimum = self._master.solve(self._effort.iterations)
        if not self._part.bounded:
            self._offer(self._dived(optimum), PurchaseHeuristic.DIVED)
            if not self._promises(optimum, len(self._pool) / self._effort.whole_known):
                return
        cheap = np.argsort(optimum.reduced, kind="stable")[: self._effort.whole_patterns]
        cheap = cheap[optimum.reduced[cheap] <= self._best.cost_usd_h - optimum.cost_usd_h]
        among = np.union1d(np.flatnonzero(self._pool.amounts(self._best.mix)), cheap)
        _, mix, nodes = self._master.solve_integer(among, self._effort.nodes, self._best.mix, around=False)
        self._best.steps += SearchSteps(nodes=nodes)
        self._best.offer(trimmed(self._part, mix), PurchaseHeuristic.INTEGER)


class _CoveringFormulation:
    """A `_CoveringFormulation` is the set covering problem: the machines bought must hold every pod.

    Rows: classes, limits, kinds with a bound.
    """

    def __init__(self, part: PackingInstance) -> None:
        self._part = part
        self._bounded = np.flatnonzero(np.isfinite(part.most))

    def programme(self) -> Programme:
        """Returns the programme without any patterns. Raises `SolverFailed`."""
        part = self._part
        classes, others = len(part.demand), len(part.limits) + len(self._bounded)
        lower = np.concatenate([part.demand.astype(np.float64), np.full(others, -np.inf)])
        upper = np.concatenate([np.full(classes, np.inf), part.limits / part.scale, part.most[self._bounded]])
        return Programme(lower, upper)

    def entries(self, kinds: Ints, pods: Ints) -> SparseMatrix:
        """Returns [N, rows] the pods, what a machine counts against limits, and 1 for its kind's bound."""
        usage = (self._part.usage / self._part.scale[:, None]).T[kinds]
        bounds = (kinds[:, None] == self._bounded[None]).astype(np.float64)
        return SparseMatrix.of(np.hstack([pods.astype(np.float64), usage, bounds]))

    def prices(self, duals: Floats) -> PurchasePrices:
        """Returns the duals as prices of pods, limits and kinds."""
        classes, limits = len(self._part.demand), len(self._part.limits)
        on_kinds = np.zeros(len(self._part.price))
        on_kinds[self._bounded] = np.maximum(-duals[classes + limits :], 0.0)
        on_limits = np.maximum(-duals[classes : classes + limits], 0.0) / self._part.scale
        return PurchasePrices.of(self._part, np.maximum(duals[:classes], 0.0), on_limits, on_kinds)


# -- neighbourhoods ---------------------------------------------------------------------------------------------------


def _one_less(part: PackingInstance, bought: PatternMix, worth: Floats) -> Fills:
    """Fills the machines bought anew, each with one pod less of one class."""
    pattern, row = np.nonzero(bought.pods)
    full = bought.pods[pattern]
    begun = full.copy()
    begun[np.arange(len(row)), row] -= 1
    return _refilled(part, worth, bought.kinds[pattern], full, begun)


def _by_orders(part: PackingInstance, _: PatternMix, worth: Floats) -> Fills:
    """Fills a machine of each kind by several orders of the classes."""
    return best_fills(part, np.arange(len(part.price)), worth, part.demand)


def _without_or_alone(part: PackingInstance, bought: PatternMix, worth: Floats) -> Fills:
    """Fills the machines bought anew, without one class, and with one class alone."""
    pattern, row = np.nonzero(bought.pods)
    full, each = bought.pods[pattern], np.arange(len(row))
    without, alone = full.copy(), np.zeros_like(full)
    without[each, row], alone[each, row] = 0, full[each, row]
    kinds = np.tile(bought.kinds[pattern], 2)
    return _refilled(part, worth, kinds, np.vstack([full, full]), np.vstack([without, alone]))


def _elsewhere(part: PackingInstance, bought: PatternMix, worth: Floats) -> Fills:
    """Fills every other kind that holds the pods of a machine bought, starting with these pods."""
    pattern, kinds = np.nonzero(holding(part, bought.pods))
    full = bought.pods[pattern]
    return _refilled(part, worth, kinds, full, full)


def _from_each_class(part: PackingInstance, _: PatternMix, worth: Floats) -> Fills:
    """Fills each kind starting with one pod, or as many as it holds, of each class.

    Returns nothing where these are more than `_BEGUN`.
    """
    kinds, row = np.nonzero(part.fits.T & (worth > 0))
    if 2 * len(kinds) * len(worth) > _BEGUN:
        kinds, row = kinds[:0], row[:0]
    many = np.tile(kinds, 2)
    begun = np.zeros((len(many), len(worth)), dtype=np.int64)
    begun[np.arange(len(kinds)), row] = 1
    begun[np.arange(len(kinds), len(many)), row] = part.holds[row, kinds]
    rough = filled_up(part, many, worth, begun, part.demand, begun)
    return _refilled(part, worth, many, rough, begun)


def _refilled(part: PackingInstance, worth: Floats, kinds: Ints, full: Ints, begun: Ints) -> Fills:
    """Fills up machines `begun` with some pods [M, C], in the order of scarcity of `full` ones [M, C]."""
    return kinds, filled_up(part, kinds, worth, full, part.demand, begun)


NEIGHBOURHOODS: tuple[Neighbourhood, ...] = (
    _one_less, _by_orders, _without_or_alone, _elsewhere, _from_each_class,
)  # fmt: skip
"""The quickest first; each is tried only where those before it find nothing."""
