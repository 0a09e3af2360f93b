"""A problem is cut into parts that have nothing to do with each other.

All is brought into an order by what it is (price, room, pods), names come last; classes that ask the same are one, and
kinds that another one beats in everything are gone. So the order of declaration does not change an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fleet.optimize.consolidate.change import counted
from fleet.optimize.consolidate.ground import Gang, Ground
from fleet.optimize.consolidate.problem import Buyable, PodClass, Problem
from fleet.optimize.purchase.part import Bools, Floats, Ints, Part


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of classes: every class, and each once more for a lane where a block has to keep to one."""

    classes: list[tuple[int, ...]]
    lanes: list[str | None]
    of: Mapping[tuple[str, str | None], int]
    """(class, lane or None) -> row"""


def grounds_of(problem: Problem) -> list[Ground]:
    """The independent parts, those with pods first."""
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


def _everything(problem: Problem) -> Ground:
    """The problem as one ground."""
    resources, standing = problem.resources, problem.standing
    kinds = sorted(
        (it for it in problem.kinds if it.most != 0), key=lambda it: (it.price_usd_h, it.dearest_usd_h, it.name)
    )
    rows = _rows(problem, kinds)
    requests = _amounts((problem.classes[group[0]].requests for group in rows.classes), resources)
    capacity = _amounts((it.capacity for it in kinds), resources)
    free = _amounts((it.free for it in standing), resources)
    unit = np.maximum(np.gcd.reduce(requests.astype(np.int64), axis=0) if len(requests) else 1, 1).astype(np.float64)
    requests, capacity, free = requests / unit, np.floor(capacity / unit), np.floor(free / unit)
    fits = _allowed(problem, rows, [(it.kind, it.lane) for it in standing])
    buys = _allowed(problem, rows, [(it.name, it.lane) for it in kinds])
    for resource in range(len(resources)):
        buys &= requests[:, resource, None] <= capacity[None, :, resource]
    loose, cost, gangs = _blocks(problem, rows, requests)
    column = {it.name: index for index, it in enumerate(kinds)}
    pools = sorted(pool for pool in problem.budgets if _binds(problem, pool))
    usage, limits = _usage(problem, kinds)
    demand = loose.sum(axis=0)
    for way in (way for gang in gangs for way in gang.ways):
        demand += way.sum(axis=0)
    part = Part(
        requests, np.maximum(demand, 1), capacity,
        np.array([it.price_usd_h for it in kinds], dtype=np.float64),
        np.array([np.inf if it.most is None else it.most for it in kinds], dtype=np.float64),
        np.zeros(len(kinds), dtype=bool), buys, usage, limits,
        tuple(() for _ in rows.classes), tuple((it.name,) for it in kinds),
    )  # fmt: skip
    most = problem.rules.most_bought
    return Ground(
        requests, np.array([it.price_usd_h for it in standing], dtype=np.float64), free, fits, loose, cost,
        np.array([it.may_go for it in standing], dtype=bool), np.array([it.spot for it in standing], dtype=bool),
        np.array([column.get(it.kind, -1) for it in standing], dtype=np.int64),
        np.array([pools.index(it.pool) if it.pool in pools else -1 for it in standing], dtype=np.int64),
        np.array([problem.budgets[pool] for pool in pools], dtype=np.int64), gangs, part,
        np.array([it.dearest_usd_h for it in kinds], dtype=np.float64), np.array([it.spot for it in kinds], dtype=bool),
        float("inf") if most is None else most, np.arange(len(standing)), tuple(rows.classes),
    )  # fmt: skip


def _binds(problem: Problem, pool: str) -> bool:
    return sum(1 for it in problem.standing if it.pool == pool and it.may_go) > problem.budgets[pool]


def _order(problem: Problem, ground: Ground) -> Ints:
    """[M] machines by what they are, dearest first; names come last."""
    names = np.argsort(np.argsort(np.array([it.name for it in problem.standing], dtype=object)))
    kinds = np.unique([f"{it.kind}/{it.pool}/{it.lane}" for it in problem.standing], return_inverse=True)[1]
    found: Ints = np.lexsort(
        (names, *ground.free.T, *ground.loose.T, ground.cost, ground.may_go, ground.spot, kinds, -ground.price)
    )
    return found


