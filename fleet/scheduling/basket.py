"""Buys once for a whole pass: the same pods on the machines that are cheapest for all of them together.

`place_gang` finds machines for one gang at a time, one kind for each pod set, and by that decides the pool and the
capacity type. Here kinds, zones and numbers are chosen again within those, by `fleet.optimize.purchase`, and never for
more money. Machines are chosen by what they are expected to cost, interruptions included
(`fleet.offerings.interruption_rate`); limits and the tally count prices.

A gang is as fast as its slowest member, so what it buys stays in one zone, and pods of one set that use GPUs stay on
one GPU model (`GangTies`). The solver does not know of gangs. It is asked without these ties first. Where its answer
breaks some, it is asked once more with zones and models fixed, in the way that greedy heuristics find cheapest: as most
pods have them in its answer (for the classes whose ties it breaks, or for all); as `place_gang` has them; or as
Karpenter's order has them, if that keeps the ties. So nothing costs more than Karpenter's order where that keeps gangs
together.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from fleet.actions import PurchaseTally
from fleet.mig.layouts import gpu_part
from fleet.offerings.offerings import Offering
from fleet.optimize.purchase import (
    GREEDY,
    MachineBatch,
    PodDemand,
    PurchaseEffort,
    PurchaseParts,
    PurchaseProblem,
    PurchaseSolution,
    cheaper,
    close_enough,
    in_karpenters_order,
    quick_bound_usd_h,
    solve,
    split,
)
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS
from fleet.placement.machine_caps import DomainLabel
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.scheduling.catalog import OfferingCatalog, model_of
from model import labels
from model.quantity import Resources

EPSILON_USD_H = 1e-6
"""A smaller difference of cost does not count as a saving."""
_REPAIRS: Final = 4
"""Rounds of restricting only the classes whose ties are broken; after that all classes are restricted at once."""


class PodSetOfGang(NamedTuple):
    """A `PodSetOfGang` names a pod set by its gang and its own name."""

    gang: str
    """Uid of the gang."""
    pod_set: str


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class PurchaseLine:
    """A `PurchaseLine` is the pods of one pod set for which machines are bought."""

    member: PodSetOfGang
    need: Need
    count: int
    offerings: tuple[Offering, ...]
    """What `place_gang` would buy for them; other machines of the same pools and capacity types would do as well."""
    domains: frozenset[DomainLabel] = frozenset()
    """Labels that the machines have to have, with their values: the pods may not leave these domains."""
    takes: Resources = field(default_factory=dict)
    """What one pod takes of the caps of a machine (`MachineCaps`)."""
    beside: tuple["PurchaseLine", ...] = ()
    """Lines of other gangs that have to share one machine with these pods."""
    gathers: bool = False
    """Whether all these pods have to share one machine because they keep near each other."""
    able: Sequence[Offering] = ()
    """All that may be bought for them, where that is known."""

    @property
    def one_host(self) -> bool:
        """Returns whether all these pods have to share one machine, so that the solver sees them as one pod."""
        return self.gathers or self.need.pod_set.required_topology == labels.HOSTNAME

    @property
    def requests(self) -> Resources:
        """Returns what one of the pods takes of a machine."""
        return {**self.need.pod_set.requests, PODS: 1, **self.takes}

    @property
    def separable(self) -> int:
        """Returns on how many different machines these pods may stand at most."""
        return 1 if self.one_host else self.count

    @property
    def share_gpu_model(self) -> bool:
        """Returns whether these pods have to share a GPU model that is not settled by standing on one machine."""
        alone = self.need.ordinary or self.need.pod_set.count < 2 or self.one_host
        return not alone and bool(gpu_part(self.need.pod_set.requests))


@dataclass(slots=True)  # never changed; frozen ones take three times as long to make, and there are many
class SharedMachine:
    """A `SharedMachine` is one machine to buy and the pods it is for, possibly of several gangs."""

    offering: Offering
    pods: Mapping[PodSetOfGang, int]
    """Pod set -> pods of it on the machine, in order of admission."""

    @property
    def owner(self) -> str:
        """Returns the uid of the gang that owns the machine: the first admitted of those with pods on it."""
        return next(iter(self.pods)).gang


@dataclass(frozen=True, slots=True)
class JointPurchase:
    """A `JointPurchase` is all that one pass buys; it lists no machines where what `place_gang` found costs no more."""

    machines: tuple[SharedMachine, ...]
    """In order of the first pod set on each."""
    tally: PurchaseTally


def purchase_unplanned(
    lines: Sequence[PurchaseLine],
    one_kind_usd_h: float,
    supply: BuyableCapacity,
    effort: PurchaseEffort,
    caps: Resources,
) -> JointPurchase | None:
    """Chooses machines for `lines` of ordinary pods that nothing is planned for; None where some would have none.

    `one_kind_usd_h`: what they would cost with one kind of machine for each line.
    """
    catalog = OfferingCatalog(supply, caps)
    classes = _pod_classes(lines)
    problem = _purchase_problem(classes, (), catalog)
    parts = split(problem)
    found = solve(problem, effort, parts)
    if found.left:
        return None
    machines = tuple(_shared_machines(found, lines, classes, catalog.offerings))
    tally = _tally(problem, found, catalog, machines, (), effort, parts)
    return JointPurchase(machines, replace(tally, one_kind_usd_h=one_kind_usd_h))


def purchase_together(
    lines: Sequence[PurchaseLine],
    planned_claims: Sequence[PlannedNodeClaims],
    supply: BuyableCapacity,
    effort: PurchaseEffort,
    caps: Resources,
) -> JointPurchase:
    """Chooses machines for all `lines` instead of the `planned_claims` that `place_gang` found for them.

    The headroom of the pools has `planned_claims` deducted already. `caps` is what every machine has of the caps that
    lines take from.
    """
    catalog = OfferingCatalog(supply, caps)
    classes = _pod_classes(lines)
    problem = _purchase_problem(classes, planned_claims, catalog)
    expected_usd_h = sum(planned.count * supply.expected_usd_h(planned.offering.offer) for planned in planned_claims)
    parts = split(problem)
    if close_enough(parts, expected_usd_h, effort):
        tally = _tally(problem, None, catalog, (), planned_claims, effort, parts)
        if tally.cost_usd_h <= tally.karpenter_usd_h:
            return JointPurchase((), tally)
    found, untied = _gang_ties(classes, catalog).solve(problem, effort, parts)
    better = not found.left and found.cost_usd_h < expected_usd_h - EPSILON_USD_H
    machines = tuple(_shared_machines(found, lines, classes, catalog.offerings)) if better else ()
    return JointPurchase(machines, _tally(problem, untied, catalog, machines, planned_claims, effort, parts))


Lines = Sequence[PurchaseLine]


def _pod_classes(lines: Lines) -> dict[str, Lines]:
    """Returns the solver's name of a class -> the lines that are in it: single pods that are alike, else one each.

    Names sort like the numbers of the lines that come first.
    """
    found: dict[str, list[PurchaseLine]] = {}
    names: dict[Hashable, str] = {}
    for number, line in enumerate(lines):
        name = f"{number:06d}"
        if line.count == 1 and not line.beside:
            alike = line.need.asks, tuple(map(id, line.offerings)), line.domains, tuple(sorted(line.takes.items()))
            name = names.setdefault(alike, name)
        found.setdefault(name, []).append(line)
    return dict(found)


def _purchase_problem(
    classes: Mapping[str, Lines], planned_claims: Sequence[PlannedNodeClaims], catalog: OfferingCatalog
) -> PurchaseProblem:
    """Returns the lines as a problem of the solver, without the ties of gangs."""
    demands = tuple(_pod_demand(name, lines, _kinds_for(lines[0], catalog)) for name, lines in classes.items())
    pools = sorted(
        {offering.pool.name for offering in catalog.offerings.values()}
        | {planned.offering.pool.name for planned in planned_claims}
    )
    asked = (name for it in demands for name, amount in it.requests.items() if amount)
    limits = tuple(catalog.limits_of(pools, planned_claims))
    return PurchaseProblem(catalog.resources(asked, pools), demands, tuple(catalog.kinds.values()), limits)


def _kinds_for(line: PurchaseLine, catalog: OfferingCatalog) -> frozenset[str]:
    if line.able:
        return catalog.kinds_of(line.able)
    kinds = catalog.kinds_like(line.need, line.offerings, line.domains)
    for other in line.beside:
        kinds &= catalog.kinds_like(other.need, other.offerings, other.domains)
    return kinds


def _pod_demand(name: str, lines: Lines, kinds: frozenset[str]) -> PodDemand:
    """Returns a class as demand of the solver; pods that share one machine are one pod with all their requests."""
    line = lines[0]
    each = line.count // line.separable
    requests = {resource: it * each for resource, it in line.requests.items()}
    for other in line.beside:
        for resource, it in other.requests.items():
            requests[resource] = requests.get(resource, 0) + it * other.count
    return PodDemand(name, requests, kinds, sum(it.separable for it in lines))


def _gang_ties(classes: Mapping[str, Lines], catalog: OfferingCatalog) -> "GangTies":
    """Returns which of the classes' pods have to share a zone or a GPU model: single pods have nobody to share with."""
    gangs: dict[str, list[str]] = {}
    for name, lines in classes.items():
        for line in lines:
            if not line.need.ordinary and not line.domains:  # who keeps to domains has its zone
                gangs.setdefault(line.member.gang, []).append(name)
    return GangTies(
        zone=lambda kind: catalog.offerings[kind].offer.zone,
        model=lambda kind: model_of(catalog.offerings[kind]),
        gangs=[mine for mine in gangs.values() if len(mine) > 1 or classes[mine[0]][0].separable > 1],
        sets=frozenset(name for name, lines in classes.items() if lines[0].share_gpu_model),
        planned_kinds={
            name: Counter(catalog.name(offering) for line in lines for offering in line.offerings)
            for name, lines in classes.items()
        },
    )


