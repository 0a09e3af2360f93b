"""Translates plans into moves by name, and computes the problem as it would be after them.

Equal pods may be assigned to the places of a plan in many ways. Here each machine that is bought is filled from as few
others as possible, so that the plan falls into many small steps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from fleet.optimize.consolidate.consolidation_problem import (
    ConsolidationProblem,
    ConsolidationStep,
    PodBlock,
    PodMove,
    ReplacementKind,
    StandingMachine,
)
from fleet.optimize.consolidate.instance import ConsolidationInstance
from fleet.optimize.consolidate.plan import ConsolidationPlan
from fleet.optimize.inputs import Limit
from fleet.optimize.packing import Ints

_Place = tuple[int, int]
"""Numbers of a machine and a class in the problem."""


@dataclass(frozen=True, slots=True)
class ConsolidationChange:
    """A `ConsolidationChange` names machines that are removed, machines that are bought, and pods that move."""

    removed: frozenset[str] = frozenset()
    bought: Mapping[str, str] = field(default_factory=dict)
    """Name -> kind."""
    moves: tuple[PodMove, ...] = ()


# -- from arrays to names ---------------------------------------------------------------------------------------------


def change_of(
    problem: ConsolidationProblem, plans: Sequence[tuple[ConsolidationInstance, ConsolidationPlan]]
) -> ConsolidationChange:
    """Returns the change that the plans for all parts make together, in the names of the problem."""
    removed: list[str] = []
    bought: dict[str, str] = {}
    moves: list[PodMove] = []
    unassigned, fresh = _UnassignedPods(problem), _fresh_names(problem)
    for instance, plan in plans:
        names = [problem.standing[number].name for number in instance.machines.tolist()]
        removed += [name for name, goes in zip(names, plan.removed.tolist(), strict=True) if goes]
        for kind in plan.kinds.tolist():
            names.append(next(fresh))
            bought[names[-1]] = instance.kinds.names[kind][0]
        for flow in _flows(instance, plan):
            block = instance.gangs[flow.gang].block if flow.gang >= 0 else -1
            origin = int(instance.machines[flow.machine])
            for taken in unassigned.taken(block, origin, instance.classes[flow.row], flow.pods):
                name, pod_class, pods = taken
                moves.append(PodMove(name, pod_class, names[flow.machine], names[flow.target], pods))
    return ConsolidationChange(frozenset(removed), bought, tuple(moves))


def _fresh_names(problem: ConsolidationProblem) -> Iterator[str]:
    """Yields names that no machine of the problem has."""
    taken = {it.name for it in problem.standing}
    return (name for number in count() if (name := f"new-{number}") not in taken)


class _UnassignedPods:
    """`_UnassignedPods` are the pods of all blocks, taken until each is assigned to a move."""

    def __init__(self, problem: ConsolidationProblem) -> None:
        self._problem = problem
        machines = {it.name: number for number, it in enumerate(problem.standing)}
        classes = {it.name: number for number, it in enumerate(problem.classes)}
        self._independent: dict[_Place, list[list[int]]] = {}
        self._whole: dict[tuple[int, _Place], list[list[int]]] = {}
        for number, block in sorted(enumerate(problem.blocks), key=lambda it: it[1].name):
            for machine, held in sorted(block.places.items()):
                for name, pods in sorted(held.items()):
                    place = machines[machine], classes[name]
                    entry = [number, pods]
                    self._whole[number, place] = [entry]
                    if not block.in_gangs:
                        self._independent.setdefault(place, []).append(entry)

    def taken(self, block: int, machine: int, classes: Sequence[int], pods: int) -> Iterator[tuple[str, str, int]]:
        """Yields (block, class, pods) taken off a machine: of one block, or of all that move independently (-1)."""
        found: Counter[tuple[int, int]] = Counter()
        for number in classes:
            place = machine, number
            for entry in self._independent.get(place, ()) if block < 0 else self._whole.get((block, place), ()):
                some = min(pods, entry[1])
                entry[1] -= some
                pods -= some
                if some:
                    found[entry[0], number] += some
        for (number, pod_class), some in found.items():
            yield self._problem.blocks[number].name, self._problem.classes[pod_class].name, some


@dataclass(frozen=True, slots=True)
class _PodFlow:
    """A `_PodFlow` is pods of one row on their way to a machine; targets from M on are machines that are bought."""

    machine: int
    gang: int
    """Number of the gang in the instance; -1 for pods that move independently."""
    target: int
    row: int
    pods: int


def _flows(instance: ConsolidationInstance, plan: ConsolidationPlan) -> list[_PodFlow]:
    """Returns the flows by which every pod of a plan that moves does so, once."""
    sources, rest = _sources(instance, plan)
    flows: list[_PodFlow] = []
    for number in np.argsort(-plan.pods.sum(axis=1), kind="stable").tolist():
        wanted = plan.pods[number].copy()
        while wanted.any():
            taken = np.minimum(rest, wanted)
            at = int(taken.sum(axis=1).argmax())
            target = len(instance.price) + number
            flows += [
                _PodFlow(*sources[at], target, row, int(taken[at, row])) for row in np.flatnonzero(taken[at]).tolist()
            ]
            wanted -= taken[at]
            rest[at] -= taken[at]
    for machine, row in np.argwhere(plan.received).tolist():
        for at, pods in _take_in_order(rest[:, row], int(plan.received[machine, row])):
            flows.append(_PodFlow(*sources[at], machine, row, pods))
    return flows


def _take_in_order(rest: Ints, wanted: int) -> Iterator[tuple[int, int]]:
    """Yields (place, pods) until `wanted` pods are found, first place first; takes them off `rest`."""
    for at in np.flatnonzero(rest).tolist():
        pods = min(wanted, int(rest[at]))
        if not pods:
            return
        rest[at] -= pods
        wanted -= pods
        yield at, pods


def _sources(instance: ConsolidationInstance, plan: ConsolidationPlan) -> tuple[list[tuple[int, int]], Ints]:
    """Returns where pods move from, as (machine, gang or -1), and the pods of each [S, C]."""
    sources: list[tuple[int, int]] = []
    pods: list[Ints] = []
    for machine in np.flatnonzero(plan.removed & instance.independent.any(axis=1)).tolist():
        sources.append((machine, -1))
        pods.append(instance.independent[machine])
    for number, (gang, option) in enumerate(zip(instance.gangs, plan.options.tolist(), strict=True)):
        if option >= 0:
            sources += [(machine, number) for machine in gang.machines.tolist()]
            pods += list(gang.options[option])
    return sources, np.array(pods, dtype=np.int64).reshape(len(pods), len(instance.requests))


# -- after the moves --------------------------------------------------------------------------------------------------


def applied(problem: ConsolidationProblem, steps: Iterable[ConsolidationStep]) -> ConsolidationProblem:
    """Returns the problem once the steps have been carried out, with what is left of budgets and limits."""
    change = _all_of(list(steps))
    requests = {it.name: it.requests for it in problem.classes}
    used: dict[str, Counter[str]] = {}
    places: dict[str, dict[str, Counter[str]]] = {}
    by_block = {block.name: block for block in problem.blocks}
    for move in change.moves:
        now = places.setdefault(move.block, _pods_by_machine(by_block[move.block]))
        now.setdefault(move.origin, Counter())[move.pod_class] -= move.pods
        now.setdefault(move.target, Counter())[move.pod_class] += move.pods
        for machine, sign in ((move.origin, -1), (move.target, 1)):
            for resource, amount in requests[move.pod_class].items():
                used.setdefault(machine, Counter())[resource] += sign * amount * move.pods
    kinds = {it.name: it for it in problem.kinds}
    standing = [_filled(it, used.get(it.name)) for it in problem.standing if it.name not in change.removed]
    standing += [_filled(_bought(name, kinds[kind]), used.get(name)) for name, kind in change.bought.items()]
    spent = Counter(it.pool for it in problem.standing if it.name in change.removed)
    most = problem.rules.most_bought
    return replace(
        problem,
        standing=tuple(standing),
        blocks=tuple(_moved(block, places.get(block.name)) for block in problem.blocks),
        kinds=_kinds_left(problem.kinds, change),
        budgets={pool: allowed - spent[pool] for pool, allowed in problem.budgets.items()},
        limits=tuple(_limit_left(limit, [kinds[kind] for kind in change.bought.values()]) for limit in problem.limits),
        rules=replace(problem.rules, most_bought=None if most is None else most - len(change.bought)),
    )


def _all_of(steps: Sequence[ConsolidationStep]) -> ConsolidationChange:
    """Returns the change that all of the steps make together."""
    return ConsolidationChange(
        frozenset(name for step in steps for name in step.removed),
        {it.name: it.kind for step in steps for it in step.bought},
        tuple(move for step in steps for move in step.moves),
    )


def between(problem: ConsolidationProblem, later: ConsolidationProblem) -> ConsolidationChange:
    """Returns the change that leads from a problem to one that steps made of it."""
    then, now = ({it.name: it for it in each.standing} for each in (problem, later))
    moves: list[PodMove] = []
    for block, moved in zip(problem.blocks, later.blocks, strict=True):
        if block.places != moved.places:
            moves += _moves(block, moved)
    bought = {name: it.kind for name, it in now.items() if name not in then}
    return ConsolidationChange(frozenset(then.keys() - now.keys()), bought, tuple(moves))


def _moves(block: PodBlock, moved: PodBlock) -> list[PodMove]:
    """Returns the moves that lead from the places before to those after.

    Of a block that moved whole they name also the pods that stay on their machine.
    """
    before, later = _pods_by_machine(block), _pods_by_machine(moved)
    found: list[PodMove] = []
    for pod_class in sorted({name for held in before.values() for name in held}):
        leaving = {machine: held[pod_class] for machine, held in sorted(before.items()) if held[pod_class]}
        coming = {machine: held[pod_class] for machine, held in sorted(later.items()) if held[pod_class]}
        pairs = [(machine, machine) for machine in leaving]
        pairs += [(origin, target) for origin in leaving for target in coming]
        for origin, target in pairs:
            pods = min(leaving[origin], coming.get(target, 0))
            if pods:
                leaving[origin] -= pods
                coming[target] -= pods
                if origin != target or block.in_gangs:
                    found.append(PodMove(block.name, pod_class, origin, target, pods))
    return found


def _pods_by_machine(block: PodBlock) -> dict[str, Counter[str]]:
    return {machine: Counter(held) for machine, held in block.places.items()}


def _moved(block: PodBlock, places: Mapping[str, Counter[str]] | None) -> PodBlock:
    """Returns the block at its new places."""
    if places is None:
        return block
    kept = {machine: {name: pods for name, pods in sorted(held.items()) if pods} for machine, held in places.items()}
    return replace(block, places={machine: held for machine, held in sorted(kept.items()) if held})


def _filled(machine: StandingMachine, used: Mapping[str, int] | None) -> StandingMachine:
    """Returns the machine with less free room by what is `used`."""
    if used is None:
        return machine
    free = dict(machine.free)
    for resource, amount in used.items():
        free[resource] = free.get(resource, 0) - amount
    return replace(machine, free=free)


def _bought(name: str, kind: ReplacementKind) -> StandingMachine:
    """Returns a bought machine as a standing one."""
    return StandingMachine(name, kind.name, kind.price_usd_h, kind.capacity, domain=kind.domain, spot=kind.spot)


def _kinds_left(kinds: tuple[ReplacementKind, ...], change: ConsolidationChange) -> tuple[ReplacementKind, ...]:
    """Returns the kinds less what the change buys of them."""
    counts = Counter(change.bought.values())
    return tuple(
        it if it.most is None or not counts[it.name] else replace(it, most=it.most - counts[it.name]) for it in kinds
    )


def _limit_left(limit: Limit, bought: Iterable[ReplacementKind]) -> Limit:
    """Returns the limit less what is bought."""
    used = sum(limit.counts(kind) for kind in bought)
    return replace(limit, most=max(0.0, limit.most - used)) if used else limit
