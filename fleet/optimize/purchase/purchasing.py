"""The cheapest machines for a batch of pods, and where each group of pods stands.

A group stands in one domain (a zone, a placement group), whichever makes the whole cheapest. Choices are compared by
the greedy heuristics; few choices all of them, many by changing one group at a time. The best few are then searched in
full, and others only while their bound says that they could be cheaper.
"""

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf, prod

from fleet.optimize.packing import Ints, Member, PackingInstance
from fleet.optimize.purchase.column_search import PurchaseIncumbent, greedy, improved
from fleet.optimize.purchase.components import batches, by_class, packing_instances
from fleet.optimize.purchase.heuristics import provisioning_order
from fleet.optimize.purchase.purchase_problem import (
    PodDemand,
    PurchaseEffort,
    PurchaseHeuristic,
    PurchaseProblem,
    PurchaseSolution,
    SearchSteps,
)

Domains = Mapping[str, str]
"""Group -> domain."""
_USUAL = PurchaseEffort()


def solve(problem: PurchaseProblem, effort: PurchaseEffort = _USUAL) -> PurchaseSolution:
    """The best purchase within the effort; never costlier than Karpenter's order for as many pods."""
    if any(it.group and it.count for it in problem.classes):
        return _solve_grouped(problem, effort)
    return _solve_in_domains(problem, {}, effort)


def in_karpenters_order(problem: PurchaseProblem) -> PurchaseSolution:
    """What Karpenter's order would buy; groups are not kept together."""
    parts, unfit = packing_instances(problem, {})
    mixes = [(part, provisioning_order(part)) for part in parts]
    cost_usd_h = sum(mix.cost_usd_h(part) for part, mix in mixes)
    left = dict(unfit)
    for part, mix in mixes:
        left |= _missing(part, part.members, mix.placed)
    return PurchaseSolution(
        batches=tuple(batch for part, mix in mixes for batch in batches(part, mix)),
        cost_usd_h=cost_usd_h,
        baseline_usd_h=cost_usd_h,
        left=left,
        heuristics=(PurchaseHeuristic.BASELINE,) * len(parts),
    )


def _solve_in_domains(problem: PurchaseProblem, domains: Domains, effort: PurchaseEffort) -> PurchaseSolution:
    """The best purchase with the groups in their domains, but maybe not all of their pods."""
    parts, unfit = packing_instances(problem, domains)
    quick = [greedy(part, effort) for part in parts]
    enough_usd_h = effort.close_enough * sum(it.cost_usd_h for it in quick)
    found = [improved(it, effort, enough_usd_h) for it in quick]
    left = dict(unfit)
    for part, it in zip(parts, found, strict=True):
        left |= _missing(part, it.part.members, it.mix.placed)
    worths = [by_class(it.part, it.bound.worth.tolist()) for it in found]
    dearest = sorted(found, key=lambda it: (-it.cost_usd_h, it.part.members))
    return PurchaseSolution(
        batches=tuple(batch for it in found for batch in batches(it.part, it.mix)),
        cost_usd_h=sum(it.cost_usd_h for it in found),
        bound_usd_h=sum(it.bound_usd_h for it in found),
        baseline_usd_h=sum(_baseline_usd_h(it) for it in found),
        left=left,
        worth_usd_h=dict(ChainMap(*worths)),
        domains=dict(domains),
        heuristics=tuple(it.heuristic for it in dearest),
        steps=sum((it.steps for it in found), SearchSteps()),
        failure="; ".join(sorted({it.failure for it in found if it.failure})),
    )


def _baseline_usd_h(found: PurchaseIncumbent) -> float:
    """What Karpenter's order pays for the same pods, infinite where it has no place for them."""
    placed = found.baseline.placed
    return found.baseline.cost_usd_h(found.part) if (placed >= found.mix.placed).all() else inf


def _missing(part: PackingInstance, members: Sequence[Sequence[Member]], placed: Ints) -> dict[str, int]:
    """Class -> pods of the part without a machine. The search may have left out what there is no room for."""
    held: dict[str, int] = {}
    for group, count in zip(members, placed.tolist(), strict=True):
        rest = count
        for name, pods in group:
            held[name] = min(rest, pods)
            rest -= held[name]
    every = ((name, pods) for group in part.members for name, pods in group)
    return {name: pods - held.get(name, 0) for name, pods in every if pods > held.get(name, 0)}


# -- groups and their domains -----------------------------------------------------------------------------------------


