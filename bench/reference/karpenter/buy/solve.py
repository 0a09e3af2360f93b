"""The whole decision (`scheduler.go Solve`): each class of pods in turn onto nodes, into open claims, into new ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.reference.karpenter.buy.buyer import Buyer
from bench.reference.karpenter.buy.census import Census
from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.families import Families
from bench.reference.karpenter.buy.finish import Finish
from bench.reference.karpenter.buy.flight import Flight, host_name
from bench.reference.karpenter.buy.groups import TopologyGroup
from bench.reference.karpenter.buy.guard import Guard
from bench.reference.karpenter.buy.ladder import Ladder
from bench.reference.karpenter.buy.order import PodQueue, Run, by_weight, runs_of
from bench.reference.karpenter.buy.outcome import PlannedClaim, SchedulingResults, Unplaced, Why
from bench.reference.karpenter.buy.rows import InstanceRows, Ints
from bench.reference.karpenter.buy.standing import NodeColumns
from bench.reference.karpenter.buy.values import (
    PODS,
    KarpenterNode,
    PodSpecification,
    PoolTemplate,
    WaitingPod,
)
from bench.reference.karpenter.buy.words import refusal


def solve(
    pods: Iterable[WaitingPod],
    templates: Iterable[PoolTemplate],
    nodes: Iterable[KarpenterNode] = (),
) -> SchedulingResults:
    """Where every pod goes: onto `nodes`, onto machines to be bought from `templates`, or why nowhere.

    Names of pods, of templates and of nodes are unique each. Equal input in any order gives equal output.
    """
    return _Solve.of(pods, templates, nodes).run()


@dataclass(slots=True)
class _Solve:
    """One decision as it is being made."""

    resources: tuple[str, ...]
    queue: PodQueue
    ladder: Ladder
    census: Census
    standing: NodeColumns
    flight: Flight
    guard: Guard
    buyer: Buyer
    seats: dict[int, list[str]] = field(default_factory=dict)
    """Node (index) -> pods to come onto it."""
    aboard: list[list[str]] = field(default_factory=list)
    """Claim -> its pods."""
    _seated: list[tuple[Demand, Ints, Ints]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        pods: Iterable[WaitingPod],
        templates: Iterable[PoolTemplate],
        nodes: Iterable[KarpenterNode],
    ) -> "_Solve":
        asks, runs = runs_of(pods)
        pools = by_weight(templates)
        standing_nodes = list(nodes)
        resources = _resources(asks, pools)
        rows = [InstanceRows(template, resources) for template in pools]
        families = Families(pools, rows)
        guard = Guard.of(families)
        standing = NodeColumns(standing_nodes, resources, _keys(asks))
        first = [families.first(pool, np.ones(len(each.machines), dtype=np.bool_)) for pool, each in enumerate(rows)]
        census = Census(pools, list(zip(rows, first, strict=True)), standing)
        census.prepare(asks)
        soft = any(taint.effect == "PreferNoSchedule" for template in pools for taint in template.taints)
        flight = Flight(families, guard, len(resources))
        out = cls(
            resources,
            PodQueue(runs),
            Ladder(asks, census, resources, soft_taints=soft),
            census,
            standing,
            flight,
            guard,
            Buyer(families, guard),
        )
        census.earlier += [flight.recount, out._recount_seats]
        return out

    def run(self) -> SchedulingResults:
        """Take runs off the queue until none is left or nothing moves any more."""
        while (run := self.queue.pop()) is not None:
            self._serve(run)
            if run.count:
                self.queue.push(run)
        return self._outcome()

    def _serve(self, run: Run) -> None:
        """Place what can be placed of a run.

        A pod that fails gives up a wish and tries again. The next one starts with all wishes, unless it is clear that
        it must fail where its fellow did.
        """
        settled = number = 0
        while run.count:
            demand = self.ladder.step(run.kind, number)
            if demand is None:
                return
            most = run.count if number == settled and demand.steady() else 1
            placed = self._place(demand, run, most)
            if placed:
                self.queue.placed(placed)
                number = settled
                continue
            if number == settled and demand.lasting and not self.guard.reserves:
                settled += 1
            number += 1

    def _place(self, demand: Demand, run: Run, most: int) -> int:
        """Places for up to `most` equal pods, where one of them decides nothing new for the next; how many got one."""
        placed = 0
        if len(self.standing):
            nodes, given = self.standing.fill(demand, most)
            if len(nodes):
                self._seated.append((demand, nodes, given))
                for node, count in zip(nodes.tolist(), given.tolist(), strict=True):
                    self.seats.setdefault(node, []).extend(run.take(count))
                placed = int(given.sum())
        if placed < most:
            placed += self._fly(demand, run, most - placed)
        return placed

    def _fly(self, demand: Demand, run: Run, most: int) -> int:
        logged, placed = len(self.flight.log), self.flight.fill(demand, most)
        while placed < most:
            opened = self.buyer.buy(demand, most - placed, self.flight.size)
            if not opened:
                break
            self.census.fit(self.flight.reserve(len(opened)))
            self.flight.open(demand, opened)
            self.aboard.extend([] for _ in opened)
            placed += sum(pods for _, pods in opened)
            if placed < most:  # what is bought one at a time may still have room
                placed += self.flight.fill(demand, most - placed)
        for boarding in self.flight.log[logged:]:
            for claim, count in zip(boarding.claims.tolist(), boarding.given.tolist(), strict=True):
                self.aboard[claim].extend(run.take(count))
        return placed

    def _recount_seats(self, group: TopologyGroup) -> None:
        for demand, nodes, given in self._seated:
            if group in demand.counted:
                self.standing.count(group, nodes, given)

    # -- what came of it ------------------------------------------------------------------------------------------

    def _outcome(self) -> SchedulingResults:
        finish = Finish(self.flight, self.guard, self.resources)
        finished = [finish.claim(number, pods) for number, pods in enumerate(self.aboard)]
        claims = tuple(each for each in finished if isinstance(each, PlannedClaim))
        back = [each for each in finished if isinstance(each, Unplaced)]
        seats = {self.standing.nodes[node].name: tuple(pods) for node, pods in sorted(self.seats.items())}
        return SchedulingResults(claims, seats, (*back, *self._left()))

    def _left(self) -> Iterator[Unplaced]:
        for run in self.queue.rest():
            demand = self.ladder.last(run.kind)
            refused = list(self.buyer.refusals(demand, host_name(self.flight.size)))
            why = refused[0].why if refused else Why.NO_POOL
            yield Unplaced(tuple(run.take(run.count)), why, refusal(demand, refused, self.buyer))


def _resources(asks: Sequence[PodSpecification], templates: Sequence[PoolTemplate]) -> tuple[str, ...]:
    """What is counted: all that pods and daemons request."""
    named = {name for ask in asks for name, amount in ask.requests.items() if amount}
    named |= {name for template in templates for daemon in template.daemons for name in daemon.requests}
    return (*sorted(named - {PODS}), PODS)


def _keys(asks: Iterable[PodSpecification]) -> frozenset[str]:
    """Labels that nodes are told apart by."""
    wanted = {
        key
        for ask in asks
        for requirements in (
            ask.selector,
            *ask.required,
            *(each.term for each in ask.preferred),
            *ask.volumes,
        )
        for key in requirements
    }
    return frozenset(wanted)
