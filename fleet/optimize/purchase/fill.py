"""Machines filled greedily: many (kind, order of classes) at once, one class of each order at a time.

This is the heuristic for the bounded knapsack with several resources that prices patterns: how much worth goes onto
one machine. M machines are filled side by side; a step costs a few operations on [R, M] arrays.
"""

import numpy as np
from numpy.typing import NDArray

from fleet.optimize.purchase.part import Floats, Ints, Part

Order = NDArray[np.intp]
_SHARPNESS = 4
"""Power of the used share by which a resource counts in the second look: what runs out first counts almost alone."""


def filled(part: Part, kinds: Ints, order: Order, demand: Ints, begun: Ints | None = None) -> Ints:
    """[M, C] pods on machines of `kinds` [M], by `order` [M, C] of classes, on top of those `begun` with.

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


def orders(part: Part, kinds: Ints, worth: Floats) -> tuple[Ints, Order]:
    """Several orders of classes for each kind: `(kinds, order)` of M = kinds x orders machines.

    By worth for each resource alone, for the sum of shares, for the largest share, and by worth alone.
    """
    share = _shares(part, kinds)
    sizes = [share[:, :, resource] for resource in range(share.shape[2])]
    sizes += [share.sum(axis=2), share.max(axis=2), np.ones(share.shape[:2])]
    return np.tile(kinds, len(sizes)), np.vstack([_by_density(part, kinds, worth, size) for size in sizes])


def sharpened(part: Part, kinds: Ints, worth: Floats, pods: Ints) -> Order:
    """[M, C]: the order by worth for what ran short on machines that were filled with `pods`."""
    capacity = np.maximum(part.capacity[kinds], 1.0)
    scarce = (pods @ part.requests / capacity) ** _SHARPNESS
    size = np.einsum("mr,mcr->mc", scarce + 1e-6, _shares(part, kinds))
    return _by_density(part, kinds, worth, size)


def _shares(part: Part, kinds: Ints) -> Floats:
    """[M, C, R] the part of the machine that one pod takes of each resource."""
    return part.requests[None] / np.maximum(part.capacity[kinds], 1.0)[:, None]


def _by_density(part: Part, kinds: Ints, worth: Floats, size: Floats) -> Order:
    """[M, C] classes by worth for size, best first; ties by their place; what does not fit or is worth nothing last."""
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.where(size > 0, worth / size, worth * 1e12)
    density = np.where(part.fits[:, kinds].T & (worth > 0), density, -1.0)
    return np.argsort(-density, axis=1, kind="stable")


def best_fills(part: Part, kinds: Ints, worth: Floats, demand: Ints) -> tuple[Ints, Ints]:
    """(kinds [M], pods [M, C]) of all orders, each also sharpened by what ran short."""
    many, order = orders(part, kinds, worth)
    first = filled(part, many, order, demand)
    again = filled(part, many, sharpened(part, many, worth, first), demand)
    return np.concatenate([many, many]), np.concatenate([first, again])
