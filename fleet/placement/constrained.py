"""Places pods that ask something of other pods, ports or volumes: one by one, each where a filter allows it.

Pods without such constraints are placed by counts alone (`fleet.placement.free_capacity`), which is many times cheaper.
A machine to buy is judged as kube-scheduler will judge it once it stands. Zones that pools sell count as domains while
pods are bought for, as Karpenter counts them: kube-scheduler alone would see only those that have a node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from operator import attrgetter

from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.candidate_offerings import CandidateOfferings
from fleet.placement.cluster_state import PODS, ClusterState, NodeAssignment, NodeSlot, planned_slot
from fleet.placement.domains import ClosedNode, domain_of
from fleet.placement.feasibility import no_place
from fleet.placement.free_capacity import FreeCapacity, best_first
from fleet.placement.plan import Need, PlannedNodeClaims
from fleet.placement.pod_filter import PodFilter
from fleet.placement.pod_score import PodScore
from fleet.reasons import Refusal
from model.labels import ZONE

_COMPARED = 256
"""Slots that are compared for pods that prefer some."""
_STARTS = 32
"""Domains tried for pods that want to be among themselves."""
Chooser = Callable[[CandidateOfferings, int], PlannedNodeClaims | Refusal]
"""(candidates, pods) -> what to buy for them."""
Usable = Callable[[NodeSlot], bool]
SiteKey = tuple[object, ...]
"""The domains of a machine to buy, of each label that constraints look at."""
_RoomLater = dict[SiteKey, dict[NodeSlot, int]]
"""Site -> slots of what stands there, the best first, with the pods that each holds."""


@dataclass(slots=True)
class ConstrainedPods:
    """`ConstrainedPods` are the pods of one set under a filter, with what has been done for them so far."""

    state: ClusterState
    capacity: BuyableCapacity
    gang: str
    need: Need
    rules: PodFilter
    choose: Chooser
    zones: Sequence[str]
    """Zones in which machines may be bought, best first; none = nothing may be bought."""
    score: PodScore | None = None
    """What the pods prefer; None = nothing."""
    bought_before: int = 0
    """Purchases of the plan so far: slots are named after them."""
    taken: dict[NodeSlot, int] = field(default_factory=dict)
    """Slot -> pods put there."""
    purchases: list[PlannedNodeClaims] = field(default_factory=list)

    _keys: tuple[str, ...] = ()
    """The labels by whose domains it counts pods."""
    _known_sites: Mapping[SiteKey, NodeSlot] | None = None

    def __post_init__(self) -> None:
        self._keys = self.rules.keys_beyond_hosts

    def place(self, parts: Sequence[FreeCapacity]) -> Refusal | None:
        """Places all pods, on what stands first; on refusal everything is as before."""
        refusal: Refusal | None = None
        with self._domains_for_sale():
            for start in self._starts(parts):
                mark = self.state.mark()
                missing = self._assign(lambda: best_first(parts), self.need.pod_set.count, start)
                refusal = self._buy(missing, self._room_later(parts, start, missing)) if missing else None
                if refusal is None:
                    return None
                self._undo(mark)
        return refusal

    @property
    def assignments(self) -> list[NodeAssignment]:
        """Returns where the pods have been put."""
        return [NodeAssignment(self.need.pod_set.name, slot, count) for slot, count in self.taken.items()]

    @property
    def worth(self) -> int:
        """Returns how much the pods like where they have been put."""
        return 0 if self.score is None else sum(self.score.worth(slot) * count for slot, count in self.taken.items())

    def _undo(self, mark: int) -> None:
        self.state.undo(mark)
        self.capacity.give_back(self.purchases)
        self.taken.clear()
        self.purchases.clear()

    # -- on what stands -----------------------------------------------------------------------------------------------

    def _starts(self, parts: Sequence[FreeCapacity]) -> Iterator[Usable]:
        """Yields which slots may be used: all, or one domain after another for pods that begin to gather.

        What holds all of them goes before what does not, the tightest first; last of all none, so that all are bought.
        """
        keys = tuple(dict.fromkeys(term.topology_key for term in self.need.pod_set.constraints.affinity))
        if not keys:
            yield lambda _slot: True
            return
        rooms, count = self._rooms(parts, keys), self.need.pod_set.count
        order = sorted(rooms, key=lambda it: (rooms[it] < count, abs(rooms[it] - count)))  # sorting is stable
        for where in order[:_STARTS]:
            yield partial(_is_in, keys, where)
        yield lambda slot: not slot.node and slot.name.startswith("new/")

    def _rooms(self, parts: Sequence[FreeCapacity], keys: Sequence[str]) -> dict[tuple[object, ...], int]:
        """The domains that are open, in order of their first slot's name, with the pods that fit there."""
        rooms: dict[tuple[object, ...], int] = {}
        for slot in sorted(_each(parts), key=attrgetter("name")):
            if self.rules.obstacle(slot) is None:
                where = tuple(domain_of(slot, key) for key in keys)
                rooms[where] = rooms.get(where, 0) + slot.room_for(self.need.pod_set.requests)
        return rooms

    def _assign(self, slots: Callable[[], Iterable[NodeSlot]], missing: int, usable: Usable) -> int:
        """Assigns pods to the best slots that the filter allows; returns how many are left."""
        while missing:
            slot = self._preferred(it for it in slots() if usable(it) and self._takes_one(it))
            if slot is None:
                break
            missing -= self._fill(slot, missing if self.score is None else 1)
        return missing

    def _preferred(self, slots: Iterator[NodeSlot]) -> NodeSlot | None:
        """The first of the slots; where pods prefer some, the one they like best of those that are otherwise alike."""
        first = next(slots, None)
        if first is None or self.score is None:
            return first
        alike = takewhile(lambda it: (bool(it.node), it.only_for) == (bool(first.node), first.only_for), slots)
        return self.score.best([first, *islice(alike, _COMPARED - 1)])

    def _takes_one(self, slot: NodeSlot) -> bool:
        return slot.room_for(self.need.pod_set.requests) > 0 and self.rules.obstacle(slot) is None

    def _fill(self, slot: NodeSlot, most: int) -> int:
        """Puts pods on one slot while it takes them; returns how many."""
        pod_set, count = self.need.pod_set, 0
        while count < most and self._takes_one(slot):
            self.state.place(slot, pod_set, 1)
            count += 1
        self.taken[slot] = self.taken.get(slot, 0) + count
        return count

    def _room_later(self, parts: Sequence[FreeCapacity], usable: Usable, missing: int) -> _RoomLater:
        """Returns where pods that are spread have room as soon as other domains have more of them."""
        found: _RoomLater = {}
        if not (self.rules.spreads and self.zones):
            return found
        for slot in [it for it in best_first(parts) if usable(it) and it.room_for(self.need.pod_set.requests) > 0]:
            known = found.setdefault(self._site_of(slot), {})
            room = min(missing - sum(known.values()), slot.room_for(self.need.pod_set.requests))
            if room > 0 and (held := self._held_by_host(slot, room)):
                known[slot] = held
        return {where: slots for where, slots in found.items() if slots}

    def _site_of(self, slot: NodeSlot) -> SiteKey:
        return tuple(slot.labels.get(key) for key in self._keys)

    # -- on what is bought --------------------------------------------------------------------------------------------

    @contextmanager
    def _domains_for_sale(self) -> Iterator[None]:
        """Counts what can be bought as domains, while pods are placed that may be bought for."""
        sites = [ClosedNode("", site.labels, site.taints) for site in self._sites().values()]
        for site in sites:
            self.state.neighbours.add_place(site)
        try:
            yield
        finally:
            for site in sites:
                self.state.neighbours.drop_place(site)

    def _sites(self) -> Mapping[SiteKey, NodeSlot]:
        """Returns a machine that can be bought for these pods for each place that is another to the filter."""
        if self._known_sites is not None:
            return self._known_sites
        found: dict[SiteKey, NodeSlot] = {}
        for zone in self.zones:
            for key, offering in self.capacity.candidates(self.need, zone).firsts(self._keys).items():
                if key not in found:
                    found[key] = planned_slot(offering, f"site/{len(found)}", self.gang)
        self._known_sites = found
        if self.score is None or not found:
            return found
        liked = dict(zip(found, self.score.of(list(found.values())), strict=True))
        self._known_sites = None  # what is liked changes with the pods that are put
        return {key: found[key] for key in sorted(found, key=lambda it: -liked[it])}  # sorting is stable

    def _buy(self, missing: int, later: _RoomLater) -> Refusal | None:
        """Buys machines at every site for as many pods as the filter wants there, until all have a place.

        What stands is used before, where pods may stand there once others stand elsewhere.
        """
        sites = self._sites()
        if not sites and self.zones and (unmet := self.capacity.unmet_claims(self.need)):
            return unmet
        while missing:
            bought: list[tuple[list[NodeSlot], int]] = []
            for key, count in self._shares(sites, missing, later).items():
                standing = min(count, sum(later.get(key, {}).values()))
                if standing:
                    bought.append(([*later[key]], standing))
                if count == standing:
                    continue
                chosen = self._choose_at(key, sites[key], count - standing)
                if isinstance(chosen, Refusal):
                    return chosen
                bought.append((self._new_slots(chosen), count - standing))
            left = missing - self._fill_evenly(bought)
            if left == missing and not later:
                return no_place(self.state, self.need, self.rules, missing, sites.values())
            missing, later = left, {}
        return None

    def _fill_evenly(self, bought: list[tuple[list[NodeSlot], int]]) -> int:
        """Puts its share of pods on the machines of each site, in turns as the filter lets them. Returns how many."""
        placed, moved = 0, True
        while moved:
            moved = False
            for number, (slots, share) in enumerate(bought):
                left = self._assign(partial(iter, slots), share, lambda _slot: True)
                bought[number] = slots, left
                placed, moved = placed + share - left, moved or left < share
        return placed

    def _shares(self, sites: Mapping[SiteKey, NodeSlot], missing: int, later: _RoomLater) -> dict[SiteKey, int]:
        """How many pods each site should get, if machines were endless: the emptiest open one goes first.

        Where nothing can be bought a site is what stands there, and gets no more than have room.
        """
        rules, shares = self.rules.beyond_hosts, dict.fromkeys((*sites, *later), 0)
        places = {**{key: next(iter(slots)) for key, slots in later.items()}, **sites}
        most = {key: sum(slots.values()) for key, slots in later.items() if key not in sites}
        mark = self.state.mark()
        try:
            for _ in range(missing):
                order = sorted(shares, key=lambda key: shares[key]) if rules.spreads else shares  # sorting is stable
                able = (key for key in order if shares[key] < most.get(key, missing))
                key = next((key for key in able if rules.obstacle(places[key]) is None), None)
                if key is None:
                    break
                shares[key] += 1
                self.state.take(places[key], {}, 1, self.need.pod_set)
        finally:
            self.state.undo(mark)
        return {key: count for key, count in shares.items() if count}

    def _choose_at(self, key: SiteKey, site: NodeSlot, count: int) -> PlannedNodeClaims | Refusal:
        """Returns what to buy at a site for so many pods."""
        most = self._most_per_host(site, count)
        if not most:
            return no_place(self.state, self.need, self.rules, count, [site])
        candidates = self.capacity.candidates(self.need, site.labels.get(ZONE, ""))
        return self.choose(candidates.narrowed(self._keys, key, most), count)

    def _new_slots(self, chosen: PlannedNodeClaims) -> list[NodeSlot]:
        self.capacity.spend([chosen])
        number = self.bought_before + len(self.purchases)
        self.purchases.append(chosen)
        names = (f"new/{number}/{n}" for n in range(chosen.count))
        bought = [planned_slot(chosen.offering, name, self.gang, room=chosen.room) for name in names]
        for slot in bought:
            self.state.add(slot)
        return bought

    def _most_per_host(self, site: NodeSlot, count: int) -> int:
        """How many of the pods a new machine may hold, however large it is, with others as empty beside it."""
        mark = self.state.mark()
        hosts = [NodeSlot(f"host/{n}", "", "", site.labels, site.taints, {PODS: count}) for n in range(2)]
        for host in hosts:
            self.state.add(host)
        held = self._held_by_host(hosts[0], count)
        self.state.undo(mark)
        return held

    def _held_by_host(self, slot: NodeSlot, most: int) -> int:
        """How many of the pods a machine may hold, of at most so many for which it has room, as others stand now."""
        rules, mark, held = self.rules.by_host, self.state.mark(), 0
        if not rules.checks:
            return most
        while held < most and rules.obstacle(slot) is None:
            self.state.take(slot, {}, 1, self.need.pod_set)
            held += 1
        self.state.undo(mark)
        return held


def _is_in(keys: Sequence[str], where: tuple[object, ...], slot: NodeSlot) -> bool:
    return tuple(domain_of(slot, key) for key in keys) == where


def _each(parts: Sequence[FreeCapacity]) -> Iterator[NodeSlot]:
    found = (buckets for part in parts for buckets in part.buckets())
    return (slot for buckets in found for there in buckets.of_room.values() for _, slot in there)