def _solve_grouped(problem: PurchaseProblem, effort: PurchaseEffort) -> PurchaseSolution:
    """The best purchase that keeps every group in one domain, all of its pods or none."""
    groups = {pods.group for pods in problem.classes if pods.group and pods.count}
    options = {group: _possible(problem, group) for group in sorted(groups)}
    left = {it.name: it.count for it in problem.classes if it.count and it.group in groups and not options[it.group]}
    while True:
        options = {group: domains for group, domains in options.items() if domains}
        wanted = replace(problem, classes=tuple(it for it in problem.classes if not it.group or it.group in options))
        found = _best_domains(wanted, options, effort)
        short = {it.group: 0 for it in wanted.classes if it.group and it.name in found.left}
        if not short:
            return replace(found, left={**found.left, **left})
        # Which group goes empty-handed: the one that lacks most, for the sake of all others.
        for it in wanted.classes:
            if it.group in short:
                short[it.group] += found.left.get(it.name, 0)
        gone = max(sorted(short), key=lambda group: short[group])
        options[gone] = []
        left |= {it.name: it.count for it in wanted.classes if it.group == gone and it.count}


def _possible(problem: PurchaseProblem, group: str) -> list[str]:
    """The domains where a pod of each class of a group fits on something, sorted."""
    places = [(it.name, it.domain, it.capacity) for it in problem.kinds if it.most != 0]
    places += [(it.name, it.domain, it.free) for it in problem.existing]

    def domains_of(pods: PodDemand) -> set[str]:
        asked = pods.requests.items()
        own = [(domain, amounts) for name, domain, amounts in places if name in pods.kinds]
        return {domain for domain, amounts in own if all(amounts.get(what, 0) >= amount for what, amount in asked)}

    return sorted(set.intersection(*(domains_of(it) for it in problem.classes if it.group == group and it.count)))


def _best_domains(
    problem: PurchaseProblem, options: Mapping[str, Sequence[str]], effort: PurchaseEffort
) -> PurchaseSolution:
    """The best purchase over the choices of a domain for each group; `options` are the domains of each."""
    if not options:
        return _solve_in_domains(problem, {}, effort)
    every = prod(len(domains) for domains in options.values()) <= effort.trials
    choices = _every(options) if every else _one_group_at_a_time(options, problem, effort)
    tried = [
        _DomainTrial(domains, _solve_in_domains(problem, domains, replace(effort, solver=False))) for domains in choices
    ]
    tried.sort(key=lambda it: it.rank)
    best, bounds = tried[0].quick, [it.quick.bound_usd_h for it in tried]
    for number, trial in enumerate(tried[: effort.domains] if effort.solver else ()):
        if number and (_rank(trial.quick)[0] > _rank(best)[0] or trial.quick.bound_usd_h >= best.cost_usd_h):
            continue
        found = _solve_in_domains(problem, trial.domains, effort)
        bounds[number] = found.bound_usd_h
        best = min(best, found, key=_rank)
    bound = min(bounds) if every else _solve_in_domains(problem, {}, replace(effort, solver=False)).bound_usd_h
    return replace(best, bound_usd_h=min(bound, best.cost_usd_h))


@dataclass(frozen=True, slots=True)
class _DomainTrial:
    """A choice of domains, and what the greedy heuristics make of it."""

    domains: Domains
    quick: PurchaseSolution

    @property
    def rank(self) -> tuple[int, float, tuple[tuple[str, str], ...]]:
        return (*_rank(self.quick), tuple(sorted(self.domains.items())))


def _rank(found: PurchaseSolution) -> tuple[int, float]:
    return sum(found.left.values()), found.cost_usd_h


def _every(options: Mapping[str, Sequence[str]]) -> Iterator[Domains]:
    for domains in product(*options.values()):
        yield dict(zip(options, domains, strict=True))


def _one_group_at_a_time(
    options: Mapping[str, Sequence[str]], problem: PurchaseProblem, effort: PurchaseEffort
) -> Iterator[Domains]:
    """Yields the first domains of all; then, group after group, the others, going on with the best so far."""
    best = {group: domains[0] for group, domains in options.items()}
    yield best
    quick = replace(effort, solver=False)
    rank = _rank(_solve_in_domains(problem, best, quick))
    changes = ((group, domain) for group, domains in options.items() for domain in domains[1:])
    for group, domain in islice(changes, effort.trials):
        changed = best | {group: domain}
        if (found := _rank(_solve_in_domains(problem, changed, quick))) < rank:
            best, rank = changed, found
    yield best
