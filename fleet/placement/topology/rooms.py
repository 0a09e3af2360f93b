"""How many pods of a class fit on every host, kept up to date from the ledger's log."""

import numpy as np

from fleet.placement.topology.ledger import NEVER, BoolArray, IntArray, Ledger, Mark, Need

_ROOMIEST = 2**31
"""No leaf counts as more, so that sums over many stay far from 64 bits."""


class Rooms:
    """Counts per leaf, shape (leaves,), of a class of pods and, in a group, of its leader.

    `pods`: how many pods fit. `leads`: 1 where the leader fits. `led_pods`: how many pods fit beside the leader, where
    it fits; else as `pods`. Without a leader, `leads` is all 0 and `led_pods` is `pods`.
    """

    def __init__(
        self,
        ledger: Ledger,
        leaf_of_row: IntArray,
        pods: tuple[Need, BoolArray],
        leader: tuple[Need, BoolArray] | None,
        *,
        empty: bool,
    ) -> None:
        """`pods` and `leader`: what one takes, and which leaves are suitable. `empty`: as if gangs took nothing."""
        self._ledger = ledger
        self._leaf_of_row = leaf_of_row
        self._need, self._mask = pods
        self._leader = leader
        self._empty = empty
        self._seen: Mark = NEVER
        self.version = 0
        """Moves whenever a count may have changed."""
        self._row_of_leaf = np.zeros(len(self._mask), np.int64)
        mine = np.flatnonzero(leaf_of_row >= 0)
        self._row_of_leaf[leaf_of_row[mine]] = mine
        self.pods: IntArray = np.zeros(len(self._mask), np.int64)
        self.leads: IntArray = np.zeros_like(self.pods)
        self.led_pods: IntArray = np.zeros_like(self.pods) if leader else self.pods

    def refresh(self) -> None:
        """Catch up with the ledger."""
        rows = self._ledger.changed(self._seen)
        if rows is None:
            self._count(np.arange(len(self.pods)))
        elif len(rows):
            leaves = self._leaf_of_row[rows]
            leaves = leaves[leaves >= 0]
            if len(leaves):
                self._count(leaves)
        self._seen = self._ledger.mark()

    def short_of(self) -> list[tuple[str, int]]:
        """Why no pod fits on suitable leaves -> how many: the resource that is scarcest there, sorted."""
        full = np.flatnonzero(self._mask & (self.pods == 0))
        if not len(full):
            return []
        if self._need.missing:
            return [(f"have no {self._need.missing}", len(full))]
        names = {column: name for name, column in self._ledger.columns.items()}
        rooms = np.array([self._free(column, full) // amount for column, amount in self._need.columns])
        scarcest, counted = np.unique(rooms.argmin(axis=0), return_counts=True)
        resources = [names[self._need.columns[which][0]] for which in scarcest.tolist()]
        return sorted((f"have too little {name}", n) for name, n in zip(resources, counted.tolist(), strict=True))

    def _count(self, leaves: IntArray) -> None:
        self.version += 1
        pods = self._fitting(self._need, leaves, ())
        pods *= self._mask[leaves]
        self.pods[leaves] = pods
        if self._leader is None:
            return
        need, mask = self._leader
        leads = mask[leaves] & (self._fitting(need, leaves, ()) > 0)
        self.leads[leaves] = leads
        beside = self._fitting(self._need, leaves, need.columns) * self._mask[leaves]
        self.led_pods[leaves] = np.where(leads, beside, pods)

    def _fitting(self, need: Need, leaves: IntArray, beside: tuple[tuple[int, int], ...]) -> IntArray:
        """Pods of `need` that fit on `leaves` after `beside` is taken off."""
        taken = dict(beside)
        found = np.full(len(leaves), 0 if need.missing else _ROOMIEST, np.int64)
        for column, amount in need.columns:
            free = self._free(column, leaves)
            if column in taken:
                free = free - taken[column]
            np.minimum(found, free // amount, out=found)
        np.maximum(found, 0, out=found)
        return found

    def _free(self, column: int, leaves: IntArray) -> IntArray:
        rows = self._row_of_leaf[leaves]
        base: IntArray = self._ledger.base[column][rows]
        used: IntArray = self._ledger.used[column][rows]
        return base if self._empty else base - used
