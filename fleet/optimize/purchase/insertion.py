"""Buys by cheapest insertion: every pod goes where it makes the purchase dearer by least.

For machines that hold few pods whatever their size, because pods keep apart on them (`PackingInstance.apart`). Such
machines are filled by several classes each, and hardly two of them alike: patterns, which other ways buy many of at a
time, do not pay there.
"""

from collections import Counter

import numpy as np

from fleet.optimize.master import PatternMix
from fleet.optimize.packing import Bools, Floats, Ints, PackingInstance

_COMPARED = 256
"""Most pods and machines together whose exchange is looked at."""
_ROUNDS = 8
_LEAST_USD_H = 1e-6
_NOBODY = -1


def by_insertion(part: PackingInstance) -> PatternMix:
    """Returns each pod on the machine that becomes dearer by least for it, or on one of its own where that is cheaper.

    A machine is as dear as the cheapest kind that holds its pods. The pods of which most need a machine each come
    first, then those that are dearest alone; of equal machines the one is best whose scarcest resource is left over
    least. Bounds and limits are not looked at; nor are existing machines.
    """
    machines, demand = _OpenMachines(part), part.demand.tolist()
    for row in _hardest_first(part):
        left = demand[row]
        while left:
            left -= machines.serve(row, left)
    for _ in range(_ROUNDS):
        if not machines.swap():
            break
    return machines.mix()


def _hardest_first(part: PackingInstance) -> list[int]:
    apart = part.requests[:, part.apart] > 0
    pods = (apart * part.demand[:, None]).sum(axis=0)
    most = apart[:, int(pods.argmax())] if len(pods) else np.zeros(len(part.demand), dtype=bool)
    alone = part.price[part.fits.argmax(axis=1)]
    share = part.requests[:, ~part.apart] / np.maximum(part.capacity[:, ~part.apart].max(axis=0), 1.0)
    order: list[int] = np.lexsort((-share.sum(axis=1), -alone, ~most)).tolist()
    return order


def _groups(part: PackingInstance) -> tuple[list[int], list[int]]:
    """Returns [C] the group of each class, and of each group how many machines it needs at least.

    A group are classes that may stand on the same kinds, such as those of one zone; `_NOBODY` where all are allowed.
    """
    known: dict[bytes, int] = {}
    dearest = np.unique(part.fits.shape[1] - 1 - part.fits[:, ::-1].argmax(axis=1))  # smaller ones hold not all pods
    where = part.fits[:, dearest]
    found = [_NOBODY if it.all() else known.setdefault(it.tobytes(), len(known)) for it in where]
    needs = [0] * len(known)
    for group in known.values():
        rows = np.flatnonzero(np.array(found) == group)
        pods = (part.requests[rows][:, part.apart] * part.demand[rows, None]).sum(axis=0)
        needs[group] = int(pods.max(initial=0.0))
    return found, needs


