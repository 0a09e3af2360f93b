"""The quick way: each class goes to the kind that holds it cheapest by itself, and fills machines of it first fit.

One machine is filled at a time, the largest shares of it first, and as many are bought as the pods suffice for: a
step for each pattern, so that thousands of classes take a fraction of a second.
"""

from collections.abc import Iterator
from operator import le

import numpy as np

from fleet.optimize.purchase.baseline import in_rooms
from fleet.optimize.purchase.mix import Mix, housed, joined
from fleet.optimize.purchase.part import Bools, Floats, Ints, Part


def by_choice(part: Part) -> Mix:
    """What stands first, then machines for all other pods, as far as the limits allow."""
    seated, missing = in_rooms(part)
    alone = np.where(part.fits & ~part.open, part.price / np.maximum(part.holds, 1.0), np.inf)
    chosen = np.where((missing > 0) & np.isfinite(alone.min(axis=1)), alone.argmin(axis=1), -1)
    found = [
        it for kind in np.unique(chosen[chosen >= 0]).tolist() for it in _packed(part, kind, chosen == kind, missing)
    ]
    if not found:
        return seated
    rows, pods, machines = zip(*found, strict=True)
    patterns = np.zeros((len(found), len(missing)), dtype=np.int64)
    patterns[np.repeat(np.arange(len(found)), [len(it) for it in rows]), np.concatenate(rows)] = np.concatenate(pods)
    return joined(seated, housed(part, patterns, np.array(machines, dtype=np.int64), ~part.open))


def _packed(part: Part, kind: int, own: Bools, missing: Ints) -> Iterator[tuple[Ints, Ints, int]]:
    """(classes, pods of each, machines) until none of its own classes is left."""
    share = (part.requests / np.maximum(part.capacity[kind], 1.0)).max(axis=1)
    classes = np.argsort(-share, kind="stable")
    classes = classes[own[classes]]
    while len(classes):  # a class that is done is in nobody's way until half of them are
        queue, done = _Queue(part.requests[classes].T.copy(), missing[classes]), 0
        while 2 * done < len(classes):
            places, pods = queue.one(part.capacity[kind])
            machines, gone = queue.taken(places, pods)
            done += gone
            yield classes[places], np.array(pods), machines
        missing[classes] = queue.left
        classes = classes[missing[classes] > 0]


class _Queue:
    """Classes that wait for machines, the largest share first."""

    def __init__(self, requests: Floats, left: Ints) -> None:
        self.left = left
        """[N] pods."""
        self._requests = requests  # [R, N], out of reach once none is left
        self._first = 0
        self._least: list[list[float]] = np.minimum.accumulate(requests[:, ::-1], axis=1)[:, ::-1].T.tolist()

    def one(self, capacity: Floats) -> tuple[list[int], list[int]]:
        """One machine, first fit: the places of the classes that it takes, and how many pods of each."""
        rest: list[float] = capacity.tolist()
        place, places, pods = self._first, list[int](), list[int]()
        while place < len(self._least) and all(map(le, self._least[place], rest)):
            fits = np.logical_and.reduce(self._requests[:, place:] <= np.array(rest)[:, None], axis=0)
            step = int(fits.argmax())
            if not fits[step]:
                break
            place += step
            request = self._requests[:, place].tolist()
            most = [free // amount for free, amount in zip(rest, request, strict=True) if amount]
            count = int(min([int(self.left[place]), *most]))
            rest = [free - count * amount for free, amount in zip(rest, request, strict=True)]
            places.append(place)
            pods.append(count)
            place += 1
        return places, pods

    def taken(self, places: list[int], pods: list[int]) -> tuple[int, int]:
        """As many such machines as the pods suffice for, and how many classes are then done."""
        machines = min(int(self.left[place]) // count for place, count in zip(places, pods, strict=True))
        gone = 0
        for place, count in zip(places, pods, strict=True):
            self.left[place] -= machines * count
            if not self.left[place]:
                self._requests[:, place] = np.inf
                gone += 1
        while self._first < len(self.left) and not self.left[self._first]:
            self._first += 1
        return machines, gone
