"""Packing one pod set: largest rooms first and the last one best-fit, inside one topology domain when asked.

The order is Kueue's BestFit for topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`): as few
machines as possible, and the smallest one that still takes the rest.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.placement.board import Board, Slot
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


def room(slots: Iterable[Slot], pod_set: PodSet) -> int:
    """How many pods of the set fit on these slots together."""
    return sum(slot.room_for(pod_set.requests) for slot in slots)


def choose_domain(slots: Iterable[Slot], pod_set: PodSet) -> list[Slot] | None:
    """The tightest domain of the set's required topology that holds all of it; None when there is none."""
    fitting = [
        (total, value, members)
        for value, members in domains(slots, pod_set.required_topology).items()
        if (total := room(members, pod_set)) >= pod_set.count
    ]
    return min(fitting, key=lambda entry: entry[:2])[2] if fitting else None


def seat(board: Board, slots: Sequence[Slot], pod_set: PodSet, count: int) -> list[Seat]:
    """Put up to `count` pods on `slots` and take the room on the board; fewer when they do not all fit."""
    rooms = [(free, slot) for slot in slots if (free := slot.room_for(pod_set.requests))]
    rooms.sort(key=lambda entry: (-entry[0], entry[1].name))
    seats = []
    for index, (free, slot) in enumerate(rooms):
        if not count:
            break
        chosen, taken = slot, free
        if free >= count:
            chosen = min(
                (entry for entry in rooms[index:] if entry[0] >= count), key=lambda entry: (entry[0], entry[1].name)
            )[1]
            taken = count
        board.take(chosen, pod_set.requests, taken)
        seats.append(Seat(pod_set.name, chosen, taken))
        count -= taken
    return seats
