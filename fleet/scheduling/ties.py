"""What keeps a gang together when machines are chosen: one zone for all it buys, one GPU model for pods of a set.

The solver does not know of gangs. It is asked without these ties first; where its answer breaks some, it is asked once
more with zones and models settled: as that answer has most of the pods, or would with only those settled that it tears;
as `place_gang` has them; or as Karpenter's order has them if that keeps the ties. The quick ways say which is cheapest.
So nothing costs more than Karpenter's order where that keeps gangs together.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from fleet.optimize.purchase import (
    GREEDY,
    MachineBatch,
    PurchaseEffort,
    PurchaseProblem,
    PurchaseSolution,
    in_karpenters_order,
    solve,
)

_MENDINGS: Final = 4
"""Rounds of settling those that are torn; after that all are settled as they stand."""
Used = Mapping[str, Counter[str]]
"""Class -> pods on each kind."""


@dataclass(frozen=True, slots=True)
class GangTies:
    """Which pods have to share a zone, and which a GPU model."""

    zone: Callable[[str], str]
    """Kind of machine -> its zone."""
    model: Callable[[str], str]
    """Kind of machine -> its GPU model."""
    gangs: Sequence[Sequence[str]]
    """Classes of each gang that buys for more than one pod: in one zone."""
    sets: frozenset[str]
    """Classes of several pods that use GPUs: on one model."""
    wanted: Mapping[str, Counter[str]]
    """Class -> kinds that `place_gang` found for it."""
    _settled: dict[tuple[frozenset[str], str | None, str | None], frozenset[str]] = field(default_factory=dict)

    def solve(self, problem: PurchaseProblem, effort: PurchaseEffort) -> tuple[PurchaseSolution, PurchaseSolution]:
        """The best purchase with the ties kept; and without them, whose bound holds for both."""
        loose = solve(problem, effort)
        if not loose.left and not self._torn(used(loose.batches)):
            return loose, loose
        order = used(in_karpenters_order(problem).batches)
        answers = [self._mended(problem, used(loose.batches)), used(loose.batches), self.wanted]
        ways = [self._settled_as(problem, where, where) for where in answers]
        if not self._torn(order):
            ways.append(_only(problem, order))
        tried = [(solve(way, GREEDY), way) for way in ways]
        quick, best = min(tried, key=lambda it: (sum(it[0].left.values()), round(it[0].cost_usd_h, 9)))
        return solve(best, effort) if effort.solver else quick, loose

    def _torn(self, where: Used) -> frozenset[str]:
        """Classes of gangs in several zones, and those on several models."""
        gangs = (gang for gang in self.gangs if len(_counted(gang, where, self.zone)) > 1)
        sets = (name for name in self.sets if len(_counted([name], where, self.model)) > 1)
        return frozenset(name for gang in gangs for name in gang).union(sets)

    def _mended(self, problem: PurchaseProblem, where: Used) -> Used:
        """An answer in which few are torn: those that are get settled, which may tear others, a few times over."""
        for _ in range(_MENDINGS):
            torn = self._torn(where)
            if not torn:
                break
            problem = self._settled_as(problem, where, torn)
            where = used(solve(problem, GREEDY).batches)
        return where

    def _settled_as(self, problem: PurchaseProblem, where: Used, names: Container[str]) -> PurchaseProblem:
        """Every gang in the zone where most of its pods are, and each set on the model that most of them have there.

        `names`: the classes that this is about.
        """
        zones_liked, models_liked = _counted(where, where, self.zone), _counted(where, where, self.model)
        zones = {name: _most(_counted(gang, where, self.zone), zones_liked) for gang in self.gangs for name in gang}
        settled = []
        for it in problem.classes:
            if it.name in names:
                zone, model = zones.get(it.name), None
                if it.name in self.sets:
                    here = {kind: count for kind, count in where[it.name].items() if self.zone(kind) == zone}
                    model = _most(_counted([it.name], {it.name: Counter(here)}, self.model), models_liked)
                settled.append(replace(it, kinds=self._of(it.kinds, zone, model)))
            else:
                settled.append(it)
        return replace(problem, classes=tuple(settled))

    def _of(self, kinds: frozenset[str], zone: str | None, model: str | None) -> frozenset[str]:
        """The kinds of a zone and a model; None = any. Equal sets are one."""
        asked = kinds, zone, model
        if asked not in self._settled:
            self._settled[asked] = frozenset(
                kind for kind in kinds if zone in {None, self.zone(kind)} and model in {None, self.model(kind)}
            )
        return self._settled[asked]


def used(batches: Iterable[MachineBatch]) -> Used:
    """Where the pods of each class are."""
    found: dict[str, Counter[str]] = {}
    for batch in batches:
        for name, count in batch.pods.items():
            found.setdefault(name, Counter())[batch.kind] += count * batch.machines
    return found


def _only(problem: PurchaseProblem, where: Used) -> PurchaseProblem:
    """Every class on the kinds it is on: whoever finds them by the same order finds them again."""
    classes = (replace(it, kinds=frozenset(where.get(it.name, it.kinds))) for it in problem.classes)
    return replace(problem, classes=tuple(classes))


def _counted(names: Iterable[str], where: Used, of: Callable[[str], str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in names:
        for kind, count in where.get(name, {}).items():
            found[of(kind)] += count
    return found


def _most(counted: Counter[str], liked: Counter[str]) -> str | None:
    """What most have, of equal ones what most have elsewhere, the first by name; None where nobody has any."""
    return min(counted, key=lambda it: (-counted[it], -liked[it], it), default=None)
