"""Turns a consolidation problem into arrays, one instance for each independent part.

Everything is sorted by what it is (price, room, pods), names come last; classes with equal requests are one, and
dominated kinds are dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleet.optimize.consolidate.consolidation_problem import ConsolidationProblem, ReplacementKind
from fleet.optimize.packing import Bools, Floats, Ints, PackingInstance, pods_alone
from fleet.optimize.presolve import allowed, amounts, common_unit, components, dominated, size_order, usage, useful

_ROUNDING = 1e-9
"""Relative amount by which purchases may exceed a limit."""


@dataclass(frozen=True, eq=False)
class MovableGang:
    """A `MovableGang` is a block that moves whole, from S machines."""

    block: int
    """Its number in the problem."""
    machines: Ints
    """[S] numbers of the machines."""
    used: Floats
    """[S, R] what the block takes on each machine."""
    options: tuple[Ints, ...]
    """Its pods by machine and row, [S, C], for each domain it may move to; at least one option."""
    cost_usd_h: float
    """USD an hour that moving it counts."""


@dataclass(frozen=True, eq=False)
class ConsolidationInstance:
    """A `ConsolidationInstance` is an independent part: M machines, C rows, K kinds to buy, R resources.

    A row is a class; for blocks that keep to a domain there is one for each domain.
    """

    requests: Floats
    """[C, R] what one pod takes, divided by the greatest common divisor of a resource's requests."""
    price: Floats
    """[M] USD an hour."""
    free: Floats
    """[M, R] what is free on each machine."""
    fits: Bools
    """[C, M] whether the class may stand on the machine."""
    independent: Ints
    """[M, C] pods that may each be moved by itself."""
    cost: Floats
    """[M] USD an hour that moving these pods off counts."""
    may_go: Bools
    """[M] whether the machine may be removed."""
    spot: Bools
    """[M] whether it is a spot machine."""
    kind: Ints
    """[M] the column of the machine's own kind among `kinds`, -1 where it cannot be bought."""
    budget: Ints
    """[M] the row of `budgets` that removing the machine counts against, -1 where none binds."""
    budgets: Ints
    """[P] machines of the pool that may be removed."""
    gangs: tuple[MovableGang, ...]
    kinds: PackingInstance
    """What can be bought; its `demand` is all pods that may move."""
    worst: Floats
    """[K] highest price that the launch may end at, in USD an hour."""
    spots: Bools
    """[K] whether it is a spot machine."""
    most_bought: float
    """Most machines that may be bought; inf = no bound."""
    machines: Ints
    """[M] number of each machine in the problem."""
    classes: tuple[tuple[int, ...], ...]
    """[C] the numbers of the problem's classes that are counted as one row."""

    def holds(self, free: Floats, fits: Bools) -> Ints:
        """Returns [C, N] pods of one class that fit into `free` [N, R], no more than may move."""
        found = np.maximum(pods_alone(self.requests, self.kinds.demand, free), 0.0)
        whole: Ints = np.where(fits, found, 0.0).astype(np.int64)
        return whole

    def affordable(self, bought: Floats) -> bool:
        """Returns whether so many machines of each kind [K] may be bought."""
        part = self.kinds
        within = (part.usage @ bought <= part.limits * (1 + _ROUNDING) + _ROUNDING).all()
        return bool(bought.sum() <= self.most_bought and (bought <= part.most).all() and within)


def consolidation_instances(problem: ConsolidationProblem) -> list[ConsolidationInstance]:
    """Returns the independent parts, those with pods first."""
    whole = _everything(problem)
    order = _order(problem, whole)
    of_machines, of_rows, of_kinds = _components(whole)
    found = []
    for part in sorted({*of_rows.tolist(), *of_machines.tolist()}, key=lambda it: (it < 0, it)):
        machines = order[of_machines[order] == part]
        found.append(
            _only(whole, machines, np.flatnonzero(of_rows == part), np.flatnonzero((of_kinds == part) & (part >= 0)))
        )
    return found


