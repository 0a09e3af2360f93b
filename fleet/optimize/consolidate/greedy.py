"""A search in Karpenter's order: empty machines, many for one, one by one; each command buys one machine at most.

Machines go by the ratio of price to pods, highest first. What is displaced goes to the first machines with room; what
is then missing must fit on one new machine that at worst costs less than what goes. Of many machines the longest
beginning of that order is sought by bisection, as if all beginnings of one that works worked (Karpenter's
`multinodeconsolidation.go`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fleet.optimize.consolidate.consolidation_problem import EPSILON_USD_H
from fleet.optimize.consolidate.instance import ConsolidationInstance
from fleet.optimize.consolidate.plan import ConsolidationPlan
from fleet.optimize.packing import Bools, Floats, Ints

_MANY = 100
"""Machines that one command takes at most."""
_UNLIMITED = 1 << 30


def greedy_order(instance: ConsolidationInstance, sweeps: int, *, per_move: bool) -> ConsolidationPlan:
    """The plan in Karpenter's order, after so many sweeps at most; with `per_move` moving counts against the saving."""
    return _searched(instance, sweeps, per_move=per_move).plan()


def both_orders(instance: ConsolidationInstance, sweeps: int) -> tuple[ConsolidationPlan, ConsolidationPlan]:
    """The plans without and with `per_move`; the second search is only done where it may come to something else."""
    bold = _searched(instance, sweeps, per_move=False)
    plan = bold.plan()
    return plan, greedy_order(instance, sweeps, per_move=True) if bold.dear else plan


def _searched(instance: ConsolidationInstance, sweeps: int, *, per_move: bool) -> "_GreedyState":
    """The machines after the search: empty ones first, then sweeps of many for one and of one by one."""
    state = _GreedyState.of(instance, per_move=per_move)
    _empties(state)
    for _ in range(sweeps):
        found = _many(state)
        if not (_one_by_one(state) or found):
            break
    return state


def _empties(state: "_GreedyState") -> None:
    """Empty machines go."""
    for machine in state.candidates():
        if not state.loose[machine].any() and not state.on[machine] and state.may_go(machine):
            command = state.trial([machine])
            if command is not None:
                state.take(command)


def _many(state: "_GreedyState") -> bool:
    """The longest beginning of the candidates that can go together does; whether there is one."""
    ranked = state.candidates()[:_MANY]
    low, high, best = 2, len(ranked), None
    while low <= high:
        middle = (low + high) // 2
        command = state.trial(ranked[:middle])
        if command is None:
            high = middle - 1
        else:
            best, low = command, middle + 1
    if best is not None:
        state.take(best)
    return best is not None


def _one_by_one(state: "_GreedyState") -> bool:
    """Each candidate goes that can by itself; whether there was one."""
    found = False
    for machine in state.candidates():
        if state.may_go(machine) and (command := state.trial([machine])) is not None:
            state.take(command)
            found = True
    return found


@dataclass(frozen=True, eq=False)
class _GreedyCommand:
    """What a trial came to: machines that go at once, and where their pods come."""

    machines: tuple[int, ...]
    placed: Sequence[tuple[int, int, int]]
    """(machine, row, pods)"""
    ways: tuple[tuple[int, int], ...]
    """(gang, way)"""
    kind: int
    """To buy; -1 for none."""
    missing: Ints
    """[C] pods for the machine that is bought."""


