"""Free capacity is how many pods of a class fit on the slots of a cluster state, kept up to date from what changes.

A class of pods is what asks for the same and suits the same slots. Slots are kept sorted into buckets of equal room and
equal opportunity cost, so that the best machines for some pods are found without a scan.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice, product
from operator import itemgetter

from fleet.offerings.offerings import Offering
from fleet.placement.cluster_state import ANYBODY, PODS, ClusterState, NodeAssignment, NodeSlot, lacks
from fleet.snapshot import PodSet
from model.quantity import Resources

ANYWHERE = ""
"""The label that every slot carries, so to speak: its one domain is the whole cluster."""
_CLASSES = 32
"""Classes of pods that are kept for a state; the one asked for first goes."""
_ORDERS = 8
"""Orders that a set of buckets keeps; the one asked for longest ago goes."""

Section = tuple[bool, bool, frozenset[str]]
"""Whether the machine stands (has joined), whether it is to leave, and for which gangs alone it is (none = anybody)."""
Entry = tuple[str, NodeSlot]
"""A slot under its name; names are unique in a state, so slots are never compared."""
SlotCost = Callable[[NodeSlot, int], tuple[bool, int]]
"""What so many pods cost a slot: whether they take away that it stands empty where that is worth something, and what
its free part loses of its worth (thousandths of a GPU)."""
_Rank = tuple[bool, int, int]
"""The cost and then the room: the lowest is the best."""
_name, _rank_and_name = itemgetter(0), itemgetter(0, 1)


def no_cost(_slot: NodeSlot, _count: int) -> tuple[bool, int]:
    """The cost of every slot is the same: the tightest room is the best."""
    return False, 0


def free_capacity(
    state: ClusterState,
    asks: Hashable,
    requests: Resources,
    accepts: Callable[[NodeSlot], bool] = lambda _slot: True,
    priced: Callable[[Resources], SlotCost] = lambda _requests: no_cost,
) -> "FreeCapacity":
    """The free capacity for pods with `requests` on the slots that suit them; its index is kept with the state.

    `asks` must differ for pods that ask for different amounts or suit different slots: it stands for what `accepts`
    looks at, too. What is `priced` is so by the same rule as long as the state lives.
    """
    index: PodClassIndex | None = state.indexes.get(asks)
    if index is None:
        if len(state.indexes) >= _CLASSES:
            del state.indexes[next(iter(state.indexes))]
        index = state.indexes[asks] = PodClassIndex(requests, accepts, priced(requests))
    elif index.outdated:
        index.price(priced(requests))
    return FreeCapacity(state, index)


def forget_costs(state: ClusterState) -> None:
    """Has everything priced anew when it is asked for next; how many pods fit where stays known."""
    for index in state.indexes.values():
        index.outdated = True


@dataclass(slots=True, eq=False)  # never changed; frozen ones take three times as long to make, and there are many
class FreeCapacity:
    """The slots that a search for one class of pods may use, and how many pods fit on them.

    They are narrowed to a gang, to machines that stand or do not, and to one domain of a label.
    """

    state: ClusterState
    index: "PodClassIndex"
    gang: str = ""
    standing: bool | None = None
    """Only machines that have joined (True), only others (False), or both (None)."""
    label: str = ANYWHERE
    value: str = ""
    kept: bool = False
    """Only machines that are kept for the gang."""
    leaving: bool | None = None
    """Only machines that are to leave (True), only others (False), or both (None)."""
    alone: bool = False
    """Only machines that are kept for no other gang."""

    def among(self, gang: str = "", *, standing: bool | None = None, leaving: bool | None = None) -> "FreeCapacity":
        """All that a gang may use: only machines that stand, only others, or both (None)."""
        return FreeCapacity(self.state, self.index, gang, standing, leaving=leaving)

    def kept_for(self, gang: str, *, alone: bool) -> "FreeCapacity":
        """The machines that stand and are kept for a gang: for it `alone`, or for others too."""
        return FreeCapacity(self.state, self.index, gang, standing=True, kept=True, alone=alone)

    def keeps(self, gang: str) -> bool:
        """Whether any machine that suits the pods is kept for a gang, alone or with others."""
        self.index.refresh(self.state)
        return len(self.index.owners(gang)) > 1

    def within(self, label: str, value: str) -> "FreeCapacity":
        """The part of it on slots with this label value."""
        return FreeCapacity(
            self.state, self.index, self.gang, self.standing, label, value, self.kept, self.leaving, self.alone
        )

    def tightest_domain(self, label: str, count: int) -> "FreeCapacity | None":
        """The domain of a label with the least room that holds `count` pods; None when there is none."""
        fitting = [(total, value) for value, total in self.totals(label).items() if total >= count]
        return self.within(label, min(fitting)[1]) if fitting else None

    @property
    def room(self) -> int:
        """How many pods fit on all of the slots together."""
        return sum(buckets.total for buckets in self.buckets())

    def buckets(self) -> list["SlotBuckets"]:
        """The slots in their buckets, as of now."""
        of_label = self.index.sections(self.state, self.label)
        there = (of_label[section] for section in self._sections() if section in of_label)
        return [of_section[self.value] for of_section in there if self.value in of_section]

    def kept_for_nobody(self) -> list[tuple[Section, "SlotBuckets"]]:
        """The slots with room that any gang may use: what stands before the rest, and last what is to leave."""
        of_all = self.index.sections(self.state, ANYWHERE)
        found = [(section, there[""]) for section, there in of_all.items() if not section[2] and there[""].total]
        return sorted(found, key=lambda it: (not it[0][0], it[0][1])) if len(found) > 1 else found

    def totals(self, label: str) -> dict[str, int]:
        """Value of a label -> pods that fit on the slots with it."""
        totals, of_label = dict[str, int](), self.index.sections(self.state, label)
        for section in self._sections():
            for value, buckets in of_label.get(section, {}).items():
                totals[value] = totals.get(value, 0) + buckets.total
        return totals

    def _sections(self) -> Iterator[Section]:
        owners = self.index.owners(self.gang)
        if self.kept:
            owners = [it for it in owners if it and not (self.alone and len(it) > 1)]
        standing = (True, False) if self.standing is None else (self.standing,)
        leaving = (False, True) if self.leaving is None else (self.leaving,)
        return product(standing, leaving, owners)


def assign(
    state: ClusterState, among: Iterable[NodeSlot] | FreeCapacity, pod_set: PodSet, count: int
) -> list[NodeAssignment]:
    """Puts up to `count` pods on slots: largest rooms first, the rest where it costs least. Fewer when not all fit.

    As few machines as possible is Kueue's BestFit for topology-aware scheduling (`tas_flavor_snapshot.go`). Its
    smallest machine that still takes the rest is the choice among those of equal cost (`docs/design/0003-packing.md`).
    Free capacity has to be that of the pod set's class; a list has no costs.
    """
    assignments = []
    parts = among.buckets() if isinstance(among, FreeCapacity) else (SlotBuckets.of(among, pod_set.requests),)
    for slot, taken in fewest_slots(parts, count):
        state.place(slot, pod_set, taken)
        assignments.append(NodeAssignment(pod_set.name, slot, taken))
    return assignments


def best_first(parts: Sequence[FreeCapacity]) -> Iterator[NodeSlot]:
    """Yields the slots for one pod: part by part, those where it costs least first. Nothing may change meanwhile."""
    for part in parts:
        yield from _best(part.buckets(), 1)


def fewest_slots(parts: Sequence["SlotBuckets"], count: int) -> list[tuple[NodeSlot, int]]:
    """The slots that take `count` pods, roomiest first, and how many each; fewer if not all fit.

    Those that are filled are the best of their room, the last one is the best of all that hold what is left.
    """
    taken: list[tuple[NodeSlot, int]] = []
    no_choice = count >= sum(buckets.total for buckets in parts)
    for room in sorted({room for buckets in parts for room in buckets.of_room}, reverse=True):
        if count <= 0:
            break
        there = sum(len(buckets.of_room.get(room, ())) for buckets in parts)
        filled = there if no_choice else min((count - 1) // room, there)
        taken += [(slot, room) for slot in _filled(parts, room, filled, there)]
        count -= filled * room
        if filled < there:
            used = {id(slot) for slot, _ in taken}
            taken.append((next(slot for slot in _best(parts, count) if id(slot) not in used), count))
            break
    return taken


def _filled(parts: Sequence["SlotBuckets"], room: int, wanted: int, there: int) -> Iterable[NodeSlot]:
    """The best slots with this room; where all of them are wanted it does not matter which is better."""
    if wanted == there:
        return (slot for _, slot in merge(*(buckets.of_room.get(room, ()) for buckets in parts), key=_name))
    return islice(_best(parts, room, filled=True), wanted) if wanted else ()


def _best(parts: Sequence["SlotBuckets"], count: int, *, filled: bool = False) -> Iterator[NodeSlot]:
    orders = [buckets.best(count, filled=filled) for buckets in parts]
    ranked = orders[0] if len(orders) == 1 else merge(*orders, key=_rank_and_name)
    return (slot for _, _, slot in ranked)


@dataclass(slots=True)
class _Entry:
    """An index notes this of a slot; name, section and room are those it is sorted in under."""

    slot: NodeSlot
    name: str
    section: Section
    seen: object
    """The slot's last change that has been noted."""
    room: int
    suits: bool
    """Whether the slot suits the pods: judging is dear, and waits until there is room for one."""


