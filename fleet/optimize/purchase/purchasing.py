"""Finds the cheapest machines for a batch of pods, and the domain of each group of pods.

A group stands in one domain (a zone, a placement group), whichever makes the whole cheapest. Choices are compared by
the greedy heuristics; few choices all of them, many by changing one group at a time. The best few are then searched in
full, and others only while their bound says that they could be cheaper.

A problem is split into parts that share no kind and no limit; each becomes an instance, and its solution is translated
back. Equal classes are one in an instance, and so are equal existing machines; dominated kinds are dropped.
"""

from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import islice, product
from math import inf, prod
from typing import NamedTuple

import numpy as np

from fleet.optimize.inputs import USD_H, MachineKind
from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Floats, Ints, Member, PackingInstance
from fleet.optimize.presolve import (
    allowed,
    amounts,
    common_unit,
    components,
    dominated_kinds,
    reachable,
    size_order,
    usage,
    useful,
)
from fleet.optimize.purchase.bounds import by_one_resource
from fleet.optimize.purchase.column_search import PurchaseIncumbent, greedy, improved, quick_bound
from fleet.optimize.purchase.heuristics import provisioning_order
from fleet.optimize.purchase.purchase_problem import (
    MachineBatch,
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
_ROUNDING = 1e-9
"""Relative amount by which a sum of prices may exceed a limit; everything else is counted in whole numbers."""
_Held = tuple[tuple[str, int], ...]
"""(class, pods on each machine), sorted."""


class PurchaseParts(NamedTuple):
    """`PurchaseParts` are the independent parts of a problem, groups left aside."""

    parts: Sequence[PackingInstance]
    unfit: Mapping[str, int]
    """Class -> pods that fit on no kind."""


def split(problem: PurchaseProblem) -> PurchaseParts:
    """Returns the parts of a problem: for thousands of classes to make them takes as long as to buy for them."""
    return PurchaseParts(*packing_instances(problem, {}))


def cheaper(parts: PurchaseParts, usd_h: float) -> PurchaseParts:
    """Returns the parts of the problem in which every machine costs so much less."""
    return PurchaseParts([replace(it, price=it.price - usd_h) for it in parts.parts], parts.unfit)


def solve(
    problem: PurchaseProblem, effort: PurchaseEffort = _USUAL, parts: PurchaseParts | None = None
) -> PurchaseSolution:
    """Returns the best purchase within the effort; never costlier than Karpenter's order for as many pods.

    `parts`: those of the problem, where they are known.
    """
    if any(it.group and it.count for it in problem.classes):
        return _solve_grouped(problem, effort)
    return _solve_parts(split(problem) if parts is None else parts, {}, effort)


def in_karpenters_order(
    problem: PurchaseProblem | PurchaseParts,
    effort: PurchaseEffort | None = None,
    known_usd_h: float = inf,
) -> PurchaseSolution:
    """Returns what Karpenter's order would buy; groups are not kept together.

    With an effort it comes with a bound of what any purchase of all pods that fit somewhere costs. That needs no
    search: it is from each resource alone and, with a solver, from machines in bulk, unless the first is close enough
    to `known_usd_h`, what a purchase is known to cost.
    """
    known = split(problem) if isinstance(problem, PurchaseProblem) else problem
    mixes = [(part, provisioning_order(part)) for part in known.parts]
    cost_usd_h = sum(mix.cost_usd_h(part) for part, mix in mixes)
    left = dict(known.unfit)
    for part, mix in mixes:
        left |= _missing(part, part.members, mix.placed)
    return PurchaseSolution(
        batches=tuple(batch for part, mix in mixes for batch in batches(part, mix)),
        cost_usd_h=cost_usd_h,
        bound_usd_h=0.0 if effort is None else quick_bound_usd_h(known, effort, known_usd_h),
        baseline_usd_h=cost_usd_h,
        left=left,
        heuristics=(PurchaseHeuristic.BASELINE,) * len(mixes),
    )


def close_enough(problem: PurchaseParts, known_usd_h: float, effort: PurchaseEffort = _USUAL) -> bool:
    """Returns whether a search can save too little of what a known purchase of all pods costs to be begun.

    What counts as little grows with the pairs of a class and a kind, as the time of the search does. Small problems are
    always searched: their bound alone costs as much.
    """
    parts, unfit = problem
    pairs = sum(int(part.fits.sum()) for part in parts)
    if unfit or not effort.solver or pairs <= effort.exact_pairs:
        return False
    bound_usd_h = sum(quick_bound(part, effort).usd_h for part in parts)
    return known_usd_h - bound_usd_h <= effort.little(pairs) * known_usd_h


def quick_bound_usd_h(parts: PurchaseParts, effort: PurchaseEffort, known_usd_h: float) -> float:
    """Returns a bound without a search; from one resource alone, if that is close enough to what is known to do."""
    quick_usd_h = sum(by_one_resource(part).usd_h for part in parts.parts)
    if known_usd_h - quick_usd_h <= effort.close_enough * known_usd_h < inf:
        return quick_usd_h
    return sum(quick_bound(part, effort).usd_h for part in parts.parts)


def _solve_in_domains(problem: PurchaseProblem, domains: Domains, effort: PurchaseEffort) -> PurchaseSolution:
    """Returns the best purchase with each group in its domain, where maybe not all of its pods find room."""
    return _solve_parts(PurchaseParts(*packing_instances(problem, domains)), domains, effort)


def _solve_parts(split_: PurchaseParts, domains: Domains, effort: PurchaseEffort) -> PurchaseSolution:
    parts, unfit = split_
    quick = [greedy(part, effort) for part in parts]
    whole_usd_h = sum(it.cost_usd_h for it in quick)
    found = [improved(it, effort, whole_usd_h) for it in quick]
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
        baseline_machines=sum(int(it.baseline.machines.sum()) for it in found),
        left=left,
        worth_usd_h=dict(ChainMap(*worths)),
        domains=dict(domains),
        heuristics=tuple(it.heuristic for it in dearest),
        steps=sum((it.steps for it in found), SearchSteps()),
        failure="; ".join(sorted({it.failure for it in found if it.failure})),
    )


