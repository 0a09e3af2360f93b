"""Searches in Karpenter's order: empty machines, many for one, one by one; each command buys one machine at most.

Machines are removed by the ratio of price to pods, highest first. Displaced pods go to the first machines with room;
what is then missing must fit on one new machine that at worst costs less than what is removed. Of many machines the
longest prefix of that order is sought by bisection, as if every prefix of one that works worked (Karpenter's
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
"""Most machines that one command removes."""
_UNLIMITED = 1 << 30


def greedy_order(instance: ConsolidationInstance, sweeps: int, *, counts_moves: bool) -> ConsolidationPlan:
    """Returns the plan in Karpenter's order, after `sweeps` sweeps at most.

    With `counts_moves` the cost of moving is deducted from the saving.
    """
    return _searched(instance, sweeps, counts_moves=counts_moves).plan()


def both_orders(instance: ConsolidationInstance, sweeps: int) -> tuple[ConsolidationPlan, ConsolidationPlan]:
    """Returns the plans without and with `counts_moves`; the second search is only done if it may find another plan."""
    ignoring = _searched(instance, sweeps, counts_moves=False)
    plan = ignoring.plan()
    return plan, greedy_order(instance, sweeps, counts_moves=True) if ignoring.found_unpaid else plan


def _searched(instance: ConsolidationInstance, sweeps: int, *, counts_moves: bool) -> "_GreedyState":
    """Returns the machines after the search: empty ones first, then sweeps of many for one and of one by one."""
    state = _GreedyState.of(instance, counts_moves=counts_moves)
    _remove_empty(state)
    for _ in range(sweeps):
        found = _remove_many(state)
        if not (_remove_one_by_one(state) or found):
            break
    return state


def _remove_empty(state: "_GreedyState") -> None:
    """Removes empty machines."""
    for machine in state.candidates():
        if not state.independent[machine].any() and not state.gangs_on[machine] and state.may_go(machine):
            command = state.trial([machine])
            if command is not None:
                state.take(command)


def _remove_many(state: "_GreedyState") -> bool:
    """Removes the longest prefix of the candidates that can go together. Returns whether there is one."""
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


def _remove_one_by_one(state: "_GreedyState") -> bool:
    """Removes each candidate that can go by itself. Returns whether there was one."""
    found = False
    for machine in state.candidates():
        if state.may_go(machine) and (command := state.trial([machine])) is not None:
            state.take(command)
            found = True
    return found


@dataclass(frozen=True, eq=False)
class _GreedyCommand:
    """A `_GreedyCommand` is the result of a trial: machines removed at once, and where their pods go."""

    machines: tuple[int, ...]
    placed: Sequence[tuple[int, int, int]]
    """(machine, row, pods)"""
    options: tuple[tuple[int, int], ...]
    """(gang, option)"""
    kind: int
    """Number of the kind to buy; -1 for none."""
    missing: Ints
    """[C] pods for the machine that is bought."""


@dataclass(eq=False)
class _GreedyState:
    """A `_GreedyState` is the machines as the commands so far would leave them; bought ones come last."""

    instance: ConsolidationInstance
    counts_moves: bool
    """Whether the cost of moving is deducted from the saving."""
    price: Floats
    """[M] USD an hour."""
    free: Floats
    """[M, R]"""
    independent: Ints
    """[M, C] pods that may each be moved by itself."""
    cost: Floats
    """[M] USD an hour that moving the independent pods off counts."""
    kind: list[int]
    """[M] the column of the machine's kind, -1 where it cannot be bought."""
    standing: list[bool]
    """[M] whether the machine has not been removed."""
    options: Ints
    """[gangs] the option by which each has moved, -1 where it stays."""
    budget_left: Ints
    """[P] machines that the budgets still let go."""
    holds: Ints
    """[C, M] pods of each class that fit on each machine; kept up to date."""
    gangs_on: list[set[int]] = field(default_factory=list)
    """[M] the gangs there that have not moved."""
    asks: list[list[tuple[int, float]]] = field(default_factory=list)
    """[C] (resource, amount) of each row, as plain numbers: there are few, and they are asked for often."""
    found_unpaid: bool = False
    """Whether a command was found that saves less than its moves cost."""

    @classmethod
    def of(cls, instance: ConsolidationInstance, *, counts_moves: bool) -> "_GreedyState":
        """Returns the state before the first command."""
        gangs_on: list[set[int]] = [set() for _ in instance.price]
        for number, gang in enumerate(instance.gangs):
            for machine in gang.machines.tolist():
                gangs_on[machine].add(number)
        asks = [[(it, amount) for it, amount in enumerate(row) if amount] for row in instance.requests.tolist()]
        return cls(
            instance, counts_moves, instance.price.copy(), instance.free.copy(), instance.independent.copy(),
            instance.cost.copy(), instance.kind.tolist(), [True] * len(instance.price),
            np.full(len(instance.gangs), -1), instance.budgets.copy(), instance.holds(instance.free, instance.fits),
            gangs_on, asks,
        )  # fmt: skip

    def plan(self) -> ConsolidationPlan:
        """Returns the plan that all commands make together."""
        count = len(self.instance.price)
        standing = np.array(self.standing, dtype=bool)
        received = np.where(standing[:count, None], self.independent[:count] - self.instance.independent, 0)
        bought = count + np.flatnonzero(standing[count:])
        kinds = np.array([self.kind[machine] for machine in bought.tolist()], dtype=np.int64)
        return ConsolidationPlan(~standing[:count], self.options, received, kinds, self.independent[bought])

    def candidates(self) -> list[int]:
        """Returns the machines that may be removed, by price for each pod on them, highest first."""
        pods = self.independent.sum(axis=1)
        for number, gang in enumerate(self.instance.gangs):
            if self.options[number] < 0:
                pods[gang.machines] += gang.options[0].sum(axis=1)
        ratio = self.price / (1.0 + pods)
        return [machine for machine in np.argsort(-ratio, kind="stable").tolist() if self.may_go(machine)]

    def may_go(self, machine: int) -> bool:
        """Returns whether a machine stands and may be removed, by the budgets too."""
        if not self.standing[machine]:
            return False
        if machine >= len(self.instance.price):
            return True
        row = int(self.instance.budget[machine])
        return bool(self.instance.may_go[machine]) and (row < 0 or self.budget_left[row] > 0)

    def trial(self, machines: Sequence[int]) -> _GreedyCommand | None:
        """Returns the command that removes these machines; None where pods have no place, or it does not pay."""
        gangs = sorted({gang for machine in machines for gang in self.gangs_on[machine]})
        removed = sum(float(self.price[machine]) for machine in machines)
        moving = self._moving_usd_h(machines, gangs) if self.counts_moves else 0.0
        if removed - moving <= EPSILON_USD_H or not self._within_budgets(machines):
            return None
        trial = _PlacementTrial(self, set(machines))
        for gang in gangs:
            trial.lift(gang)
        options = tuple((gang, trial.place_gang(gang)) for gang in gangs)
        trial.place(self.independent[list(machines)].sum(axis=0))
        kind = self._kind_to_buy(machines, trial.missing, removed, removed - moving)
        if kind is None:
            return None
        if not self.counts_moves:
            self.found_unpaid = (
                self.found_unpaid or removed - self._moving_usd_h(machines, gangs) - self._price(kind) <= EPSILON_USD_H
            )
        return _GreedyCommand(tuple(machines), trial.placed, options, kind, trial.missing)

    def _moving_usd_h(self, machines: Sequence[int], gangs: Sequence[int]) -> float:
        """Returns what moving the pods of these machines and these gangs costs, in USD an hour."""
        independent = sum(float(self.cost[machine]) for machine in machines)
        return independent + sum(self.instance.gangs[gang].cost_usd_h for gang in gangs)

    def _price(self, kind: int) -> float:
        return float(self.instance.kinds.price[kind]) if kind >= 0 else 0.0

    def _within_budgets(self, machines: Sequence[int]) -> bool:
        """Returns whether disruption budgets allow to remove all these machines."""
        if not len(self.budget_left):
            return True
        own = [machine for machine in machines if machine < len(self.instance.price)]
        rows = self.instance.budget[own]
        return bool((np.bincount(rows[rows >= 0], minlength=len(self.budget_left)) <= self.budget_left).all())

    def _kind_to_buy(self, machines: Sequence[int], missing: Ints, removed: float, worth: float) -> int | None:
        """Returns the cheapest kind below `worth` for the missing pods; -1 if none are, None if no kind will do."""
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
        """Returns [K] machines bought so far, with one more of `kind` and without those of `machines`."""
        first, gone = len(self.instance.price), set(machines)
        found = np.zeros(len(self.instance.kinds.price))
        for machine in range(first, len(self.standing)):
            if self.standing[machine] and machine not in gone:
                found[self.kind[machine]] += 1
        found[kind] += 1
        return found

    def take(self, command: _GreedyCommand) -> None:
        """Carries a command out on the state."""
        for machine in command.machines:
            self.standing[machine] = False
            self.holds[:, machine] = 0
            self.independent[machine] = 0
            if machine < len(self.instance.price) and (row := self.instance.budget[machine]) >= 0:
                self.budget_left[row] -= 1
        changed = {machine for machine, _, _ in command.placed}
        for number, option in command.options:
            gang = self.instance.gangs[number]
            self.options[number] = option
            self.free[gang.machines] += gang.used
            changed |= set(gang.machines.tolist())
            for machine in gang.machines.tolist():
                self.gangs_on[machine].discard(number)
        for machine, row, pods in command.placed:
            self.independent[machine, row] += pods
            self.free[machine] -= pods * self.instance.requests[row]
        if command.kind >= 0:
            changed.add(self._stand(command.kind, command.missing))
        self._refresh(sorted(machine for machine in changed if self.standing[machine]))

    def _stand(self, kind: int, pods: Ints) -> int:
        """Adds a machine that is bought. Returns its number."""
        part = self.instance.kinds
        self.price = np.append(self.price, part.price[kind])
        self.free = np.vstack([self.free, part.capacity[kind] - pods @ self.instance.requests])
        self.independent = np.vstack([self.independent, pods])
        self.cost = np.append(self.cost, 0.0)  # moving its pods is counted already
        self.kind.append(kind)
        self.standing.append(True)
        self.gangs_on.append(set())
        self.holds = np.hstack([self.holds, np.zeros((len(self.holds), 1), dtype=np.int64)])
        return len(self.price) - 1

    def _refresh(self, machines: list[int]) -> None:
        """Computes again how many pods of each class fit on these machines."""
        for machine in machines:
            self.holds[:, machine] = self.instance.holds(self.free[machine][None], self.fits(machine)[:, None])[:, 0]

    def fits(self, machine: int) -> Bools:
        """Returns [C] the classes that may stand on a machine."""
        first = len(self.instance.price)
        return self.instance.fits[:, machine] if machine < first else self.instance.kinds.fits[:, self.kind[machine]]


