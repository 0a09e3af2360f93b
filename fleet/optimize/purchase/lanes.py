"""Where each group stands: all of its pods in one lane (a zone, a placement group), whichever makes the whole cheapest.

Choices are compared by the quick ways, without a solver; few choices all of them, many by changing one group at a
time. The best few are then searched in full, and others only while their bound says that they could be cheaper.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod

from fleet.optimize.purchase.answer import Purchase
from fleet.optimize.purchase.effort import Effort
from fleet.optimize.purchase.problem import PodClass, Problem

Lanes = Mapping[str, str]
"""Group -> lane."""
Solve = Callable[[Problem, Lanes, Effort], Purchase]


def solve_grouped(problem: Problem, effort: Effort, solve: Solve) -> Purchase:
    """The best purchase that keeps every group in one lane, all of its pods or none."""
    groups = {pods.group for pods in problem.classes if pods.group and pods.count}
    options = {group: _possible(problem, group) for group in sorted(groups)}
    left = {it.name: it.count for it in problem.classes if it.count and it.group in groups and not options[it.group]}
    while True:
        options = {group: lanes for group, lanes in options.items() if lanes}
        wanted = replace(problem, classes=tuple(it for it in problem.classes if not it.group or it.group in options))
        found = _best(wanted, options, effort, solve)
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


def _possible(problem: Problem, group: str) -> list[str]:
    """Lanes where a pod of each class fits on something, sorted."""
    places = [(it.name, it.lane, it.capacity) for it in problem.kinds if it.most != 0]
    places += [(it.name, it.lane, it.free) for it in problem.rooms]

    def lanes_of(pods: PodClass) -> set[str]:
        asked = pods.requests.items()
        own = [(lane, amounts) for name, lane, amounts in places if name in pods.kinds]
        return {lane for lane, amounts in own if all(amounts.get(what, 0) >= amount for what, amount in asked)}

    return sorted(set.intersection(*(lanes_of(it) for it in problem.classes if it.group == group and it.count)))


@dataclass(frozen=True, slots=True)
class _Trial:
    lanes: Lanes
    quick: Purchase

    @property
    def rank(self) -> tuple[int, float, tuple[tuple[str, str], ...]]:
        return (*_rank(self.quick), tuple(sorted(self.lanes.items())))


def _rank(found: Purchase) -> tuple[int, float]:
    return sum(found.left.values()), found.cost_usd_h


def _best(problem: Problem, options: Mapping[str, Sequence[str]], effort: Effort, solve: Solve) -> Purchase:
    if not options:
        return solve(problem, {}, effort)
    every = prod(len(lanes) for lanes in options.values()) <= effort.trials
    choices = _every(options) if every else _one_by_one(options, problem, effort, solve)
    tried = [_Trial(lanes, solve(problem, lanes, replace(effort, solver=False))) for lanes in choices]
    tried.sort(key=lambda it: it.rank)
    best, bounds = tried[0].quick, [it.quick.bound_usd_h for it in tried]
    for number, trial in enumerate(tried[: effort.lanes] if effort.solver else ()):
        if number and (_rank(trial.quick)[0] > _rank(best)[0] or trial.quick.bound_usd_h >= best.cost_usd_h):
            continue
        found = solve(problem, trial.lanes, effort)
        bounds[number] = found.bound_usd_h
        best = min(best, found, key=_rank)
    bound = min(bounds) if every else solve(problem, {}, replace(effort, solver=False)).bound_usd_h
    return replace(best, bound_usd_h=min(bound, best.cost_usd_h))


def _every(options: Mapping[str, Sequence[str]]) -> Iterator[Lanes]:
    for lanes in product(*options.values()):
        yield dict(zip(options, lanes, strict=True))


def _one_by_one(
    options: Mapping[str, Sequence[str]], problem: Problem, effort: Effort, solve: Solve
) -> Iterator[Lanes]:
    """The first lanes of all; then group after group the others, going on with the best so far."""
    best = {group: lanes[0] for group, lanes in options.items()}
    yield best
    quick = replace(effort, solver=False)
    rank = _rank(solve(problem, best, quick))
    changes = ((group, lane) for group, lanes in options.items() for lane in lanes[1:])
    for group, lane in islice(changes, effort.trials):
        changed = best | {group: lane}
        if (found := _rank(solve(problem, changed, quick))) < rank:
            best, rank = changed, found
    yield best