def _baseline_usd_h(found: PurchaseIncumbent) -> float:
    """Returns what Karpenter's order pays for the same pods; inf where it has no place for them."""
    placed = found.baseline.placed
    return found.baseline.cost_usd_h(found.part) if (placed >= found.mix.placed).all() else inf


def _missing(part: PackingInstance, members: Sequence[Sequence[Member]], placed: Ints) -> dict[str, int]:
    """Returns class -> pods of the part without a machine; `members` are those of the part that was searched."""
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
    """Returns the best purchase that keeps every group in one domain, all of its pods or none."""
    groups = {pods.group for pods in problem.classes if pods.group and pods.count}
    options = {group: _possible_domains(problem, group) for group in sorted(groups)}
    left = {it.name: it.count for it in problem.classes if it.count and it.group in groups and not options[it.group]}
    while True:
        options = {group: domains for group, domains in options.items() if domains}
        wanted = replace(problem, classes=tuple(it for it in problem.classes if not it.group or it.group in options))
        found = _best_domains(wanted, options, effort)
        short = {it.group: 0 for it in wanted.classes if it.group and it.name in found.left}
        if not short:
            return replace(found, left={**found.left, **left})
        # The group that lacks most places gets none, so that the others get theirs.
        for it in wanted.classes:
            if it.group in short:
                short[it.group] += found.left.get(it.name, 0)
        gone = max(sorted(short), key=lambda group: short[group])
        options[gone] = []
        left |= {it.name: it.count for it in wanted.classes if it.group == gone and it.count}


def _possible_domains(problem: PurchaseProblem, group: str) -> list[str]:
    """Returns the domains where a pod of each class of a group fits on something, sorted."""
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
    """Returns the best purchase over the choices of a domain for each group, of the `options` of each."""
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
    """A `_DomainTrial` is a choice of domains with the purchase that the greedy heuristics find for it."""

    domains: Domains
    quick: PurchaseSolution

    @property
    def rank(self) -> tuple[int, float, tuple[tuple[str, str], ...]]:
        """Returns the sort key: fewest pods without a machine, then cost, then names."""
        return (*_rank(self.quick), tuple(sorted(self.domains.items())))


def _rank(found: PurchaseSolution) -> tuple[int, float]:
    """Returns (pods without a machine, cost): lower is better."""
    return sum(found.left.values()), found.cost_usd_h


