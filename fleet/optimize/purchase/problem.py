"""What is asked: pods in classes, the kinds of machines that can be bought, and what limits a purchase.

Nothing here knows Kubernetes or a cloud: which class may stand on which kind (requirements, taints, MIG layouts, zones)
is decided by the caller and arrives as a set of names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MACHINES, USD_H = "machines", "usd_h"
"""What a `Limit` can count besides resources: machines, and what they cost an hour."""
MOST_AMOUNT = 2**50
"""No larger amount is exact in the arithmetic of the search."""


class InvalidProblem(ValueError):
    """The problem contradicts itself; the message says where."""


@dataclass(frozen=True, slots=True)
class PodClass:
    """`count` equal pods."""

    name: str
    requests: Mapping[str, int]
    """Resource -> what one pod takes; whole numbers in any unit, the same as in the capacities."""
    count: int
    kinds: frozenset[str]
    """Names of the machine kinds and rooms it may stand on. Classes that may stand on the same best share one set."""
    group: str = ""
    """All classes of a group stand on machines of one lane, all of their pods or none; empty = each for itself."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A way to buy machines."""

    name: str
    price_usd_h: float
    capacity: Mapping[str, int]
    lane: str = ""
    """What a group may not straddle: its zone."""
    most: int | None = None
    """How many can be had; None = no end."""


@dataclass(frozen=True, slots=True)
class Room:
    """A machine that is there already: what is still free on it costs nothing."""

    name: str
    free: Mapping[str, int]
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What is bought of some kinds together: at most so much of something.

    That is `MACHINES`, `USD_H` or a resource by its capacity; a resource that no pod asks for can carry a capacity that
    counts otherwise than what pods may use. Rooms count nothing.
    """

    name: str
    counted: str
    most: float
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Problem:
    """A batch of pods to buy machines for. Raises `InvalidProblem`."""

    resources: tuple[str, ...]
    """Every resource that counts, the one that orders pods first in front (`cpu`, `memory`, ...)."""
    classes: tuple[PodClass, ...]
    kinds: tuple[MachineKind, ...]
    limits: tuple[Limit, ...] = ()
    rooms: tuple[Room, ...] = ()

    def __post_init__(self) -> None:
        if not self.resources:
            raise InvalidProblem("no resource counts")
        distinct("resource", self.resources)
        distinct("class", (it.name for it in self.classes))
        distinct("kind or room", [*(it.name for it in self.kinds), *(it.name for it in self.rooms)])
        distinct("limit", (it.name for it in self.limits))
        known = set(self.resources)
        for pods in self.classes:
            if pods.count < 0:
                raise InvalidProblem(f"class {pods.name}: count {pods.count} is negative")
            if unknown := pods.requests.keys() - known:
                raise InvalidProblem(f"class {pods.name} asks for {min(unknown)}, which is none of the resources")
            whole(f"class {pods.name}", pods.requests)
        for kind in self.kinds:
            if not 0 <= kind.price_usd_h < float("inf") or (kind.most is not None and kind.most < 0):
                raise InvalidProblem(f"kind {kind.name}: price {kind.price_usd_h} or bound {kind.most} makes no sense")
            whole(f"kind {kind.name}", kind.capacity)
        for room in self.rooms:
            whole(f"room {room.name}", room.free)
        for limit in self.limits:
            if limit.counted not in (known | {MACHINES, USD_H}) or not limit.most >= 0:
                raise InvalidProblem(f"limit {limit.name}: at most {limit.most} of {limit.counted} makes no sense")

    @property
    def pods(self) -> int:
        """How many pods there are."""
        return sum(it.count for it in self.classes)


def distinct(what: str, names: Iterable[str]) -> None:
    """Raise `InvalidProblem` where a name comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidProblem(f"two of the same name: {what} {name}")
        seen.add(name)


def whole(where: str, amounts: Mapping[str, int]) -> None:
    """Raise `InvalidProblem` for amounts that the arithmetic of the search would not keep exact."""
    for resource, amount in amounts.items():
        if not 0 <= amount <= MOST_AMOUNT:
            raise InvalidProblem(f"{where}: {amount} of {resource} is not between 0 and 2^50")
