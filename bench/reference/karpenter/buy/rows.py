"""What a pool may buy, as arrays: a row for each machine and way to count it, the offers of each row side by side.

Only available offers are kept, and only rows that have one. Requirements become masks over rows and offers, worked out
once for each (key, values); Karpenter asks the same of every type for every pod (`nodeclaim.go
filterInstanceTypesByRequirements`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from bench.reference.karpenter.buy.relax import SOFT_TAINTS
from bench.reference.karpenter.buy.taints import tolerated
from bench.reference.karpenter.buy.values import (
    NODES,
    PODS,
    RESERVED,
    Daemon,
    MachineType,
    PoolTemplate,
    ReferenceOffering,
)
from model import labels
from model.quantity import Resources
from model.requirements import Requirement, Requirements

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

Mask = tuple[Bools | None, Bools | None]
"""Rows and offers that a requirement leaves; None = all."""
_OFFER_KEYS = (labels.ZONE, labels.CAPACITY_TYPE, labels.CAPACITY_RESERVATION_ID)


def vector(amounts: Resources, resources: Sequence[str]) -> Ints:
    """The amounts in the order of `resources`; what is not there is 0."""
    return np.array([amounts.get(name, 0) for name in resources], dtype=np.int64)


def asked(amounts: Resources, resources: Sequence[str]) -> Ints:
    """What one pod takes: what it requests, and its place among the pods."""
    return vector({**amounts, PODS: 1}, resources)


class InstanceRows:
    """The rows of one template over `resources`."""

    def __init__(self, template: PoolTemplate, resources: Sequence[str]) -> None:
        self.limited = tuple(sorted(template.remaining or ()))
        listed = [entry for machine in template.machines for entry in _ways(machine)]
        self.machines: list[MachineType] = [machine for machine, _, _ in listed]
        offers = [offer for _, _, mine in listed for offer in mine]
        self.offers: list[ReferenceOffering] = offers
        self.starts: Ints = np.cumsum([0, *(len(mine) for _, _, mine in listed)], dtype=np.int64)[:-1]
        self.row_of: Ints = np.repeat(np.arange(len(listed), dtype=np.int64), [len(mine) for _, _, mine in listed])
        self.prices: Floats = np.array([offer.price_usd_h for offer in offers], dtype=np.float64)
        self.reserved: Bools = np.array([offer.capacity_type == RESERVED for offer in offers], dtype=np.bool_)
        self.requirements = [described(machine) for machine in self.machines]
        self.daemons: Ints = _overhead(template, self.requirements, resources)
        whole = _matrix([amounts for _, amounts, _ in listed], resources)
        self.room: Ints = whole - self.daemons
        self.alive: Bools = np.asarray((self.room >= 0).all(axis=1), dtype=np.bool_)
        self.capacity: Ints = _matrix([{**machine.capacity, NODES: 1} for machine in self.machines], self.limited)
        ranks = {name: rank for rank, name in enumerate(sorted({machine.name for machine in self.machines}))}
        self.rank: Ints = np.array([ranks[machine.name] for machine in self.machines], dtype=np.int64)
        self._offer_values = dict(_by_offer(offers))
        self._masks: dict[tuple[str, Requirement], Mask] = {}
        self._tables: dict[str, tuple[Ints, Ints]] = {}
        self._by_value: dict[str, list[tuple[Requirement, Bools]]] = {}

    def mask(self, key: str, wanted: Requirement) -> Mask:
        """Which rows and offers `wanted` leaves for `key`. What a machine does not define, it does not refuse."""
        found = self._masks.get((key, wanted))
        if found is None:
            found = self._masks[key, wanted] = (self._rows(key, wanted), self._offers(key, wanted))
        return found

    def narrowed(self, rows: Bools, offers: Bools, wanted: Mapping[str, Requirement]) -> tuple[Bools, Bools]:
        """Rows and offers that are left, rows without an offer taken out."""
        for key, requirement in wanted.items():
            by_row, by_offer = self.mask(key, requirement)
            rows = rows if by_row is None else rows & by_row
            offers = offers if by_offer is None else offers & by_offer
        return rows & self.offered(offers), offers

    def offered(self, offers: Bools) -> Bools:
        """Rows with any of the offers."""
        if not len(self.starts):
            return np.zeros(0, dtype=np.bool_)
        return np.asarray(np.logical_or.reduceat(offers, self.starts), dtype=np.bool_)

    def cheapest(self, offers: Bools) -> tuple[Floats, Ints]:
        """For each row the lowest price among the offers and the first offer at it; infinity where it has none."""
        prices = np.where(offers, self.prices, np.inf)
        lowest = np.asarray(np.minimum.reduceat(prices, self.starts), dtype=np.float64)
        at_it = np.flatnonzero(prices == lowest[self.row_of])
        _, first = np.unique(self.row_of[at_it], return_index=True)
        return lowest, at_it[first]

    def distinct(self, key: str, rows: Bools) -> int:
        """Distinct values of `key` among the rows, as `minValues` counts them."""
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._table(key)
        return int(np.count_nonzero(np.bincount(table[0][rows[table[1]]])))

    def values_among(self, key: str, rows: Bools) -> Iterator[Requirement]:
        """What the rows define for `key`, each once."""
        return (requirement for requirement, holders in self._values(key) if bool((holders & rows).any()))

    def _table(self, key: str) -> tuple[Ints, Ints]:
        """Every (value, row that has it), values by number."""
        numbers: dict[str, int] = {}
        pairs = [
            (numbers.setdefault(value, len(numbers)), row)
            for row, requirements in enumerate(self.requirements)
            if key in requirements and not requirements[key].complement
            for value in sorted(requirements[key].values)
        ]
        columns = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
        return columns[:, 0], columns[:, 1]

    def _rows(self, key: str, wanted: Requirement) -> Bools | None:
        out: Bools | None = None
        for requirement, holders in self._values(key):
            if not requirement.satisfiable_with(wanted):
                out = ~holders if out is None else out & ~holders
        return out

    def _values(self, key: str) -> list[tuple[Requirement, Bools]]:
        found = self._by_value.get(key)
        if found is None:
            holders: dict[Requirement, list[int]] = {}
            for row, requirements in enumerate(self.requirements):
                if key in requirements:
                    holders.setdefault(requirements[key], []).append(row)
            found = self._by_value[key] = [(value, _flags(mine, len(self.machines))) for value, mine in holders.items()]
        return found

    def _offers(self, key: str, wanted: Requirement) -> Bools | None:
        out: Bools | None = None
        for value, holders in self._offer_values.get(key, ()):
            if not (wanted.allows_absent if value is None else wanted.has(value)):
                out = ~holders if out is None else out & ~holders
        return out


def _ways(machine: MachineType) -> Iterator[tuple[MachineType, Resources, list[ReferenceOffering]]]:
    """The machine once for each allocatable its available offerings come with."""
    groups: dict[tuple[tuple[str, int], ...], list[ReferenceOffering]] = {}
    for offering in sorted(machine.offerings, key=attrgetter("zone", "capacity_type", "reservation_id")):
        if offering.available:
            groups.setdefault(tuple(sorted((offering.allocatable or {}).items())), []).append(offering)
    for differing, mine in groups.items():
        yield machine, {**machine.allocatable, **dict(differing)}, mine


def described(machine: MachineType) -> Requirements:
    """The machine's labels, with zones and capacity types from its available offerings where they are not said."""
    available = [offering for offering in machine.offerings if offering.available]
    found = {
        labels.ZONE: Requirement(frozenset(offering.zone for offering in available)),
        labels.CAPACITY_TYPE: Requirement(frozenset(offering.capacity_type for offering in available)),
    }
    missing = {key: values for key, values in found.items() if key not in machine.requirements}
    return machine.requirements & Requirements(missing)