def _tally(
    problem: PurchaseProblem,
    untied: PurchaseSolution | None,
    catalog: OfferingCatalog,
    machines: Sequence[SharedMachine],
    planned_claims: Sequence[PlannedNodeClaims],
    effort: PurchaseEffort,
    parts: PurchaseParts,
) -> PurchaseTally:
    """Returns what the purchase costs in prices as they will be billed, with a lower bound and the baseline.

    The search went by expected costs: its bound and its baseline hold for prices only where those are the same.
    `untied` is what was found without the ties of gangs; None = nothing was searched for, and all pods have a place.
    """
    known_usd_h = sum(planned.count * planned.offering.offer.price_usd_h for planned in planned_claims)
    cost_usd_h = sum(it.offering.offer.price_usd_h for it in machines) if machines else known_usd_h
    left = sum(untied.left.values()) if untied is not None else 0
    beside_usd_h = catalog.supply.machine_usd_h
    if untied is not None and not catalog.supply.premiums:
        bound_usd_h, baseline_usd_h = (
            untied.bound_usd_h,
            untied.baseline_usd_h - untied.baseline_machines * beside_usd_h,
        )
        if beside_usd_h:
            bound_usd_h = quick_bound_usd_h(cheaper(parts, beside_usd_h), effort, cost_usd_h)
    else:
        listed = (replace(it, price_usd_h=catalog.offerings[it.name].offer.price_usd_h) for it in problem.kinds)
        dearer = catalog.supply.premiums  # else all kinds cost as much more than listed: the parts are the same
        at_list = replace(problem, kinds=tuple(listed)) if dearer else cheaper(parts, beside_usd_h)
        theirs = in_karpenters_order(at_list, effort, cost_usd_h)
        bound_usd_h = theirs.bound_usd_h
        baseline_usd_h = theirs.cost_usd_h if sum(theirs.left.values()) <= left else inf
    bound_usd_h = min(bound_usd_h, cost_usd_h) if not left else 0.0
    count = len(machines) or sum(planned.count for planned in planned_claims)
    return PurchaseTally(cost_usd_h, bound_usd_h, known_usd_h, baseline_usd_h, beside_usd_h=count * beside_usd_h)