@dataclass(eq=False)
class _GreedyState:
    """The machines as the commands so far would leave them; those bought come after those of the instance."""

    instance: ConsolidationInstance
    per_move: bool
    """Whether moving counts."""
    price: Floats
    """[M] USD an hour."""
    free: Floats
    """[M, R]"""
    loose: Ints
    """[M, C] pods that may each be moved by itself."""
    cost: Floats
    """[M] USD an hour that moving them off counts."""
    kind: list[int]
    """[M] the column of the machine's kind, -1 where it cannot be bought."""
    standing: list[bool]
    """[M] whether it has not gone."""
    ways: Ints
    """[gangs] the way in which each has moved, -1 where it stays."""
    left: Ints
    """[P] machines that the budgets still let go."""
    holds: Ints
    """[C, M] kept up to date."""
    on: list[set[int]] = field(default_factory=list)
    """[M] the gangs there that have not moved."""
    asks: list[list[tuple[int, float]]] = field(default_factory=list)
    """[C] (resource, amount) of each row, as plain numbers: there are few, and they are asked for often."""
    dear: bool = False
    """Whether something was found that does not save what moving counts."""

    @classmethod
    def of(cls, instance: ConsolidationInstance, *, per_move: bool) -> "_GreedyState":
        """The state before the first command."""
        on: list[set[int]] = [set() for _ in instance.price]
        for number, gang in enumerate(instance.gangs):
            for machine in gang.machines.tolist():
                on[machine].add(number)
        asks = [[(it, amount) for it, amount in enumerate(row) if amount] for row in instance.requests.tolist()]
        return cls(
            instance, per_move, instance.price.copy(), instance.free.copy(), instance.loose.copy(),
            instance.cost.copy(), instance.kind.tolist(), [True] * len(instance.price),
            np.full(len(instance.gangs), -1), instance.budgets.copy(), instance.holds(instance.free, instance.fits),
            on, asks,
        )  # fmt: skip

    def plan(self) -> ConsolidationPlan:
        """What all commands come to."""
        count = len(self.instance.price)
        standing = np.array(self.standing, dtype=bool)
        received = np.where(standing[:count, None], self.loose[:count] - self.instance.loose, 0)
        bought = count + np.flatnonzero(standing[count:])
        kinds = np.array([self.kind[machine] for machine in bought.tolist()], dtype=np.int64)
        return ConsolidationPlan(~standing[:count], self.ways, received, kinds, self.loose[bought])

    def candidates(self) -> list[int]:
        """Machines that may go, by what they cost for each pod on them, most first."""
        pods = self.loose.sum(axis=1)
        for number, gang in enumerate(self.instance.gangs):
            if self.ways[number] < 0:
                pods[gang.machines] += gang.ways[0].sum(axis=1)
        ratio = self.price / (1.0 + pods)
        return [machine for machine in np.argsort(-ratio, kind="stable").tolist() if self.may_go(machine)]

    def may_go(self, machine: int) -> bool:
        """Whether a machine is there and may go, by the budgets too."""
        if not self.standing[machine]:
            return False
        if machine >= len(self.instance.price):
            return True
        row = int(self.instance.budget[machine])
        return bool(self.instance.may_go[machine]) and (row < 0 or self.left[row] > 0)

    def trial(self, machines: Sequence[int]) -> _GreedyCommand | None:
        """Without these machines: where their pods go; None where they have no place, or it does not pay."""
        gangs = sorted({gang for machine in machines for gang in self.on[machine]})
        removed = sum(float(self.price[machine]) for machine in machines)
        moving = self._moving_usd_h(machines, gangs) if self.per_move else 0.0
        if removed - moving <= EPSILON_USD_H or not self._within_budgets(machines):
            return None
        trial = _PlacementTrial(self, set(machines))
        for gang in gangs:
            trial.lift(gang)
        ways = tuple((gang, trial.settle(gang)) for gang in gangs)
        trial.place(self.loose[list(machines)].sum(axis=0))
        kind = self._bought(machines, trial.missing, removed, removed - moving)
        if kind is None:
            return None
        if not self.per_move:
            self.dear = self.dear or removed - self._moving_usd_h(machines, gangs) - self._price(kind) <= EPSILON_USD_H
        return _GreedyCommand(tuple(machines), trial.placed, ways, kind, trial.missing)

    def _moving_usd_h(self, machines: Sequence[int], gangs: Sequence[int]) -> float:
        loose = sum(float(self.cost[machine]) for machine in machines)
        return loose + sum(self.instance.gangs[gang].cost_usd_h for gang in gangs)

    def _price(self, kind: int) -> float:
        return float(self.instance.kinds.price[kind]) if kind >= 0 else 0.0

    def _within_budgets(self, machines: Sequence[int]) -> bool:
        if not len(self.left):
            return True
        own = [machine for machine in machines if machine < len(self.instance.price)]
        rows = self.instance.budget[own]
        return bool((np.bincount(rows[rows >= 0], minlength=len(self.left)) <= self.left).all())

    def _bought(self, machines: Sequence[int], missing: Ints, removed: float, worth: float) -> int | None:
        """The cheapest kind below `worth` for what is missing; -1 where nothing is, None where no kind will do."""
        if not missing.any():
            return -1
        part = self.instance.kinds
        few = int(np.searchsorted(part.price, worth - EPSILON_USD_H))
        holding = (missing @ self.instance.requests <= part.capacity[:few]).all(axis=1)
        if not holding.any():
            return None
        holding &= part.fits[missing > 0, :few].all(axis=0) & (self.instance.worst[:few] < removed - EPSILON_USD_H)
        if len(machines) > 1:
            holding[[kind for machine in machines if 0 <= (kind := self.kind[machine]) < few]] = False
        for kind in np.flatnonzero(holding).tolist():
            if self.instance.affordable(self._counts(machines, kind)):
                return kind
        return None

    def _counts(self, machines: Sequence[int], kind: int) -> Floats:
        """[K] machines bought so far, with one more of `kind` and without those of `machines`."""
        first, gone = len(self.instance.price), set(machines)
        found = np.zeros(len(self.instance.kinds.price))
        for machine in range(first, len(self.standing)):
            if self.standing[machine] and machine not in gone:
                found[self.kind[machine]] += 1
        found[kind] += 1
        return found

    def take(self, command: _GreedyCommand) -> None:
        """The command is carried out."""
        for machine in command.machines:
            self.standing[machine] = False
            self.holds[:, machine] = 0
            self.loose[machine] = 0
            if machine < len(self.instance.price) and (row := self.instance.budget[machine]) >= 0:
                self.left[row] -= 1
        changed = {machine for machine, _, _ in command.placed}
        for number, way in command.ways:
            gang = self.instance.gangs[number]
            self.ways[number] = way
            self.free[gang.machines] += gang.used
            changed |= set(gang.machines.tolist())
            for machine in gang.machines.tolist():
                self.on[machine].discard(number)
        for machine, row, pods in command.placed:
            self.loose[machine, row] += pods
            self.free[machine] -= pods * self.instance.requests[row]
        if command.kind >= 0:
            changed.add(self._stand(command.kind, command.missing))
        self._refresh(sorted(machine for machine in changed if self.standing[machine]))

    def _stand(self, kind: int, pods: Ints) -> int:
        """A machine that is bought is added; its number."""
        part = self.instance.kinds
        self.price = np.append(self.price, part.price[kind])
        self.free = np.vstack([self.free, part.capacity[kind] - pods @ self.instance.requests])
        self.loose = np.vstack([self.loose, pods])
        self.cost = np.append(self.cost, 0.0)  # its pods have been counted
        self.kind.append(kind)
        self.standing.append(True)
        self.on.append(set())
        self.holds = np.hstack([self.holds, np.zeros((len(self.holds), 1), dtype=np.int64)])
        return len(self.price) - 1

    def _refresh(self, machines: list[int]) -> None:
        for machine in machines:
            self.holds[:, machine] = self.instance.holds(self.free[machine][None], self.fits(machine)[:, None])[:, 0]

    def fits(self, machine: int) -> Bools:
        """[C] the classes that may stand on a machine."""
        first = len(self.instance.price)
        return self.instance.fits[:, machine] if machine < first else self.instance.kinds.fits[:, self.kind[machine]]


