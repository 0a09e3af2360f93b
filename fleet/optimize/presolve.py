"""Turns declarations into arrays as small as they can be, before either search begins (presolve).

Classes come by what they ask and kinds by price, both then by name; columns that another one dominates are dropped, and
independent parts are separated. So neither the order of declaration nor what nobody uses changes an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
from numpy.typing import NDArray

from fleet.optimize.inputs import Limit, MachineKind, PodClass
from fleet.optimize.packing import Bools, Floats, Ints, PackingInstance

_ROWS = 64
"""Kinds that are compared with each other at once."""


def amounts(rows: Iterable[Mapping[str, int]], resources: Sequence[str]) -> Floats:
    """Returns [N, R] the amount of each resource; 0 where it is not named."""
    table = [[row.get(resource, 0) for resource in resources] for row in rows]
    return np.array(table, dtype=np.float64).reshape(len(table), len(resources))


def size_order(pods: PodClass, resources: Sequence[str]) -> tuple[object, ...]:
    """Returns the sort key of classes: most of the first resource first, then of the next; names come last."""
    return (*(-pods.requests.get(resource, 0) for resource in resources), pods.name)


def allowed(rows: Iterable[tuple[frozenset[str], str | None]], kinds: Sequence[str], domains: Sequence[str]) -> Bools:
    """Returns [N, M] whether rows (names of kinds, domain or None) may stand on machines of `kinds` in `domains` [M].

    Most rows share their sets of names with others, so each set is read once.
    """
    column: dict[str, int] = {}
    kind_of = [column.setdefault(name, len(column)) for name in kinds]
    domain_of = np.array(domains, dtype=object)
    seen: dict[tuple[frozenset[str], str | None], Bools] = {}
    found = []
    for names, domain in rows:
        row = seen.get((names, domain))
        if row is None:
            named = np.zeros(len(column), dtype=bool)
            named[[column[name] for name in names if name in column]] = True
            row = named[kind_of]
            if domain is not None:
                row &= domain_of == domain
            seen[names, domain] = row
        found.append(row)
    return np.array(found, dtype=bool).reshape(len(found), len(kinds))


def usage(limits: Sequence[Limit], kinds: Sequence[MachineKind], standing: AbstractSet[str] = frozenset()) -> Floats:
    """Returns [L, K] what a machine counts against each limit; 0 for `standing` machines."""
    found = np.zeros((len(limits), len(kinds)))
    for row, limit in enumerate(limits):
        for column, kind in enumerate(kinds):
            if kind.name in limit.kinds and kind.name not in standing:
                found[row, column] = limit.counts(kind)
    return found


def common_unit(requests: Floats) -> Floats:
    """Returns [R] the largest unit of which all `requests` [C, R] are whole multiples; 1 where nobody asks."""
    unit: Floats = np.maximum(np.gcd.reduce(requests.astype(np.int64), axis=0), 1).astype(np.float64)
    return unit


def useful(capacity: Floats, requests: Floats, demand: Ints, fits: Bools) -> Floats:
    """Returns [K, R] `capacity` cut to what all pods that fit on a kind could take together."""
    most = np.einsum("ck,cr->kr", fits, requests * demand[:, None])  # without the threads of BLAS
    found: Floats = np.minimum(capacity, most)
    return found


def reachable(capacity: Floats, requests: Floats, demand: Ints, once: Bools) -> Floats:
    """Returns [K, R] `capacity` cut to what pods can take of it before the resources in `once` [R] are used up.

    Of those every machine has 1: one pod of all classes that take it. Of other classes a machine may hold all pods.
    """
    taken = requests[:, once] > 0
    free = ~taken.any(axis=1)
    by = np.where(free, -1, taken.argmax(axis=1))  # each class is counted with one of them
    most = (requests[free] * demand[free, None]).sum(axis=0)
    for one in np.unique(by[~free]).tolist():
        most += requests[by == one].max(axis=0)
    found: Floats = np.minimum(capacity, np.maximum(most, once))
    return found


def dominated(cost: Floats, rivals: Ints, features: Floats, fits: Bools) -> Bools:
    """Returns [K] whether one of `rivals` costs no more, has no less of `features` [K, F] and fits the same classes.

    `fits` is [C, K]. Of kinds that are equal in everything the first stays. Whoever is better comes first where kinds
    are sorted by cost, then by sums; so each is compared with the rivals before it that stay, which are few.
    """
    if len(cost) <= 1:
        return np.zeros(len(cost), dtype=bool)  # as of most purchases: one kind is left in the end
    words = _words(fits)
    order = np.lexsort((np.arange(len(cost)), -fits.sum(axis=0), -features.sum(axis=1), cost))
    found, may_be_better = np.ones(len(cost), dtype=bool), np.zeros(len(cost), dtype=bool)
    may_be_better[rivals] = True
    order = order[~_repeated(cost, features, words, order, may_be_better)]
    stay: Ints = np.zeros(0, dtype=np.int64)
    for start in range(0, len(order), _ROWS):
        mine = order[start : start + _ROWS]
        left = mine[~_beaten(cost, features, words, stay, mine)]
        own = left[may_be_better[left]]
        found[left] = _beaten(cost, features, words, own, left)
        stay = np.concatenate([stay, own[~found[own]]])
    return found


def _repeated(cost: Floats, features: Floats, words: NDArray[np.uint64], order: Ints, may_be_better: Bools) -> Bools:
    """Returns [K] whether each in `order` equals the one before it, which is as good: most zones sell at one price."""
    equal = may_be_better[order[:-1]] & (cost[order[1:]] == cost[order[:-1]])
    for column in (*features.T, *words):
        equal &= column[order[1:]] == column[order[:-1]]
    return np.concatenate([np.zeros(min(1, len(order)), dtype=bool), equal])


def _words(fits: Bools) -> NDArray[np.uint64]:
    """Returns `fits` [C, K] as bits, 64 classes in each word [W, K]."""
    packed = np.packbits(fits, axis=0)
    words = np.zeros((fits.shape[1], -(-len(packed) // 8)), dtype=np.uint64)
    words.view(np.uint8)[:, : len(packed)] = packed.T
    return words.T


def _beaten(cost: Floats, features: Floats, words: NDArray[np.uint64], rivals: Ints, mine: Ints) -> Bools:
    """Returns [M] whether one of `rivals` is at least as good as each of `mine`, and better or before it."""
    better = cost[rivals, None] <= cost[None, mine]
    equal = cost[rivals, None] == cost[None, mine]
    for column in features.T:
        better &= column[rivals, None] >= column[None, mine]
        equal &= column[rivals, None] == column[None, mine]
    for word in words:
        better &= ~word[rivals, None] & word[None, mine] == 0
        equal &= word[rivals, None] == word[None, mine]
    found: Bools = (better & ~(equal & (rivals[:, None] >= mine[None]))).any(axis=0)
    return found


def dominated_kinds(part: PackingInstance) -> Bools:
    """Returns [K] whether another kind that can be had without bound is at least as good in everything.

    It costs no more, holds no less, may be used by the same classes and counts no more against limits.
    """
    endless = np.flatnonzero(part.most >= part.demand.sum())
    return dominated(part.price, endless, np.hstack([part.capacity, -part.usage.T]), part.fits)


def components(sets: Bools) -> Ints:
    """Returns [E] the first element that each is connected with; each of `sets` [N, E] connects its elements."""
    head = np.arange(sets.shape[1])
    for row in {it.tobytes(): it for it in sets}.values():
        if (heads := head[row]).size and (heads != heads[0]).any():
            head[np.isin(head, heads)] = heads.min()
    return head
