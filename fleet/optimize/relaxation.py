"""Relaxes purchases to machines bought in bulk: a linear programme whose size does not depend on patterns.

Of every kind `y_k` machines are bought in fractions, and `x_ck` pods of a class stand on all of them together; only
what holds for the machines of a kind together is required: capacity, and other inequalities that every whole machine
keeps. Every purchase is a solution, so the optimum is a lower bound of the cost whatever patterns are known.
"""

from dataclasses import dataclass

import numpy as np

from fleet.optimize.packing import Floats, Ints, PackingInstance
from fleet.optimize.solver import Programme, SparseMatrix


@dataclass(frozen=True, eq=False)
class ValidInequalities:
    """`ValidInequalities` are N inequalities `factors @ pods <= tops` that the pods on one machine of a kind keep."""

    kinds: Ints
    """[N] number of the kind that each is about."""
    factors: SparseMatrix
    """[N, C] coefficients."""
    tops: Floats
    """[N] right-hand sides."""

    def __len__(self) -> int:
        return len(self.kinds)

    def plus(self, other: "ValidInequalities") -> "ValidInequalities":
        """Returns these inequalities followed by the others."""
        return ValidInequalities(
            np.concatenate([self.kinds, other.kinds]),
            SparseMatrix(
                np.concatenate([self.factors.rows, len(self) + other.factors.rows]),
                np.concatenate([self.factors.columns, other.factors.columns]),
                np.concatenate([self.factors.values, other.factors.values]),
            ),
            np.concatenate([self.tops, other.tops]),
        )

    def non_trivial(self) -> "ValidInequalities":
        """Returns the inequalities with at least one coefficient."""
        return self._at(np.unique(self.factors.rows))

    def by_kind(self) -> "ValidInequalities":
        """Returns the inequalities in the order of their kinds."""
        return self._at(np.argsort(self.kinds, kind="stable"))

    def _at(self, numbers: Ints) -> "ValidInequalities":
        """Returns the inequalities with these `numbers`, in that order.

        All that have a coefficient must be among them.
        """
        place = np.zeros(len(self), dtype=np.int64)
        place[numbers] = np.arange(len(numbers))
        lines = place[self.factors.rows]
        order = np.argsort(lines, kind="stable")
        factors = SparseMatrix(lines[order], self.factors.columns[order], self.factors.values[order])
        return ValidInequalities(self.kinds[numbers], factors, self.tops[numbers])


def capacity_inequalities(part: PackingInstance) -> ValidInequalities:
    """Returns K x R inequalities, kind by kind: the pods on a machine take no more than it has of a resource."""
    kinds, resources = part.capacity.shape
    top = np.maximum(part.capacity, 1.0)
    kind, row = np.nonzero(part.fits.T)
    pair, resource = np.nonzero(part.requests[row])
    lines, asked = kind[pair] * resources + resource, part.requests[row[pair], resource]
    order = np.argsort(lines, kind="stable")
    factors = SparseMatrix(lines[order], row[pair][order], (asked / top[kind[pair], resource])[order])
    return ValidInequalities(np.repeat(np.arange(kinds), resources), factors, (part.capacity / top).reshape(-1))


class BulkColumns:
    """`BulkColumns` adds the columns `y` and `x` of the relaxation to a programme whose first rows are the classes."""

    def __init__(
        self, programme: Programme, part: PackingInstance, bounds: SparseMatrix, most: Floats | None = None
    ) -> None:
        """`bounds` [K, rows] is what a machine counts in other rows, `most` [K] how many there may be of a kind."""
        self._programme, self._part, self._first = programme, part, programme.columns
        self._kind, self._class = np.nonzero(part.fits.T)
        self._place = np.full(part.fits.shape, -1)
        self._place[self._class, self._kind] = self._first + len(part.price) + np.arange(len(self._kind))
        programme.add_columns(part.price, bounds, most)
        every = np.arange(len(self._kind))
        programme.add_columns(np.zeros(len(every)), SparseMatrix(every, self._class, np.ones(len(every))))

    def require(self, rows: ValidInequalities) -> None:
        """Adds inequalities as rows: the machines of a kind together keep what each of them does."""
        line, row = rows.factors.rows, rows.factors.columns
        every = np.arange(len(rows))
        lines = np.concatenate([every, line])
        places = np.concatenate([self._first + rows.kinds, self._place[row, rows.kinds[line]]])
        values = np.concatenate([-rows.tops, rows.factors.values])
        at = np.argsort(lines, kind="stable")
        entries = SparseMatrix(lines[at], places[at], values[at])
        self._programme.add_rows(np.full(len(every), -np.inf), np.zeros(len(every)), entries)

    def amounts(self, values: Floats) -> tuple[Floats, Floats]:
        """Returns `y` [K] and `x` [C, K] of a solution of the programme."""
        end = self._first + len(self._part.price)
        spread = np.zeros(self._part.fits.shape)
        spread[self._class, self._kind] = values[end : end + len(self._kind)]
        return values[self._first : end], spread
