"""A change of the machines by names, and the problem as it would be after it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fleet.optimize.consolidate.answer import Move, Step
from fleet.optimize.consolidate.problem import Block, Buyable, Problem, Standing
from fleet.optimize.purchase.problem import MACHINES, USD_H, Limit


@dataclass(frozen=True, slots=True)
class Change:
    """What goes, what comes and what moves."""

    removed: frozenset[str] = frozenset()
    bought: Mapping[str, str] = field(default_factory=dict)
    """Name -> kind."""
    moves: tuple[Move, ...] = ()


def change_by(steps: Iterable[Step]) -> Change:
    """All of the steps together."""
    taken = list(steps)
    return Change(
        frozenset(name for step in taken for name in step.removed),
        {it.name: it.kind for step in taken for it in step.bought},
        tuple(move for step in taken for move in step.moves),
    )


def applied(problem: Problem, steps: Iterable[Step]) -> Problem:
    """What is asked once the steps have been carried out: budgets and limits are what is left of them."""
    return after(problem, change_by(steps))


def after(problem: Problem, change: Change) -> Problem:
    """The same for a change."""
    requests = {it.name: it.requests for it in problem.classes}
    used: dict[str, Counter[str]] = {}
    seats: dict[str, dict[str, Counter[str]]] = {}
    by_block = {block.name: block for block in problem.blocks}
    for move in change.moves:
        now = seats.setdefault(move.block, _counted(by_block[move.block]))
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
        blocks=tuple(_reseated(block, seats.get(block.name)) for block in problem.blocks),
        kinds=_fewer(problem.kinds, change),
        budgets={pool: allowed - spent[pool] for pool, allowed in problem.budgets.items()},
        limits=tuple(_less(limit, [kinds[kind] for kind in change.bought.values()]) for limit in problem.limits),
        rules=replace(problem.rules, most_bought=None if most is None else most - len(change.bought)),
    )


def between(problem: Problem, later: Problem) -> Change:
    """What leads from a problem to one that came of it by changes."""
    then, now = ({it.name: it for it in each.standing} for each in (problem, later))
    moves: list[Move] = []
    for block, moved in zip(problem.blocks, later.blocks, strict=True):
        if block.seats != moved.seats:
            moves += _moves(block, moved)
    bought = {name: it.kind for name, it in now.items() if name not in then}
    return Change(frozenset(then.keys() - now.keys()), bought, tuple(moves))


def _moves(block: Block, moved: Block) -> list[Move]:
    """Seats before paired with seats after; of a block that moved whole also those that stay on their machine."""
    before, later = _counted(block), _counted(moved)
    found: list[Move] = []
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
                    found.append(Move(block.name, pod_class, origin, target, pods))
    return found


def _counted(block: Block) -> dict[str, Counter[str]]:
    return {machine: Counter(held) for machine, held in block.seats.items()}


def _reseated(block: Block, seats: Mapping[str, Counter[str]] | None) -> Block:
    if seats is None:
        return block
    kept = {machine: {name: pods for name, pods in sorted(held.items()) if pods} for machine, held in seats.items()}
    return replace(block, seats={machine: held for machine, held in sorted(kept.items()) if held})


def _filled(machine: Standing, used: Mapping[str, int] | None) -> Standing:
    if used is None:
        return machine
    free = dict(machine.free)
    for resource, amount in used.items():
        free[resource] = free.get(resource, 0) - amount
    return replace(machine, free=free)


def _bought(name: str, kind: Buyable) -> Standing:
    return Standing(name, kind.name, kind.price_usd_h, kind.capacity, lane=kind.lane, spot=kind.spot)


def _fewer(kinds: tuple[Buyable, ...], change: Change) -> tuple[Buyable, ...]:
    counts = Counter(change.bought.values())
    return tuple(
        it if it.most is None or not counts[it.name] else replace(it, most=it.most - counts[it.name]) for it in kinds
    )


def _less(limit: Limit, bought: Iterable[Buyable]) -> Limit:
    used = sum(counted(limit.counted, kind) for kind in bought if kind.name in limit.kinds)
    return replace(limit, most=max(0.0, limit.most - used)) if used else limit


def counted(what: str, kind: Buyable) -> float:
    """What one machine counts against a limit."""
    if what == MACHINES:
        return 1.0
    return kind.price_usd_h if what == USD_H else float(kind.capacity.get(what, 0))