def _overhead(template: PoolTemplate, machines: Sequence[Requirements], resources: Sequence[str]) -> Ints:
    """What daemons take of each row (`scheduler.go`, daemon overhead by group of types)."""
    out = np.zeros((len(machines), len(resources)), dtype=np.int64)
    known: dict[tuple[str, Requirements], bool] = {}
    for daemon in template.daemons:
        if not tolerated(template.taints, (*daemon.tolerations, SOFT_TAINTS)):
            continue
        amounts = asked(daemon.requests, resources)
        for row, machine in enumerate(machines):
            key = (daemon.name, machine)
            if key not in known:
                known[key] = _runs_on(daemon, template.requirements, machine)
            if known[key]:
                out[row] += amounts
    return out


def _runs_on(daemon: Daemon, pool: Requirements, machine: Requirements) -> bool:
    for wanted in daemon.alternatives or (Requirements(),):
        here = pool.compatible(wanted) and all(
            key not in machine or machine[key].satisfiable_with(requirement)
            for key, requirement in (pool & wanted).items()
        )
        if here:
            return True
    return False


def _by_offer(offers: Sequence[ReferenceOffering]) -> Iterator[tuple[str, list[tuple[str | None, Bools]]]]:
    """Label key -> its values with the offers that carry each. No reservation is a value of its own (absent)."""
    holders: dict[str, dict[str | None, list[int]]] = {}
    for index, offer in enumerate(offers):
        own = (offer.zone, offer.capacity_type, offer.reservation_id or None)
        for key, value in (*zip(_OFFER_KEYS, own, strict=True), *offer.labels.items()):
            holders.setdefault(key, {}).setdefault(value, []).append(index)
    for key, values in holders.items():
        yield key, [(value, _flags(mine, len(offers))) for value, mine in values.items()]


def _flags(indices: Iterable[int], size: int) -> Bools:
    out = np.zeros(size, dtype=np.bool_)
    out[list(indices)] = True
    return out


def _matrix(amounts: Sequence[Resources], resources: Sequence[str]) -> Ints:
    table = [[each.get(name, 0) for name in resources] for each in amounts]
    return np.array(table, dtype=np.int64).reshape(len(amounts), len(resources))
