"""A problem is cut into parts that have nothing to do with each other, and every part is made as small as it can be.

Everything is in canonical order (classes by what they ask, kinds by price, both then by name), equal classes are one,
and so are equal open machines; kinds that another one beats in everything are gone. So neither the order in which
things are declared nor the number of names changes an answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from fleet.optimize.purchase.part import Bools, Floats, Part, beaten
from fleet.optimize.purchase.problem import MACHINES, USD_H, Limit, MachineKind, PodClass, Problem

_ROUNDING = 1e-9
"""By which a sum of prices may exceed a limit, relatively; everything else is counted in whole numbers."""


def parts_of(problem: Problem, lanes: Mapping[str, str]) -> tuple[list[Part], dict[str, int]]:
    """The independent parts, with the groups held to `lanes`; and the pods that fit on no kind at all, by class."""
    rooms = [MachineKind(it.name, 0.0, it.free, it.lane, 1) for it in problem.rooms]
    kinds = sorted([*(it for it in problem.kinds if it.most != 0), *rooms], key=lambda it: (it.price_usd_h, it.name))
    standing = {room.name for room in rooms}
    capacity = _amounts((kind.capacity for kind in kinds), problem.resources)
    classes = sorted((it for it in problem.classes if it.count), key=lambda it: _order(it, problem.resources))
    requests = _amounts((pods.requests for pods in classes), problem.resources)
    fits = _allowed(classes, kinds, lanes)
    for resource in range(requests.shape[1]):
        fits &= requests[:, resource, None] <= capacity[None, :, resource]
    left = {pods.name: pods.count for row, pods in enumerate(classes) if not fits[row].any()}
    usage, limits = _usage(problem.limits, kinds, standing)
    merged = _merged(requests, fits)
    price = np.array([kind.price_usd_h for kind in kinds], dtype=np.float64)
    most = np.array([np.inf if kind.most is None else kind.most for kind in kinds], dtype=np.float64)
    stands = np.array([kind.name in standing for kind in kinds], dtype=bool)
    found = []
    for numbers, cols in _components(fits[[rows[0] for rows in merged]], usage):
        groups = [merged[number] for number in numbers]
        first = np.array([group[0] for group in groups])
        members = tuple(tuple((classes[row].name, classes[row].count) for row in group) for group in groups)
        demand = np.array([sum(count for _, count in group) for group in members], dtype=np.int64)
        counted = usage[:, cols].any(axis=1)
        part = Part(
            requests[first], demand, capacity[cols], price[cols], most[cols], stands[cols], fits[first][:, cols],
            usage[counted][:, cols], limits[counted], members, tuple((kinds[col].name,) for col in cols),
        )  # fmt: skip
        found.append(_small(part))
    return found, left


def _order(pods: PodClass, resources: Sequence[str]) -> tuple[object, ...]:
    return (*(-pods.requests.get(resource, 0) for resource in resources), pods.name)


def _amounts(rows: Iterable[Mapping[str, int]], resources: Sequence[str]) -> Floats:
    table = [[row.get(resource, 0) for resource in resources] for row in rows]
    return np.array(table, dtype=np.float64).reshape(len(table), len(resources))


def _allowed(classes: Sequence[PodClass], kinds: Sequence[MachineKind], lanes: Mapping[str, str]) -> Bools:
    """[C, K]. Most classes share their sets of names with others, so each set is read once."""
    columns = {kind.name: index for index, kind in enumerate(kinds)}
    lane_of = np.array([kind.lane for kind in kinds], dtype=object)
    known: dict[tuple[frozenset[str], str | None], Bools] = {}
    rows = []
    for pods in classes:
        lane = lanes.get(pods.group) if pods.group else None
        row = known.get((pods.kinds, lane))
        if row is None:
            row = np.zeros(len(kinds), dtype=bool)
            row[[columns[name] for name in pods.kinds if name in columns]] = True
            if lane is not None:
                row &= lane_of == lane
            known[pods.kinds, lane] = row
        rows.append(row)
    return np.array(rows, dtype=bool).reshape(len(classes), len(kinds))


def _usage(limits: Sequence[Limit], kinds: Sequence[MachineKind], standing: AbstractSet[str]) -> tuple[Floats, Floats]:
    """[L, K] what a machine counts, nothing where it stands already, and [L] how much there may be."""
    usage = np.zeros((len(limits), len(kinds)))
    ordered = sorted(limits, key=lambda it: it.name)
    for row, limit in enumerate(ordered):
        for col, kind in enumerate(kinds):
            if kind.name in limit.kinds and kind.name not in standing:
                usage[row, col] = _counted(limit.counted, kind)
    most = [limit.most * (1 + _ROUNDING) + _ROUNDING if limit.counted == USD_H else limit.most for limit in ordered]
    return usage, np.array(most, dtype=np.float64)


def _counted(what: str, kind: MachineKind) -> float:
    if what == MACHINES:
        return 1.0
    return kind.price_usd_h if what == USD_H else float(kind.capacity.get(what, 0))


def _merged(requests: Floats, fits: Bools) -> list[list[int]]:
    """Rows of classes that ask the same and may stand on the same kinds; those without any kind are left out."""
    equal: dict[tuple[bytes, bytes], list[int]] = {}
    for row in np.flatnonzero(fits.any(axis=1)).tolist():
        equal.setdefault((requests[row].tobytes(), fits[row].tobytes()), []).append(row)
    return list(equal.values())


def _components(fits: Bools, usage: Floats) -> list[tuple[list[int], list[int]]]:
    """(rows of classes, kinds) that share no kind and no limit with others, in the order of their first class."""
    joined: list[tuple[list[int], Bools]] = []
    patterns: dict[bytes, list[int]] = {}
    for row in range(len(fits)):
        patterns.setdefault(fits[row].tobytes(), []).append(row)
    sets = [(rows, fits[rows[0]]) for rows in patterns.values()] + [([], limit > 0) for limit in usage]
    for rows, reach in sets:
        meeting = [it for it in joined if (it[1] & reach).any()]
        apart = [it for it in joined if not (it[1] & reach).any()]
        everything = np.logical_or.reduce([reach, *(it[1] for it in meeting)])
        joined = [*apart, ([*rows, *(row for it in meeting for row in it[0])], everything)]
    found = sorted(sorted(rows) for rows, _ in joined if rows)
    return [(rows, np.flatnonzero(fits[rows].any(axis=0)).tolist()) for rows in found]


def _small(part: Part) -> Part:
    """Without resources nobody asks for, in whole multiples of what divides all requests, without beaten kinds."""
    asked: Bools = np.logical_or.reduce(part.requests, axis=0)
    asked[0] |= not asked.any()
    requests, capacity = part.requests[:, asked], part.capacity[:, asked]
    unit = np.maximum(np.gcd.reduce(requests.astype(np.int64), axis=0), 1).astype(np.float64)
    requests, capacity = requests / unit, np.floor(capacity / unit)
    useful = np.einsum("ck,cr->kr", part.fits, requests * part.demand[:, None])  # without the threads of BLAS
    part = Part(
        requests, part.demand, np.minimum(capacity, useful), part.price, part.most, part.open, part.fits,
        part.usage, part.limits, part.members, part.names,
    )  # fmt: skip
    part = _together(part)
    return part.only(~beaten(part))


def _together(part: Part) -> Part:
    """Open machines with the same room for the same classes are one kind that can be had more often."""
    equal: dict[tuple[bytes, ...], list[int]] = {}
    for col in np.flatnonzero(part.open).tolist():
        key = (part.capacity[col].tobytes(), part.fits[:, col].tobytes(), part.usage[:, col].tobytes())
        equal.setdefault(key, []).append(col)
    kept: Bools = np.logical_not(part.open)
    most, names = part.most.copy(), list(part.names)
    for first, *others in equal.values():
        kept[first] = True
        most[first] += part.most[others].sum()
        names[first] = tuple(part.names[col][0] for col in (first, *others))
    return Part(
        part.requests, part.demand, part.capacity, part.price, most, part.open, part.fits,
        part.usage, part.limits, part.members, tuple(names),
    ).only(kept)  # fmt: skip