# -- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _ClassRows:
    """`_ClassRows` are the rows: every class, and again for each domain where a block has to keep to one."""

    classes: list[tuple[int, ...]]
    domains: list[str | None]
    of: Mapping[tuple[str, str | None], int]
    """(class, domain or None) -> row"""


def _everything(problem: ConsolidationProblem) -> ConsolidationInstance:
    """Returns the problem as one instance."""
    resources, standing = problem.resources, problem.standing
    kinds = sorted(
        (it for it in problem.kinds if it.most != 0), key=lambda it: (it.price_usd_h, it.dearest_usd_h, it.name)
    )
    rows = _class_rows(problem, kinds)
    requests = amounts((problem.classes[group[0]].requests for group in rows.classes), resources)
    unit = common_unit(requests)
    requests = requests / unit
    free = np.floor(amounts((it.free for it in standing), resources) / unit)
    may = [(problem.classes[group[0]].kinds, domain) for group, domain in zip(rows.classes, rows.domains, strict=True)]
    fits = allowed(may, [it.kind for it in standing], [it.domain for it in standing])
    independent, cost, gangs = _blocks(problem, rows, requests)
    demand = independent.sum(axis=0)
    for option in (option for gang in gangs for option in gang.options):
        demand += option.sum(axis=0)
    buys = allowed(may, [it.name for it in kinds], [it.domain for it in kinds])
    column = {it.name: index for index, it in enumerate(kinds)}
    pools = sorted(pool for pool in problem.budgets if _binds(problem, pool))
    most = problem.rules.most_bought
    return ConsolidationInstance(
        requests, np.array([it.price_usd_h for it in standing], dtype=np.float64), free, fits, independent, cost,
        np.array([it.may_go for it in standing], dtype=bool), np.array([it.spot for it in standing], dtype=bool),
        np.array([column.get(it.kind, -1) for it in standing], dtype=np.int64),
        np.array([pools.index(it.pool) if it.pool in pools else -1 for it in standing], dtype=np.int64),
        np.array([problem.budgets[pool] for pool in pools], dtype=np.int64), gangs,
        _packing(problem, kinds, requests, np.maximum(demand, 1), unit, buys),
        np.array([it.dearest_usd_h for it in kinds], dtype=np.float64), np.array([it.spot for it in kinds], dtype=bool),
        float("inf") if most is None else most, np.arange(len(standing)), tuple(rows.classes),
    )  # fmt: skip


def _packing(
    problem: ConsolidationProblem,
    kinds: Sequence[ReplacementKind],
    requests: Floats,
    demand: Ints,
    unit: Floats,
    buys: Bools,
) -> PackingInstance:
    """Returns what can be bought for all pods that may move; `buys` [C, K]: which class may stand on which kind."""
    capacity = np.floor(amounts((it.capacity for it in kinds), problem.resources) / unit)
    for resource in range(len(problem.resources)):
        buys &= requests[:, resource, None] <= capacity[None, :, resource]
    limits = sorted(problem.limits, key=lambda it: it.name)
    return PackingInstance(
        requests, demand, capacity,
        np.array([it.price_usd_h for it in kinds], dtype=np.float64),
        np.array([np.inf if it.most is None else it.most for it in kinds], dtype=np.float64),
        np.zeros(len(kinds), dtype=bool), buys, usage(limits, kinds),
        np.array([it.most for it in limits], dtype=np.float64),
        tuple(() for _ in demand), tuple((it.name,) for it in kinds),
    )  # fmt: skip


def _binds(problem: ConsolidationProblem, pool: str) -> bool:
    """Returns whether the budget of a pool is smaller than the number of its machines that may be removed."""
    return sum(1 for it in problem.standing if it.pool == pool and it.may_go) > problem.budgets[pool]


