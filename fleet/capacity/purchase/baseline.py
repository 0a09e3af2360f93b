"""The yardstick: pods one by one in Karpenter's order, a whole class at a time.

Karpenter sorts pods by CPU and memory, largest first, and gives each to the claim with the fewest pods that still has
*any* kind of machine that would hold it; a new claim is opened when there is none. Only in the end the cheapest kind is
chosen (`provisioning/scheduling/scheduler.go`, `nodeclaim.go`). What stands already comes before all claims, in order of name.
For equal pods "fewest first" is water that is poured over the claims: the level is found by bisection, so the work grows
with classes and distinct claims, not with pods.
"""

from dataclasses import dataclass

import numpy as np

from fleet.capacity.purchase.mix import Mix, housed, joined
from fleet.capacity.purchase.part import Bools, Floats, Ints, Part


@dataclass(eq=False)
class _Claims:
    """G groups of equal claims."""

    pods: Ints
    """[G, C]"""
    count: Ints
    """[G] claims in each."""
    used: Floats
    """[G, R]"""
    kinds: Bools
    """[G, K]: the kinds that would still hold all of it."""

    def picked(self, rows: Ints, count: Ints) -> "_Claims":
        """Some of the groups, with other counts."""
        return _Claims(self.pods[rows], count, self.used[rows], self.kinds[rows])

    def plus(self, other: "_Claims") -> "_Claims":
        """Both, in this order."""
        return _Claims(
            np.concatenate([self.pods, other.pods]),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.used, other.used]),
            np.concatenate([self.kinds, other.kinds]),
        )

    def grow(self, part: Part, row: int, taken: Ints) -> None:
        """Each claim of group g takes `taken[g]` more pods of the class."""
        self.pods[:, row] += taken
        self.used += taken[:, None] * part.requests[row]
        touched = np.flatnonzero(taken)
        kinds = self.kinds[touched] & part.fits[row]
        for resource in range(part.requests.shape[1]):
            kinds &= self.used[touched, resource, None] <= part.capacity[None, :, resource]
        self.kinds[touched] = kinds


def karpenter_order(part: Part) -> Mix:
    """The machines that order leads to; with limits, some pods may be left."""
    seated, missing = in_rooms(part)
    buyable = ~part.open
    if not buyable.any():
        return seated
    claims = _none(part)
    for row in np.flatnonzero(missing).tolist():
        if part.holds[row, buyable].any():
            claims = _served(part, claims, row, int(missing[row]))
    bought = housed(part, claims.pods, claims.count, buyable)
    return joined(seated, bought)


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


def _none(part: Part) -> _Claims:
    classes, resources = part.requests.shape
    return _Claims(
        np.zeros((0, classes), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros((0, resources)),
        np.zeros((0, len(part.price)), dtype=bool),
    )


def _served(part: Part, claims: _Claims, row: int, missing: int) -> _Claims:
    """All pods of one class that are missing: into the claims there are, then into new ones."""
    room = _room(part, claims, row)
    taken, split = _poured(claims.pods.sum(axis=1), claims.count, room, missing)
    if split is not None:
        group, ones = split
        rows = np.insert(np.arange(len(claims.count)), group, group)
        count = np.insert(claims.count, group, ones)
        count[group + 1] -= ones
        claims = claims.picked(rows, count)
        taken = np.insert(taken, group, taken[group] + 1)
    missing -= int(taken @ claims.count)
    claims.grow(part, row, taken)
    return _opened(part, claims, row, missing)


def _opened(part: Part, claims: _Claims, row: int, missing: int) -> _Claims:
    """New claims, each filled to the brim before the next is opened: the others are full."""
    most = int(part.holds[row, ~part.open].max())
    for pods, count in ((most, missing // most), (missing % most, 1)):
        if pods and count:
            fresh = _none(part).plus(
                _Claims(
                    np.zeros((1, len(part.demand)), dtype=np.int64),
                    np.array([count], dtype=np.int64),
                    np.zeros((1, part.requests.shape[1])),
                    ~part.open[None],
                )
            )
            fresh.grow(part, row, np.array([pods], dtype=np.int64))
            claims = claims.plus(fresh)
    return claims


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
