"""The quick way: each class goes to the kind that holds it cheapest by itself, and fills machines of it first fit.

One machine is filled at a time, the largest shares of it first, and as many are bought as the pods suffice for: a
step for each pattern, so that thousands of classes take a fraction of a second.
"""

from collections.abc import Iterator

import numpy as np

from fleet.capacity.purchase.baseline import in_rooms
from fleet.capacity.purchase.mix import Mix, housed, joined
from fleet.capacity.purchase.part import Bools, Floats, Ints, Part


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
    requests = part.requests[classes].T.copy()
    while len(classes):
        places, pods = _one(part.capacity[kind], requests, missing[classes])
        rows = classes[places]
        machines = int((missing[rows] // pods).min())
        missing[rows] -= pods * machines
        yield rows, pods, machines
        if not missing[rows].all():
            kept = missing[classes] > 0
            classes, requests = classes[kept], requests[:, kept]


def _one(capacity: Floats, requests: Floats, missing: Ints) -> tuple[Ints, Ints]:
    """One machine, first fit by [R, N] requests: the places of the classes that it takes, and how many pods of each."""
    rest, fits = capacity.tolist(), np.ones(len(missing), dtype=bool)
    places: list[int] = []
    pods: list[int] = []
    while True:
        for amounts, free in zip(requests, rest, strict=True):
            fits &= amounts <= free
        place = int(fits.argmax())
        if not fits[place]:
            return np.array(places), np.array(pods)
        request = requests[:, place].tolist()
        most = [free // amount for free, amount in zip(rest, request, strict=True) if amount]
        count = int(min([missing[place], *most]))
        rest = [free - count * amount for free, amount in zip(rest, request, strict=True)]
        fits[place] = False
        places.append(place)
        pods.append(count)
