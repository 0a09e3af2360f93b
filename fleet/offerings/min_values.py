"""Keeps the choice that `minValues` asks for: so many values of a label among the machines that would do.

Karpenter launches one of many types, and asks that enough of them hold all pods of the machine (core,
`pkg/cloudprovider/types.go`, `SatisfiesMinValues`). Here a launch names one type. It has enough others beside it that
hold the same pods, so that the next launch has the choice when this one fails.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from typing import Protocol

from model.kinds import NodePool
from model.quantity import Resources

Term = tuple[str, int]
"""A label, and how many values of it are asked for."""


class LabelledMachine(Protocol):
    """A `LabelledMachine` is a machine of some kind: what it holds, and its labels."""

    @property
    def allocatable(self) -> Resources:
        """Returns what it holds."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Returns the labels of its node."""


def asked_values(pool: NodePool) -> Sequence[Term]:
    """Returns the `minValues` of a pool; none for most."""
    return [(term.key, term.min_values) for term in pool.spec.requirements if term.min_values]


def flexible(pool: NodePool, machines: Iterable[LabelledMachine]) -> bool:
    """Returns whether machines have as many distinct values of each label as the `minValues` of their pool ask."""
    terms = asked_values(pool)
    return not terms or _enough(terms, list(machines))


def _enough(terms: Sequence[Term], machines: Sequence[LabelledMachine]) -> bool:
    return all(len({it.labels.get(key) for it in machines} - {None}) >= least for key, least in terms)


def most_on_one(pool: NodePool, fits: Sequence[tuple[LabelledMachine, int]], most: int) -> int:
    """Returns how many pods one machine may get so that enough others hold as many; at most `most`, 0 = none.

    `fits`: machines of the pool, with how many of the pods each holds.
    """
    terms = asked_values(pool)
    if not terms:
        return most
    for count in sorted({min(most, holds) for _, holds in fits if holds}, reverse=True):
        if _enough(terms, [machine for machine, holds in fits if holds >= count]):
            return count
    return 0


def shared_room(pool: NodePool, machine: LabelledMachine, others: Iterable[LabelledMachine]) -> Resources:
    """Returns the part of a machine that enough `others` of its pool hold as well; nothing where they are too few.

    Of the others those are taken that lose least of it.
    """
    return _MachineKinds.of(asked_values(pool), [machine, *others]).room_of(machine)


def shared_rooms(pool: NodePool, machines: Sequence[LabelledMachine]) -> list[Resources]:
    """Returns for each machine the part of it that enough of them hold as well. Equal ones are asked once."""
    kinds = _MachineKinds.of(asked_values(pool), machines)
    rooms = {_kind(kinds.terms, machine): kinds.room_of(machine) for machine in kinds.kinds}
    return [rooms[_kind(kinds.terms, machine)] for machine in machines]


_Kind = tuple[object, ...]


def _kind(terms: Sequence[Term], machine: LabelledMachine) -> _Kind:
    """Returns what counts of a machine: those of many zones are one."""
    return (*(machine.labels.get(key) for key, _ in terms), *sorted(machine.allocatable.items()))


@dataclass(frozen=True, slots=True)
class _MachineKinds:
    """One machine of each kind, in order of price, and largest first: what holds as much is found soon."""

    terms: Sequence[Term]
    kinds: Sequence[LabelledMachine]
    largest_first: Sequence[LabelledMachine]
    enough: bool

    @classmethod
    def of(cls, terms: Sequence[Term], machines: Iterable[LabelledMachine]) -> "_MachineKinds":
        found: dict[_Kind, LabelledMachine] = {}
        for machine in machines:
            found.setdefault(_kind(terms, machine), machine)
        kinds = list(found.values())
        largest_first = sorted(kinds, key=lambda it: -sum(map(log1p, map(abs, it.allocatable.values()))))
        return cls(terms, kinds, largest_first, _enough(terms, kinds))

    def room_of(self, machine: LabelledMachine) -> Resources:
        """Returns the part of a machine of these kinds that enough others hold as well."""
        own = machine.allocatable
        if not self.enough:
            return {}
        if self._suffices(machine, (it for it in self.largest_first if _holds(it.allocatable, own))):
            return own
        room, seen = own, [set[str | None]() for _ in self.terms]
        self._see(seen, machine)
        for other in sorted(self.kinds, key=lambda it: _loss(own, it.allocatable)):  # sorting is stable
            room = {name: min(amount, other.allocatable.get(name, 0)) for name, amount in room.items()}
            if self._see(seen, other):
                break
        return room

    def _suffices(self, machine: LabelledMachine, others: Iterable[LabelledMachine]) -> bool:
        seen = [set[str | None]() for _ in self.terms]
        return self._see(seen, machine) or any(self._see(seen, other) for other in others)

    def _see(self, seen: Sequence[set[str | None]], machine: LabelledMachine) -> bool:
        """Counts the values of one more machine; whether they are enough now."""
        for values, (key, _) in zip(seen, self.terms, strict=True):
            if (value := machine.labels.get(key)) is not None:
                values.add(value)
        return all(len(values) >= least for values, (_, least) in zip(seen, self.terms, strict=True))


def _holds(other: Resources, own: Resources) -> bool:
    return all(other.get(name, 0) >= amount for name, amount in own.items() if amount > 0)


def _loss(own: Resources, other: Resources) -> float:
    """Returns how much of a machine another one does not hold: the sum of its parts by resource."""
    return sum(1.0 - min(1.0, max(0, other.get(name, 0)) / amount) for name, amount in own.items() if amount > 0)
