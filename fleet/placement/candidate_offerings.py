"""Candidates are the offerings whose machines hold some pods, in the order in which a purchase tries them.

Which they are, and what they cost, is the same for every gang whose pods ask for the same, and is worked out once for
all passes between which no price changes. What of it is the same for all pods is a column of a table of the pool.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat
from operator import attrgetter
from typing import NamedTuple

from fleet.offerings.min_values import asked_values, most_on_one, shared_room
from fleet.offerings.offerings import Offering, Offerings, Preference
from fleet.placement.cluster_state import room_in
from fleet.placement.device_allocator import device_allocator
from fleet.placement.flavor_nodes import sells, serves
from fleet.placement.offering_columns import DIGITS, OfferingColumns, PoolColumns
from fleet.placement.plan import Need
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import selects, tolerates
from fleet.snapshot.devices import NO_DEVICES
from model.index import Index, derived
from model.kinds import NodePool
from model.quantity import Resources

MOST_KNOWN = 4096
"""Kinds of pods and zones whose candidates are kept from pass to pass; beyond, they are found anew."""
_MOST_NARROWED = 64
"""Ways to narrow candidates that are kept."""


class CandidateOffering(NamedTuple):
    """An offering whose machines can hold the pods, with what decides its place in the order."""

    offering: Offering
    fits: int
    """Pods that one machine holds."""
    capacity_rank: int
    pool_rank: int
    usd_h: float
    """Expected cost of one machine."""
    preference: Preference
    """What decides between equal costs."""
    place: int = 0
    """Its place among all of its pool where one machine of each is tried."""

    def rank(self, missing: int, count: int, left: int = 0) -> tuple[object, ...]:
        """The place of `count` such machines for `missing` pods: what holds all of them before what does not.

        `left`: how many a reservation has left. Of equal ones that with most is the likeliest to have them still.
        """
        short = -(-missing // self.fits) - count
        cost_usd_h = round(count * self.usd_h, DIGITS)
        return self.capacity_rank, self.pool_rank, short, cost_usd_h, self.preference, -left, self.offering.key


@dataclass(frozen=True, slots=True)
class RankedOfferings:
    """The candidates for a number of pods, in the order in which they are tried."""

    open: tuple[CandidateOffering, ...]
    """Best first, by what holds all pods."""
    reserved: tuple[CandidateOffering, ...]
    """Of reservations, which may have too few left."""
    inflexible: frozenset[str]
    """Pools whose `minValues` leave nothing of them."""


@dataclass(frozen=True, slots=True)
class CandidateOfferings:
    """The offerings of a need's pools in a zone on whose machines its pods may stand."""

    pools: tuple[tuple[NodePool, tuple[CandidateOffering, ...]], ...]
    seen: int
    """Offerings that pods select and tolerate."""
    too_short: frozenset[str]
    """Capacity blocks that end before the pods would."""
    not_serving: frozenset[str] = frozenset()
    """Pools that are bought of for others only (`serves`)."""
    choice: Mapping[str, Sequence[CandidateOffering]] = field(default_factory=dict)
    """Pool with `minValues` -> its offerings for these pods in all zones: what the values are counted among."""
    _ranked: dict[tuple[int, bool], RankedOfferings] = field(default_factory=dict)
    _firsts: dict[Sequence[str], Mapping[tuple[object, ...], Offering]] = field(default_factory=dict)
    _narrowed: "dict[Hashable, CandidateOfferings]" = field(default_factory=dict)

    @classmethod
    def by_zone(
        cls, need: Need, zones: Iterable[str], offerings: Offerings, columns: Callable[[NodePool], PoolColumns]
    ) -> "dict[str, CandidateOfferings]":
        """The candidates for the pods of one need in each of these zones; zone "" is all of them together."""
        found = {zone: _CandidatesInZone() for zone in zones}
        for pool in need.pools:
            able = sells(pool, need) and tolerates(
                pool.spec.template.taints, (*need.pod_set.tolerations, *need.tolerations)
            )  # which all of its offerings have
            if able:
                _add(found, need, pool, columns(pool), offerings.index)
        not_serving = frozenset(it.name for it in need.pools if not serves(it, need))
        return {
            zone: cls(tuple(it.pools), it.seen, frozenset(it.too_short), not_serving, it.choice)
            for zone, it in found.items()
        }

    def ranking(self, missing: int, *, whole: bool) -> RankedOfferings:
        """What to try for `missing` pods; `whole`: all of them on one machine."""
        if (missing, whole) not in self._ranked:
            self._ranked[missing, whole] = self._rank(missing, missing if whole else 1)
        return self._ranked[missing, whole]

    def firsts(self, keys: tuple[str, ...]) -> Mapping[tuple[object, ...], Offering]:
        """Values of these labels -> the first candidate, by pool, whose machines carry them."""
        if keys not in self._firsts:
            every = [it.offering for _, candidates in self.pools for it in candidates]
            values = (tuple([it.labels.get(key) for key in keys]) for it in every)
            first: dict[tuple[object, ...], Offering] = {}
            for own, offering in zip(values, every, strict=True):
                first.setdefault(own, offering)
            self._firsts[keys] = first
        return self._firsts[keys]

    def narrowed(self, keys: tuple[str, ...], values: tuple[object, ...], most: int) -> "CandidateOfferings":
        """Those among them whose machines carry these labels, with at most so many pods on one machine."""
        if (found := self._narrowed.get((keys, values, most))) is not None:
            return found

        def among(candidates: Iterable[CandidateOffering]) -> tuple[CandidateOffering, ...]:
            here = [it for it in candidates if tuple([it.offering.labels.get(key) for key in keys]) == values]
            return tuple([it if it.fits <= most else it._replace(fits=most) for it in here])

        pools = tuple((pool, among(candidates)) for pool, candidates in self.pools)
        choice = {name: among(candidates) for name, candidates in self.choice.items()}
        found = CandidateOfferings(pools, self.seen, self.too_short, self.not_serving, choice)
        if len(self._narrowed) >= _MOST_NARROWED:
            self._narrowed.clear()
        return self._narrowed.setdefault((keys, values, most), found)

    def _most_on_one(self, pool: NodePool, missing: int) -> int:
        """How many of the missing pods one machine may get so that `minValues` hold; 0 = none."""
        choice = self.choice.get(pool.name)
        return missing if choice is None else most_on_one(pool, [(it.offering, it.fits) for it in choice], missing)

    def room_of(self, chosen: CandidateOffering) -> Resources | None:
        """What of a machine may be filled so that enough others hold the same pods (`minValues`); None = all of it."""
        pool = chosen.offering.pool
        choice = self.choice.get(pool.name)
        if choice is None:
            return None
        return shared_room(pool, chosen.offering, [it.offering for it in choice if it.fits >= chosen.fits])

    def _rank(self, missing: int, least: int) -> RankedOfferings:
        usable: list[Sequence[CandidateOffering]] = []
        inflexible: set[str] = set()
        for pool, candidates in self.pools:
            most = self._most_on_one(pool, missing)
            if most < least:
                inflexible.add(pool.name)
            elif pool.name in self.choice:
                usable.append([it if it.fits <= most else it._replace(fits=most) for it in candidates])
            else:
                usable.append(candidates)
        every = [it for some in usable for it in some if it.fits >= least]
        if missing == 1 == sum(map(bool, usable)):
            ranked = sorted(every, key=_PLACE)
        else:
            ranked = sorted(every, key=lambda it: it.rank(missing, -(-missing // it.fits)))
        return RankedOfferings(
            tuple([it for it in ranked if it.offering.offer.reservation is None]),
            tuple([it for it in ranked if it.offering.offer.reservation is not None]),
            frozenset(inflexible),
        )


_PLACE = attrgetter("place")
_candidate: Callable[[tuple[object, ...]], CandidateOffering] = partial(tuple.__new__, CandidateOffering)
"""`CandidateOffering._make` in a third of the time: there are tens of thousands, and all rows are as long."""


@dataclass(slots=True)
class _CandidatesInZone:
    """What is found in one zone, pool by pool."""

    pools: list[tuple[NodePool, tuple[CandidateOffering, ...]]] = field(default_factory=list)
    seen: int = 0
    too_short: set[str] = field(default_factory=set)
    choice: dict[str, Sequence[CandidateOffering]] = field(default_factory=dict)


def _add(
    found: Mapping[str, _CandidatesInZone], need: Need, pool: NodePool, columns: PoolColumns, index: Index
) -> None:
    """Adds what a pool sells for pods whose tolerations suit it to each of the zones."""
    holds, flexible = columns.holds(need.pod_set.requests), bool(asked_values(pool))
    every = _lasting(need, pool, columns.zones[""], holds, index)[0] if flexible else ()
    for zone, place in found.items():
        if (here := columns.zones.get(zone)) is None:
            continue
        lasting, seen, too_short = _lasting(need, pool, here, holds, index)
        place.seen += seen
        place.too_short |= too_short
        place.pools.append((pool, tuple(lasting)))
        if seen and flexible:
            place.choice[pool.name] = every


def _lasting(
    need: Need, pool: NodePool, here: OfferingColumns, holds: Sequence[int], index: Index
) -> tuple[list[CandidateOffering], int, set[str]]:
    """What of a pool in a zone holds pods that may stand there; on how many they may; what ends too early for them."""
    pods, picky = need.pod_set, need.pod_set.node_selector or need.pod_set.required_affinity
    fits, seen, too_short = list(map(holds.__getitem__, here.rooms)), len(here.rooms), set[str]()
    if pods.constraints.devices:
        fits = [pods_on_one(index, it, pods) for it in here.offerings]
    if picky or not here.all_last:
        able = [not picky or selects(pods, it.labels) for it in here.offerings]
        too_short = {str(it.offer.pool_key) for it in compress(here.offerings, able) if it.closes_s <= need.until_s}
        able = [ok and it.closes_s > need.until_s for it, ok in zip(here.offerings, able, strict=True)]
        fits, seen = [fit if ok else 0 for fit, ok in zip(fits, able, strict=True)], sum(able)
    rows: Iterable[tuple[object, ...]] = zip(
        *(here.offerings, fits, here.capacity_ranks, repeat(need.rank(pool))),
        *(here.usd_h, here.preferences, here.places),
        strict=False,
    )
    return list(map(_candidate, compress(rows, fits))), seen, too_short


def pods_on_one(index: Index, offering: Offering, pods: PodSet) -> int:
    """How many pods one machine of an offering holds, with the devices that they claim."""
    room, claims = room_in(offering.allocatable, pods.requests), pods.constraints.devices
    if not claims or offering.devices is None:
        return room
    return device_allocator(index, NO_DEVICES).pods_on(offering.devices, claims, room)


@dataclass(frozen=True, slots=True)
class KnownCandidates:
    """What was found before of the same offerings at the same expected costs."""

    of_needs: dict[Hashable, CandidateOfferings] = field(default_factory=dict)
    """What pods ask, and a zone -> the candidates."""
    columns: dict[str, PoolColumns] = field(default_factory=dict)
    """By pool."""


@derived(1)
def candidates_at_list_price(_index: Index, _offerings: Offerings) -> KnownCandidates:
    """Where passes keep the candidates they find while offerings stay the same and no interruption makes any dearer."""
    return KnownCandidates()