def _class_rows(problem: ConsolidationProblem, kinds: Sequence[ReplacementKind]) -> _ClassRows:
    """Returns the rows, largest requests first; classes with equal requests and kinds share one."""
    used = {name for block in problem.blocks for held in block.places.values() for name, pods in held.items() if pods}
    kept = [block for block in problem.blocks if block.keeps_domain]
    bound = {name for block in kept for held in block.places.values() for name in held}
    domains = sorted({it.domain for it in problem.standing} | {it.domain for it in kinds})
    order = sorted(
        (number for number, it in enumerate(problem.classes) if it.name in used),
        key=lambda number: size_order(problem.classes[number], problem.resources),
    )
    rows: dict[tuple[tuple[int, ...], frozenset[str], str | None], list[int]] = {}
    for number in order:
        it = problem.classes[number]
        asked = tuple(it.requests.get(resource, 0) for resource in problem.resources)
        for domain in (None, *domains) if it.name in bound else (None,):
            rows.setdefault((asked, it.kinds, domain), []).append(number)
    of = {
        (problem.classes[number].name, domain): row
        for row, ((_, _, domain), numbers) in enumerate(rows.items())
        for number in numbers
    }
    return _ClassRows([tuple(it) for it in rows.values()], [domain for _, _, domain in rows], of)


def _blocks(
    problem: ConsolidationProblem, rows: _ClassRows, requests: Floats
) -> tuple[Ints, Floats, tuple[MovableGang, ...]]:
    """Returns pods that move independently [M, C], what moving them costs [M], and the blocks that move whole."""
    place = {it.name: number for number, it in enumerate(problem.standing)}
    domains = sorted({domain for domain in rows.domains if domain is not None})
    independent = np.zeros((len(place), len(rows.classes)), dtype=np.int64)
    cost = np.zeros(len(place))
    gangs = []
    for number, block in sorted(enumerate(problem.blocks), key=lambda it: it[1].name):
        if not block.pods:
            continue
        if block.in_gangs:
            gang = _gang(problem, rows, number, place, domains if block.keeps_domain else [None])
            gangs.append(replace(gang, used=gang.options[0] @ requests))
            continue
        for machine, held in block.places.items():
            cost[place[machine]] += problem.disruption_usd_h(block, sum(held.values()))
            for name, pods in held.items():
                independent[place[machine], rows.of[name, None]] += pods
    return independent, cost, tuple(gangs)


def _gang(
    problem: ConsolidationProblem,
    rows: _ClassRows,
    number: int,
    place: Mapping[str, int],
    domains: Sequence[str | None],
) -> MovableGang:
    """Returns a block with an option for each of `domains`, without what it uses."""
    block = problem.blocks[number]
    machines = sorted(place[name] for name, held in block.places.items() if any(held.values()))
    options = []
    for domain in domains:
        option = np.zeros((len(machines), len(rows.classes)), dtype=np.int64)
        for line, machine in enumerate(machines):
            for name, pods in block.places[problem.standing[machine].name].items():
                option[line, rows.of[name, domain]] += pods
        options.append(option)
    cost = problem.disruption_usd_h(block, block.pods)
    return MovableGang(number, np.array(machines), np.zeros((0, 0)), tuple(options), cost)


# -- its parts --------------------------------------------------------------------------------------------------------


def _order(problem: ConsolidationProblem, instance: ConsolidationInstance) -> Ints:
    """Returns [M] the machines sorted by what they are, dearest first; names come last."""
    names = np.argsort(np.argsort(np.array([it.name for it in problem.standing], dtype=object)))
    kinds = np.unique([f"{it.kind}/{it.pool}/{it.domain}" for it in problem.standing], return_inverse=True)[1]
    keys = (names, *instance.free.T, *instance.independent.T, instance.cost, instance.may_go, instance.spot, kinds)
    found: Ints = np.lexsort((*keys, -instance.price))
    return found


