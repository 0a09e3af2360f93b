"""The search for one part: greedy starts, patterns by column generation, the best whole mix of them, and the bounds."""

from dataclasses import dataclass, field, replace

import numpy as np

from fleet.optimize.purchase.answer import Steps, Way
from fleet.optimize.purchase.baseline import karpenter_order
from fleet.optimize.purchase.bound import Certificate, aggregate, by_one_resource
from fleet.optimize.purchase.choice import by_choice
from fleet.optimize.purchase.columns import Master, Optimum, Pool
from fleet.optimize.purchase.effort import Effort
from fleet.optimize.purchase.exact import priced
from fleet.optimize.purchase.mix import Mix, trimmed, within
from fleet.optimize.purchase.part import Part
from fleet.optimize.purchase.pricing import Budget, generate, surrounded
from fleet.optimize.purchase.solver import SolverFailed
from fleet.optimize.purchase.value import by_value, simple_worths


@dataclass(eq=False)
class Found:
    """The best of a part so far."""

    part: Part
    mix: Mix
    way: Way
    baseline: Mix
    certificate: Certificate
    steps: Steps = field(default_factory=Steps)
    failure: str = ""

    @property
    def cost_usd_h(self) -> float:
        """Of its machines."""
        return self.mix.cost_usd_h(self.part)

    @property
    def bound_usd_h(self) -> float:
        """Never above the cost."""
        return min(self.certificate.bound_usd_h, self.cost_usd_h)

    def offer(self, mix: Mix, way: Way) -> None:
        """Another set of machines: it is taken when it holds more pods, or as many for less, within the limits.

        Fractions of the solver keep limits within its tolerances only; here they are kept exactly.
        """
        if within(self.part, mix) and self._rank(mix) < self._rank(self.mix):
            self.mix, self.way = mix, way

    def prove(self, certificate: Certificate) -> None:
        """Another certificate."""
        self.certificate = max(self.certificate, certificate, key=lambda it: it.bound_usd_h)

    def _rank(self, mix: Mix) -> tuple[int, float]:
        return int((self.part.demand - mix.placed).sum()), round(mix.cost_usd_h(self.part), 9)


def greedy(part: Part, effort: Effort) -> Found:
    """The ways that need no solver, and a bound that needs none."""
    baseline = karpenter_order(part)
    found = Found(part, baseline, Way.BASELINE, baseline, by_one_resource(part))
    found.offer(by_choice(part), Way.CHOICE)
    for worth in simple_worths(part) if len(part.demand) <= effort.value_classes else ():
        found.offer(by_value(part, worth), Way.VALUE)
    return found


def _narrowed(found: Found) -> Found:
    """The part without the pods that have no place."""
    wanted = found.mix.placed
    kept = wanted > 0
    part = found.part.want(wanted)
    mix = Mix(found.mix.kinds, found.mix.pods[:, kept], found.mix.machines)
    baseline = Mix(found.baseline.kinds, found.baseline.pods[:, kept], found.baseline.machines)
    return replace(found, part=part, mix=mix, baseline=baseline, certificate=by_one_resource(part))


def improved(found: Found, effort: Effort, enough_usd_h: float) -> Found:
    """The best within the effort, or what is less than `enough_usd_h` above its bound.

    Without a solver, or where it fails, that is what was found already.
    """
    if not (effort.solver and found.mix.placed.any()) or found.part.fits.sum() > effort.pattern_pairs:
        return found
    if (found.mix.placed < found.part.demand).any():  # what the limits leave no room for is not asked of the solver
        found = _narrowed(found)
    try:
        _improve(found, effort, enough_usd_h)
    except SolverFailed as error:
        found.failure = str(error)
    return found


def _improve(found: Found, effort: Effort, enough_usd_h: float) -> None:
    """The steps that need the solver, each only while it may save enough. Raises `SolverFailed`."""
    part, pool = found.part, Pool(found.part)
    certificate = aggregate(part, effort.iterations)
    found.prove(certificate)
    if found.cost_usd_h - found.bound_usd_h <= enough_usd_h:
        return
    for mix in (found.baseline, found.mix):
        pool.add_all(mix)
    for worth in (certificate.worth, *(simple_worths(part) if len(part.demand) > effort.value_classes else ())):
        _offer(found, pool, by_value(part, worth), Way.VALUE)
    master = Master(part, pool)
    budget = Budget(effort, enough_usd_h)
    optimum = _generated(found, pool, master, budget, effort)
    _offer(found, pool, _rounded(part, pool, optimum), Way.ROUNDED)
    if not _exactly(part, effort):  # the pods that rounding leaves over make patterns that pricing has missed
        optimum = generate(part, pool, master, budget)
        _offer(found, pool, _rounded(part, pool, optimum), Way.ROUNDED)
    else:
        _offer(found, pool, by_value(part, optimum.prices.worth), Way.VALUE)
    promised = found.cost_usd_h - max(optimum.cost_usd_h, found.bound_usd_h)
    if promised > enough_usd_h * max(1.0, part.fits.sum() / effort.whole_pairs):
        _whole(found, pool, master, optimum, effort)
    found.steps += Steps(rounds=budget.rounds, patterns=len(pool))


def _exactly(part: Part, effort: Effort) -> bool:
    """Whether the part is small enough for pricing that misses nothing."""
    return bool(part.fits.sum() <= effort.exact_pairs)


def _generated(found: Found, pool: Pool, master: Master, budget: Budget, effort: Effort) -> Optimum:
    """The best fractions, with what exact pricing adds and proves where the classes are few enough for it."""
    part = found.part
    optimum = generate(part, pool, master, budget)
    for _ in range(effort.exact_rounds if _exactly(part, effort) else 0):
        certificate, fresh = priced(part, pool, optimum.prices, effort.exact_nodes)
        found.prove(certificate)
        if not fresh:
            break
        optimum = generate(part, pool, master, budget)
    return optimum


def _offer(found: Found, pool: Pool, mix: Mix, way: Way) -> None:
    pool.add_all(mix)
    found.offer(mix, way)


def _rounded(part: Part, pool: Pool, optimum: Optimum) -> Mix:
    """The fractions rounded down, and machines by value for the pods that are then missing."""
    down = np.zeros(len(pool))
    down[: len(optimum.amounts)] = np.floor(optimum.amounts + 1e-6)
    return by_value(part, optimum.prices.worth, pool.mix(down))


def _whole(found: Found, pool: Pool, master: Master, optimum: Optimum, effort: Effort) -> None:
    """Whole numbers of patterns: those of the best so far, and others by what fractions say one machine more costs.

    Those that alone would cost more than what is known are left out.
    """
    surrounded(found.part, pool, optimum, found.cost_usd_h - optimum.cost_usd_h)
    optimum = master.solve(effort.iterations)
    cheap = np.argsort(optimum.reduced, kind="stable")[: effort.whole_patterns]
    cheap = cheap[optimum.reduced[cheap] <= found.cost_usd_h - optimum.cost_usd_h]
    among = np.union1d(np.flatnonzero(pool.amounts(found.mix)), cheap)
    mix, nodes = master.whole(among, found.mix, effort.nodes)
    found.steps += Steps(nodes=nodes)
    found.offer(trimmed(found.part, mix), Way.INTEGER)
