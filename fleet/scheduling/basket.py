"""What one pass buys, as one purchase: the same pods on the cheapest machines there are for all of them together.

`place_gang` finds machines for one gang at a time, one kind for each pod set, and by that decides the pool and the
capacity type. Here kinds, zones and numbers are chosen anew within those, by `fleet.optimize.purchase`, and never for
more money. What a gang buys stays in one zone, and pods of one set that use GPUs stay on one GPU model (`ties`): a gang
is as fast as its slowest member.

Machines are chosen by what they are expected to cost, interruptions included (`fleet.offerings.interruption_rate`);
limits and the tally count prices.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleet.actions import PurchaseTally
from fleet.mig.layouts import gpu_part
from fleet.offerings.offerings import Offering
from fleet.optimize.purchase import GREEDY, PodDemand, PurchaseEffort, PurchaseProblem, PurchaseSolution, solve
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.scheduling.catalog import OfferingCatalog, model_of, tier_of
from fleet.scheduling.ties import GangTies
from fleet.snapshot.affinity import admits
from model import labels

EPSILON_USD_H = 1e-6
"""Less is not a saving."""


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


def _ties(lines: Sequence[PurchaseLine], market: OfferingCatalog) -> GangTies:
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
