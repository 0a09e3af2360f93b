"""The yardstick: pods one by one in Karpenter's order, a whole class at a time.

Karpenter sorts pods by CPU and memory, largest first, and gives each to the claim with the fewest pods that still has
*any* kind of machine that would hold it; a new claim is opened when there is none. Only in the end the cheapest kind
is chosen (`provisioning/scheduling/scheduler.go`, `nodeclaim.go`). What stands already comes before all claims, in
order of name. For equal pods "fewest first" is water that is poured over the claims: the level is found by bisection,
so the work grows with classes and distinct claims, not with pods.
"""

from dataclasses import dataclass

import numpy as np

from fleet.capacity.purchase.mix import Mix, housed, joined
from fleet.capacity.purchase.part import Bools, Floats, Ints, Part, roomiest


class _Log:
    """What the claims took, as chains: a claim knows its last entry, every entry the one before."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []

    def after(self, last: Ints, row: int, taken: Ints) -> Ints:
        """The new last entries of claims that took so many pods of a class."""
        first = len(self._entries)
        self._entries += zip(last.tolist(), [row] * len(last), taken.tolist(), strict=True)
        return np.arange(first, len(self._entries))

    def pods(self, last: Ints, classes: int) -> Ints:
        """[G, C] pods on each claim."""
        found = np.zeros((len(last), classes), dtype=np.int64)
        for line, entry in enumerate(last.tolist()):
            while entry >= 0:
                entry, row, taken = self._entries[entry]  # noqa: PLW2901
                found[line, row] += taken
        return found


@dataclass(frozen=True, eq=False)
class _Claims:
    """G groups of equal claims."""

    count: Ints
    """[G] claims in each."""
    size: Ints
    """[G] pods on each."""
    used: Floats
    """[G, R]"""
    kinds: Bools
    """[G, K]: the kinds that would still hold all of it."""
    last: Ints
    """[G] entries of the log."""

    def picked(self, rows: Ints, count: Ints) -> "_Claims":
        """Some of the groups, with other counts."""
        return _Claims(count, self.size[rows], self.used[rows], self.kinds[rows], self.last[rows])

    def plus(self, other: "_Claims") -> "_Claims":
        """Both, in this order."""
        mine = (self.count, self.size, self.used, self.kinds, self.last)
        others = (other.count, other.size, other.used, other.kinds, other.last)
        return _Claims(*(np.concatenate(pair) for pair in zip(mine, others, strict=True)))

    def grow(self, part: Part, log: _Log, row: int, taken: Ints) -> None:
        """Each claim of group g takes `taken[g]` more pods of the class."""
        touched = np.flatnonzero(taken)
        self.size[touched] += taken[touched]
        self.used[touched] += taken[touched, None] * part.requests[row]
        self.last[touched] = log.after(self.last[touched], row, taken[touched])
        kinds = self.kinds[touched] & part.fits[row]
        for resource in range(part.requests.shape[1]):
            kinds &= self.used[touched, resource, None] <= part.capacity[None, :, resource]
        self.kinds[touched] = kinds


def _none(part: Part) -> _Claims:
    nothing = np.zeros(0, dtype=np.int64)
    used, kinds = np.zeros((0, part.requests.shape[1])), np.zeros((0, len(part.price)), dtype=bool)
    return _Claims(nothing, nothing, used, kinds, nothing)


def karpenter_order(part: Part) -> Mix:
    """The machines that order leads to; with limits, some pods may be left."""
    seated, missing = in_rooms(part)
    large = part.only(roomiest(part))  # where these are full, all are
    if not len(large.price):
        return seated
    claims, log = _none(large), _Log()
    for row in np.flatnonzero((missing > 0) & large.fits.any(axis=1)).tolist():
        claims = _served(large, log, claims, row, int(missing[row]))
    return joined(seated, housed(part, log.pods(claims.last, len(part.demand)), claims.count, ~part.open))


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


def _served(part: Part, log: _Log, claims: _Claims, row: int, missing: int) -> _Claims:
    """All pods of one class that are missing: into the claims there are, then into new ones."""
    room = _room(part, claims, row)
    taken, split = _poured(claims.size, claims.count, room, missing)
    if split is not None:
        group, ones = split
        rows = np.insert(np.arange(len(claims.count)), group, group)
        count = np.insert(claims.count, group, ones)
        count[group + 1] -= ones
        claims = claims.picked(rows, count)
        taken = np.insert(taken, group, taken[group] + 1)
    missing -= int(taken @ claims.count)
    claims.grow(part, log, row, taken)
    return _opened(part, log, claims, row, missing)


def _opened(part: Part, log: _Log, claims: _Claims, row: int, missing: int) -> _Claims:
    """New claims, each filled to the brim before the next is opened: the others are full."""
    most = int(part.holds[row].max())
    sizes = [(most, missing // most), (missing % most, 1)]
    pods, count = np.array([it for it in sizes if all(it)], dtype=np.int64).reshape(-1, 2).T
    used = pods[:, None] * part.requests[row]
    kinds = part.fits[row] & (part.holds[row] >= pods[:, None])
    return claims.plus(_Claims(count, pods.copy(), used, kinds, log.after(np.full(len(pods), -1), row, pods)))


def _room(part: Part, claims: _Claims, row: int) -> Ints:
    """[G] pods of the class that one claim of a group would take, on the roomiest kind it may still become."""
    kinds = np.flatnonzero(part.fits[row])
    room = np.where(claims.kinds[:, kinds], float(part.demand[row]), 0.0)
    for resource in np.flatnonzero(part.requests[row]):
        free = part.capacity[None, kinds, resource] - claims.used[:, resource, None]
        room = np.minimum(room, np.floor(free / part.requests[row, resource]))
    found: Ints = np.maximum(room.max(axis=1, initial=0.0), 0.0).astype(np.int64)
    return found


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