class PodClassIndex:
    """The index knows the room of every slot that suits a class of pods, by section and by the labels asked for.

    A slot is judged once: its labels, taints and pool do not change while it is part of a state. A state keeps its
    indexes, so they do not hold it: it would live on until the next collection of cycles.
    """

    def __init__(self, requests: Resources, accepts: Callable[[NodeSlot], bool], cost: SlotCost = no_cost) -> None:
        self._requests = requests
        self._asked = sorted((it for it in requests.items() if it[1]), reverse=True) or [(PODS, 1)]  # GPUs first
        self._accepts = accepts
        self._cost = cost
        self.outdated = False
        """Whether costs have changed since it was priced."""
        self._seen = (-1, 0)
        self._entries: dict[NodeSlot, _Entry] = {}
        self._unsuited: dict[int, Offering] = {}
        """Those of which no machine will do, by identity."""
        self._buckets: dict[str, dict[Section, dict[str, SlotBuckets]]] = {ANYWHERE: {}}
        """Label -> section -> value -> slots."""
        self._owners: set[frozenset[str]] = set()
        """Of the slots that are kept for somebody, or have been."""

    def sections(self, state: ClusterState, label: str) -> dict[Section, dict[str, "SlotBuckets"]]:
        """Section -> value of a label -> the slots of the section that carry it, as the state is now."""
        self.refresh(state)
        if label not in self._buckets:
            self._buckets[label] = {}
            for entry in self._entries.values():
                self._move(entry, (label,), SlotBuckets.put)
        return self._buckets[label]

    def price(self, cost: SlotCost) -> None:
        """Takes another cost for all of its slots."""
        self._cost, self.outdated = cost, False
        for sections in self._buckets.values():
            for of_section in sections.values():
                for buckets in of_section.values():
                    buckets.price(cost)

    def owners(self, gang: str) -> list[frozenset[str]]:
        """For whom slots are kept that a gang may use: for anybody, and for it, alone or with others."""
        kept = [owners for owners in self._owners if gang in owners]
        return [ANYBODY, *(sorted(kept, key=sorted) if len(kept) > 1 else kept)]

    def refresh(self, state: ClusterState) -> None:
        """Catches up with the state: the cost grows with what has changed since."""
        if (now := state.now()) == self._seen:
            return
        if (touched := state.touched(self._seen)) is None:
            self._entries.clear()
            self._buckets = {label: {} for label in self._buckets}
            touched = list(state.slots.values())
        known, unsuited, (scarce, least), *others = self._entries, self._unsuited, *self._asked
        # A what-if that was undone has touched each slot twice; most that are bought for others are full.
        for slot in [it for it in dict.fromkeys(touched) if it in known or it.free.get(scarce, 0) >= least]:
            if (entry := known.get(slot)) is not None:
                self._note(state, entry)
            elif not (id(slot.offering) in unsuited or lacks(slot.free, others)) and state.slots.get(slot.name) is slot:
                self._begin(slot)
        self._seen = now

    def _begin(self, slot: NodeSlot) -> None:
        """Takes in a slot that nothing was known of: of most nothing has to be before there is room."""
        if room := slot.room_for(self._requests):
            section = (bool(slot.node), slot.leaving, slot.only_for)
            if not (suits := self._accepts(slot)) and slot.offering is not None:
                self._unsuited[id(slot.offering)] = slot.offering
                return
            entry = self._entries[slot] = _Entry(slot, slot.name, section, slot.changed, room if suits else 0, suits)
            self._move(entry, self._buckets, SlotBuckets.put)

    def _note(self, state: ClusterState, entry: _Entry) -> None:
        if state.slots.get((slot := entry.slot).name) is not slot:
            self._move(self._entries.pop(slot), self._buckets, SlotBuckets.drop)
            return
        if entry.seen is slot.changed:
            return
        room = slot.room_for(self._requests) if entry.suits else 0
        section = (bool(slot.node), slot.leaving, slot.only_for)
        entry.seen = slot.changed
        if (room, slot.name, section) == (entry.room, entry.name, entry.section):
            self._move(entry, self._buckets, SlotBuckets.mark_changed)  # something else about it has changed
            return
        self._move(entry, self._buckets, SlotBuckets.drop)
        entry.name, entry.section, entry.room = slot.name, section, room
        self._move(entry, self._buckets, SlotBuckets.put)

    def _move(
        self, entry: _Entry, labels: Iterable[str], move: Callable[["SlotBuckets", str, NodeSlot, int], None]
    ) -> None:
        """Puts an entry into the buckets of each label that its slot carries, or drops it from there."""
        if not entry.room:
            return
        for label in labels:
            if (value := entry.slot.labels.get(label, "")) or label == ANYWHERE:
                of_section = self._buckets[label].setdefault(entry.section, {})
                if value not in of_section:
                    of_section[value] = SlotBuckets(self._cost)
                    self._owners |= {entry.section[2]} - {ANYBODY}
                move(of_section[value], entry.name, entry.slot, entry.room)


