"""Counts say how many pods of a class fit on every leaf, kept up to date, and from there up in every domain.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 1.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from fleet.placement.topology.capacity import MOST, NEVER, CapacityMatrix, LogPosition, RequestColumns
from fleet.placement.topology.domains import BoolArray, DomainTree, IntArray, SliceSpec

_ROOMIEST = 2**31
"""No leaf counts as more, so that sums over many stay far from 64 bits."""


class LeafCounts:
    """The counts of a class of pods and, in a group, of its leader, on every leaf: arrays of shape (leaves,).

    `pods`: how many pods fit. `leads`: 1 where the leader fits. `led_pods`: how many pods fit beside the leader, where
    it fits; else as `pods`. Without a leader, `leads` is all 0 and `led_pods` is `pods`.
    """

    def __init__(
        self,
        capacity: CapacityMatrix,
        leaf_of_row: IntArray,
        pods: tuple[RequestColumns, BoolArray],
        leader: tuple[RequestColumns, BoolArray] | None,
        *,
        empty: bool,
    ) -> None:
        """`pods` and `leader`: what one takes, and which leaves are suitable. `empty`: as if gangs took nothing."""
        self._capacity = capacity
        self._leaf_of_row = leaf_of_row
        self._requests, self._mask = pods
        self._leader = leader
        self._empty = empty
        self._seen: LogPosition = NEVER
        self.version = 0
        """Moves whenever a count may have changed."""
        self._row_of_leaf = np.zeros(len(self._mask), np.int64)
        mine = np.flatnonzero(leaf_of_row >= 0)
        self._row_of_leaf[leaf_of_row[mine]] = mine
        self.pods: IntArray = np.zeros(len(self._mask), np.int64)
        self.leads: IntArray = np.zeros_like(self.pods)
        self.led_pods: IntArray = np.zeros_like(self.pods) if leader else self.pods

    def refresh(self) -> None:
        """Catches up with what is taken."""
        rows = self._capacity.changed(self._seen)
        if rows is None:
            self._count(np.arange(len(self.pods)))
        elif len(rows):
            leaves = self._leaf_of_row[rows]
            leaves = leaves[leaves >= 0]
            if len(leaves):
                self._count(leaves)
        self._seen = self._capacity.position()

    def short_of(self) -> list[tuple[str, int]]:
        """Why no pod fits on suitable leaves -> how many: the resource that is scarcest there, sorted."""
        full = np.flatnonzero(self._mask & (self.pods == 0))
        if not len(full):
            return []
        if self._requests.missing:
            return [(f"have no {self._requests.missing}", len(full))]
        names = {column: name for name, column in self._capacity.columns.items()}
        rooms = np.array([self._free(column, full) // amount for column, amount in self._requests.columns])
        scarcest, counted = np.unique(rooms.argmin(axis=0), return_counts=True)
        resources = [names[self._requests.columns[which][0]] for which in scarcest.tolist()]
        return sorted((f"have too little {name}", n) for name, n in zip(resources, counted.tolist(), strict=True))

    def _count(self, leaves: IntArray) -> None:
        self.version += 1
        pods = self._fitting(self._requests, leaves, ())
        pods *= self._mask[leaves]
        self.pods[leaves] = pods
        if self._leader is None:
            return
        requests, mask = self._leader
        leads = mask[leaves] & (self._fitting(requests, leaves, ()) > 0)
        self.leads[leaves] = leads
        beside = self._fitting(self._requests, leaves, requests.columns) * self._mask[leaves]
        self.led_pods[leaves] = np.where(leads, beside, pods)

    def _fitting(self, requests: RequestColumns, leaves: IntArray, beside: tuple[tuple[int, int], ...]) -> IntArray:
        """Pods with these requests that fit on `leaves` after `beside` is taken off."""
        taken = dict(beside)
        found = np.full(len(leaves), 0 if requests.missing else _ROOMIEST, np.int64)
        for column, amount in requests.columns:
            free = self._free(column, leaves)
            if column in taken:
                free = free - taken[column]
            np.minimum(found, free // amount, out=found)
        np.maximum(found, 0, out=found)
        return found

    def _free(self, column: int, leaves: IntArray) -> IntArray:
        rows = self._row_of_leaf[leaves]
        base: IntArray = self._capacity.base[column][rows]
        used: IntArray = self._capacity.used[column][rows]
        return base if self._empty else base - used


@dataclass(slots=True)
class LevelCounts:
    """The counts of all domains of one level: arrays of shape (domains of the level,).

    `pods` and `slices` fit without a leader, `led_pods` and `led_slices` with it somewhere inside, where `leads` is 1.
    Below the level of the slices `slices` is 0. `score` is the sum of the affinity weights of the hosts inside.
    """

    pods: IntArray
    slices: IntArray
    led_pods: IntArray
    led_slices: IntArray
    leads: IntArray
    score: IntArray

    def copied(self) -> "LevelCounts":
        """A copy with arrays of its own."""
        return replace(self, **{field.name: getattr(self, field.name).copy() for field in fields(self)})


def count_levels(tree: DomainTree, leaves: LevelCounts, slicing: SliceSpec, *, led: bool) -> list[LevelCounts]:
    """The counts of every level, coarsest first, from those of the leaves, whose slices are counted anew.

    A leader costs a domain the least that it costs one of its children able to hold it. Children that take inner
    slices count in whole ones.
    """
    levels = [_with_slices(leaves, slicing, tree.lowest, led=led)]
    for level in reversed(range(tree.lowest)):
        inner = slicing.inner[level + 1] if slicing.inner else 0
        above = _above(levels[0], tree.bounds[level][:-1], inner, led=led)
        levels.insert(0, _with_slices(above, slicing, level, led=led))
    return levels


def _with_slices(counts: LevelCounts, slicing: SliceSpec, level: int, *, led: bool) -> LevelCounts:
    """The counts with slices, which are known from below unless it is at the level of the slices or under it."""
    if level == slicing.level:
        counts.slices = counts.pods if slicing.size == 1 else counts.pods // slicing.size
        counts.led_slices = counts.slices
        if led:
            counts.led_slices = counts.led_pods if slicing.size == 1 else counts.led_pods // slicing.size
    elif level > slicing.level:
        counts.slices = counts.led_slices = np.zeros_like(counts.pods)
    return counts


def _above(below: LevelCounts, starts: IntArray, inner: int, *, led: bool) -> LevelCounts:
    child_pods = below.pods // inner * inner if inner else below.pods
    pods = np.add.reduceat(child_pods, starts)
    slices = pods if below.slices is child_pods else np.add.reduceat(below.slices, starts)
    score = np.add.reduceat(below.score, starts)
    if not led:
        return LevelCounts(pods, slices, pods, slices, np.zeros_like(pods), score)
    child_led = below.led_pods // inner * inner if inner else below.led_pods
    leads = np.maximum.reduceat(below.leads, starts)
    return LevelCounts(
        pods,
        slices,
        _led(pods, child_pods - child_led, below.leads, starts),
        _led(slices, below.slices - below.led_slices, below.leads, starts),
        leads,
        score,
    )


def _led(total: IntArray, cost: IntArray, leads: IntArray, starts: IntArray) -> IntArray:
    """`total` less the least cost of a leader among children that can hold it; 0 where none can."""
    least = np.minimum.reduceat(np.where(leads > 0, cost, MOST), starts)
    return np.where(least < MOST, total - least, 0)
