"""The programme with patterns: fractions with column generation, then whole numbers of the patterns found."""

from contextlib import suppress
from dataclasses import dataclass
from math import inf

import numpy as np

from fleet.optimize.consolidate.effort import Effort
from fleet.optimize.consolidate.frame import Frame
from fleet.optimize.consolidate.ground import Ground, Plan
from fleet.optimize.purchase.fill import best_fills
from fleet.optimize.purchase.part import Floats, Ints
from fleet.optimize.purchase.solver import LinearSolution, Programme, SolverFailed

_HELPS = 1e-7
"""Relative to the price: what a pattern must gain to count as one that helps."""
_LARGE = 1000
"""Columns of a programme that is first looked at in part."""
_EACH = 2
"""Patterns of a kind that are added in one round at most."""


@dataclass(frozen=True, eq=False)
class Whole:
    """A solution in whole numbers."""

    going: Ints
    """[G] machines of each group that go."""
    ways: Ints
    """[gangs] how each moves, -1 where it stays."""
    received: Ints
    """[G, C] pods that come to each group."""
    kinds: Ints
    """[N]"""
    pods: Ints
    """[N, C]"""
    cost_usd_h: float
    """What moves and comes less what goes, as the programme sees it."""
    nodes: int


class Master:
    """What can be bought as patterns (kind, pods of each row), each known once."""

    def __init__(self, ground: Ground, frame: Frame) -> None:
        self._ground, self._frame = ground, frame
        self._kinds: list[int] = []
        self._pods: list[Ints] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._begin()

    def know(self, kind: int, pods: Ints) -> bool:
        """Another pattern; whether it is a new one."""
        key = (kind, pods.tobytes())
        if key in self._seen or not pods.any():
            return False
        self._seen.add(key)
        self._kinds.append(kind)
        self._pods.append(pods)
        return True

    def know_all(self, plan: Plan) -> None:
        """What a plan buys."""
        for kind, pods in zip(plan.kinds.tolist(), plan.pods, strict=True):
            self.know(kind, pods)

    def _begin(self) -> None:
        """Of each row the machine on which it alone is cheapest, and the cheapest for all that is on a machine."""
        part, ground = self._ground.kinds, self._ground
        if not len(part.price):
            return
        for row in range(len(part.demand)):
            if part.holds[row].any():
                kind = int(np.where(part.holds[row] > 0, part.price / np.maximum(part.holds[row], 1), np.inf).argmin())
                pods = np.zeros(len(part.demand), dtype=np.int64)
                pods[row] = part.holds[row, kind]
                self.know(kind, pods)
        for group in self._frame.groups:
            pods = ground.loose[group[0]]
            holding = (pods @ ground.requests <= part.capacity).all(axis=1) & part.fits[pods > 0].all(axis=0)
            if holding.any() and part.price[holding.argmax()] < ground.price[group[0]]:
                self.know(int(holding.argmax()), pods)

    def generate(self, rounds: int, iterations: int) -> LinearSolution:
        """The optimum in fractions, with patterns found until none helps or so many rounds are over."""
        programme, known = self._frame.programme(), len(self._kinds)
        self._extend(programme, np.arange(known))
        found = programme.solve(iterations)
        for _ in range(rounds):
            if not self._priced(found.duals):
                break
            self._extend(programme, np.arange(known, len(self._kinds)))
            known = len(self._kinds)
            found = programme.solve(iterations)
        return found

    def _extend(self, programme: Programme, patterns: Ints) -> None:
        if len(patterns):
            kinds, pods = self._taken(patterns)
            programme.add_columns(self._ground.kinds.price[kinds], self._frame.entries(kinds, pods))

    def _taken(self, patterns: Ints) -> tuple[Ints, Ints]:
        classes = len(self._ground.requests)
        pods = np.array([self._pods[at] for at in patterns.tolist()], dtype=np.int64).reshape(len(patterns), classes)
        return np.array(self._kinds, dtype=np.int64)[patterns], pods

    def _priced(self, duals: Floats) -> bool:
        """Whether patterns were found that are worth more than they cost."""
        part = self._ground.kinds
        if not len(part.price) or not len(part.demand):
            return False
        worth, price = self._frame.prices(duals)
        kinds, pods = best_fills(part, np.arange(len(price)), worth, part.demand)
        gain = pods @ worth - price[kinds]
        helps = np.flatnonzero(gain > _HELPS * (1.0 + price[kinds]))
        taken = np.zeros(len(price), dtype=np.int64)
        for at in helps[np.lexsort((helps, -gain[helps], kinds[helps]))].tolist():
            if taken[kinds[at]] < _EACH and self.know(int(kinds[at]), pods[at]):
                taken[kinds[at]] += 1
        return bool(taken.any())

    def whole(self, effort: Effort, at_least_usd_h: float, optimum: LinearSolution) -> Whole:
        """The best in whole numbers within the effort, of patterns that alone do not spoil `at_least_usd_h`.

        In a large programme what goes in the optimum in fractions, and goes as a whole there, is first taken as
        settled; that is the answer where it is close enough, or where gangs have too many ways for more. Raises
        `SolverFailed`.
        """
        slack = -optimum.objective - at_least_usd_h
        patterns = np.flatnonzero(optimum.reduced[len(optimum.reduced) - len(self._kinds) :] <= slack + _HELPS)
        near = self._frame.ways > effort.ways
        if len(optimum.values) > _LARGE or near:
            enough = inf if near else effort.near * float(self._ground.price.sum())
            with suppress(SolverFailed):  # limits may leave no place for all that goes so
                found = self._within(patterns, effort.nodes, optimum.values, near=near)
                if found.cost_usd_h - optimum.objective <= enough:
                    return found
        return self._within(patterns, effort.nodes, None)

    def _within(self, patterns: Ints, nodes: int, settled: Floats | None, *, near: bool = False) -> Whole:
        programme = self._frame.programme(settled, near=near)
        self._extend(programme, patterns)
        found = programme.solve_whole(None, nodes)
        going, ways, received, begin = self._frame.read(found.values)
        kinds, pods = self._taken(np.repeat(patterns, found.values[begin:].astype(np.int64)))
        cost = self._frame.cost_usd_h(found.values) + float(self._ground.kinds.price[kinds].sum())
        return Whole(going, ways, received, kinds, pods, cost, found.nodes)