def _every(options: Mapping[str, Sequence[str]]) -> Iterator[Domains]:
    """Yields every choice of one domain for each group."""
    for domains in product(*options.values()):
        yield dict(zip(options, domains, strict=True))


def _one_group_at_a_time(
    options: Mapping[str, Sequence[str]], problem: PurchaseProblem, effort: PurchaseEffort
) -> Iterator[Domains]:
    """Yields the first domain of every group; then changes of one group at a time, keeping what is better."""
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


# -- a problem as independent instances, and back ----------------------------------------------------------------------


def packing_instances(
    problem: PurchaseProblem, domains: Mapping[str, str]
) -> tuple[list[PackingInstance], dict[str, int]]:
    """Returns the independent parts with groups held to `domains`, and class -> pods that fit on no kind."""
    kinds = _kinds(problem)
    standing = {it.name for it in problem.existing}
    capacity = amounts((kind.capacity for kind in kinds), problem.resources)
    classes = sorted((it for it in problem.classes if it.count), key=lambda it: size_order(it, problem.resources))
    requests = amounts((pods.requests for pods in classes), problem.resources)
    rows = ((it.kinds, domains.get(it.group) if it.group else None) for it in classes)
    fits = allowed(rows, [kind.name for kind in kinds], [kind.domain for kind in kinds])
    for resource in range(requests.shape[1]):
        fits &= requests[:, resource, None] <= capacity[None, :, resource]
    left = {pods.name: pods.count for row, pods in enumerate(classes) if not fits[row].any()}
    counted, limits = _limits(problem, kinds, standing)
    merged = _equal_classes(requests, fits)
    price = np.array([kind.price_usd_h for kind in kinds], dtype=np.float64)
    most = np.array([np.inf if kind.most is None else kind.most for kind in kinds], dtype=np.float64)
    stands = np.array([kind.name in standing for kind in kinds], dtype=bool)
    found = []
    for numbers, cols in _components(fits[[rows[0] for rows in merged]], counted):
        groups = [merged[number] for number in numbers]
        first = np.array([group[0] for group in groups])
        members = tuple(tuple((classes[row].name, classes[row].count) for row in group) for group in groups)
        demand = np.array([sum(count for _, count in group) for group in members], dtype=np.int64)
        binding = counted[:, cols].any(axis=1)
        part = PackingInstance(
            requests[first], demand, capacity[cols], price[cols], most[cols], stands[cols], fits[first][:, cols],
            counted[binding][:, cols], limits[binding], members, tuple((kinds[col].name,) for col in cols),
        )  # fmt: skip
        found.append(_reduced(part))
    return found, left


def _kinds(problem: PurchaseProblem) -> list[MachineKind]:
    """Returns all kinds that pods may stand on, by price; each existing machine is a kind that can be had once."""
    existing = [MachineKind(it.name, 0.0, it.free, it.domain, 1) for it in problem.existing]
    had = [it for it in problem.kinds if it.most != 0]
    return sorted([*had, *existing], key=lambda it: (it.price_usd_h, it.name))


def _limits(
    problem: PurchaseProblem, kinds: Sequence[MachineKind], standing: AbstractSet[str]
) -> tuple[Floats, Floats]:
    """Returns [L, K] what a machine counts against each limit (0 if it exists already), and [L] the limits."""
    ordered = sorted(problem.limits, key=lambda it: it.name)
    most = [it.most * (1 + _ROUNDING) + _ROUNDING if it.counted == USD_H else it.most for it in ordered]
    return usage(ordered, kinds, standing), np.array(most, dtype=np.float64)


def _equal_classes(requests: Floats, fits: Bools) -> list[list[int]]:
    """Returns groups of class numbers with equal requests and kinds; classes without a kind are left out."""
    equal: dict[tuple[bytes, bytes], list[int]] = {}
    for row in np.flatnonzero(fits.any(axis=1)).tolist():
        equal.setdefault((requests[row].tobytes(), fits[row].tobytes()), []).append(row)
    return list(equal.values())


def _components(fits: Bools, counted: Floats) -> list[tuple[list[int], list[int]]]:
    """Returns (classes, kinds) that share no kind and no limit with others, in the order of their first class."""
    if not len(fits):
        return []
    head = components(np.vstack([fits, counted > 0]))
    found: dict[int, list[int]] = {}
    for row, first in enumerate(fits.argmax(axis=1).tolist()):
        found.setdefault(int(head[first]), []).append(row)
    return [(rows, np.flatnonzero(fits[rows].any(axis=0)).tolist()) for rows in found.values()]