class _OpenMachines:
    """`_OpenMachines` are the machines so far, each with its load and the kinds that all of its pods may stand on."""

    def __init__(self, part: PackingInstance) -> None:
        count, pods = len(part.price), int(part.demand.sum())
        self._part = part
        self._apart = part.apart_bits
        self._requests, self._capacity = part.requests[:, ~part.apart], part.capacity[:, ~part.apart]
        self._top = self._capacity.max(axis=0)
        self._machines = 0
        self._load: Floats = np.zeros((pods, self._requests.shape[1]))
        self._pods: Ints = np.zeros(pods, dtype=np.int64)
        self._taken: Ints = np.zeros(pods, dtype=np.int64)
        """Of which resources that machines have once somebody takes it, as bits."""
        self._kinds: Bools = np.zeros((pods, count), dtype=bool)
        self._kind: Ints = np.zeros(pods, dtype=np.int64)
        """The cheapest kind that holds the load."""
        self._held: Counter[tuple[int, int]] = Counter()
        """(machine, class) -> pods."""
        self._asked, self._changed = _NOBODY, np.zeros(0, dtype=np.int64)
        """The class asked about last, and the machines that have changed since."""
        self._dearer: Floats = np.full(pods, np.inf)
        """By how much each becomes dearer for a pod of that class; inf = it holds no more."""
        self._over: Floats = np.zeros(pods)
        """How much of its scarcest resource is left over then."""
        self._next: Ints = np.zeros(pods, dtype=np.int64)
        """The kind that it becomes."""
        self._group, self._owed = _groups(part)
        self._group_of: Ints = np.full(pods, _NOBODY, dtype=np.int64)
        """The group of the first pods that may not stand on all kinds; `_NOBODY` = there are none yet."""

    def mix(self) -> PatternMix:
        """Returns what is bought."""
        pods: Ints = np.zeros((self._machines, len(self._part.demand)), dtype=np.int64)
        for (machine, row), count in self._held.items():
            pods[machine, row] = count
        used = pods.any(axis=1)
        return PatternMix(self._kind[: self._machines][used], pods[used], np.ones(int(used.sum()), dtype=np.int64))

    def serve(self, row: int, missing: int) -> int:
        """Places pods of a class, at most one on each machine. Returns how many, at least one."""
        able = np.flatnonzero(self._part.fits[row])
        alone = int(able[0])  # by price, and each holds one
        machines, kinds = self._cheapest(row, missing, able, float(self._part.price[alone]))
        if not len(machines):
            count = missing if self._apart[row] else 1
            machines = np.arange(self._machines, self._machines + count)
            self._machines += count
            self._kinds[machines], kinds = True, np.full(count, alone)
        if (group := self._group[row]) != _NOBODY:
            fresh = machines[self._group_of[machines] == _NOBODY]
            self._group_of[fresh] = group
            self._owed[group] = max(0, self._owed[group] - len(fresh))
        self._load[machines] += self._requests[row]
        self._pods[machines] += 1
        self._taken[machines] |= self._apart[row]
        self._kinds[machines] &= self._part.fits[row]
        self._kind[machines] = kinds
        self._held.update((machine, row) for machine in machines.tolist())
        self._changed = machines
        return len(machines)

    def swap(self) -> bool:
        """Lets pairs of pods of different machines change places, or a pod move, where that costs less.

        Each machine takes part in one exchange at most. Returns whether there was any. Only small purchases are looked
        at, in which the size of a machine or two matters: all pairs are compared.
        """
        pods = [(machine, row) for (machine, row), count in self._held.items() for _ in range(count)]
        pods += [(machine, _NOBODY) for machine in range(self._machines)]
        if len(pods) > _COMPARED:
            return False
        machine, row = np.array(pods, dtype=np.int64).T
        usd_h, kinds = self._with_another(machine, row)
        gain = self._usd_h[machine, None] + self._usd_h[None, machine] - usd_h - usd_h.T
        gain[machine[:, None] == machine[None]] = 0.0
        one, other = np.nonzero(np.triu(gain) > _LEAST_USD_H)
        touched = set[int]()
        for pair in np.argsort(-gain[one, other], kind="stable").tolist():
            mine, theirs = int(one[pair]), int(other[pair])
            pair_ = {int(machine[mine]), int(machine[theirs])}
            if touched.isdisjoint(pair_):
                touched |= pair_
                self._exchange(pods[mine], pods[theirs], int(kinds[mine, theirs]))
                self._exchange(pods[theirs], pods[mine], int(kinds[theirs, mine]))
        return bool(touched)

    @property
    def _usd_h(self) -> Floats:
        return np.where(self._pods[: self._machines] > 0, self._part.price[self._kind[: self._machines]], 0.0)

    def _with_another(self, machine: Ints, row: Ints) -> tuple[Floats, Ints]:
        """Returns [P, P] what each pod's machine costs with another pod in its place, and the kind that it is then.

        inf where it would not hold it. A row of `_NOBODY` stands for the room of a machine.
        """
        requests = np.vstack([self._requests, np.zeros(self._requests.shape[1])])[row]
        apart, fits = np.append(self._apart, 0)[row], np.vstack([self._part.fits, self._part.fits.any(axis=0)])[row]
        rest = self._load[machine] - requests
        load = rest[:, None] + requests[None]
        possible = (self._taken[machine] & ~apart)[:, None] & apart[None] == 0
        usd_h, kinds = np.full(possible.shape, np.inf), np.zeros(possible.shape, dtype=np.int64)
        for kind in range(len(self._part.price) - 1, -1, -1):
            able = np.flatnonzero(self._kinds[machine, kind])  # few: most machines are in one zone by now
            holding = possible[able] & fits[None, :, kind]
            for resource, capacity in enumerate(self._capacity[kind].tolist()):
                holding &= load[able, :, resource] <= capacity
            usd_h[able] = np.where(holding, self._part.price[kind], usd_h[able])
            kinds[able] = np.where(holding, kind, kinds[able])
        somebody = (row != _NOBODY).astype(np.int64)
        usd_h[(self._pods[machine] - somebody)[:, None] + somebody[None] == 0] = 0.0
        return usd_h, kinds

    def _exchange(self, gone: tuple[int, int], come: tuple[int, int], kind: int) -> None:
        """Takes the pod that has gone off its machine, puts the one that has come there, and notes its kind."""
        machine = gone[0]
        for row, sign in ((gone[1], -1), (come[1], 1)):
            if row != _NOBODY:
                self._load[machine] += sign * self._requests[row]
                self._taken[machine] ^= self._apart[row]
                self._pods[machine] += sign
                self._held[machine, row] += sign
        if come[1] != _NOBODY:
            self._kinds[machine] &= self._part.fits[come[1]]
        self._kind[machine] = kind

    def _cheapest(self, row: int, missing: int, able: Ints, less_than_usd_h: float) -> tuple[Ints, Ints]:
        """Returns the machines that become dearer by least for one pod more, and the kinds that they become."""
        self._ask(row, able)
        machines = np.flatnonzero(self._dearer[: self._machines] < less_than_usd_h)
        best = machines[np.lexsort((self._over[machines], np.round(self._dearer[machines], 9)))]
        best = best[self._may_take(row, best)][:missing]
        return best, self._next[best]

    def _ask(self, row: int, able: Ints) -> None:
        """Finds out by how much each machine becomes dearer for a pod more of a class, as far as it is not known."""
        if row != self._asked:
            self._asked, self._changed = row, np.arange(self._machines)
        machines, self._changed = self._changed, self._changed[:0]
        self._dearer[machines] = np.inf
        open_ = (self._taken[machines] & self._apart[row]) == 0
        open_ &= np.logical_and.reduce(self._load[machines] <= self._top - self._requests[row], axis=1)
        machines = machines[open_]
        load = self._load[machines] + self._requests[row]
        holding = self._kinds[machines[:, None], able[None]]
        for amount, capacity in zip(load.T, self._capacity[able].T, strict=True):
            holding &= amount[:, None] <= capacity[None]
        some = np.logical_or.reduce(holding, axis=1)
        machines, load = machines[some], load[some]
        self._next[machines] = kinds = able[holding[some].argmax(axis=1)]
        self._dearer[machines] = self._part.price[kinds] - self._part.price[self._kind[machines]]
        over = ((self._capacity[kinds] - load) / np.maximum(self._top, 1.0)).max(axis=1, initial=0.0)
        self._over[machines] = over

    def _may_take(self, row: int, machines: Ints) -> Bools:
        """Returns which of some machines a class may use: as many open ones are left to others as those need."""
        group = self._group[row]
        if group == _NOBODY:
            return np.ones(len(machines), dtype=bool)
        nobodys = int((self._group_of[: self._machines] == _NOBODY).sum())
        spare = nobodys - sum(owed for other, owed in enumerate(self._owed) if other != group)
        fresh = self._group_of[machines] == _NOBODY
        found: Bools = ~fresh | (np.cumsum(fresh) <= spare)
        return found
