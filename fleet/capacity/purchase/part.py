"""A problem as arrays, cut into parts that have nothing to do with each other.

Everything is in canonical order (classes by what they ask, kinds by price, both then by name), equal classes are one,
and kinds that another one beats in everything are gone: the order and the number of names cannot change an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fleet.capacity.purchase.problem import MACHINES, USD_H, Limit, MachineKind, PodClass, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Member = tuple[str, int]
"""A class by name, and how many pods of it are asked for here."""
_EVERYWHERE = 1e18
"""Room for pods that ask nothing of a resource; above all amounts."""


@dataclass(frozen=True, eq=False)
class Part:
    """C classes, K kinds, R resources, L limits. Amounts are whole numbers held as floats, which is exact below 2^50."""

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
    fits: Bools
    """[C, K]: the kind is allowed to the class, and holds at least one pod of it."""
    usage: Floats
    """[L, K]: what one machine counts against each limit."""
    limits: Floats
    """[L]"""
    members: tuple[tuple[Member, ...], ...]
    """The classes that are counted as one, for each of C."""
    kinds: tuple[str, ...]

    @cached_property
    def holds(self) -> Floats:
        """[C, K]: pods of one class that one machine of a kind takes, no more than there are."""
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.floor(self.capacity[None] / self.requests[:, None])
        times[np.isnan(times)] = np.inf
        found = np.minimum(times.min(axis=2, initial=np.inf), self.demand[:, None])
        return np.where(self.fits, found, 0.0)

    @cached_property
    def step(self) -> tuple[Floats, Floats]:
        """[R, C] twice, `(add, divide)`: `floor((rest + add) / divide)` pods find room by a resource, many if unasked."""
        asked = self.requests.T > 0
        return np.where(asked, 0.0, _EVERYWHERE), np.where(asked, self.requests.T, 1.0)

    @property
    def bounded(self) -> bool:
        """Whether anything limits how many machines are bought."""
        return bool(len(self.limits) or np.isfinite(self.most).any())

    def want(self, demand: Ints) -> "Part":
        """The same with another demand, at most the present one; classes that want nothing are left out."""
        kept = demand > 0
        members = tuple(
            _first(group, int(count)) for group, count in zip(self.members, demand, strict=True) if count > 0
        )
        return Part(
            self.requests[kept], demand[kept], self.capacity, self.price, self.most, self.fits[kept],
            self.usage, self.limits, members, self.kinds,
        )  # fmt: skip


def parts_of(problem: Problem, lanes: Mapping[str, str]) -> tuple[list[Part], dict[str, int]]:
    """The independent parts, with the groups held to `lanes`; and the pods that fit on no kind at all, by class."""
    kinds = sorted((it for it in problem.kinds if it.most != 0), key=lambda it: (it.price_usd_h, it.name))
    columns = {kind.name: index for index, kind in enumerate(kinds)}
    capacity = _amounts((kind.capacity for kind in kinds), problem.resources)
    classes = sorted((it for it in problem.classes if it.count), key=lambda it: _order(it, problem.resources))
    requests = _amounts((pods.requests for pods in classes), problem.resources)
    fits = np.zeros((len(classes), len(kinds)), dtype=bool)
    for row, pods in enumerate(classes):
        lane = lanes.get(pods.group) if pods.group else None
        fits[row, [columns[name] for name in pods.kinds if name in columns]] = True
        if lane is not None:
            fits[row] &= np.array([kind.lane == lane for kind in kinds], dtype=bool)
    for resource in range(requests.shape[1]):
        fits &= requests[:, resource, None] <= capacity[None, :, resource]
    left = {pods.name: pods.count for row, pods in enumerate(classes) if not fits[row].any()}
    usage, limits = _usage(problem.limits, kinds)
    merged = _merged(classes, requests, fits)
    price = np.array([kind.price_usd_h for kind in kinds])
    most = np.array([np.inf if kind.most is None else kind.most for kind in kinds])
    found = []
    for rows, cols in _components([rows[0] for rows in merged], fits, usage):
        groups = [group for group in merged if group[0] in rows]
        first = [group[0] for group in groups]
        members = tuple(tuple((classes[row].name, classes[row].count) for row in group) for group in groups)
        counted = usage[:, cols].any(axis=1)
        found.append(
            _trimmed(
                Part(
                    requests[first], np.array([sum(count for _, count in it) for it in members], dtype=np.int64),
                    capacity[cols], price[cols], most[cols], fits[np.ix_(first, cols)],
                    usage[np.ix_(counted, cols)], limits[counted], members, tuple(kinds[col].name for col in cols),
                )  # fmt: skip
            )
        )
    return found, left


def _first(members: Sequence[Member], count: int) -> tuple[Member, ...]:
    """The first `count` pods of a group of equal classes."""
    found = []
    for name, pods in members:
        if taken := min(pods, count):
            found.append((name, taken))
        count -= taken
    return tuple(found)


def _order(pods: PodClass, resources: Sequence[str]) -> tuple[object, ...]:
    return (*(-pods.requests.get(resource, 0) for resource in resources), pods.name)


def _amounts(rows: "Sequence[Mapping[str, int]] | object", resources: Sequence[str]) -> Floats:
    table = [[row.get(resource, 0) for resource in resources] for row in rows]  # type: ignore[attr-defined]
    return np.array(table, dtype=np.float64).reshape(len(table), len(resources))


def _usage(limits: Sequence[Limit], kinds: Sequence[MachineKind]) -> tuple[Floats, Floats]:
    """[L, K] what a machine counts, and [L] how much there may be."""
    usage = np.zeros((len(limits), len(kinds)))
    ordered = sorted(limits, key=lambda it: it.name)
    for row, limit in enumerate(ordered):
        for col, kind in enumerate(kinds):
            if kind.name in limit.kinds:
                usage[row, col] = _counted(limit.counted, kind)
    return usage, np.array([limit.most for limit in ordered], dtype=np.float64)


def _counted(what: str, kind: MachineKind) -> float:
    if what == MACHINES:
        return 1.0
    return kind.price_usd_h if what == USD_H else float(kind.capacity.get(what, 0))


def _merged(classes: Sequence[PodClass], requests: Floats, fits: Bools) -> list[list[int]]:
    """Rows of classes that ask the same and may stand on the same kinds; those without any kind are left out."""
    equal: dict[tuple[bytes, bytes], list[int]] = {}
    for row in range(len(classes)):
        if fits[row].any():
            equal.setdefault((requests[row].tobytes(), fits[row].tobytes()), []).append(row)
    return list(equal.values())


def _components(rows: Sequence[int], fits: Bools, usage: Floats) -> list[tuple[set[int], list[int]]]:
    """(classes, kinds) that share no kind and no limit with others, in the order of their first class."""
    apart: list[tuple[set[int], Bools]] = []
    for row, reach in [*((row, fits[row]) for row in rows), *((-1, limit > 0) for limit in usage)]:
        classes, kinds = {row}, reach.copy()
        others = []
        for other in apart:
            if (other[1] & reach).any():
                classes |= other[0]
                kinds |= other[1]
            else:
                others.append(other)
        apart = [*others, (classes, kinds)]
    found = [sorted(classes - {-1}) for classes, _ in apart if classes != {-1}]
    return [
        (set(classes), [int(col) for col in np.flatnonzero(fits[classes].any(axis=0))]) for classes in sorted(found)
    ]


def _trimmed(part: Part) -> Part:
    """Without resources nobody asks for, in whole multiples of what divides all requests, without beaten kinds."""
    asked = part.requests.any(axis=0)
    requests, capacity = part.requests[:, asked], part.capacity[:, asked]
    unit = np.gcd.reduce(requests.astype(np.int64), axis=0).astype(np.float64)
    requests, capacity = requests / unit, np.floor(capacity / unit)
    useful = part.fits.T.astype(np.float64) @ (requests * part.demand[:, None])
    capacity = np.minimum(capacity, useful)
    kept = ~_beaten(part, capacity)
    return Part(
        requests, part.demand, capacity[kept], part.price[kept], part.most[kept], part.fits[:, kept],
        part.usage[:, kept], part.limits, part.members,
        tuple(name for name, keep in zip(part.kinds, kept, strict=True) if keep),
    )  # fmt: skip


_ROWS = 1024
"""Kinds that are compared with all others at once: bounds the memory."""


def _beaten(part: Part, capacity: Floats) -> Bools:
    """[K]: another kind, to be had without end, costs no more, holds and is allowed no less, counts no more."""
    endless = part.most >= part.demand.sum()
    words = np.packbits(part.fits, axis=0).T
    features = np.hstack([-part.price[:, None], capacity, -part.usage.T])
    beaten = np.zeros(len(part.price), dtype=bool)
    for start in range(0, len(beaten), _ROWS):
        mine = slice(start, start + _ROWS)
        better = np.ones((len(beaten), len(beaten[mine])), dtype=bool) & endless[:, None]
        equal = better.copy()
        for column in features.T:
            better &= column[:, None] >= column[None, mine]
            equal &= column[:, None] == column[None, mine]
        for word in words.T:
            better &= (word[None, mine] & ~word[:, None]) == 0
            equal &= word[:, None] == word[None, mine]
        later = np.arange(len(beaten))[:, None] >= np.arange(len(beaten))[None, mine]
        beaten[mine] = (better & ~(equal & later)).any(axis=0)
    return beaten
