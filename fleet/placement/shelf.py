"""Rooms of many slots sorted into buckets, so that the fewest machines for some pods are found without a scan."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING

from model.quantity import Resources

if TYPE_CHECKING:
    from fleet.placement.board import Slot

Entry = tuple[str, "Slot"]
"""A slot under its name; names are unique on a board, so slots are never compared."""


class Shelf:
    """Slots by how many pods of one class they have room for, which is never 0."""

    __slots__ = ("_buckets", "total")

    def __init__(self) -> None:
        self.total = 0
        """Pods that fit on all slots together."""
        self._buckets: dict[int, list[Entry]] = {}
        """Room -> slots in name order."""

    @classmethod
    def of(cls, slots: Iterable["Slot"], requests: Resources) -> "Shelf":
        """Slots with their room for pods with these requests."""
        shelf = cls()
        buckets = shelf._buckets
        for slot in slots:
            if room := slot.room_for(requests):
                buckets.setdefault(room, []).append((slot.name, slot))
        for room, bucket in buckets.items():
            bucket.sort(key=_name)
            shelf.total += room * len(bucket)
        return shelf

    def put(self, name: str, slot: "Slot", room: int) -> None:
        """A further slot, which must not be on the shelf."""
        insort(self._buckets.setdefault(room, []), (name, slot), key=_name)
        self.total += room

    def drop(self, name: str, _slot: "Slot", room: int) -> None:
        """Take off the slot that was put under this name with this room."""
        bucket = self._buckets[room]
        del bucket[bisect_left(bucket, name, key=_name)]
        if not bucket:
            del self._buckets[room]
        self.total -= room

    def rooms(self) -> Iterable[int]:
        """The rooms that occur, in no order."""
        return self._buckets

    def at(self, room: int) -> Sequence[Entry]:
        """Slots with exactly this room, by name."""
        return self._buckets.get(room, ())


_name = itemgetter(0)


def fewest(shelves: Sequence[Shelf], count: int) -> list[tuple["Slot", int]]:
    """The slots that take `count` pods, roomiest first and then by name, and how many each; fewer if not all fit.

    The last one is the tightest that holds what is left. The cost grows with the slots used, not with those there are.
    """
    rooms = sorted({room for shelf in shelves for room in shelf.rooms()}, reverse=True)
    taken: list[tuple[Slot, int]] = []
    for room in rooms:
        for _, slot in merge(*(shelf.at(room) for shelf in shelves), key=_name):
            if count <= room:
                if count:
                    tightest = min(enough for enough in rooms if enough >= count)
                    closing = slot if tightest == room else _first(shelves, tightest)
                    taken.append((closing, count))
                return taken
            taken.append((slot, room))
            count -= room
    return taken


def _first(shelves: Sequence[Shelf], room: int) -> "Slot":
    return min((shelf.at(room)[0] for shelf in shelves if shelf.at(room)), key=_name)[1]
