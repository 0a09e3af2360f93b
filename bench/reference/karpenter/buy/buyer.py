"""New claims: from the heaviest pool that can buy one for the pod, within what its limits leave (`scheduler.go`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.families import ClaimClass, Families
from bench.reference.karpenter.buy.flight import host_name
from bench.reference.karpenter.buy.guard import Guard, fitting
from bench.reference.karpenter.buy.outcome import Why
from bench.reference.karpenter.buy.rows import Bools, Ints, vector
from bench.reference.karpenter.buy.taints import tolerated

_NEW_HOST: Ints = np.zeros(1, dtype=np.int64)


class Start(NamedTuple):
    """What a new claim can be: its family with the first pod on it, and how many such pods it takes."""

    family: ClaimClass
    room: int
    largest: Ints
    """Over the limited resources: what it may take of them at most, which is what it is charged (pessimistic)."""


class PoolRefusal(NamedTuple):
    """Why a pool buys nothing for a pod."""

    pool: int
    why: Why


@dataclass(slots=True)
class Buyer:
    """What the pools, heaviest first, may still buy."""

    families: Families
    guard: Guard
    left: list[Ints | None] = field(init=False)
    """By pool: what its limits leave, in the order of `Rows.limited`; None = no limits."""
    _opening: dict[tuple[int, bytes], ClaimClass | None] = field(default_factory=dict)
    _starts: dict[tuple[int, int], Start | Why] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = [
            None if template.remaining is None else vector(template.remaining, rows.limited)
            for template, rows in zip(self.families.templates, self.families.rows, strict=True)
        ]

    def buy(self, demand: Demand, count: int, claims: int) -> list[tuple[ClaimClass, int]]:
        """New claims, beside `claims` there are, for up to `count` equal pods: what each becomes, and its pods.

        As many as the pods need if all of them start alike, else one: what it does to the world decides about the next.
        """
        self._starts.clear()
        opened: list[tuple[ClaimClass, int]] = []
        while count:
            start = self._first(demand, host_name(claims + len(opened)))
            if start is None:
                break
            pool = start.family.pool
            careful = self.guard.careful(start.family)
            pods = 1 if careful else min(start.room, count)
            opened.append((start.family, pods))
            count -= pods
            left = self.left[pool]
            if left is not None:
                self.left[pool] = left - start.largest
            elif not self.guard.reserves:  # nothing that a claim takes decides about the next: all start like this one
                again, rest = divmod(count, start.room)
                return [*opened, *[(start.family, start.room)] * again, *[(start.family, rest)] * (rest > 0)]
            if careful:
                break
        return opened

    def refusals(self, demand: Demand, host: str) -> Iterator[PoolRefusal]:
        """Why each pool, heaviest first, buys nothing for such a pod now."""
        self._starts.clear()
        for pool in range(len(self.families.templates)):
            start = self._start(demand, pool, host)
            if isinstance(start, Why):
                limited = start is Why.NO_MACHINE and self._would_do(demand, pool)
                yield PoolRefusal(pool, Why.LIMITS if limited else start)

    def _first(self, demand: Demand, host: str) -> Start | None:
        for pool in range(len(self.families.templates)):
            start = self._start(demand, pool, host)
            if isinstance(start, Start):
                return start
            if start is Why.RESERVATIONS:
                return None  # wait for the reservation rather than pay another pool
        return None

    def _start(self, demand: Demand, pool: int, host: str) -> Start | Why:
        family = self.opening(pool)
        if family is None:
            return Why.NO_MACHINE
        found = self._starts.get((pool, family.number))
        if found is None:
            found = self._judged(demand, family, host)
            if not self.guard.reserving[pool]:
                self._starts[pool, family.number] = found
        return found

    def opening(self, pool: int) -> ClaimClass | None:
        """What a new claim of the pool is before its first pod, within the limits."""
        key = (pool, b"" if self.left[pool] is None else self._within_limits(pool).tobytes())
        if key not in self._opening:
            self._opening[key] = self.families.first(pool, self._within_limits(pool))
        return self._opening[key]

    def _would_do(self, demand: Demand, pool: int) -> bool:
        """Whether the pool could buy a machine for such a pod if it had no limits."""
        everything = np.ones(len(self.families.rows[pool].machines), dtype=np.bool_)
        family = self.families.first(pool, everything)
        target = family and demand.target(self.families, family)
        return target is not None and self._fits(target, demand) > 0

    def _within_limits(self, pool: int) -> Bools:
        rows, left = self.families.rows[pool], self.left[pool]
        if left is None:
            return np.ones(len(rows.machines), dtype=np.bool_)
        return np.asarray((rows.capacity <= left).all(axis=1), dtype=np.bool_)

    def _judged(self, demand: Demand, family: ClaimClass, host: str) -> Start | Why:
        target = demand.target(self.families, family)
        if target is None:
            return self._objection(demand, family)
        room = self._fits(target, demand)
        if not room:
            return Why.NO_MACHINE
        for group, mine in demand.rules:
            if group.by_host:
                room = min(room, int(group.room(_NEW_HOST, mine=mine)[0]))
        if not room:
            return Why.TOPOLOGY
        room = self.guard.flexible(target, np.zeros_like(demand.take), demand.take, room)
        if not room:
            return Why.MIN_VALUES
        if self.guard.stuck(host, target, demand.take):
            return Why.RESERVATIONS
        rows = self.families.rows[family.pool]
        return Start(target, room, rows.capacity[fitting(rows, target, demand.take)].max(axis=0))

    def _fits(self, family: ClaimClass, demand: Demand) -> int:
        """How many such pods an empty machine of the family takes at most."""
        nothing = np.zeros((len(demand.take), 1), dtype=np.int64)
        return int(self.families.fronts.room(family.front, nothing, demand.take)[0])

    def _objection(self, demand: Demand, family: ClaimClass) -> Why:
        """Which of the filters stopped it, in the order they are asked."""
        if not tolerated(self.families.templates[family.pool].taints, demand.ask.tolerations):
            return Why.TAINTS
        if not any(family.requirements.compatible(wanted) for _, wanted in demand.bought):
            return Why.REQUIREMENTS
        if not any(self.families.after(family, number, wanted) for number, wanted in demand.bought):
            return Why.NO_MACHINE
        return Why.TOPOLOGY
