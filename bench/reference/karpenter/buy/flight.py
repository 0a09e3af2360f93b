"""Claims of this solve: a pod goes to the one with the fewest pods that takes it (`scheduler.go addToInflightNode`)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bench.reference.karpenter.buy.demands import Demand
from bench.reference.karpenter.buy.families import ClaimClass, Families
from bench.reference.karpenter.buy.fronts import MANY
from bench.reference.karpenter.buy.groups import EVERYWHERE, TopologyGroup
from bench.reference.karpenter.buy.guard import Guard
from bench.reference.karpenter.buy.level import leveled
from bench.reference.karpenter.buy.rows import Bools, Ints


class Boarding(NamedTuple):
    """Equal pods that went to claims: how many to each, and the family each became with them."""

    demand: Demand
    claims: Ints
    given: Ints
    families: Ints


class Flight:
    """The claims as columns, in the order they were opened."""

    def __init__(self, families: Families, guard: Guard, resources: int) -> None:
        self.families = families
        self.guard = guard
        self.size = 0
        self._used: Ints = np.zeros((resources, 64), dtype=np.int64)
        self._pods: Ints = np.zeros(64, dtype=np.int64)
        self._family: Ints = np.zeros(64, dtype=np.int64)
        self._present: dict[int, None] = {}
        self.log: list[Boarding] = []

    def reserve(self, more: int) -> int:
        """Have room for so many more claims; the number there is room for now."""
        have = len(self._pods)
        if self.size + more > have:
            wide = max(2 * have, self.size + more)
            self._used = _wider(self._used, wide)
            self._pods = _wider(self._pods, wide)
            self._family = _wider(self._family, wide)
        return len(self._pods)

    def used(self, claim: int) -> Ints:
        """What the claim's pods take."""
        return self._used[:, claim]

    def family(self, claim: int) -> ClaimClass:
        """What the claim may still become."""
        return self.families.all[int(self._family[claim])]

    def open(self, demand: Demand, opened: list[tuple[ClaimClass, int]]) -> None:
        """New claims, each with its first pods. There is room for them."""
        claims = np.arange(self.size, self.size + len(opened), dtype=np.int64)
        given = np.array([pods for _, pods in opened], dtype=np.int64)
        family = np.array([each.number for each, _ in opened], dtype=np.int64)
        self.size += len(opened)
        self._commit(demand, claims, given, family)

    def fill(self, demand: Demand, count: int) -> int:
        """Give up to `count` equal pods to the claims there are; how many found a place."""
        if not self.size:
            return 0
        targets = self._targets(demand)
        if targets is None:
            return 0
        becomes = targets[self._family[: self.size]]
        room = self._room(demand, targets, becomes)
        if any(self.guard.careful(self.families.all[number]) for number in self._present):
            return self._one_by_one(demand, becomes, room, count)
        given = leveled(self._pods[: self.size], room, count)
        claims = np.flatnonzero(given)
        if len(claims):
            given = given[claims]
            self._commit(demand, claims, given, becomes[claims])
        return int(given.sum())

    def recount(self, group: TopologyGroup) -> None:
        """Count into a new group what has been placed before it was made, by what was known of the claims then."""
        for boarding in self.log:
            if group in boarding.demand.counted:
                self._record(group, boarding)

    def _one_by_one(self, demand: Demand, becomes: Ints, room: Ints, count: int) -> int:
        """The same where each pod may take or free a reservation that decides about the next."""
        placed = 0
        barred = np.zeros(self.size, dtype=np.bool_)
        while placed < count:
            free = (room > 0) & ~barred
            if not free.any():
                break
            claim = int(np.where(free, self._pods[: self.size], MANY).argmin())
            family = self.families.all[int(becomes[claim])]
            if self.guard.stuck(host_name(claim), family, self._used[:, claim] + demand.take):
                barred[claim] = True
                continue
            barred[:] = False
            room[claim] -= 1
            placed += 1
            self._commit(demand, np.array([claim]), np.ones(1, dtype=np.int64), np.array([family.number]))
        return placed

    def _targets(self, demand: Demand) -> Ints | None:
        """Family number -> that of what it becomes with such a pod, -1 where it takes none; None: nowhere."""
        out = np.full(len(self.families.all), -1, dtype=np.int64)
        found = False
        for number in list(self._present):
            target = demand.target(self.families, self.families.all[number])
            if target is not None:
                out[number] = target.number
                found = True
        return out if found else None

    def _room(self, demand: Demand, targets: Ints, becomes: Ints) -> Ints:
        """How many such pods each claim still takes, as what it becomes with them."""
        fronts = {self.families.all[number].front for number in targets[list(self._present)] if number >= 0}
        if len(fronts) == 1:
            room = self.families.fronts.room(fronts.pop(), self._used[:, : self.size], demand.take)
            room = np.where(becomes >= 0, room, 0)
        else:
            room = self._by_front(demand, becomes)
        for group, mine in demand.rules:
            if group.by_host:
                room = np.minimum(room, group.room(group.on_claims[: self.size], mine=mine))
        return self._flexible(demand, becomes, room) if any(self.guard.least) else room

    def _flexible(self, demand: Demand, becomes: Ints, room: Ints) -> Ints:
        """The room as far as it leaves the claims as flexible as they have to be."""
        known: dict[tuple[int, int, bytes], int] = {}
        for claim in np.flatnonzero(room).tolist():
            family, used = self.families.all[int(becomes[claim])], self._used[:, claim]
            key = (family.number, int(room[claim]), used.tobytes())
            if key not in known:
                known[key] = self.guard.flexible(family, used, demand.take, int(room[claim]))
            room[claim] = known[key]
        return room

    def _by_front(self, demand: Demand, becomes: Ints) -> Ints:
        front_of = np.array([family.front for family in self.families.all] + [-1], dtype=np.int64)
        front = front_of[becomes]
        room = np.zeros(self.size, dtype=np.int64)
        for number in np.flatnonzero(np.bincount(front[front >= 0])).tolist():
            claims = np.flatnonzero(front == number)
            room[claims] = self.families.fronts.room(number, self._used[:, claims], demand.take)
        return room

    def _commit(self, demand: Demand, claims: Ints, given: Ints, family: Ints) -> None:
        self._used[:, claims] += demand.take[:, None] * given
        self._pods[claims] += given
        self._family[claims] = family
        self._present.update(dict.fromkeys(family.tolist()))
        boarding = Boarding(demand, claims, given, family)
        self.log.append(boarding)
        for group in demand.counted:
            self._record(group, boarding)
        if self.guard.reserves:
            for claim in claims.tolist():
                self.guard.settle(host_name(claim), self.family(claim), self._used[:, claim])

    def _record(self, group: TopologyGroup, boarding: Boarding) -> None:
        _, claims, given, families = boarding
        if group.by_host and group.key.counts_on == EVERYWHERE:
            group.record_claims(claims, given)
            return
        for number, inside in _by_family(families):
            family = self.families.all[number]
            taints = self.families.templates[family.pool].taints
            if not group.key.counts_on.passes(family.requirements, taints, bought=True):
                continue
            if group.by_host:
                group.record_claims(claims[inside], given[inside])
            else:
                group.record(family.domains(group.key.key), int(given[inside].sum()))


def _by_family(numbers: Ints) -> Iterator[tuple[int, Bools]]:
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), np.ones(len(numbers), dtype=np.bool_)
        return
    for number in np.unique(numbers):
        yield int(number), numbers == number


def host_name(claim: int) -> str:
    """What a claim is called before it exists."""
    return f"new-{claim + 1:04}"


def _wider(array: Ints, size: int) -> Ints:
    out = np.zeros((*array.shape[:-1], size), dtype=np.int64)
    out[..., : array.shape[-1]] = array
    return out
