"""Packing one pod set: largest rooms first, the rest where it costs least, inside one topology domain when asked.

As few machines as possible is Kueue's BestFit for topology-aware scheduling (`pkg/cache/scheduler/
tas_flavor_snapshot.go`). Its smallest machine that still takes the rest is the choice among those of equal price
(`docs/design/0003-packing.md`, "In production"); slots that are given as a list have no prices.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import overload

from fleet.placement.board import Board, Slot
from fleet.placement.shelf import Shelf, fewest
from fleet.placement.view import Scope
from fleet.snapshot import PodSet


@dataclass(frozen=True, slots=True)
class Seat:
    """`count` pods of a pod set on one slot."""

    pod_set: str
    slot: Slot
    count: int


def domains(slots: Iterable[Slot], label: str) -> dict[str, list[Slot]]:
    """Slots by the value of a topology label; slots without it belong nowhere."""
    found: dict[str, list[Slot]] = {}
    for slot in slots:
        if value := slot.labels.get(label):
            found.setdefault(value, []).append(slot)
    return found


def room(among: Iterable[Slot] | Scope, pod_set: PodSet) -> int:
    """How many pods of the set fit on these slots together."""
    if isinstance(among, Scope):
        return sum(shelf.total for shelf in among.shelves())
    return sum(slot.room_for(pod_set.requests) for slot in among)


@overload
def choose_domain(among: Scope, pod_set: PodSet) -> Scope | None: ...
@overload
def choose_domain(among: Iterable[Slot], pod_set: PodSet) -> list[Slot] | None: ...
def choose_domain(among: Iterable[Slot] | Scope, pod_set: PodSet) -> list[Slot] | Scope | None:
    """The tightest domain of the set's required topology that holds all of it; None when there is none."""
    label = pod_set.required_topology
    members = {} if isinstance(among, Scope) else domains(among, label)
    totals = among.totals(label) if isinstance(among, Scope) else {v: room(s, pod_set) for v, s in members.items()}
    fitting = [(total, value) for value, total in totals.items() if total >= pod_set.count]
    if not fitting:
        return None
    value = min(fitting)[1]
    return among.within(label, value) if isinstance(among, Scope) else members[value]


def seat(board: Board, among: Iterable[Slot] | Scope, pod_set: PodSet, count: int) -> list[Seat]:
    """Put up to `count` pods on slots and take the room on the board; fewer when they do not all fit.

    A scope has to be of a view of the pod set's class; it is many times cheaper than a list of many slots.
    """
    seats = []
    for slot, taken in fewest(_shelves(among, pod_set), count):
        board.take(slot, pod_set.requests, taken)
        seats.append(Seat(pod_set.name, slot, taken))
    return seats


def _shelves(among: Iterable[Slot] | Scope, pod_set: PodSet) -> Sequence[Shelf]:
    if isinstance(among, Scope):
        return among.shelves()
    return (Shelf.of(among, pod_set.requests),)