def _components(instance: ConsolidationInstance) -> tuple[Ints, Ints, Ints]:
    """Returns the part of each machine [M], row [C] and kind [K]; -1 for those without pods and budget."""
    part = instance.kinds
    free = instance.free.copy()
    for gang in instance.gangs:
        np.add.at(free, gang.machines, gang.used)
    pools = (instance.budget[:, None] == np.arange(len(instance.budgets))) & instance.may_go[:, None]
    no_limits = np.zeros((len(free), len(part.limits) + 1), dtype=bool)
    rows = (instance.holds(free, instance.fits).T > 0) | (instance.independent > 0)
    machines = np.hstack([rows, pools, no_limits])
    for gang in instance.gangs:
        machines[
            gang.machines[:, None], np.flatnonzero(np.any([option.any(axis=0) for option in gang.options], axis=0))
        ] = True
        machines[gang.machines] = machines[gang.machines].any(axis=0)
    whole = np.full((len(part.price), 1), np.isfinite(instance.most_bought))
    kinds = np.hstack([part.fits.T, np.zeros((len(whole), pools.shape[1]), dtype=bool), part.usage.T > 0, whole])
    head = components(np.vstack([machines, kinds]))
    return _part_of(machines, head), head[: len(instance.requests)], _part_of(kinds, head)


def _part_of(sets: Bools, head: Ints) -> Ints:
    """Returns [N] the part that each of `sets` [N, E] belongs to, -1 where it is empty."""
    found: Ints = np.where(sets.any(axis=1), head[sets.argmax(axis=1)] if sets.shape[1] else -1, -1)
    return found


def _only(instance: ConsolidationInstance, machines: Ints, rows: Ints, kinds: Ints) -> ConsolidationInstance:
    """Returns the part of these machines, rows and kinds, in the order given, without dominated kinds."""
    place = np.full(len(instance.price), -1)
    place[machines] = np.arange(len(machines))
    few, kept = _cheapest(instance, rows, kinds)
    column = np.full(len(instance.kinds.price) + 1, -1)  # the last entry stands for "no column"
    column[kept] = np.arange(len(kept))
    gangs = [_renumbered(gang, place, rows) for gang in instance.gangs if place[gang.machines[0]] >= 0]
    return ConsolidationInstance(
        instance.requests[rows], instance.price[machines], instance.free[machines],
        instance.fits[np.ix_(rows, machines)], instance.independent[np.ix_(machines, rows)], instance.cost[machines],
        instance.may_go[machines], instance.spot[machines], column[instance.kind[machines]], instance.budget[machines],
        instance.budgets,
        tuple(sorted(gangs, key=lambda it: (it.machines.tolist(), it.options[0].tolist(), it.cost_usd_h, it.block))),
        few, instance.worst[kept], instance.spots[kept], instance.most_bought, instance.machines[machines],
        tuple(instance.classes[row] for row in rows.tolist()),
    )  # fmt: skip


def _cheapest(instance: ConsolidationInstance, rows: Ints, kinds: Ints) -> tuple[PackingInstance, Ints]:
    """Returns what can be bought of `kinds` for `rows`, and the numbers of the kinds that are not dominated.

    Kinds come by price: one is dominated by an earlier one that can be had without bound and is as good in all else.
    """
    part = instance.kinds
    fits = part.fits[np.ix_(rows, kinds)]
    small = useful(part.capacity[kinds], instance.requests[rows], part.demand[rows], fits)
    features = np.hstack([small, -part.usage[:, kinds].T, -instance.worst[kinds, None], ~instance.spots[kinds, None]])
    place = np.arange(len(kinds), dtype=np.float64)
    kept = ~dominated(place, np.flatnonzero(np.isinf(part.most[kinds])), features, fits)
    at = kinds[kept]
    counted = part.usage[:, at].any(axis=1)
    few = PackingInstance(
        instance.requests[rows], part.demand[rows], small[kept], part.price[at], part.most[at], part.open[at],
        fits[:, kept], part.usage[counted][:, at], part.limits[counted],
        tuple(part.members[row] for row in rows.tolist()), tuple(part.names[kind] for kind in at.tolist()),
    )  # fmt: skip
    return few, at


def _renumbered(gang: MovableGang, place: Ints, rows: Ints) -> MovableGang:
    """Returns the gang in the numbers of a part: `place` [M] of its machines there, and the part's `rows`."""
    machines = place[gang.machines]
    order = np.argsort(machines)
    options = tuple(option[np.ix_(order, rows)] for option in gang.options)
    return MovableGang(gang.block, machines[order], gang.used[order], options, gang.cost_usd_h)
