"""Defines what both optimisations are asked about: classes of equal pods, kinds of machines, limits on purchases.

Nothing here knows Kubernetes or a cloud: which class may stand on which kind (requirements, taints, MIG layouts, zones)
is decided by the caller and arrives as a set of names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MACHINES, USD_H = "machines", "usd_h"
"""What a `Limit` can count besides resources: machines, and what they cost an hour."""
MOST_AMOUNT = 2**50
"""Largest amount of a resource: the search counts whole numbers as floats, which are exact up to here."""


class InvalidProblem(ValueError):
    """A problem contradicts itself; the message says where."""


@dataclass(frozen=True, slots=True)
class PodClass:
    """A `PodClass` stands for equal pods: the same requests, and the same kinds of machine allowed."""

    name: str
    requests: Mapping[str, int]
    """Resource -> what one pod takes; whole numbers in any unit, the same as in the capacities."""
    kinds: frozenset[str]
    """Names of the machine kinds it may stand on. Classes with the same kinds should share one set, which is then read
    once."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A `MachineKind` is a kind of machine that can be bought: price, capacity, topology domain."""

    name: str
    price_usd_h: float
    capacity: Mapping[str, int]
    domain: str = ""
    """Its topology domain (a zone, a placement group); groups of pods may be held to one domain."""
    most: int | None = None
    """How many can be had; None = any number."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A `Limit` is an upper bound on what is bought of some kinds together.

    `counted` is `MACHINES`, `USD_H` or a resource by its capacity; a resource that no pod asks for can carry a capacity
    that counts otherwise than what pods may use. Existing machines do not count.
    """

    name: str
    counted: str
    most: float
    kinds: frozenset[str]

    def counts(self, kind: MachineKind) -> float:
        """Returns what one machine of a kind counts against the limit."""
        if kind.name not in self.kinds:
            return 0.0
        if self.counted == MACHINES:
            return 1.0
        return kind.price_usd_h if self.counted == USD_H else float(kind.capacity.get(self.counted, 0))


@dataclass(frozen=True, slots=True)
class SolverEffort:
    """A `SolverEffort` bounds a search in steps, never in seconds, so that every machine finds the same answer."""

    solver: bool = True
    """Whether linear and integer programmes are solved at all."""
    iterations: int = 100_000
    """Iterations of the simplex method for each linear programme."""


def check_names(what: str, names: Iterable[str]) -> None:
    """Raises `InvalidProblem` where a name comes twice."""
    every = list(names)
    if len(set(every)) < len(every):
        twice = next(name for number, name in enumerate(every) if name in every[:number])
        raise InvalidProblem(f"two of the same name: {what} {twice}")


def check_amounts(where: str, amounts: Mapping[str, int]) -> None:
    """Raises `InvalidProblem` for amounts below 0 or above `MOST_AMOUNT`."""
    if not amounts or (min(amounts.values()) >= 0 and max(amounts.values()) <= MOST_AMOUNT):
        return
    for resource, amount in amounts.items():
        if not 0 <= amount <= MOST_AMOUNT:
            raise InvalidProblem(f"{where}: {amount} of {resource} is not between 0 and 2^50")


def check_classes(classes: Iterable[PodClass], resources: Sequence[str]) -> None:
    """Raises `InvalidProblem` for requests of undeclared resources and for amounts that cannot be counted."""
    known = set(resources)
    for pods in classes:
        if unknown := pods.requests.keys() - known:
            raise InvalidProblem(f"class {pods.name} asks for {min(unknown)}, which is none of the resources")
        check_amounts(f"class {pods.name}", pods.requests)
