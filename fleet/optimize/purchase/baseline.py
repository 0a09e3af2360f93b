"""The yardstick: pods one by one in Karpenter's order, a whole class at a time.

Karpenter sorts pods by CPU and memory, largest first, and gives each to the claim with the fewest pods that still has
*any* kind of machine that would hold it; a new claim is opened when there is none. Only in the end the cheapest kind
is chosen (`provisioning/scheduling/scheduler.go`, `nodeclaim.go`). What stands already comes before all claims, in
order of name. For equal pods "fewest first" is water that is poured over the claims: the level is found by bisection,
so the work grows with classes and distinct claims, not with pods.
"""

import numpy as np

from fleet.optimize.purchase.mix import Mix, housed, joined
from fleet.optimize.purchase.part import Ints, Part, roomiest

_FIRST = 64
"""Groups of claims that there is room for at first; it doubles."""
_CLOSED = -1.0
"""Free on a kind of machine that a claim can no longer become."""


class _Claims:
    """Groups of equal claims in the order in which they were opened.

    Of each kind that the claims of a group may still become it is known what would be free. Most groups are full for
    most classes: what is free on the roomiest of their kinds says so, and only the others are looked into. What claims
    took are chains: a group knows its last entry, every entry the one before.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        kinds, resources = part.capacity.shape
        self._groups = 0
        self._count, self._size, self._last = (np.zeros(_FIRST, dtype=np.int64) for _ in range(3))
        self._free = np.zeros((resources, _FIRST, kinds))
        self._most = np.zeros((resources, _FIRST))
        self._entries: list[tuple[int, int, int]] = []

    @property
    def count(self) -> Ints:
        """[G] claims in each group."""
        return self._count[: self._groups]

    def pods(self) -> Ints:
        """[G, C] pods on each claim."""
        found = np.zeros((self._groups, len(self._part.demand)), dtype=np.int64)
        for line, entry in enumerate(self._last[: self._groups].tolist()):
            while entry >= 0:
                entry, row, taken = self._entries[entry]  # noqa: PLW2901
                found[line, row] += taken
        return found

    def serve(self, row: int, missing: int) -> None:
        """All pods of one class that are missing: into the claims there are, then into new ones."""
        if rest := missing - self._join(row, missing):
            self._open(row, rest)

    def _join(self, row: int, missing: int) -> int:
        """How many pods found a place on the claims there are."""
        groups, room = self._room(row, missing)
        if not len(groups):
            return 0
        taken, split = _poured(self._size[groups], self._count[groups], room, missing)
        if split is not None:
            place, ones = split
            self._split(int(groups[place]), ones)
            groups = np.concatenate([groups[: place + 1], groups[place:] + 1])
            taken = np.insert(taken, place, taken[place] + 1)
        groups, taken = groups[taken > 0], taken[taken > 0]
        self._grow(groups, row, taken)
        return int(taken @ self._count[groups])

    def _room(self, row: int, missing: int) -> tuple[Ints, Ints]:
        """The groups with room for the class, and the pods that one claim takes on the roomiest kind it may become."""
        asked = self._part.requests[row]
        hopeful = (self._most[:, : self._groups] >= asked[:, None]).all(axis=0)
        groups = np.flatnonzero(hopeful)
        if not len(groups):
            return groups, groups
        free = self._free[:, groups]
        times = np.where((free[0] >= 0) & self._part.fits[row], float(missing), 0.0)
        for resource in np.flatnonzero(asked).tolist():
            times = np.minimum(times, np.floor(free[resource] / asked[resource]))
        room = times.max(axis=1).astype(np.int64)
        return groups[room > 0], room[room > 0]

    def _split(self, group: int, ones: int) -> None:
        """`ones` claims of a group become a group of their own before it."""
        self._reserve(1)
        here, there = slice(group, self._groups), slice(group + 1, self._groups + 1)
        for column in (self._count, self._size, self._last):
            column[there] = column[here]
        for table in (self._free, self._most):
            table[:, there] = table[:, here]
        self._groups += 1
        self._count[group] = ones
        self._count[group + 1] -= ones

    def _open(self, row: int, missing: int) -> None:
        """New claims, each filled to the brim before the next is opened: the others are full."""
        most = int(self._part.holds[row].max())
        sizes = [(most, missing // most), (missing % most, 1)]
        pods, count = np.array([it for it in sizes if all(it)], dtype=np.int64).reshape(-1, 2).T
        self._reserve(len(pods))
        fresh = np.arange(self._groups, self._groups + len(pods))
        self._count[fresh], self._size[fresh], self._last[fresh] = count, 0, -1
        self._free[:, fresh] = self._part.capacity.T[:, None]
        self._groups += len(pods)
        self._grow(fresh, row, pods)

    def _grow(self, groups: Ints, row: int, taken: Ints) -> None:
        """Each claim of these groups takes so many more pods of the class."""
        free = self._free[:, groups] - (taken * self._part.requests[row][:, None])[:, :, None]
        free[:, (free < 0).any(axis=0) | ~self._part.fits[row]] = _CLOSED
        self._free[:, groups], self._most[:, groups] = free, free.max(axis=2)
        self._size[groups] += taken
        first = len(self._entries)
        self._entries += zip(self._last[groups].tolist(), [row] * len(groups), taken.tolist(), strict=True)
        self._last[groups] = np.arange(first, len(self._entries))

    def _reserve(self, more: int) -> None:
        """Room for so many more groups."""
        there = len(self._count)
        if self._groups + more <= there:
            return
        self._count, self._size, self._last = (np.pad(it, (0, there)) for it in (self._count, self._size, self._last))
        self._free = np.pad(self._free, ((0, 0), (0, there), (0, 0)))
        self._most = np.pad(self._most, ((0, 0), (0, there)))


def karpenter_order(part: Part) -> Mix:
    """The machines that order leads to; with limits, some pods may be left."""
    seated, missing = in_rooms(part)
    large = part.only(roomiest(part))  # where these are full, all are
    if not len(large.price):
        return seated
    claims = _Claims(large)
    for row in np.flatnonzero((missing > 0) & large.fits.any(axis=1)).tolist():
        claims.serve(row, int(missing[row]))
    return joined(seated, housed(part, claims.pods(), claims.count, ~part.open))


def in_rooms(part: Part) -> tuple[Mix, Ints]:
    """First fit on what stands already; and how many pods of each class [C] find nothing there."""
    stands = np.flatnonzero(part.open)
    kinds = np.repeat(stands, part.most[stands].astype(np.int64))
    free, missing = part.capacity[kinds], part.demand.copy()
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64)
    for row in range(len(missing)) if len(kinds) else ():
        asked = part.requests[row]
        asks = asked > 0
        each = np.floor(free[:, asks] / asked[asks]).min(axis=1, initial=float(missing[row])) * part.fits[row, kinds]
        before = np.cumsum(each) - each
        pods[:, row] = np.clip(missing[row] - before, 0, each)
        free -= pods[:, row, None] * asked
        missing[row] -= pods[:, row].sum()
    busy = pods.any(axis=1)
    patterns, machines = np.unique(np.column_stack([kinds, pods])[busy], axis=0, return_counts=True)
    return Mix(patterns[:, 0], patterns[:, 1:], machines.astype(np.int64)), missing


def _poured(pods: Ints, count: Ints, room: Ints, missing: int) -> tuple[Ints, tuple[int, int] | None]:
    """How many each claim takes when each pod goes to the claim with the fewest; `(g, n)`: n claims of g one more."""
    if int(room @ count) <= missing:
        return room, None
    low, high = 0, int((pods + room).max())
    while low < high:  # the highest level that the pods reach everywhere
        level = (low + high + 1) // 2
        if int(np.minimum(room, np.maximum(level - pods, 0)) @ count) <= missing:
            low = level
        else:
            high = level - 1
    taken = np.minimum(room, np.maximum(low - pods, 0))
    rest = missing - int(taken @ count)
    for group in np.flatnonzero((taken < room) & (pods <= low)).tolist():
        if rest < count[group]:
            return taken, (group, rest) if rest else None
        taken[group] += 1
        rest -= int(count[group])
    return taken, None