def _shared_machines(
    found: PurchaseSolution,
    lines: Lines,
    classes: Mapping[str, Lines],
    offerings: Mapping[str, Offering],
) -> list[SharedMachine]:
    """Returns the machines of a solution one by one, in order of the first line on each."""
    numbers = {line.member: number for number, line in enumerate(lines)}
    waiting = {name: iter(alike) for name, alike in classes.items() if len(alike) > 1}
    made: list[tuple[int, SharedMachine]] = []
    for batch in found.batches:
        held, offering = sorted(batch.pods.items()), offerings[batch.kind]
        several = any(name in waiting for name, _ in held)
        for _ in range(batch.machines if several else 1):
            pods = dict[PodSetOfGang, int]()
            for name, count in held:
                first = classes[name][0]
                alike = islice(waiting[name], count) if name in waiting else ()
                pods |= {it.member: 1 for it in alike} or {first.member: count * (first.count // first.separable)}
            pods = dict(sorted(pods.items(), key=lambda it: numbers[it[0]])) if several else pods
            pods |= {other.member: other.count for name, _ in held for other in classes[name][0].beside}
            machine = numbers[next(iter(pods))], SharedMachine(offering, pods)
            made += [machine] if several else [machine] * batch.machines
    return [
        machine for _, machine in sorted(made, key=lambda it: (it[0], it[1].offering.key, sorted(it[1].pods.items())))
    ]


# -- one zone for what a gang buys, one GPU model for a pod set --------------------------------------------------------


PodsByKind = Mapping[str, Counter[str]]
"""Class -> kind of machine -> pods of the class on it."""


@dataclass(frozen=True, slots=True)
class GangTies:
    """`GangTies` says which pods have to share a zone or a GPU model, and solves purchase problems accordingly."""

    zone: Callable[[str], str]
    """Kind of machine -> its zone."""
    model: Callable[[str], str]
    """Kind of machine -> its GPU model."""
    gangs: Sequence[Sequence[str]]
    """For each gang that buys for more than one pod the names of its classes: all in one zone."""
    sets: frozenset[str]
    """Names of the classes of several pods that use GPUs: each on one GPU model."""
    planned_kinds: Mapping[str, Counter[str]]
    """Class -> kinds of machine that `place_gang` planned for it."""
    _restricted: dict[tuple[frozenset[str], str | None, str | None], frozenset[str]] = field(default_factory=dict)
    """(kinds, zone, GPU model) -> those of the kinds in that zone and of that model; equal sets are one object."""

    def solve(
        self, problem: PurchaseProblem, effort: PurchaseEffort, parts: PurchaseParts
    ) -> tuple[PurchaseSolution, PurchaseSolution]:
        """Returns the best purchase found that keeps the ties, and the best without them: its bound holds for both."""
        untied = solve(problem, effort, parts)
        if not untied.left and not self._classes_with_broken_ties(pods_by_kind(untied.batches)):
            return untied, untied
        order = pods_by_kind(in_karpenters_order(problem).batches)
        answers = [
            self._with_few_broken_ties(problem, pods_by_kind(untied.batches)),
            pods_by_kind(untied.batches),
            self.planned_kinds,
        ]
        restrictions = [self._restricted_to_majority(problem, where, where) for where in answers]
        if not self._classes_with_broken_ties(order):
            restrictions.append(_restricted_to_used_kinds(problem, order))
        tried = [(solve(restriction, GREEDY), restriction) for restriction in restrictions]
        quick, best = min(tried, key=lambda it: (sum(it[0].left.values()), round(it[0].cost_usd_h, 9)))
        return solve(best, effort) if effort.solver else quick, untied

    def _classes_with_broken_ties(self, where: PodsByKind) -> frozenset[str]:
        """Returns the classes of gangs that stand in several zones, and the classes on several GPU models."""
        gangs = (gang for gang in self.gangs if len(_count_by(gang, where, self.zone)) > 1)
        sets = (name for name in self.sets if len(_count_by([name], where, self.model)) > 1)
        return frozenset(name for gang in gangs for name in gang).union(sets)

    def _with_few_broken_ties(self, problem: PurchaseProblem, where: PodsByKind) -> PodsByKind:
        """Restricts the classes whose ties are broken and solves again, up to `_REPAIRS` times.

        Restricting some classes may break the ties of others. Returns the pods of each class by kind.
        """
        for _ in range(_REPAIRS):
            broken = self._classes_with_broken_ties(where)
            if not broken:
                break
            problem = self._restricted_to_majority(problem, where, broken)
            where = pods_by_kind(solve(problem, GREEDY).batches)
        return where

    def _restricted_to_majority(
        self, problem: PurchaseProblem, where: PodsByKind, names: Container[str]
    ) -> PurchaseProblem:
        """Returns the problem with the classes `names` restricted to one zone a gang and one GPU model a class.

        The zone is the one where most pods of the gang are according to `where`, the model the one that most pods of
        the class have in that zone.
        """
        zones_liked, models_liked = _count_by(where, where, self.zone), _count_by(where, where, self.model)
        zones = {
            name: _majority(_count_by(gang, where, self.zone), zones_liked) for gang in self.gangs for name in gang
        }
        settled = []
        for it in problem.classes:
            if it.name in names:
                zone, model = zones.get(it.name), None
                if it.name in self.sets:
                    here = {kind: count for kind, count in where[it.name].items() if self.zone(kind) == zone}
                    model = _majority(_count_by([it.name], {it.name: Counter(here)}, self.model), models_liked)
                settled.append(replace(it, kinds=self._kinds_of(it.kinds, zone, model)))
            else:
                settled.append(it)
        return replace(problem, classes=tuple(settled))

    def _kinds_of(self, kinds: frozenset[str], zone: str | None, model: str | None) -> frozenset[str]:
        """Returns those of the kinds in a zone and of a GPU model (None = any); equal answers are one object."""
        asked = kinds, zone, model
        if asked not in self._restricted:
            self._restricted[asked] = frozenset(
                kind for kind in kinds if zone in {None, self.zone(kind)} and model in {None, self.model(kind)}
            )
        return self._restricted[asked]


def pods_by_kind(batches: Iterable[MachineBatch]) -> PodsByKind:
    """Returns the pods of each class by the kind of machine they are on."""
    found: dict[str, Counter[str]] = {}
    for batch in batches:
        for name, count in batch.pods.items():
            found.setdefault(name, Counter())[batch.kind] += count * batch.machines
    return found


def _restricted_to_used_kinds(problem: PurchaseProblem, where: PodsByKind) -> PurchaseProblem:
    """Returns the problem with every class restricted to the kinds that `where` has it on.

    A heuristic that goes by the same order then finds `where` again.
    """
    classes = (replace(it, kinds=frozenset(where.get(it.name, it.kinds))) for it in problem.classes)
    return replace(problem, classes=tuple(classes))


def _count_by(names: Iterable[str], where: PodsByKind, of: Callable[[str], str]) -> Counter[str]:
    """Counts the pods of these classes by a property of their kinds of machine, such as the zone."""
    found: Counter[str] = Counter()
    for name in names:
        for kind, count in where.get(name, {}).items():
            found[of(kind)] += count
    return found


def _majority(counted: Counter[str], liked: Counter[str]) -> str | None:
    """Returns the value with most pods; of equal ones the more common in `liked`, then the first by name."""
    return min(counted, key=lambda it: (-counted[it], -liked[it], it), default=None)