class _PlacementTrial:
    """A `_PlacementTrial` takes room for displaced pods; the state of the machines stays as it is."""

    def __init__(self, state: _GreedyState, closed: set[int]) -> None:
        self._state, self._closed = state, closed
        self._free: dict[int, Floats] = {}
        self.placed: list[tuple[int, int, int]] = []
        self.missing = np.zeros(len(state.instance.requests), dtype=np.int64)

    def lift(self, number: int) -> None:
        """Frees the room of a gang that leaves its machines."""
        gang = self._state.instance.gangs[number]
        for line, machine in enumerate(gang.machines.tolist()):
            if machine not in self._closed:
                self._free[machine] = self._room(machine) + gang.used[line]

    def place_gang(self, number: int) -> int:
        """Places a gang by the first of the options that leave the fewest pods without a place. Returns the option."""
        options = [option.sum(axis=0) for option in self._state.instance.gangs[number].options]
        best = 0
        if len(options) > 1:
            best = min(range(len(options)), key=lambda it: (self._missed(options[it]), it))
        self.place(options[best])
        return best

    def _missed(self, wanted: Ints) -> int:
        """Returns how many of `wanted` [C] would find no place."""
        free, placed, missing = dict(self._free), list(self.placed), self.missing.copy()
        self.place(wanted)
        found = int(self.missing.sum() - missing.sum())
        self._free, self.placed, self.missing = free, placed, missing
        return found

    def place(self, wanted: Ints) -> None:
        """Places pods of each row [C] on the first machines that have room; counts the others as missing."""
        for row in np.flatnonzero(wanted).tolist():
            need = int(wanted[row])
            for machine in self._machines_with_room(row):
                pods = min(need, self._fitting(machine, row))
                if pods:
                    self.placed.append((machine, row, pods))
                    self._free[machine] = self._room(machine) - pods * self._state.instance.requests[row]
                    need -= pods
                if not need:
                    break
            self.missing[row] += need

    def _machines_with_room(self, row: int) -> Iterable[int]:
        """Returns the machines that may have room for a pod of the row, in order."""
        known = self._state.holds[row] > 0
        known[list(self._free)] = True
        return np.flatnonzero(known).tolist()

    def _fitting(self, machine: int, row: int) -> int:
        """Returns how many pods of the row fit on a machine now."""
        if machine in self._closed:
            return 0
        if machine in self._free:
            if not self._state.fits(machine)[row]:
                return 0
            free = self._free[machine]
            return int(min((free.item(it) // amount for it, amount in self._state.asks[row]), default=_UNLIMITED))
        return int(self._state.holds[row, machine])

    def _room(self, machine: int) -> Floats:
        """Returns [R] what is free on a machine in this trial."""
        free = self._free.get(machine)
        return self._state.free[machine] if free is None else free