class SlotBuckets:
    """Slots in buckets, by how many pods of one class they have room for, which is never 0."""

    __slots__ = ("_cost", "_orders", "of_room", "total")

    def __init__(self, cost: SlotCost = no_cost) -> None:
        self.total = 0
        """Pods that fit on all slots together."""
        self._cost = cost
        self.of_room: dict[int, list[Entry]] = {}
        """Room -> slots in name order."""
        self._orders: dict[tuple[int, bool], _CostOrder] = {}

    @classmethod
    def of(cls, slots: Iterable[NodeSlot], requests: Resources) -> "SlotBuckets":
        """Slots with their room for pods with these requests."""
        made = cls()
        for slot in slots:
            if room := slot.room_for(requests):
                made.of_room.setdefault(room, []).append((slot.name, slot))
        for room, bucket in made.of_room.items():
            bucket.sort(key=_name)
            made.total += room * len(bucket)
        return made

    def price(self, cost: SlotCost) -> None:
        """Takes another cost: what was ranked by the one before is ranked anew when it is asked for."""
        self._cost, self._orders = cost, {}

    def put(self, name: str, slot: NodeSlot, room: int) -> None:
        """Adds a slot that is not there yet."""
        insort(self.of_room.setdefault(room, []), (name, slot), key=_name)
        self.total += room
        self.mark_changed(name, slot, room)

    def drop(self, name: str, slot: NodeSlot, room: int) -> None:
        """Removes the slot that was put under this name with this room."""
        bucket = self.of_room[room]
        del bucket[bisect_left(bucket, name, key=_name)]
        if not bucket:
            del self.of_room[room]
        self.total -= room
        self.mark_changed(name, slot, 0)

    def mark_changed(self, name: str, slot: NodeSlot, room: int) -> None:
        """Notes that what is free on a slot has changed, whether its room has or not."""
        for order in self._orders.values():
            order.note(name, slot, room)

    def best(self, count: int, *, filled: bool = False) -> Iterator[tuple[_Rank, str, NodeSlot]]:
        """Slots that hold so many pods, best first; only those they would fill, or all."""
        filled = filled and count < max(self.of_room, default=0)  # else all that hold them are filled
        order = self._orders.pop((count, filled), None)
        if order is None:
            order = _CostOrder(self._cost, count, count if filled else None, self.of_room)
            for oldest in list(self._orders)[: 1 - _ORDERS]:
                del self._orders[oldest]
        self._orders[count, filled] = order
        return order.best()


