"""From arrays back to names: which pods of which block go where."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

from fleet.optimize.consolidate.answer import Move
from fleet.optimize.consolidate.change import Change
from fleet.optimize.consolidate.dealing import dealt
from fleet.optimize.consolidate.ground import Ground, Plan
from fleet.optimize.consolidate.problem import Problem

_Place = tuple[int, int]
"""Machine and class, by their numbers in the problem."""


def change_of(problem: Problem, plans: Sequence[tuple[Ground, Plan]]) -> Change:
    """What the plans for all parts come to."""
    removed: list[str] = []
    bought: dict[str, str] = {}
    moves: list[Move] = []
    stock, fresh = _Stock(problem), _fresh_names(problem)
    for ground, plan in plans:
        names = [problem.standing[number].name for number in ground.machines.tolist()]
        removed += [name for name, goes in zip(names, plan.removed.tolist(), strict=True) if goes]
        for kind in plan.kinds.tolist():
            names.append(next(fresh))
            bought[names[-1]] = ground.kinds.names[kind][0]
        for flow in dealt(ground, plan):
            block = ground.gangs[flow.gang].block if flow.gang >= 0 else -1
            origin = int(ground.machines[flow.machine])
            for taken in stock.taken(block, origin, ground.classes[flow.row], flow.pods):
                name, pod_class, pods = taken
                moves.append(Move(name, pod_class, names[flow.machine], names[flow.target], pods))
    return Change(frozenset(removed), bought, tuple(moves))


def _fresh_names(problem: Problem) -> Iterator[str]:
    """Names that no machine has."""
    taken = {it.name for it in problem.standing}
    return (name for number in count() if (name := f"new-{number}") not in taken)


class _Stock:
    """The pods that have not been dealt yet."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        machines = {it.name: number for number, it in enumerate(problem.standing)}
        classes = {it.name: number for number, it in enumerate(problem.classes)}
        self._loose: dict[_Place, list[list[int]]] = {}
        self._whole: dict[tuple[int, _Place], list[list[int]]] = {}
        for number, block in sorted(enumerate(problem.blocks), key=lambda it: it[1].name):
            for machine, held in sorted(block.seats.items()):
                for name, pods in sorted(held.items()):
                    place = machines[machine], classes[name]
                    entry = [number, pods]
                    self._whole[number, place] = [entry]
                    if not block.in_gangs:
                        self._loose.setdefault(place, []).append(entry)

    def taken(self, block: int, machine: int, classes: Sequence[int], pods: int) -> Iterator[tuple[str, str, int]]:
        """(block, class, pods) off the seats there: of one block, or of whoever has loose pods (-1)."""
        found: Counter[tuple[int, int]] = Counter()
        for number in classes:
            place = machine, number
            for entry in self._loose.get(place, ()) if block < 0 else self._whole.get((block, place), ()):
                some = min(pods, entry[1])
                entry[1] -= some
                pods -= some
                if some:
                    found[entry[0], number] += some
        for (number, pod_class), some in found.items():
            yield self._problem.blocks[number].name, self._problem.classes[pod_class].name, some
