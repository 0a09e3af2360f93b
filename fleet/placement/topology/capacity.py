"""Capacity is what hosts have and what is taken, as matrices, with a log of changes so that counts can catch up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleet.placement.cluster_state import PODS
from fleet.placement.topology.domains import IntArray
from model.quantity import Resources

MOST = 2**60
"""Amounts are capped here, so that no sum or difference of two of them leaves 64 bits."""

LogPosition = tuple[int, int]
"""How much of the log somebody has seen: epoch and position."""
NEVER: LogPosition = (-1, 0)


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """The requests of one pod as columns of a matrix; `missing` is a resource that no host has, if there is one."""

    columns: tuple[tuple[int, int], ...]
    """(column, amount), by column."""
    missing: str = ""


class CapacityMatrix:
    """The matrix has the amounts of every host (or whole domain), a row each, in every resource, a column each.

    `base` is what is allocatable and not taken by pods of nobody, shape (resources, rows); `used` is what gangs take.
    Rows that change are logged; the log starts anew (another epoch) when it outgrows the rows.
    """

    def __init__(self, rows: Sequence[Resources], taken: Sequence[Resources] = ()) -> None:
        """`rows` are allocatable amounts; `taken`, of the same length if given, is subtracted for good."""
        names = sorted({PODS}.union(*rows))
        self.columns: dict[str, int] = {name: column for column, name in enumerate(names)}
        self.base: IntArray = self._matrix(rows)
        if taken:
            self.base -= self._matrix(taken)
        self.used: IntArray = np.zeros_like(self.base)
        self._log: list[int] = []
        self._epoch = 0

    def _matrix(self, rows: Sequence[Resources]) -> IntArray:
        made = np.zeros((len(self.columns), len(rows)), np.int64)
        for name, column in self.columns.items():
            made[column] = [min(amounts.get(name, 0), MOST) for amounts in rows]
        return made

    def columns_of(self, requests: Resources) -> RequestColumns:
        """The columns of one pod with these requests; it also takes one of `pods`."""
        wanted = {name: amount for name, amount in requests.items() if amount}
        wanted[PODS] = wanted.get(PODS, 0) + 1
        known = tuple(sorted((self.columns[name], wanted[name]) for name in wanted if name in self.columns))
        return RequestColumns(known, min((name for name in wanted if name not in self.columns), default=""))

    def charge(self, side: IntArray, rows: IntArray, requests: Resources, counts: IntArray) -> None:
        """Adds `counts` pods to `rows` of `side`, which is `base` or `used`; negative counts take them off."""
        for column, amount in self.columns_of(requests).columns:
            np.add.at(side[column], rows, amount * counts)
        self._note(rows.tolist())

    def set_used(self, row: int, used: Resources) -> None:
        """Sets all that gangs take on a row, in place of what was counted."""
        for name, column in self.columns.items():
            self.used[column, row] = used.get(name, 0)
        self._note([row])

    def _note(self, rows: list[int]) -> None:
        self._log += rows
        if len(self._log) > 4 * self.base.shape[1] + 4096:
            self._log.clear()
            self._epoch += 1

    def position(self) -> LogPosition:
        """The present end of the log."""
        return self._epoch, len(self._log)

    def changed(self, since: LogPosition) -> IntArray | None:
        """Rows that changed since, perhaps more than once; None when everything may have."""
        epoch, position = since
        if epoch != self._epoch:
            return None
        return np.array(self._log[position:], np.int64)
