"""Holds a packing problem as arrays, and fills machines greedily.

Classes of equal pods are packed onto kinds of machines: a variable-sized vector bin packing problem, whose bins are
machines with a price for each kind.

Filling is the heuristic for the bounded knapsack with several resources: it puts as much worth as possible onto one
machine, in several orders of the classes. M machines are filled side by side, one class of each order at a time; a step
costs a few operations on [R, M] arrays.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Member = tuple[str, int]
"""A class by name, and how many pods of it are asked for here."""
_EVERYWHERE = 1e18
"""Stands for room without bound, for resources that pods do not ask for; above all amounts."""
_MOST_BITS = 60
_MANY = 8
"""Classes from which on most find no room on a machine, so that they are not sorted for each."""
_SHARPNESS = 4
"""Power to which the used share of a resource is raised when a machine is filled again, so that scarce resources count
most."""


@dataclass(frozen=True, eq=False)
class PackingInstance:
    """A `PackingInstance` is an independent part as arrays: C classes, K kinds, R resources, L limits.

    Amounts are whole numbers as floats, which is exact below 2^50.
    """

    requests: Floats
    """[C, R] what one pod takes, divided by the greatest common divisor of a resource's requests."""
    demand: Ints
    """[C] pods, at least 1 each."""
    capacity: Floats
    """[K, R] what one machine has; cut to what all pods together could take."""
    price: Floats
    """[K] USD an hour, ascending."""
    most: Floats
    """[K] machines of the kind that can be had; inf without a bound."""
    open: Bools
    """[K] whether it is an existing machine, on which pods cost nothing."""
    fits: Bools
    """[C, K] whether the class may stand on the kind, and one pod of it fits."""
    usage: Floats
    """[L, K] what one machine counts against each limit."""
    limits: Floats
    """[L] upper bounds."""
    members: tuple[tuple[Member, ...], ...]
    """[C] the classes of the problem that are merged into each class here, with their pods."""
    names: tuple[tuple[str, ...], ...]
    """[K] the name of the kind; for existing machines the names of all that are merged into one kind."""

    @cached_property
    def holds(self) -> Floats:
        """Returns [C, K] how many pods of one class fit on one machine of a kind, at most as many as there are."""
        return np.where(self.fits, pods_alone(self.requests, self.demand, self.capacity), 0.0)

    @cached_property
    def price_alone(self) -> Floats:
        """Returns [C, K] USD an hour for a pod on a machine full of its class; inf where none can be bought."""
        return np.where(self.fits & ~self.open, self.price / np.maximum(self.holds, 1.0), np.inf)

    @cached_property
    def step(self) -> tuple[Floats, Floats]:
        """Returns [R, C] `(add, divide)`, so that `floor((free + add) / divide)` pods fit by a resource.

        For a resource that a class does not ask for the result is larger than any number of pods.
        """
        asked = self.requests.T > 0
        return np.where(asked, 0.0, _EVERYWHERE), np.where(asked, self.requests.T, 1.0)

    @cached_property
    def scale(self) -> Floats:
        """Returns [L] what limits are divided by for the solver, whose tolerances are absolute."""
        found: Floats = np.maximum(self.usage.max(axis=1, initial=0.0), 1e-9)
        return found

    @cached_property
    def apart(self) -> Bools:
        """Returns [R] which resources every machine has once: of the pods that take it, one stands on each."""
        if not len(self.capacity):
            return np.zeros(self.capacity.shape[1], dtype=bool)
        once: Bools = (self.requests <= 1).all(axis=0) & self.requests.any(axis=0) & (self.capacity == 1).all(axis=0)
        return once & (np.cumsum(once) <= _MOST_BITS)

    @cached_property
    def apart_bits(self) -> Ints:
        """Returns [C] which of these resources a pod takes, a bit each."""
        taken = self.requests[:, self.apart].astype(np.int64)
        found: Ints = (taken << np.arange(taken.shape[1])).sum(axis=1)
        return found

    @property
    def bounded(self) -> bool:
        """Returns whether anything limits how many machines are bought."""
        return bool(len(self.limits) or np.isfinite(self.most).any())

    def with_demand(self, demand: Ints) -> "PackingInstance":
        """Returns the instance with a demand [C] of at most the present one; classes with demand 0 are left out."""
        kept = demand > 0
        wanted = zip(self.members, demand.tolist(), strict=True)
        members = tuple(_first(group, count) for group, count in wanted if count > 0)
        return PackingInstance(
            self.requests[kept], demand[kept], self.capacity, self.price, self.most, self.open, self.fits[kept],
            self.usage, self.limits, members, self.names,
        )  # fmt: skip

    def only(self, kept: Bools) -> "PackingInstance":
        """Returns the instance with these kinds [K] alone."""
        if kept.all():
            return self
        names = tuple(name for name, keep in zip(self.names, kept.tolist(), strict=True) if keep)
        return PackingInstance(
            self.requests, self.demand, self.capacity[kept], self.price[kept], self.most[kept], self.open[kept],
            self.fits[:, kept], self.usage[:, kept], self.limits, self.members, names,
        )  # fmt: skip


