"""Rooms of many slots sorted into buckets, so that the best machines for some pods are found without a scan."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from model.quantity import Resources

if TYPE_CHECKING:
    from fleet.placement.board import Slot

Entry = tuple[str, "Slot"]
"""A slot under its name; names are unique on a board, so slots are never compared."""
Price = Callable[["Slot", int], tuple[bool, int]]
"""What so many pods cost a slot: whether they take away that it stands empty where that is worth something, and what
its free part loses of its worth (thousandths of a GPU)."""
_Rank = tuple[bool, int, int]
"""The price and then the room: the lowest is the best."""
_ORDERS = 8
"""Orders that a shelf keeps; the one asked for longest ago goes."""


def free_of_charge(_slot: "Slot", _count: int) -> tuple[bool, int]:
    """The price where worth says nothing: the tightest room is the best."""
    return False, 0


class _Order:
    """Slots with room for a part of a pod set, best first. What has changed is ranked when somebody asks."""

    __slots__ = ("_buckets", "_count", "_most", "_price", "_rank_of", "_ranks", "_stale")

    def __init__(self, price: Price, count: int, most: int | None, buckets: Mapping[int, Iterable[Entry]]) -> None:
        self._price = price
        self._count = count
        self._most = most
        """The largest room it looks at; None = no bound."""
        self._ranks: list[_Rank] = []
        self._buckets: dict[_Rank, list[Entry]] = {}
        """Rank -> slots in name order."""
        self._rank_of: dict[str, _Rank] = {}
        self._stale: dict[str, tuple[Slot, int]] = {}
        """Slots and rooms that have come or changed, by name; room 0 = it has gone."""
        self._sort_in((entry, room) for room, bucket in buckets.items() if self._looks_at(room) for entry in bucket)

    def note(self, name: str, slot: "Slot", room: int) -> None:
        """A slot has this room now, or none any more."""
        room = room if self._looks_at(room) else 0
        if room or name in self._rank_of or name in self._stale:
            self._stale[name] = slot, room

    def best(self) -> Iterator[tuple[_Rank, str, "Slot"]]:
        """The slots by rank and then by name."""
        self._catch_up()
        for rank in self._ranks:
            for name, slot in self._buckets[rank]:
                yield rank, name, slot

    def _looks_at(self, room: int) -> bool:
        return room >= self._count and (self._most is None or room <= self._most)

    def _catch_up(self) -> None:
        stale, self._stale = self._stale, {}
        for name in stale:
            if before := self._rank_of.pop(name, None):
                self._drop(before, name)
        self._sort_in(((name, slot), room) for name, (slot, room) in stale.items() if room)

    def _sort_in(self, entries: Iterable[tuple[Entry, int]]) -> None:
        price, count, rank_of = self._price, self._count, self._rank_of
        came: dict[_Rank, tuple[_Rank, list[Entry]]] = {}
        for entry, room in entries:
            kept, loss = price(entry[1], count)
            rank = kept, loss, room
            if rank not in came:
                came[rank] = rank, []
            rank_of[entry[0]], alike = came[rank]  # one rank for all of them: memory that nobody has to look through
            alike.append(entry)
        for rank, alike in came.values():
            if rank not in self._buckets:
                insort(self._ranks, rank)
                self._buckets[rank] = sorted(alike, key=_name)
            else:
                for entry in alike:
                    insort(self._buckets[rank], entry, key=_name)

    def _drop(self, rank: _Rank, name: str) -> None:
        bucket = self._buckets[rank]
        del bucket[bisect_left(bucket, name, key=_name)]
        if not bucket:
            del self._buckets[rank]
            del self._ranks[bisect_left(self._ranks, rank)]


class Shelf:
    """Slots by how many pods of one class they have room for, which is never 0."""

    __slots__ = ("_buckets", "_orders", "_price", "total")

    def __init__(self, price: Price = free_of_charge) -> None:
        self.total = 0
        """Pods that fit on all slots together."""
        self._price = price
        self._buckets: dict[int, list[Entry]] = {}
        """Room -> slots in name order."""
        self._orders: dict[tuple[int, bool], _Order] = {}

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
        self.stir(name, slot, room)

    def drop(self, name: str, slot: "Slot", room: int) -> None:
        """Take off the slot that was put under this name with this room."""
        bucket = self._buckets[room]
        del bucket[bisect_left(bucket, name, key=_name)]
        if not bucket:
            del self._buckets[room]
        self.total -= room
        self.stir(name, slot, 0)

    def stir(self, name: str, slot: "Slot", room: int) -> None:
        """What is free on a slot has changed, whether its room has or not."""
        for order in self._orders.values():
            order.note(name, slot, room)

    def rooms(self) -> Iterable[int]:
        """The rooms that occur, in no order."""
        return self._buckets

    def at(self, room: int) -> Sequence[Entry]:
        """Slots with exactly this room, by name."""
        return self._buckets.get(room, ())

    def best(self, count: int, *, filled: bool = False) -> Iterator[tuple[_Rank, str, "Slot"]]:
        """Slots that hold so many pods, best first; only those they would fill, or all."""
        filled = filled and count < max(self._buckets, default=0)  # else all that hold them are filled
        order = self._orders.pop((count, filled), None)
        if order is None:
            order = _Order(self._price, count, count if filled else None, self._buckets)
            for oldest in list(self._orders)[: 1 - _ORDERS]:
                del self._orders[oldest]
        self._orders[count, filled] = order
        return order.best()


_name = itemgetter(0)
_rank_and_name = itemgetter(0, 1)


def fewest(shelves: Sequence[Shelf], count: int) -> list[tuple["Slot", int]]:
    """The slots that take `count` pods, roomiest first, and how many each; fewer if not all fit.

    Those that are filled are the best of their room, the last one is the best of all that hold what is left.
    """
    taken: list[tuple[Slot, int]] = []
    no_choice = count >= sum(shelf.total for shelf in shelves)
    for room in sorted({room for shelf in shelves for room in shelf.rooms()}, reverse=True):
        if count <= 0:
            break
        there = sum(len(shelf.at(room)) for shelf in shelves)
        filled = there if no_choice else min((count - 1) // room, there)
        taken += [(slot, room) for slot in _filled(shelves, room, filled, there)]
        count -= filled * room
        if filled < there:
            used = {id(slot) for slot, _ in taken}
            taken.append((next(slot for slot in _best(shelves, count) if id(slot) not in used), count))
            break
    return taken


def _filled(shelves: Sequence[Shelf], room: int, wanted: int, there: int) -> Iterable["Slot"]:
    """The best slots with this room; where all of them are wanted it does not matter which is better."""
    if wanted == there:
        return (slot for _, slot in merge(*(shelf.at(room) for shelf in shelves), key=_name))
    return islice(_best(shelves, room, filled=True), wanted) if wanted else ()


def _best(shelves: Sequence[Shelf], count: int, *, filled: bool = False) -> Iterator["Slot"]:
    orders = [shelf.best(count, filled=filled) for shelf in shelves]
    ranked = orders[0] if len(orders) == 1 else merge(*orders, key=_rank_and_name)
    return (slot for _, _, slot in ranked)