class _CostOrder:
    """Slots with room for a number of pods, in order of cost. What has changed is ranked when somebody asks."""

    __slots__ = ("_buckets", "_cost", "_count", "_most", "_rank_of", "_ranks", "_stale")

    def __init__(self, cost: SlotCost, count: int, most: int | None, buckets: Mapping[int, Iterable[Entry]]) -> None:
        self._cost = cost
        self._count = count
        self._most = most
        """The largest room it looks at; None = no bound."""
        self._ranks: list[_Rank] = []
        self._buckets: dict[_Rank, list[Entry]] = {}
        """Rank -> slots in name order."""
        self._rank_of: dict[str, _Rank] = {}
        self._stale: dict[str, tuple[NodeSlot, int]] = {}
        """Slots and rooms that have come or changed, by name; room 0 = it has gone."""
        self._sort_in((entry, room) for room, bucket in buckets.items() if self._looks_at(room) for entry in bucket)

    def note(self, name: str, slot: NodeSlot, room: int) -> None:
        """Notes that a slot has this room now, or none any more."""
        room = room if self._looks_at(room) else 0
        if room or name in self._rank_of or name in self._stale:
            self._stale[name] = slot, room

    def best(self) -> Iterator[tuple[_Rank, str, NodeSlot]]:
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
        cost, count, rank_of = self._cost, self._count, self._rank_of
        came: dict[_Rank, tuple[_Rank, list[Entry]]] = {}
        for entry, room in entries:
            rank = *cost(entry[1], count), room
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
