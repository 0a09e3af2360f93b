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
Order = NDArray[np.intp]
Member = tuple[str, int]
"""A class by name, and how many pods of it are asked for here."""
_EVERYWHERE = 1e18
"""Stands for room without bound, for resources that pods do not ask for; above all amounts."""
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
    many, order = _orders(part, kinds, worth)
    first = filled(part, many, order, demand)
    again = filled(part, many, order_by_scarcity(part, many, worth, first), demand)
    return np.concatenate([many, many]), np.concatenate([first, again])


def filled(part: PackingInstance, kinds: Ints, order: Order, demand: Ints, begun: Ints | None = None) -> Ints:
    """Returns [M, C] pods on machines of `kinds` [M], filled by `order` [M, C] of classes, on top of `begun`.

    Each machine takes as many as it can of its first class that still fits, then of the next; a step is one class on
    every machine, so the steps are as many as the classes on the fullest machine, not as all classes.
    """
    pods = np.zeros((len(kinds), len(part.demand)), dtype=np.int64) if begun is None else begun.copy()
    rest = part.capacity[kinds] - pods @ part.requests
    left = demand[None] - pods
    lines = np.arange(len(kinds))
    asked = part.requests.T[:, order]  # [R, M, C], in each machine's own order
    open_ = part.fits.T[kinds[:, None], order] & (np.take_along_axis(left, order, axis=1) > 0)
    while True:
        for resource, amounts in enumerate(asked):
            open_ &= amounts <= rest[lines, resource, None]
        first = open_.argmax(axis=1)
        taking = np.flatnonzero(open_[np.arange(len(lines)), first])
        if not len(taking):
            return pods
        row, line = order[taking, first[taking]], lines[taking]
        times = np.floor((rest[line] + part.step[0].T[row]) / part.step[1].T[row]).min(axis=1)
        count = np.minimum(times, left[line, row])
        pods[line, row] += count.astype(np.int64)
        rest[line] -= count[:, None] * part.requests[row]
        open_[taking, first[taking]] = False
        if 2 * len(taking) < len(lines):
            lines, order, open_, asked = line, order[taking], open_[taking], asked[:, taking]


def order_by_scarcity(part: PackingInstance, kinds: Ints, worth: Floats, pods: Ints) -> Order:
    """Returns [M, C] classes by worth for the resources most used on machines of `kinds` [M] with `pods` [M, C]."""
    capacity = np.maximum(part.capacity[kinds], 1.0)
    scarce = (pods @ part.requests / capacity) ** _SHARPNESS
    size = np.einsum("mr,mcr->mc", scarce + 1e-6, _shares(part, kinds))
    return _by_density(part, kinds, worth, size)


def _orders(part: PackingInstance, kinds: Ints, worth: Floats) -> tuple[Ints, Order]:
    """Returns (kinds, order) of M = kinds x orders machines: several orders of the classes for each kind.

    By worth for each resource alone, for the sum of shares, for the largest share, and by worth alone.
    """
    share = _shares(part, kinds)
    sizes = [share[:, :, resource] for resource in range(share.shape[2])]
    sizes += [share.sum(axis=2), share.max(axis=2), np.ones(share.shape[:2])]
    return np.tile(kinds, len(sizes)), np.vstack([_by_density(part, kinds, worth, size) for size in sizes])


def _shares(part: PackingInstance, kinds: Ints) -> Floats:
    """Returns [M, C, R] the part of the machine's capacity that one pod takes of each resource."""
    return part.requests[None] / np.maximum(part.capacity[kinds], 1.0)[:, None]


def _by_density(part: PackingInstance, kinds: Ints, worth: Floats, size: Floats) -> Order:
    """Returns [M, C] classes by worth for size, best first; ties by number; what does not fit or is worthless last."""
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.where(size > 0, worth / size, worth * 1e12)
    density = np.where(part.fits[:, kinds].T & (worth > 0), density, -1.0)
    return np.argsort(-density, axis=1, kind="stable")