class _PlacementTrial:
    """Seats that a trial takes; the state of the machines stays as it is."""

    def __init__(self, state: _GreedyState, closed: set[int]) -> None:
        self._state, self._closed = state, closed
        self._free: dict[int, Floats] = {}
        self.placed: list[tuple[int, int, int]] = []
        self.missing = np.zeros(len(state.instance.requests), dtype=np.int64)

    def lift(self, number: int) -> None:
        """A gang leaves its machines."""
        gang = self._state.instance.gangs[number]
        for line, machine in enumerate(gang.machines.tolist()):
            if machine not in self._closed:
                self._free[machine] = self._room(machine) + gang.used[line]

    def settle(self, number: int) -> int:
        """All pods of a gang are placed in the first of the ways that leave the fewest without a place; which it is."""
        ways = [way.sum(axis=0) for way in self._state.instance.gangs[number].ways]
        best = 0
        if len(ways) > 1:
            best = min(range(len(ways)), key=lambda it: (self._missed(ways[it]), it))
        self.place(ways[best])
        return best

    def _missed(self, wanted: Ints) -> int:
        """How many of `wanted` [C] would find no place."""
        free, placed, missing = dict(self._free), list(self.placed), self.missing.copy()
        self.place(wanted)
        found = int(self.missing.sum() - missing.sum())
        self._free, self.placed, self.missing = free, placed, missing
        return found

    def place(self, wanted: Ints) -> None:
        """So many pods of each row [C] are placed on the first machines that have room; the others are missing."""
        for row in np.flatnonzero(wanted).tolist():
            need = int(wanted[row])
            for machine in self._having_room(row):
                pods = min(need, self._fitting(machine, row))
                if pods:
                    self.placed.append((machine, row, pods))
                    self._free[machine] = self._room(machine) - pods * self._state.instance.requests[row]
                    need -= pods
                if not need:
                    break
            self.missing[row] += need

    def _having_room(self, row: int) -> Iterable[int]:
        known = self._state.holds[row] > 0
        known[list(self._free)] = True
        return np.flatnonzero(known).tolist()

    def _fitting(self, machine: int, row: int) -> int:
        if machine in self._closed:
            return 0
        if machine in self._free:
            if not self._state.fits(machine)[row]:
                return 0
            free = self._free[machine]
            return int(min((free.item(it) // amount for it, amount in self._state.asks[row]), default=_UNLIMITED))
        return int(self._state.holds[row, machine])

    def _room(self, machine: int) -> Floats:
        free = self._free.get(machine)
        return self._state.free[machine] if free is None else free
