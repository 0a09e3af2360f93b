"""Keeps the choice that `minValues` asks for: so many values of a label among the machines that would do.

Karpenter launches one of many types, and asks that enough of them hold all pods of the machine (core,
`pkg/cloudprovider/types.go`, `SatisfiesMinValues`). Here a launch names one type. It has enough others beside it that
hold the same pods, so that the next launch has the choice when this one fails.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    terms = asked_values(pool)
    kinds = list(_one_of_each(terms, others))
    larger = [it for it in kinds if not _loss(machine.allocatable, it.allocatable)]
    if _enough(terms, [machine, *larger]):
        return machine.allocatable
    room, chosen = machine.allocatable, [machine]
    for other in sorted(kinds, key=lambda it: _loss(machine.allocatable, it.allocatable)):  # sorting is stable
        room = {name: min(amount, other.allocatable.get(name, 0)) for name, amount in room.items()}
        chosen.append(other)
        if _enough(terms, chosen):
            return room
    return {}


def _one_of_each(terms: Sequence[Term], machines: Iterable[LabelledMachine]) -> Iterable[LabelledMachine]:
    """Yields the machines without those that are as others in all that counts: one for many zones."""
    seen = set()
    for machine in machines:
        kind = (*(machine.labels.get(key) for key, _ in terms), *sorted(machine.allocatable.items()))
        if kind not in seen:
            seen.add(kind)
            yield machine


def _loss(own: Resources, other: Resources) -> float:
    """Returns how much of a machine another one does not hold: the sum of its parts by resource."""
    return sum(1.0 - min(1.0, max(0, other.get(name, 0)) / amount) for name, amount in own.items() if amount > 0)
