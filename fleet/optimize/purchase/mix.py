"""Keeps sets of machines valid: every pod exactly once, on kinds that hold it, within limits."""

import numpy as np

from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Ints, PackingInstance, holding


def empty(part: PackingInstance) -> PatternMix:
    """Returns the mix without machines."""
    nothing = np.zeros(0, dtype=np.int64)
    return PatternMix(nothing, np.zeros((0, len(part.demand)), dtype=np.int64), nothing)


def joined(one: PatternMix, other: PatternMix) -> PatternMix:
    """Returns the machines of both mixes."""
    if not len(one.kinds):
        return other
    return PatternMix(
        np.concatenate([one.kinds, other.kinds]),
        np.concatenate([one.pods, other.pods]),
        np.concatenate([one.machines, other.machines]),
    )


def within_limits(part: PackingInstance, mix: PatternMix) -> bool:
    """Returns whether a mix keeps all bounds of kinds and all limits."""
    if not part.bounded:
        return True
    bought = np.bincount(mix.kinds, weights=mix.machines, minlength=len(part.price))
    return bool((bought <= part.most).all() and (part.usage @ bought <= part.limits).all())


class ResidualLimits:
    """`ResidualLimits` are the bounds and limits of an instance less what was bought already."""

    def __init__(self, part: PackingInstance) -> None:
        self._part = part
        self._most = part.most.copy()
        self._limits = part.limits.copy()

    def machines(self, kind: int) -> float:
        """Returns how many more machines of a kind may be bought."""
        usage = self._part.usage[:, kind]
        counted = usage > 0
        by_limits = np.floor(self._limits[counted] / usage[counted]).min(initial=np.inf)
        return max(0.0, min(float(self._most[kind]), float(by_limits)))

    def every(self) -> Bools:
        """Returns [K] whether one more machine of a kind may be bought."""
        return (self._most >= 1) & (self._part.usage <= self._limits[:, None]).all(axis=0)

    def buy(self, kind: int, count: int) -> None:
        """Deducts `count` machines of a kind."""
        self._most[kind] -= count
        self._limits -= self._part.usage[:, kind] * count


def on_cheapest_kinds(part: PackingInstance, pods: Ints, machines: Ints, kinds: Bools | None = None) -> PatternMix:
    """Returns each pattern on the cheapest of `kinds` [K] that holds it and can still be had, in order.

    Machines for which no kind is left are left out.
    """
    possible = holding(part, pods)
    if kinds is not None:
        possible &= kinds
    if not part.bounded:
        at = np.flatnonzero(possible.any(axis=1) & (machines > 0))
        return PatternMix(possible[at].argmax(axis=1), pods[at], machines[at])
    return _rationed(part, pods, machines, possible)


def _rationed(part: PackingInstance, pods: Ints, machines: Ints, possible: Bools) -> PatternMix:
    """Returns the patterns on their cheapest kinds while bounds and limits last."""
    residual = ResidualLimits(part)
    rows: list[tuple[int, int, int]] = []
    for row in range(len(pods)):
        wanted = int(machines[row])
        for kind in np.flatnonzero(possible[row]).tolist():
            if not wanted:
                break
            if count := int(min(wanted, residual.machines(kind))):
                residual.buy(kind, count)
                rows.append((kind, row, count))
                wanted -= count
    if not rows:
        return empty(part)
    kinds, picked, counts = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return PatternMix(kinds, pods[picked], counts)


def trimmed(part: PackingInstance, mix: PatternMix) -> PatternMix:
    """Returns the mix without pods that have two places, and on cheaper kinds if that costs less.

    Surplus pods go from the emptiest machines first.
    """
    excess = mix.placed - part.demand
    if (excess > 0).any():
        mix = _without(part, mix, np.maximum(excess, 0))
    busy = (mix.machines > 0) & (mix.pods > 0).any(axis=1)
    mix = PatternMix(mix.kinds[busy], mix.pods[busy], mix.machines[busy])
    smaller = on_cheapest_kinds(part, mix.pods, mix.machines)
    same = bool((smaller.placed == mix.placed).all())
    return smaller if same and smaller.cost_usd_h(part) <= mix.cost_usd_h(part) else mix


def _without(part: PackingInstance, mix: PatternMix, excess: Ints) -> PatternMix:
    """Returns the mix less `excess` [C] pods, taken from the emptiest machines first."""
    fill = (mix.pods.astype(np.float64) @ part.requests / np.maximum(part.capacity[mix.kinds], 1)).max(axis=1)
    rows = [(int(mix.kinds[p]), mix.pods[p].copy(), int(mix.machines[p])) for p in np.lexsort((mix.kinds, fill))]
    kept: list[tuple[int, Ints, int]] = []
    for kind, pods, machines in rows:
        kept += _lighter(kind, pods, machines, excess)
    kinds, held, counts = zip(*kept, strict=True)
    return PatternMix(np.array(kinds, dtype=np.int64), np.array(held), np.array(counts, dtype=np.int64))


def _lighter(kind: int, pods: Ints, machines: int, excess: Ints) -> list[tuple[int, Ints, int]]:
    """Takes surplus pods off one pattern and off `excess`. Returns the patterns it becomes, at most one a class."""
    parts = []
    while machines:
        taken = np.minimum(pods, excess)
        shared = taken > 0
        if not shared.any():
            parts.append((kind, pods, machines))
            break
        count = int(min(machines, (excess[shared] // taken[shared]).min()))
        excess -= taken * count
        parts.append((kind, pods - taken, count))
        machines -= count
    return parts