def _components(ground: Ground) -> tuple[Ints, Ints, Ints]:
    """The part of each machine [M], row [C] and kind [K]; -1 for what has to do with no pods and no budget."""
    part = ground.kinds
    free = ground.free.copy()
    for gang in ground.gangs:
        np.add.at(free, gang.machines, gang.seats)
    pools = (ground.budget[:, None] == np.arange(len(ground.budgets))) & ground.may_go[:, None]
    no_limits = np.zeros((len(free), len(part.limits) + 1), dtype=bool)
    rows = (ground.holds(free, ground.fits).T > 0) | (ground.loose > 0)
    machines = np.hstack([rows, pools, no_limits])
    for gang in ground.gangs:
        machines[gang.machines[:, None], np.flatnonzero(np.any([way.any(axis=0) for way in gang.ways], axis=0))] = True
        machines[gang.machines] = machines[gang.machines].any(axis=0)
    whole = np.full((len(part.price), 1), np.isfinite(ground.most_bought))
    kinds = np.hstack([part.fits.T, np.zeros((len(whole), pools.shape[1]), dtype=bool), part.usage.T > 0, whole])
    head = _joined(np.unique(np.vstack([machines, kinds]), axis=0))
    return _head(machines, head), head[: len(ground.requests)], _head(kinds, head)


def _joined(sets: Bools) -> Ints:
    """[E] for each element the first one that it is joined with by some of the `sets` [N, E]."""
    head = np.arange(sets.shape[1])
    for row in sets:
        heads = np.unique(head[row])
        if len(heads) > 1:
            head[np.isin(head, heads)] = heads[0]
    return head


def _head(sets: Bools, head: Ints) -> Ints:
    """[N] what each set belongs to, -1 where it is empty."""
    found: Ints = np.where(sets.any(axis=1), head[sets.argmax(axis=1)] if sets.shape[1] else -1, -1)
    return found


def _only(ground: Ground, machines: Ints, rows: Ints, kinds: Ints) -> Ground:
    """A part of it, in the order given."""
    place = np.full(len(ground.price), -1)
    place[machines] = np.arange(len(machines))
    part = ground.kinds
    capacity, fits = part.capacity[kinds], part.fits[np.ix_(rows, kinds)]
    small = np.minimum(capacity, fits.T.astype(np.float64) @ (ground.requests[rows] * part.demand[rows, None]))
    usage, worst, spots = part.usage[:, kinds], ground.worst[kinds], ground.spots[kinds]
    features = np.hstack([small, fits.T, -usage.T, -worst[:, None], ~spots[:, None]])
    kept = _unbeaten(features, part.most[kinds])
    at = kinds[kept]
    column = np.full(len(part.price) + 1, -1)  # the last stands for no column
    column[at] = np.arange(len(at))
    counted = part.usage[:, at].any(axis=1)
    few = Part(
        ground.requests[rows], part.demand[rows], small[kept], part.price[at], part.most[at], part.open[at],
        fits[:, kept], part.usage[counted][:, at], part.limits[counted],
        tuple(part.members[row] for row in rows.tolist()), tuple(part.names[kind] for kind in at.tolist()),
    )  # fmt: skip
    gangs = [_moved(gang, place, rows) for gang in ground.gangs if place[gang.machines[0]] >= 0]
    return Ground(
        ground.requests[rows], ground.price[machines], ground.free[machines], ground.fits[np.ix_(rows, machines)],
        ground.loose[np.ix_(machines, rows)], ground.cost[machines], ground.may_go[machines], ground.spot[machines],
        column[ground.kind[machines]], ground.budget[machines], ground.budgets,
        tuple(sorted(gangs, key=lambda it: (it.machines.tolist(), it.ways[0].tolist(), it.cost_usd_h, it.block))),
        few, worst[kept], spots[kept], ground.most_bought, ground.machines[machines],
        tuple(ground.classes[row] for row in rows.tolist()),
    )  # fmt: skip


def _moved(gang: Gang, place: Ints, rows: Ints) -> Gang:
    machines = place[gang.machines]
    order = np.argsort(machines)
    ways = tuple(way[np.ix_(order, rows)] for way in gang.ways)
    return Gang(gang.block, machines[order], gang.seats[order], ways, gang.cost_usd_h)


def _unbeaten(features: Floats, most: Floats) -> Ints:
    """Of kinds by price those that no other one, to be had without end, comes up to in all `features` [K, F]."""
    kept: list[int] = []
    rivals = np.zeros((0, features.shape[1]))
    for kind, mine in enumerate(features):
        if (rivals >= mine).all(axis=1).any():
            continue
        kept.append(kind)
        if np.isinf(most[kind]):
            rivals = np.vstack([rivals, mine])
    return np.array(kept, dtype=np.int64)


