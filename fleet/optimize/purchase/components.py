"""A purchase problem falls into components that share no kind and no limit; each becomes an instance, and is read back.

Equal classes are one in an instance, and so are equal existing machines; kinds that another one dominates are gone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from fleet.optimize.inputs import USD_H, MachineKind
from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Floats, Member, PackingInstance
from fleet.optimize.presolve import (
    allowed,
    amounts,
    common_unit,
    components,
    dominated_kinds,
    size_order,
    usage,
    useful,
)
from fleet.optimize.purchase.purchase_problem import MachineBatch, PurchaseProblem

_ROUNDING = 1e-9
"""By which a sum of prices may exceed a limit, relatively; everything else is counted in whole numbers."""
_Held = tuple[tuple[str, int], ...]
"""(class, pods on each machine), sorted."""

# -- from names to arrays ---------------------------------------------------------------------------------------------


def packing_instances(
    problem: PurchaseProblem, domains: Mapping[str, str]
) -> tuple[list[PackingInstance], dict[str, int]]:
    """The independent parts, groups being held to `domains`; and the pods that fit on no kind at all, by class."""
    kinds = _kinds(problem)
    standing = {it.name for it in problem.existing}
    capacity = amounts((kind.capacity for kind in kinds), problem.resources)
    classes = sorted((it for it in problem.classes if it.count), key=lambda it: size_order(it, problem.resources))
    requests = amounts((pods.requests for pods in classes), problem.resources)
    rows = ((it.kinds, domains.get(it.group) if it.group else None) for it in classes)
    fits = allowed(rows, [kind.name for kind in kinds], [kind.domain for kind in kinds])
    for resource in range(requests.shape[1]):
        fits &= requests[:, resource, None] <= capacity[None, :, resource]
    left = {pods.name: pods.count for row, pods in enumerate(classes) if not fits[row].any()}
    counted, limits = _limits(problem, kinds, standing)
    merged = _merged(requests, fits)
    price = np.array([kind.price_usd_h for kind in kinds], dtype=np.float64)
    most = np.array([np.inf if kind.most is None else kind.most for kind in kinds], dtype=np.float64)
    stands = np.array([kind.name in standing for kind in kinds], dtype=bool)
    found = []
    for numbers, cols in _components(fits[[rows[0] for rows in merged]], counted):
        groups = [merged[number] for number in numbers]
        first = np.array([group[0] for group in groups])
        members = tuple(tuple((classes[row].name, classes[row].count) for row in group) for group in groups)
        demand = np.array([sum(count for _, count in group) for group in members], dtype=np.int64)
        binding = counted[:, cols].any(axis=1)
        part = PackingInstance(
            requests[first], demand, capacity[cols], price[cols], most[cols], stands[cols], fits[first][:, cols],
            counted[binding][:, cols], limits[binding], members, tuple((kinds[col].name,) for col in cols),
        )  # fmt: skip
        found.append(_reduced(part))
    return found, left


def _kinds(problem: PurchaseProblem) -> list[MachineKind]:
    """All that pods may stand on, by price; each existing machine is a kind of its own that can be had once."""
    existing = [MachineKind(it.name, 0.0, it.free, it.domain, 1) for it in problem.existing]
    had = [it for it in problem.kinds if it.most != 0]
    return sorted([*had, *existing], key=lambda it: (it.price_usd_h, it.name))


def _limits(
    problem: PurchaseProblem, kinds: Sequence[MachineKind], standing: AbstractSet[str]
) -> tuple[Floats, Floats]:
    """[L, K] what a machine counts, nothing where it stands already, and [L] how much there may be."""
    ordered = sorted(problem.limits, key=lambda it: it.name)
    most = [it.most * (1 + _ROUNDING) + _ROUNDING if it.counted == USD_H else it.most for it in ordered]
    return usage(ordered, kinds, standing), np.array(most, dtype=np.float64)


def _merged(requests: Floats, fits: Bools) -> list[list[int]]:
    """Rows of classes that ask the same and may stand on the same kinds; those without any kind are left out."""
    equal: dict[tuple[bytes, bytes], list[int]] = {}
    for row in np.flatnonzero(fits.any(axis=1)).tolist():
        equal.setdefault((requests[row].tobytes(), fits[row].tobytes()), []).append(row)
    return list(equal.values())


def _components(fits: Bools, counted: Floats) -> list[tuple[list[int], list[int]]]:
    """(rows of classes, kinds) that share no kind and no limit with others, in the order of their first class."""
    if not len(fits):
        return []
    head = components(np.vstack([fits, counted > 0]))
    found: dict[int, list[int]] = {}
    for row, first in enumerate(fits.argmax(axis=1).tolist()):
        found.setdefault(int(head[first]), []).append(row)
    return [(rows, np.flatnonzero(fits[rows].any(axis=0)).tolist()) for rows in found.values()]


def _reduced(part: PackingInstance) -> PackingInstance:
    """The part without resources nobody asks for, in whole multiples of common units, without dominated kinds."""
    asked: Bools = np.logical_or.reduce(part.requests, axis=0)
    asked[0] |= not asked.any()
    requests, capacity = part.requests[:, asked], part.capacity[:, asked]
    unit = common_unit(requests)
    requests, capacity = requests / unit, np.floor(capacity / unit)
    part = PackingInstance(
        requests, part.demand, useful(capacity, requests, part.demand, part.fits), part.price, part.most, part.open,
        part.fits, part.usage, part.limits, part.members, part.names,
    )  # fmt: skip
    part = _existing_merged(part)
    return part.only(~dominated_kinds(part))


def _existing_merged(part: PackingInstance) -> PackingInstance:
    """Existing machines with the same room for the same classes are one kind that can be had more often."""
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
    return PackingInstance(
        part.requests, part.demand, part.capacity, part.price, most, part.open, part.fits,
        part.usage, part.limits, part.members, tuple(names),
    ).only(kept)  # fmt: skip


# -- from arrays to names ---------------------------------------------------------------------------------------------


def batches(part: PackingInstance, mix: PatternMix) -> list[MachineBatch]:
    """The machines by name, dearest kind first; what was counted as one (classes, existing machines) is told apart."""
    queues = [list(reversed(group)) for group in part.members]
    existing = [iter(names) for names in part.names]
    found: Counter[tuple[str, _Held]] = Counter()
    for kind, own, there in _ordered(mix):
        wanted, machines = [(queues[row], pods) for row, pods in own], there
        while machines:
            alike = min(machines, *(queue[-1][1] // pods for queue, pods in wanted))
            count = 1 if part.open[kind] else max(alike, 1)
            held: dict[str, int] = {}
            for queue, pods in wanted:
                _take(queue, pods, count, held)
            name = next(existing[kind]) if part.open[kind] else part.names[kind][0]
            found[name, tuple(sorted(held.items()))] += count
            machines -= count
    return [MachineBatch(name, dict(held), count) for (name, held), count in found.items()]


def _ordered(mix: PatternMix) -> list[tuple[int, list[tuple[int, int]], int]]:
    """(kind, its (class, pods), machines) of each pattern; dearest first, then the fewest pods of the last class."""
    patterns, rows = np.nonzero(mix.pods)
    pods: list[list[tuple[int, int]]] = [[] for _ in mix.kinds]
    for pattern, row, count in zip(patterns.tolist(), rows.tolist(), mix.pods[patterns, rows].tolist(), strict=True):
        pods[pattern].append((row, count))
    found = list(zip(mix.kinds.tolist(), pods, mix.machines.tolist(), strict=True))
    return sorted(found, key=lambda it: (-it[0], it[1][::-1]))


def _take(queue: list[Member], pods: int, machines: int, held: dict[str, int]) -> None:
    """Takes `pods` for each of so many machines off the queue; more than one class only for a single machine."""
    while pods:
        name, there = queue.pop()
        taken = min(pods, there // machines)
        held[name] = held.get(name, 0) + taken
        pods -= taken
        if rest := there - taken * machines:
            queue.append((name, rest))


def by_class(part: PackingInstance, values: Sequence[float]) -> dict[str, float]:
    """A number for each row of classes as one for each class."""
    return {name: value for group, value in zip(part.members, values, strict=True) for name, _ in group}
