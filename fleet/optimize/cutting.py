"""Cutting stock: the cheapest machines, and how each of their GPUs is cut, for a number of slices of each kind.

One GPU has few patterns that matter, so all of them are columns (Gilmore and Gomory 1961, without the generation of
columns). How many machines, how many GPUs in each pattern and which demand is served by which type is one integer
programme; its bound says how far from the best the answer can be at most.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from fleet.optimize.packing import Floats
from fleet.optimize.solver import Programme, SparseMatrix

MOST_NODES: Final = 2_000
"""Nodes of the search tree; the best answer until then counts."""
_GPU: Final = 1e-4
"""What a GPU that is cut costs beside its machine, as a part of it: of equal prices the fewest GPUs."""

Pattern = Mapping[str, int]
"""What one GPU gives: resource -> slices."""


@dataclass(frozen=True, slots=True)
class CuttableMachine:
    """A `CuttableMachine` is a kind of machine of which each GPU may be cut by any of its patterns."""

    name: str
    gpus: int
    usd_h: float
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class SliceDemand:
    """A `SliceDemand` asks for so many slices at once, of any of the machines named."""

    resource: str
    count: int
    machines: frozenset[str]


@dataclass(frozen=True, slots=True)
class MachineCut:
    """A `MachineCut` is a number of machines whose GPUs are cut alike, GPU by GPU."""

    machine: str
    count: int
    gpus: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class StockCut:
    """A `StockCut` is the answer: machines by name, those of the most frequent cut first."""

    cuts: tuple[MachineCut, ...]
    usd_h: float
    bound_usd_h: float
    """No answer costs less."""
    machines: Mapping[str, int]


class Uncuttable(Exception):
    """A slice is asked for that none of its machines can be cut into; the message names it."""


def _can_give(machines: Sequence[CuttableMachine], demand: SliceDemand) -> bool:
    able = (one for one in machines if one.name in demand.machines)
    return any(demand.resource in pattern for one in able for pattern in one.patterns)


def cut_stock(machines: Sequence[CuttableMachine], demands: Sequence[SliceDemand]) -> StockCut:
    """Returns the cheapest machines that give what is asked for. Raises `Uncuttable` and `SolverFailed`."""
    asked = [it for it in demands if it.count > 0]
    for it in asked:
        if not _can_give(machines, it):
            raise Uncuttable(f"no machine that may give {it.resource} can be cut into it")
    if not asked:
        return StockCut((), 0.0, 0.0, {})
    found = _Columns(machines, asked).solved()
    usd_h = sum(one.usd_h * found.machines.get(one.name, 0) for one in machines)
    return StockCut(tuple(_dealt(machines, found)), usd_h, min(found.bound_usd_h, usd_h), found.machines)


@dataclass(frozen=True, slots=True)
class _Amounts:
    machines: Mapping[str, int]
    gpus: Mapping[tuple[str, int], int]
    """(machine, number of the pattern) -> GPUs."""
    bound_usd_h: float


class _Columns:
    """The programme: columns of machines, then of GPUs in a pattern, then of demand served by a type of machine."""

    def __init__(self, machines: Sequence[CuttableMachine], demands: Sequence[SliceDemand]) -> None:
        self.machines, self.demands = machines, demands
        self.patterns = [(one, number) for one in machines for number in range(len(one.patterns))]
        self.served = [(it, one) for it in demands for one in machines if one.name in it.machines]
        made = sorted({(one.name, name) for one, number in self.patterns for name in one.patterns[number]})
        keys = [("gpus", one.name) for one in machines] + [("made", *it) for it in made]
        self.rows = {key: row for row, key in enumerate([*keys, *(("asked", at) for at, _ in enumerate(demands))])}

    def solved(self) -> _Amounts:
        """Returns the best numbers found within `MOST_NODES`, and a lower bound (USD/h). Raises `SolverFailed`."""
        lower = np.zeros(len(self.rows))
        lower[len(self.rows) - len(self.demands) :] = [it.count for it in self.demands]
        programme = Programme(lower, np.full(len(self.rows), np.inf))
        programme.add_columns(self._cost(), SparseMatrix.of_rows(list(self._entries())))
        solution = programme.solve_integer(None, MOST_NODES)
        values = [round(it) for it in solution.values]
        count, gpus = values[: len(self.machines)], values[len(self.machines) :]
        return _Amounts(
            {one.name: many for one, many in zip(self.machines, count, strict=True) if many},
            {(one.name, at): many for (one, at), many in zip(self.patterns, gpus, strict=False) if many},
            solution.bound / (1 + _GPU),  # a machine of which all is cut counts so much more
        )

    def _cost(self) -> Floats:
        whole = [one.usd_h for one in self.machines]
        parts = [one.usd_h * _GPU / one.gpus for one, _ in self.patterns]
        return np.array([*whole, *parts, *([0.0] * len(self.served))])

    def _entries(self) -> Iterator[tuple[Sequence[int], Sequence[float]]]:
        for one in self.machines:
            yield [self.rows["gpus", one.name]], [float(one.gpus)]
        for one, number in self.patterns:
            made = {self.rows["made", one.name, name]: float(it) for name, it in one.patterns[number].items()}
            yield _sorted({self.rows["gpus", one.name]: -1.0, **made})
        for it, one in self.served:
            taken = self.rows.get(("made", one.name, it.resource))
            from_it = {} if taken is None else {taken: -1.0, self.rows["asked", self.demands.index(it)]: 1.0}
            yield _sorted(from_it)


def _sorted(entries: Mapping[int, float]) -> tuple[Sequence[int], Sequence[float]]:
    rows = sorted(entries)
    return rows, [entries[row] for row in rows]


def _dealt(machines: Sequence[CuttableMachine], found: _Amounts) -> Iterator[MachineCut]:
    """Yields the machines with their GPUs dealt in turn: as alike as can be, with no more cuts than patterns."""
    for one in machines:
        hands = _hands(one, found, found.machines.get(one.name, 0))
        for hand, many in sorted(hands.items(), key=lambda it: (-it[1], it[0])):
            yield MachineCut(one.name, many, tuple(one.patterns[at] for at in hand))


def _hands(one: CuttableMachine, found: _Amounts, count: int) -> Counter[tuple[int, ...]]:
    """Returns how many of `count` machines get which patterns (by their place in `patterns`), one for each GPU."""
    if not count:
        return Counter()
    in_use = [(found.gpus.get((one.name, at), 0), -at) for at in range(len(one.patterns))]
    deck = [-at for many, at in sorted(in_use, reverse=True) for _ in range(many)]
    deck = [deck[0]] * (count * one.gpus - len(deck)) + deck
    return Counter(tuple(deck[number::count]) for number in range(count))
