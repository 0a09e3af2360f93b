"""All kinds that can be bought, those too that the search never looks at: what else could be launched for some pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.problem import Buyable, PodClass, Problem
from fleet.optimize.purchase.part import Floats


@dataclass(frozen=True, eq=False)
class Shop:
    """Kinds by their dearest price, then by name."""

    kinds: Sequence[Buyable]
    capacity: Floats
    """[K, R]"""
    place: Mapping[str, int]
    classes: Mapping[str, PodClass]
    resources: Sequence[str]

    @classmethod
    def of(cls, problem: Problem) -> "Shop":
        """Those of a problem."""
        kinds = sorted(problem.kinds, key=lambda it: (it.dearest_usd_h, it.price_usd_h, it.name))
        table = [[kind.capacity.get(resource, 0) for resource in problem.resources] for kind in kinds]
        capacity = np.array(table, dtype=np.float64).reshape(len(kinds), len(problem.resources))
        place = {kind.name: number for number, kind in enumerate(kinds)}
        return cls(kinds, capacity, place, {it.name: it for it in problem.classes}, problem.resources)

    def price_usd_h(self, kind: str) -> float:
        """Of a kind."""
        return self.kinds[self.place[kind]].price_usd_h

    def worst_usd_h(self, kind: str) -> float:
        """Of a kind."""
        return self.kinds[self.place[kind]].dearest_usd_h

    def is_spot(self, kind: str) -> bool:
        """Whether it is."""
        return self.kinds[self.place[kind]].spot

    def instead(self, kind: str, pods: Mapping[str, int], *, below_usd_h: float, same_lane: bool) -> tuple[str, ...]:
        """Kinds of the same capacity type that hold the pods and at worst stay below a price; cheapest first.

        Kinds with an end are left out, for others may take them.
        """
        own = self.kinds[self.place[kind]]
        needs = np.zeros(len(self.resources))
        for name, count in pods.items():
            requests = self.classes[name].requests
            needs += count * np.array([requests.get(resource, 0) for resource in self.resources], dtype=np.float64)
        allowed = (
            frozenset.intersection(*(self.classes[name].kinds for name in pods)) if pods else frozenset(self.place)
        )
        return tuple(
            it.name
            for it in (self.kinds[at] for at in np.flatnonzero((needs <= self.capacity).all(axis=1)).tolist())
            if it.name in allowed
            and it.spot == own.spot
            and (it.most is None or it is own)
            and it.dearest_usd_h < below_usd_h
            and (not same_lane or it.lane == own.lane)
        )

    def types(self, kinds: Sequence[str]) -> int:
        """How many instance types they are."""
        return len({self._type(kind) for kind in kinds})

    def of_first_types(self, kinds: Sequence[str], most: int, own: str) -> tuple[str, ...]:
        """Those of the first so many types and of its own: cut like Karpenter's, so as not to be cheapened for ever."""
        first = [self._type(own), *list(dict.fromkeys(self._type(kind) for kind in kinds))[:most]]
        return tuple(kind for kind in kinds if self._type(kind) in first)

    def _type(self, kind: str) -> str:
        return self.kinds[self.place[kind]].type or kind