def _first(members: tuple[Member, ...], count: int) -> tuple[Member, ...]:
    """Returns the first `count` pods of a group of merged classes."""
    found = []
    for name, pods in members:
        if taken := min(pods, count):
            found.append((name, taken))
        count -= taken
    return tuple(found)


def pods_alone(requests: Floats, demand: Ints, free: Floats) -> Floats:
    """Returns [C, N] pods of one class (`requests` [C, R]) that fit into `free` [N, R], at most `demand` [C]."""
    found = np.repeat(demand[:, None].astype(np.float64), len(free), axis=1)
    for resource in range(requests.shape[1]):
        asking = np.flatnonzero(requests[:, resource])
        times = np.floor(free[None, :, resource] / requests[asking, resource, None])
        found[asking] = np.minimum(found[asking], times)
    return found


def holding(part: PackingInstance, pods: Ints) -> Bools:
    """Returns [P, K] whether one machine of the kind holds all of `pods` [P, C].

    `pods` is nearly all zero, so only its non-zero entries are read. No matrix product is used: for thousands of
    classes BLAS would wake its threads, which cost more than they save.
    """
    pattern, row = np.nonzero(pods)
    times = pods[pattern, row]
    found = np.ones((len(pods), len(part.price)), dtype=bool)
    for resource in range(part.requests.shape[1]):
        needs = np.bincount(pattern, times * part.requests[row, resource], minlength=len(pods))
        found &= needs[:, None] <= part.capacity[None, :, resource]
    busy, first = np.unique(pattern, return_index=True)
    if len(busy):
        found[busy] &= np.logical_and.reduceat(part.fits[row], first, axis=0)
    return found


# -- filling ----------------------------------------------------------------------------------------------------------


def best_fills(part: PackingInstance, kinds: Ints, worth: Floats, demand: Ints) -> tuple[Ints, Ints]:
    """Returns machines of `kinds` filled greedily by `worth` [C] in all orders: `(kinds [M], pods [M, C])`.

    Each is filled a second time in an order that weighs resources by how much of them the first filling used.
    """
    many, density = _densities(part, kinds, worth)
    nothing = np.zeros(density.shape, dtype=np.int64)
    first = _filled(part, many, density, demand, nothing)
    again = filled_up(part, many, worth, first, demand, nothing)
    return np.concatenate([many, many]), np.concatenate([first, again])


