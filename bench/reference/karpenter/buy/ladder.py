"""What each class of pods asks, step by step as its wishes are given up."""

from collections.abc import Sequence

from bench.reference.karpenter.buy.census import Census
from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.relax import relaxed
from bench.reference.karpenter.buy.values import PodSpecification


class Ladder:
    """Class and step -> its demand, worked out when a pod first gets there. Step 0 holds every wish."""

    def __init__(
        self, asks: Sequence[PodSpecification], census: Census, resources: Sequence[str], *, soft_taints: bool
    ) -> None:
        self._census = census
        self._resources = resources
        self._soft_taints = soft_taints
        self._asks: list[list[PodSpecification]] = [[ask] for ask in asks]
        self._demands: list[list[Demand]] = [[] for _ in asks]

    def step(self, kind: int, number: int) -> Demand | None:
        """The demand of class `kind` after `number` wishes; None when it has fewer to give up."""
        asks, demands = self._asks[kind], self._demands[kind]
        while len(demands) <= number:
            if len(asks) == len(demands):
                easier = relaxed(asks[-1], soft_taints=self._soft_taints)
                if easier is None:
                    return None
                asks.append(easier)
            demands.append(self._census.demand(asks[len(demands)], self._resources))
        return demands[number]

    def last(self, kind: int) -> Demand:
        """The demand without any wish."""
        number = 0
        while (demand := self.step(kind, number)) is not None:
            kept, number = demand, number + 1
        return kept
