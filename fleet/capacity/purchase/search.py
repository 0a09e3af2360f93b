"""The search for one part: greedy starts, patterns by column generation, the integer master, and the bounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.capacity.purchase.answer import Batch, Steps, Way
from fleet.capacity.purchase.baseline import karpenter_order
from fleet.capacity.purchase.bound import Certificate, aggregate, by_one_resource
from fleet.capacity.purchase.columns import Master, Pool, generate
from fleet.capacity.purchase.effort import Effort
from fleet.capacity.purchase.mix import Mix, joined, trimmed, valid
from fleet.capacity.purchase.named import given
from fleet.capacity.purchase.part import Floats, Part
from fleet.capacity.purchase.solver import SolverFailed
from fleet.capacity.purchase.value import by_value, simple_worths

_LARGE = 60
"""Classes from which on the seeds of the greedy by value are worth their time only with a price from the solver."""


@dataclass(eq=False)
class Found:
    """The best of a part so far."""

    part: Part
    mix: Mix
    way: Way
    baseline: Mix
    certificate: Certificate
    whole_bound_usd_h: float = 0.0
    """Of the programme over whole machines, which no prices prove."""
    steps: Steps = field(default_factory=Steps)
    failure: str = ""

    @property
    def cost_usd_h(self) -> float:
        """Of its machines."""
        return self.mix.cost_usd_h(self.part)

    @property
    def bound_usd_h(self) -> float:
        """The best bound, never above the cost."""
        return min(max(self.certificate.bound_usd_h, self.whole_bound_usd_h), self.cost_usd_h)

    def offer(self, mix: Mix, way: Way) -> None:
        """Another set of machines: it is taken when it holds more pods, or as many for less."""
        if _rank(self.part, mix) < _rank(self.part, self.mix):
            self.mix, self.way = mix, way

    def prove(self, certificate: Certificate) -> None:
        """Another certificate."""
        if certificate.bound_usd_h > self.certificate.bound_usd_h:
            self.certificate = certificate


def _rank(part: Part, mix: Mix) -> tuple[int, float]:
    return int((part.demand - mix.placed).sum()), round(mix.cost_usd_h(part), 9)


def search(part: Part, effort: Effort, starts: Sequence[Sequence[Batch]] = ()) -> Found:
    """The best machines for a part, within the effort. Without a solver, or when it fails, the best greedy ones."""
    found = greedy(part, simple=not effort.solver or len(part.demand) < _LARGE)
    for start in starts:
        found.offer(given(part, start), Way.GIVEN)
    if not effort.solver:
        return found
    wanted = found.mix.placed
    if not wanted.any():
        return found
    if (wanted < part.demand).any():  # what the limits leave no room for is not asked of the solver
        found = _narrowed(found)
    try:
        _Improved(found, effort).run()
    except SolverFailed as error:
        found.failure = str(error)
    return found


def greedy(part: Part, *, simple: bool = True) -> Found:
    """The baseline and the greedy by value, with a bound that needs no solver."""
    baseline = karpenter_order(part)
    found = Found(part, baseline, Way.BASELINE, baseline, by_one_resource(part))
    found.offer(trimmed(part, baseline), Way.BASELINE)
    for worth in simple_worths(part) if simple else ():
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


class _Improved:
    """The steps that need the solver, each on what the one before has left."""

    def __init__(self, found: Found, effort: Effort) -> None:
        self._found, self._part, self._effort = found, found.part, effort
        self._pool = Pool(found.part)
        self._master = Master(found.part, self._pool)

    def run(self) -> None:
        """All steps until the gap is small enough. Raises `SolverFailed`."""
        found, part, effort = self._found, self._part, self._effort
        proven, rows = aggregate(part, effort.iterations)
        found.prove(proven)
        self._offer(by_value(part, proven.worth), Way.VALUE)
        if not self._open():
            return
        for mix in (found.baseline, found.mix):
            self._pool.add_all(mix)
        last, rounds = generate(part, self._pool, self._master, effort.rounds, effort.iterations)
        found.steps += Steps(rounds=rounds, patterns=len(self._pool))
        self._offer(by_value(part, self._master.prices(last)[0]), Way.VALUE)
        self._offer(self._rounded(last.values, proven.worth), Way.ROUNDED)
        if self._open():
            self._whole()
        if self._open() and effort.bound_nodes:
            self._bound(rows)

    def _open(self) -> bool:
        found = self._found
        return found.cost_usd_h - found.bound_usd_h > self._effort.close_enough * found.cost_usd_h

    def _offer(self, mix: Mix, way: Way) -> None:
        self._pool.add_all(mix)
        self._found.offer(mix, way)