def filled_up(part: PackingInstance, kinds: Ints, worth: Floats, like: Ints, demand: Ints, begun: Ints) -> Ints:
    """Returns [M, C] pods on machines of `kinds` [M] that have `begun` [M, C] on them, filled up greedily.

    The best is what is worth most for the resources that are used most with the pods of `like` [M, C].
    """
    capacity = np.maximum(part.capacity[kinds], 1.0)
    weight = (like @ part.requests / capacity) ** _SHARPNESS + 1e-6
    size: Floats = np.einsum("mr,cr->mc", weight / capacity, part.requests)
    return _filled(part, kinds, _density(worth, size), demand, begun)


def _filled(part: PackingInstance, kinds: Ints, density: Floats, demand: Ints, begun: Ints) -> Ints:
    """Returns [M, C] pods on machines of `kinds` [M], filled by `density` [M, C] of classes, on top of `begun` [M, C].

    Each machine takes as many as it can of its best class that still fits, then of the next, of equal ones that with
    the lowest number. A step is one class on every machine, so the steps are as many as the classes on the fullest
    machine; as those are few of thousands, the best is looked for each time, and nothing is sorted.
    """
    if density.shape[1] < _MANY:
        return _filled_in_order(part, kinds, density, demand, begun)
    pods, lines = begun.copy(), np.arange(len(kinds))
    rest = part.capacity[kinds] - pods @ part.requests
    add, divide = part.step[0].T, part.step[1].T
    value: Floats = np.where(part.fits.T[kinds] & (pods < demand), density, -np.inf)
    while len(lines):
        for resource, amounts in enumerate(part.requests.T):
            np.putmask(value, amounts > rest[:, resource, None], -np.inf)
        row = value.argmax(axis=1)
        taking = value[np.arange(len(lines)), row] > -np.inf
        if not taking.all():
            lines, row, rest, value = lines[taking], row[taking], rest[taking], value[taking]
        times = np.floor((rest + add[row]) / divide[row]).min(axis=1)
        count = np.minimum(times, demand[row] - pods[lines, row])
        pods[lines, row] += count.astype(np.int64)
        rest -= count[:, None] * part.requests[row]
        value[np.arange(len(lines)), row] = -np.inf
    return pods


def _filled_in_order(part: PackingInstance, kinds: Ints, density: Floats, demand: Ints, begun: Ints) -> Ints:
    """Returns the same for few classes, which are sorted once: then a step is every machine's next class."""
    order = np.argsort(-density.T, axis=0, kind="stable")  # [C, M]
    wanted = np.where(part.fits[:, kinds], np.maximum(demand - begun, 0).T, 0)
    taken = np.take_along_axis(wanted, order, axis=0).astype(np.float64)
    rest = np.ascontiguousarray((part.capacity[kinds] - begun @ part.requests).T)  # [R, M]
    add, divide = part.step
    asked, add, divide = part.requests.T[:, order], add[:, order], divide[:, order]  # [R, C, M]
    for step, count in enumerate(taken):
        fit = np.minimum.reduce((rest + add[:, step]) / divide[:, step])
        np.minimum(np.floor(fit), count, out=count)
        rest -= count * asked[:, step]
    pods = begun.copy()
    pods[np.arange(len(kinds)), order] += taken.astype(np.int64)
    return pods


def _densities(part: PackingInstance, kinds: Ints, worth: Floats) -> tuple[Ints, Floats]:
    """Returns (kinds [M], density [M, C]) of M = kinds x measures machines: what classes are worth for their size.

    Size is the share of each resource alone, the sum of shares, the largest share, and the same for all.
    """
    share = part.requests[None] / np.maximum(part.capacity[kinds], 1.0)[:, None]
    each = np.moveaxis(share, 2, 0)
    sizes = np.concatenate([*each, share.sum(axis=2), share.max(axis=2), np.ones(share.shape[:2])])
    return np.tile(kinds, len(each) + 3), _density(worth, sizes)


def _density(worth: Floats, size: Floats) -> Floats:
    """Returns [M, C] worth [C] for size [M, C]; -1 for what is worthless."""
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.where(size > 0, worth / size, worth * 1e12)
    return np.where(worth > 0, density, -1.0)