def _rows(problem: Problem, kinds: Sequence[Buyable]) -> _Rows:
    """Classes by what they ask, largest first; of those that ask the same and may stand on the same kinds one row."""
    used = {name for block in problem.blocks for held in block.seats.values() for name, pods in held.items() if pods}
    kept = [block for block in problem.blocks if block.keeps_lane]
    bound = {name for block in kept for held in block.seats.values() for name in held}
    lanes = sorted({it.lane for it in problem.standing} | {it.lane for it in kinds})
    order = sorted(
        (number for number, it in enumerate(problem.classes) if it.name in used),
        key=lambda number: _size(problem.classes[number], problem.resources),
    )
    rows: dict[tuple[tuple[int, ...], frozenset[str], str | None], list[int]] = {}
    for number in order:
        it = problem.classes[number]
        asked = tuple(it.requests.get(resource, 0) for resource in problem.resources)
        for lane in (None, *lanes) if it.name in bound else (None,):
            rows.setdefault((asked, it.kinds, lane), []).append(number)
    of = {
        (problem.classes[number].name, lane): row
        for row, ((_, _, lane), numbers) in enumerate(rows.items())
        for number in numbers
    }
    return _Rows([tuple(it) for it in rows.values()], [lane for _, _, lane in rows], of)


def _size(it: PodClass, resources: Sequence[str]) -> tuple[object, ...]:
    return (*(-it.requests.get(resource, 0) for resource in resources), it.name)


def _amounts(rows: Iterable[Mapping[str, int]], resources: Sequence[str]) -> Floats:
    table = [[row.get(resource, 0) for resource in resources] for row in rows]
    return np.array(table, dtype=np.float64).reshape(len(table), len(resources))


def _allowed(problem: Problem, rows: _Rows, columns: Sequence[tuple[str, str]]) -> Bools:
    """[C, columns], each (kind, lane)."""
    kinds = np.array([kind for kind, _ in columns], dtype=object)
    lanes = np.array([lane for _, lane in columns], dtype=object)
    names, place = np.unique(kinds.astype(str), return_inverse=True)
    found = np.zeros((len(rows.classes), len(columns)), dtype=bool)
    for row, (group, lane) in enumerate(zip(rows.classes, rows.lanes, strict=True)):
        may = problem.classes[group[0]].kinds
        found[row] = np.array([name in may for name in names.tolist()], dtype=bool)[place] if len(names) else False
        if lane is not None:
            found[row] &= lanes == lane
    return found


def _blocks(problem: Problem, rows: _Rows, requests: Floats) -> tuple[Ints, Floats, tuple[Gang, ...]]:
    """Pods that move each by itself [M, C], what that counts [M], and the blocks that move whole."""
    place = {it.name: number for number, it in enumerate(problem.standing)}
    lanes = sorted({lane for lane in rows.lanes if lane is not None})
    loose = np.zeros((len(place), len(rows.classes)), dtype=np.int64)
    cost = np.zeros(len(place))
    gangs = []
    for number, block in sorted(enumerate(problem.blocks), key=lambda it: it[1].name):
        if not block.pods:
            continue
        if block.in_gangs:
            gangs.append(_gang(problem, rows, number, place, lanes if block.keeps_lane else [None]))
            continue
        for machine, held in block.seats.items():
            cost[place[machine]] += problem.disruption_usd_h(block, sum(held.values()))
            for name, pods in held.items():
                loose[place[machine], rows.of[name, None]] += pods
    return loose, cost, tuple(_seated(gang, requests) for gang in gangs)


def _gang(problem: Problem, rows: _Rows, number: int, place: Mapping[str, int], lanes: Sequence[str | None]) -> Gang:
    block = problem.blocks[number]
    machines = sorted(place[name] for name, held in block.seats.items() if any(held.values()))
    ways = []
    for lane in lanes:
        way = np.zeros((len(machines), len(rows.classes)), dtype=np.int64)
        for seat, machine in enumerate(machines):
            for name, pods in block.seats[problem.standing[machine].name].items():
                way[seat, rows.of[name, lane]] += pods
        ways.append(way)
    cost = problem.disruption_usd_h(block, block.pods)
    return Gang(number, np.array(machines), np.zeros((0, 0)), tuple(ways), cost)


def _seated(gang: Gang, requests: Floats) -> Gang:
    return Gang(gang.block, gang.machines, gang.ways[0] @ requests, gang.ways, gang.cost_usd_h)


def _usage(problem: Problem, kinds: Sequence[Buyable]) -> tuple[Floats, Floats]:
    """[L, K] what a machine counts against a limit, and [L] how much there may be."""
    limits = sorted(problem.limits, key=lambda it: it.name)
    usage = np.zeros((len(limits), len(kinds)))
    for row, limit in enumerate(limits):
        for col, kind in enumerate(kinds):
            if kind.name in limit.kinds:
                usage[row, col] = counted(limit.counted, kind)
    return usage, np.array([limit.most for limit in limits], dtype=np.float64)
