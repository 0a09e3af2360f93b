"""All that one pass buys, as one purchase: the same pods on the machines that are cheapest for all of them together.

`place_gang` finds machines for one gang at a time, one kind for each pod set, and by that decides the pool and the
capacity type. Here kinds, zones and numbers are chosen anew within those, by `fleet.optimize.purchase`, and never for
more money. Machines are chosen by what they are expected to cost, interruptions included
(`fleet.offerings.interruption_rate`); limits and the tally count prices.

A gang is as fast as its slowest member, so what it buys stays in one zone, and pods of one set that use GPUs stay on
one GPU model (`GangTies`). The solver does not know of gangs. It is asked without these ties first; where its answer
breaks some, it is asked once more with zones and models settled, in whichever of these ways greedy heuristics find
cheapest: as its answer has most of the pods, for the classes whose ties it breaks or for all; as `place_gang` has them;
or as Karpenter's order has them if that keeps the ties. So nothing costs more than Karpenter's order where that keeps
gangs together.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from fleet.actions import PurchaseTally
from fleet.mig.layouts import gpu_part
from fleet.offerings.offerings import Offering
from fleet.optimize.purchase import (
    GREEDY,
    MachineBatch,
    PodDemand,
    PurchaseEffort,
    PurchaseProblem,
    PurchaseSolution,
    in_karpenters_order,
    solve,
)
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.scheduling.catalog import OfferingCatalog, model_of, tier_of
from fleet.snapshot.affinity import admits
from model import labels

EPSILON_USD_H = 1e-6
"""Less is not a saving."""
_REPAIRS: Final = 4
"""Rounds in which classes that broke a tie are settled; after that all are settled as they stand."""


class PodSetOfGang(NamedTuple):
    """Whose pods they are."""

    gang: str
    """uid"""
    pod_set: str


@dataclass(frozen=True, slots=True)
class PurchaseLine:
    """Pods of one pod set for which machines are bought."""

    member: PodSetOfGang
    need: Need
    count: int
    offerings: tuple[Offering, ...]
    """What `place_gang` would buy for them: machines of the same pools and capacity types will do."""
    zones: frozenset[str] | None = None
    """Where they have to be; None = wherever it is cheapest."""

    @property
    def one_host(self) -> bool:
        """Whether all of them stand on one machine, so that they are one pod as far as machines go."""
        return self.need.pod_set.required_topology == labels.HOSTNAME

    @property
    def apart(self) -> int:
        """How many of them may stand on machines of their own."""
        return 1 if self.one_host else self.count

    @property
    def one_model(self) -> bool:
        """Whether they have to share a GPU model that could be several."""
        return self.need.pod_set.count > 1 and not self.one_host and bool(gpu_part(self.need.pod_set.requests))


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """One machine to buy and the pods it is for."""

    offering: Offering
    pods: Mapping[PodSetOfGang, int]
    """In order of admission."""

    @property
    def owner(self) -> str:
        """Uid of the gang whose pods come first."""
        return next(iter(self.pods)).gang


@dataclass(frozen=True, slots=True)
class JointPurchase:
    """The purchase, by machine in order of their first pods; no machines where `place_gang` did as well."""

    machines: tuple[SharedMachine, ...]
    tally: PurchaseTally


def purchase_together(
    lines: Sequence[PurchaseLine], lots: Sequence[PlannedNodeClaims], supply: BuyableCapacity, effort: PurchaseEffort
) -> JointPurchase:
    """Machines for all `lines`, instead of the `lots` that `place_gang` found for them (and spent of the headroom)."""
    market = OfferingCatalog(supply)
    problem = _problem(lines, lots, market)
    found, loose = _ties(lines, market).solve(problem, effort)
    expected_usd_h = sum(lot.count * supply.expected_usd_h(lot.offering.offer) for lot in lots)
    better = not found.left and found.cost_usd_h < expected_usd_h - EPSILON_USD_H
    machines = tuple(_machines(found, lines, market.offerings)) if better else ()
    return JointPurchase(machines, _tally(problem, loose, market, machines, lots))


def _problem(
    lines: Sequence[PurchaseLine], lots: Sequence[PlannedNodeClaims], market: OfferingCatalog
) -> PurchaseProblem:
    classes = tuple(
        _class(_name(number), line, market.kinds_like(line.need, line.offerings, line.zones))
        for number, line in enumerate(lines)
    )
    pools = sorted(
        {offering.pool.name for offering in market.offerings.values()} | {lot.offering.pool.name for lot in lots}
    )
    asked = (name for it in classes for name, amount in it.requests.items() if amount)
    limits = tuple(market.limits_of(pools, lots))
    return PurchaseProblem(market.resources(asked, pools), classes, tuple(market.kinds.values()), limits)


def _name(number: int) -> str:
    return f"{number:06d}"


def _class(name: str, line: PurchaseLine, kinds: frozenset[str]) -> PodDemand:
    each = line.count // line.apart
    requests = {resource: it * each for resource, it in {**line.need.pod_set.requests, PODS: 1}.items()}
    return PodDemand(name, requests, kinds, line.apart)


def _ties(lines: Sequence[PurchaseLine], market: OfferingCatalog) -> "GangTies":
    gangs: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        gangs.setdefault(line.member.gang, []).append(number)
    return GangTies(
        zone=lambda kind: market.offerings[kind].offer.zone,
        model=lambda kind: model_of(market.offerings[kind]),
        gangs=[[_name(n) for n in mine] for mine in gangs.values() if sum(lines[n].apart for n in mine) > 1],
        sets=frozenset(_name(number) for number, line in enumerate(lines) if line.one_model),
        wanted={
            _name(n): Counter(market.name(offering) for offering in line.offerings) for n, line in enumerate(lines)
        },
    )


def _tally(
    problem: PurchaseProblem,
    loose: PurchaseSolution,
    market: OfferingCatalog,
    machines: Sequence[SharedMachine],
    lots: Sequence[PlannedNodeClaims],
) -> PurchaseTally:
    """In prices, as they will be on the bill; the search went by expected costs, which are never less."""
    known_usd_h = sum(lot.count * lot.offering.offer.price_usd_h for lot in lots)
    cost_usd_h = sum(it.offering.offer.price_usd_h for it in machines) if machines else known_usd_h
    bound_usd_h, baseline_usd_h = loose.bound_usd_h, loose.baseline_usd_h
    dearest = max((market.premium(kind) for kind in problem.kinds), default=0.0)
    if dearest:
        priced = (replace(it, price_usd_h=market.offerings[it.name].offer.price_usd_h) for it in problem.kinds)
        plain = solve(replace(problem, kinds=tuple(priced)), GREEDY)
        bound_usd_h = max(plain.bound_usd_h, bound_usd_h / (1.0 + dearest))
        baseline_usd_h = plain.baseline_usd_h
    bound_usd_h = min(bound_usd_h, cost_usd_h) if not loose.left else 0.0
    return PurchaseTally(cost_usd_h, bound_usd_h, known_usd_h, baseline_usd_h)


def _machines(
    found: PurchaseSolution, lines: Sequence[PurchaseLine], offerings: Mapping[str, Offering]
) -> list[SharedMachine]:
    made: list[tuple[int, SharedMachine]] = []
    for batch in found.batches:
        numbers = sorted((int(name), pods) for name, pods in batch.pods.items())
        pods = {lines[n].member: pods * (lines[n].count // lines[n].apart) for n, pods in numbers}
        made += [(numbers[0][0], SharedMachine(offerings[batch.kind], pods))] * batch.machines
    return [
        machine for _, machine in sorted(made, key=lambda it: (it[0], it[1].offering.key, sorted(it[1].pods.items())))
    ]


def runner_up(machine: SharedMachine, needs: Mapping[PodSetOfGang, Need], supply: BuyableCapacity) -> Offering | None:
    """The next best other kind of machine in its zone and capacity type that holds the same pods, GPU model aside."""
    total: dict[str, int] = {PODS: sum(machine.pods.values())}
    for member, count in machine.pods.items():
        for resource, amount in needs[member].pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    offer = machine.offering.offer
    others = (
        offering
        for offering in supply.offerings.of(machine.offering.pool)
        if offering.offer.instance_type.name != offer.instance_type.name
        and (offering.offer.zone, tier_of(offering)) == (offer.zone, tier_of(machine.offering))
        and offering.offer.pool_key not in supply.shortages
        and not supply.headroom[offering.pool.name].bound_to(offering)
        and all(offering.allocatable.get(resource, 0) >= amount for resource, amount in total.items())
        and all(admits(needs[m].pod_set, needs[m].tolerations, offering.labels, offering.taints) for m in machine.pods)
    )
    return min(others, key=lambda it: (round(supply.expected_usd_h(it.offer), 6), it.key), default=None)


# -- one zone for what a gang buys, one GPU model for a pod set --------------------------------------------------------


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
        if not loose.left and not self._broken(used(loose.batches)):
            return loose, loose
        order = used(in_karpenters_order(problem).batches)
        answers = [self._repaired(problem, used(loose.batches)), used(loose.batches), self.wanted]
        ways = [self._settled_as(problem, where, where) for where in answers]
        if not self._broken(order):
            ways.append(_only(problem, order))
        tried = [(solve(way, GREEDY), way) for way in ways]
        quick, best = min(tried, key=lambda it: (sum(it[0].left.values()), round(it[0].cost_usd_h, 9)))
        return solve(best, effort) if effort.solver else quick, loose

    def _broken(self, where: Used) -> frozenset[str]:
        """Classes of gangs in several zones, and those on several models."""
        gangs = (gang for gang in self.gangs if len(_counted(gang, where, self.zone)) > 1)
        sets = (name for name in self.sets if len(_counted([name], where, self.model)) > 1)
        return frozenset(name for gang in gangs for name in gang).union(sets)

    def _repaired(self, problem: PurchaseProblem, where: Used) -> Used:
        """An answer that breaks few ties: classes that break some get settled, and again if that breaks others."""
        for _ in range(_REPAIRS):
            broken = self._broken(where)
            if not broken:
                break
            problem = self._settled_as(problem, where, broken)
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
