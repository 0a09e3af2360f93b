"""A part of a problem as arrays: what the search works on. `cut.py` makes them."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Member = tuple[str, int]
"""A class by name, and how many pods of it are asked for here."""
_EVERYWHERE = 1e18
"""Room for pods that ask nothing of a resource; above all amounts."""


@dataclass(frozen=True, eq=False)
class Part:
    """C classes, K kinds, R resources, L limits. Amounts are whole numbers as floats, which is exact below 2^50."""

    requests: Floats
    """[C, R], scaled by what divides all requests of a resource."""
    demand: Ints
    """[C], at least 1 each."""
    capacity: Floats
    """[K, R]; no more than all pods together could take."""
    price: Floats
    """[K] USD an hour, ascending."""
    most: Floats
    """[K] machines of the kind that can be had; inf without a bound."""
    open: Bools
    """[K]: stands already, so that its pods cost nothing."""
    fits: Bools
    """[C, K]: the kind is allowed to the class, and holds at least one pod of it."""
    usage: Floats
    """[L, K]: what one machine counts against each limit."""
    limits: Floats
    """[L]"""
    members: tuple[tuple[Member, ...], ...]
    """The classes that are counted as one, for each of C."""
    names: tuple[tuple[str, ...], ...]
    """[K]: the kind; of open machines all that are counted as one."""

    @cached_property
    def holds(self) -> Floats:
        """[C, K]: pods of one class that one machine of a kind takes, no more than there are."""
        found = np.repeat(self.demand[:, None].astype(np.float64), len(self.price), axis=1)
        for resource in range(self.requests.shape[1]):
            asking = np.flatnonzero(self.requests[:, resource])
            times = np.floor(self.capacity[None, :, resource] / self.requests[asking, resource, None])
            found[asking] = np.minimum(found[asking], times)
        return np.where(self.fits, found, 0.0)

    @cached_property
    def step(self) -> tuple[Floats, Floats]:
        """[R, C] `(add, divide)`: `floor((rest + add) / divide)` pods find room by a resource, many if unasked."""
        asked = self.requests.T > 0
        return np.where(asked, 0.0, _EVERYWHERE), np.where(asked, self.requests.T, 1.0)

    @cached_property
    def scale(self) -> Floats:
        """[L] what the limits are divided by for the solver, whose tolerances are absolute."""
        found: Floats = np.maximum(self.usage.max(axis=1, initial=0.0), 1e-9)
        return found

    @property
    def bounded(self) -> bool:
        """Whether anything limits how many machines are bought."""
        return bool(len(self.limits) or np.isfinite(self.most).any())

    def want(self, demand: Ints) -> "Part":
        """The same with another demand, at most the present one; classes that want nothing are left out."""
        kept = demand > 0
        wanted = zip(self.members, demand.tolist(), strict=True)
        members = tuple(_first(group, count) for group, count in wanted if count > 0)
        return Part(
            self.requests[kept], demand[kept], self.capacity, self.price, self.most, self.open, self.fits[kept],
            self.usage, self.limits, members, self.names,
        )  # fmt: skip

    def only(self, kept: Bools) -> "Part":
        """With these kinds [K] alone."""
        names = tuple(name for name, keep in zip(self.names, kept.tolist(), strict=True) if keep)
        return Part(
            self.requests, self.demand, self.capacity[kept], self.price[kept], self.most[kept], self.open[kept],
            self.fits[:, kept], self.usage[:, kept], self.limits, self.members, names,
        )  # fmt: skip


def roomiest(part: Part) -> Bools:
    """[K]: no other kind that can be bought holds as much of everything for as many classes, whatever it costs."""
    count = len(part.price)
    everywhere = replace(
        part, price=np.where(part.open, np.inf, 0.0), most=np.where(part.open, 0.0, np.inf),
        usage=np.zeros((0, count)), limits=np.zeros(0),
    )  # fmt: skip
    return ~part.open & ~beaten(everywhere)


def _first(members: tuple[Member, ...], count: int) -> tuple[Member, ...]:
    """The first `count` pods of a group of equal classes."""
    found = []
    for name, pods in members:
        if taken := min(pods, count):
            found.append((name, taken))
        count -= taken
    return tuple(found)


_ROWS = 1024
"""Kinds that are compared with all others at once: bounds the memory."""


def beaten(part: Part) -> Bools:
    """[K]: another kind, to be had without end, costs no more, holds and is allowed no less, counts no more."""
    rivals = np.flatnonzero(part.most >= part.demand.sum())
    features = np.hstack([part.capacity, -part.usage.T])
    packed = np.packbits(part.fits, axis=0).T
    padding = -packed.shape[1] % 8
    words = np.ascontiguousarray(np.pad(packed, ((0, 0), (0, padding)))).view(np.uint64).T  # 64 classes in each
    beaten = np.zeros(len(part.price), dtype=bool)
    for start in range(0, len(beaten), _ROWS):
        mine = np.arange(start, min(start + _ROWS, len(beaten)))
        better = part.price[rivals, None] <= part.price[None, mine]
        equal = part.price[rivals, None] == part.price[None, mine]
        for column in features.T:
            better &= column[rivals, None] >= column[None, mine]
            equal &= column[rivals, None] == column[None, mine]
        for word in words:
            better &= ~word[rivals, None] & word[None, mine] == 0
            equal &= word[rivals, None] == word[None, mine]
        beaten[mine] = (better & ~(equal & (rivals[:, None] >= mine[None]))).any(axis=0)
    return beaten