def _reduced(part: PackingInstance) -> PackingInstance:
    """Returns the part without unused resources and dominated kinds, in the largest common units."""
    asked: Bools = np.logical_or.reduce(part.requests, axis=0)
    asked[0] |= not asked.any()
    requests, capacity = part.requests[:, asked], part.capacity[:, asked]
    unit = common_unit(requests)
    requests, capacity = requests / unit, np.floor(capacity / unit)
    part = PackingInstance(
        requests, part.demand, useful(capacity, requests, part.demand, part.fits), part.price, part.most, part.open,
        part.fits, part.usage, part.limits, part.members, part.names,
    )  # fmt: skip
    part = _existing_merged(part)
    if part.apart.any():
        part = replace(part, capacity=reachable(part.capacity, part.requests, part.demand, part.apart))
    return part.only(~dominated_kinds(part))


def _existing_merged(part: PackingInstance) -> PackingInstance:
    """Returns the part with equal existing machines merged into one kind that can be had several times."""
    if not part.open.any():
        return part
    equal: dict[tuple[bytes, ...], list[int]] = {}
    for col in np.flatnonzero(part.open).tolist():
        key = (part.capacity[col].tobytes(), part.fits[:, col].tobytes(), part.usage[:, col].tobytes())
        equal.setdefault(key, []).append(col)
    kept: Bools = np.logical_not(part.open)
    most, names = part.most.copy(), list(part.names)
    for first, *others in equal.values():
        kept[first] = True
        most[first] += part.most[others].sum()
        names[first] = tuple(part.names[col][0] for col in (first, *others))
    return PackingInstance(
        part.requests, part.demand, part.capacity, part.price, most, part.open, part.fits,
        part.usage, part.limits, part.members, tuple(names),
    ).only(kept)  # fmt: skip


def batches(part: PackingInstance, mix: PatternMix) -> list[MachineBatch]:
    """Returns the machines by name, dearest kind first; merged classes and existing machines are told apart again."""
    queues = [list(reversed(group)) for group in part.members]
    existing = [iter(names) for names in part.names]
    found: Counter[tuple[str, _Held]] = Counter()
    for kind, own, there in _ordered(mix):
        wanted, machines = [(queues[row], pods) for row, pods in own], there
        while machines:
            alike = min(machines, *(queue[-1][1] // pods for queue, pods in wanted))
            count = 1 if part.open[kind] else max(alike, 1)
            held: dict[str, int] = {}
            for queue, pods in wanted:
                _take(queue, pods, count, held)
            name = next(existing[kind]) if part.open[kind] else part.names[kind][0]
            found[name, tuple(sorted(held.items()))] += count
            machines -= count
    return [MachineBatch(name, dict(held), count) for (name, held), count in found.items()]


def _ordered(mix: PatternMix) -> list[tuple[int, list[tuple[int, int]], int]]:
    """Returns (kind, its (class, pods), machines) of each pattern; dearest first, then by pods of the last class."""
    patterns, rows = np.nonzero(mix.pods)
    pods: list[list[tuple[int, int]]] = [[] for _ in mix.kinds]
    for pattern, row, count in zip(patterns.tolist(), rows.tolist(), mix.pods[patterns, rows].tolist(), strict=True):
        pods[pattern].append((row, count))
    found = list(zip(mix.kinds.tolist(), pods, mix.machines.tolist(), strict=True))
    return sorted(found, key=lambda it: (-it[0], it[1][::-1]))


def _take(queue: list[Member], pods: int, machines: int, held: dict[str, int]) -> None:
    """Takes `pods` for each of `machines` off the queue; of more than one class only for a single machine."""
    while pods:
        name, there = queue.pop()
        taken = min(pods, there // machines)
        held[name] = held.get(name, 0) + taken
        pods -= taken
        if rest := there - taken * machines:
            queue.append((name, rest))


def by_class(part: PackingInstance, values: Sequence[float]) -> dict[str, float]:
    """Returns class -> value, given one value for each row of merged classes."""
    return {name: value for group, value in zip(part.members, values, strict=True) for name, _ in group}
