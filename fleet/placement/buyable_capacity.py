"""Buyable capacity is what can be bought or re-cut in a pass: the candidates for some pods in the order they are tried.

Which machines hold the pods of a class, and what they cost, is the same for every gang and worked out once a pass.
Limits, shortages and what is left of reservations change from gang to gang: they are asked when a purchase is chosen,
and what stands in the way is noted for the refusal.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.min_values import asked_values, most_on_one, shared_room
from fleet.offerings.offerings import Offering, Offerings, Preference
from fleet.placement.cluster_state import ClusterState, NodeSlot, room_in
from fleet.placement.device_allocator import device_allocator
from fleet.placement.flavor_nodes import sells, serves
from fleet.placement.free_capacity import SlotCost, free_capacity, no_cost
from fleet.placement.plan import Need, PlannedNodeClaims, Recut
from fleet.placement.pod_filter import pod_filter
from fleet.placement.pod_score import pod_score
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, InstanceOffer, PodSet
from fleet.snapshot.affinity import selects, tolerates
from fleet.snapshot.devices import NO_DEVICES, MachineDevices
from model.index import Index, derived
from model.kinds import NodePool
from model.plain_text import counted, number_of
from model.pools import capacity_rank
from model.quantity import Resources

MOST_KNOWN = 4096
"""Kinds of pods and zones whose candidates are kept from pass to pass; beyond, they are found anew."""
_MOST_NARROWED = 64
"""Ways to narrow candidates that are kept."""
DIGITS = 9
"""Costs that differ by less are equal: rounding must not decide, but the tiny prices of reserved machines may."""


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
        cls, need: Need, zones: Iterable[str], offerings: Offerings, expected_usd_h: Callable[[InstanceOffer], float]
    ) -> "dict[str, CandidateOfferings]":
        """The candidates for the pods of one need in each of these zones; zone "" is all of them together."""
        found = {zone: _CandidatesInZone() for zone in zones}
        everywhere = found.get("") or _CandidatesInZone()
        for pool in need.pools:
            able = _able(need, pool, offerings) if sells(pool, need) else ()
            every_zone = "" in found or bool(asked_values(pool))
            for it in _candidates(need, pool, able, expected_usd_h, offerings.index):
                lasts = it.offering.closes_s > need.until_s
                if every_zone:
                    everywhere.note(it, lasts=lasts)
                if (here := found.get(it.offering.offer.zone)) is not None:
                    here.note(it, lasts=lasts)
            every = everywhere.close(pool, None)
            for place in found.values():
                if place is not everywhere:
                    place.close(pool, every)
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
        usable: list[CandidateOffering] = []
        inflexible: set[str] = set()
        for pool, candidates in self.pools:
            most = self._most_on_one(pool, missing)
            if most < least:
                inflexible.add(pool.name)
            else:
                usable += [it if it.fits <= most else it._replace(fits=most) for it in candidates if it.fits >= least]
        ranked = sorted(usable, key=lambda it: it.rank(missing, -(-missing // it.fits)))
        return RankedOfferings(
            tuple(it for it in ranked if it.offering.offer.reservation is None),
            tuple(it for it in ranked if it.offering.offer.reservation is not None),
            frozenset(inflexible),
        )


@dataclass(slots=True)
class _CandidatesInZone:
    """What is found in one zone, pool by pool."""

    pools: list[tuple[NodePool, tuple[CandidateOffering, ...]]] = field(default_factory=list)
    seen: int = 0
    too_short: set[str] = field(default_factory=set)
    choice: dict[str, Sequence[CandidateOffering]] = field(default_factory=dict)
    _lasting: list[CandidateOffering] = field(default_factory=list)
    """Of the pool that is looked at now, those that hold no pod among them."""

    def note(self, candidate: CandidateOffering, *, lasts: bool) -> None:
        """Notes an offering whose machines pods select and tolerate."""
        if lasts:
            self._lasting.append(candidate)
        else:
            self.too_short.add(str(candidate.offering.offer.pool_key))

    def close(self, pool: NodePool, every: list[CandidateOffering] | None) -> list[CandidateOffering]:
        """Notes that this was all of a pool, of which `every` is sold in all zones (None = these); returns it."""
        lasting, self._lasting = self._lasting, []
        self.seen += len(lasting)
        self.pools.append((pool, tuple(it for it in lasting if it.fits)))
        if lasting and asked_values(pool):
            self.choice[pool.name] = lasting if every is None else every
        return lasting


def _able(need: Need, pool: NodePool, offerings: Offerings) -> Iterator[Offering]:
    """Yields the offerings of a pool on whose machines the pods may stand."""
    pods, taints = need.pod_set, pool.spec.template.taints  # which all of its offerings have
    if taints and not tolerates(taints, (*pods.tolerations, *need.tolerations)):
        return
    every = offerings.of(pool)
    picky = bool(pods.node_selector or pods.required_affinity)
    yield from (it for it in every if selects(pods, it.labels)) if picky else every


def _candidates(
    need: Need,
    pool: NodePool,
    lasting: Iterable[Offering],
    expected_usd_h: Callable[[InstanceOffer], float],
    index: Index,
) -> Iterator[CandidateOffering]:
    """Yields what might be bought for the pods, with how many of them each holds: perhaps none."""
    pool_rank, ranks = need.rank(pool), dict[str, int]()
    room, fits = None, 0
    for offering in lasting:
        offer = offering.offer
        if offering.allocatable is not room:  # one object where it is sold at one price in several zones
            room, fits = offering.allocatable, pods_on_one(index, offering, need.pod_set)
        if offer.capacity_type not in ranks:
            ranks[offer.capacity_type] = capacity_rank(pool, offer.capacity_type)
        rank = ranks[offer.capacity_type]
        yield CandidateOffering(offering, fits, rank, pool_rank, expected_usd_h(offer), offering.preference)


def pods_on_one(index: Index, offering: Offering, pods: PodSet) -> int:
    """How many pods one machine of an offering holds, with the devices that they claim."""
    room, claims = room_in(offering.allocatable, pods.requests), pods.constraints.devices
    if not claims or offering.devices is None:
        return room
    return device_allocator(index, NO_DEVICES).pods_on(offering.devices, claims, room)


@derived(1)
def candidates_at_list_price(_index: Index, _offerings: Offerings) -> dict[Hashable, CandidateOfferings]:
    """Where passes keep the candidates they find while offerings stay the same and no interruption makes any dearer."""
    return {}


@dataclass(slots=True)
class BuyableCapacity:
    """What can be bought or re-cut in this pass; who spends of it gives back when it undoes the cluster state."""

    offerings: Offerings
    headroom: dict[str, PoolHeadroom]
    shortages: Mapping[CapacityPool, float]
    recuts: list[Recut] = field(default_factory=list)
    may_buy: bool = True
    priced: Callable[[Resources], SlotCost] = lambda _requests: no_cost
    """What pods cost the slots they might stand on."""
    regret: Callable[[NodeSlot, NodeSlot, Resources, int], int] = lambda _standing, _cut, _requests, _count: 0
    """What a re-cut for so many pods takes from other work (`OpportunityCosts.regret`)."""
    closing: bool = False
    """Whether there are capacity blocks, so that it matters how long pods will run."""
    premiums: Mapping[CapacityPool, float] = field(default_factory=dict)
    """Capacity pool -> the part of its price that its interruptions add (`fleet.offerings.interruption_rate`)."""
    machine_usd_h: float = 0.0
    """What every machine costs beside its price, as the FleetPolicy states it."""
    known_candidates: dict[Hashable, CandidateOfferings] = field(default_factory=dict, repr=False)
    """What was found before for pods that ask the same, of the same offerings at the same expected prices."""

    best_purchases: dict[Hashable, tuple[str, tuple[PlannedNodeClaims, ...]]] = field(default_factory=dict, repr=False)
    """Zone and purchases of gangs that are alike and have room nowhere, where nothing stood in the way in any zone."""

    def expected_usd_h(self, offer: InstanceOffer) -> float:
        """What an offer is ordered by: its price, what its interruptions waste, and what any machine costs beside."""
        premium = self.premiums.get(offer.pool_key, 0.0) if self.premiums else 0.0
        return offer.price_usd_h * (1.0 + premium) + self.machine_usd_h

    def candidates(self, need: Need, zone: str) -> CandidateOfferings:
        """What could be bought for pods of a need in a zone."""
        asked = (need.asks, zone)
        known = self.known_candidates
        found = known.get(asked)
        if found is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            sold = set[str]().union(*map(self.offerings.zones, need.pools)) if zone else ()
            here = CandidateOfferings.by_zone(need, {zone, *sold}, self.offerings, self.expected_usd_h)
            known.update({(need.asks, its_zone): it for its_zone, it in here.items()})
            found = here[zone]
        return found

    def unmet_claims(self, need: Need) -> Refusal | None:
        """Why no machine of the need's pools meets a request of the pods' claims; None = each is met by some."""
        claims = need.pod_set.constraints.devices
        offered = self._offered_devices(need) if claims else []
        if claims and not offered:
            words = f"no pool that may buy for {need.pod_set.name} offers its GPUs to claims (sharing.dra)"
            return Refusal(Reason.NO_MATCHING_FLAVOR, words)
        unmet = device_allocator(self.offerings.index, NO_DEVICES).unmet(offered, claims) if claims else ""
        return Refusal(Reason.NO_OFFER, unmet) if unmet else None

    def claims_by_amounts(self, need: Need) -> bool:
        """Whether amounts say all that the pods' claims ask of any machine that the need's pools offer."""
        claims, allocator = need.pod_set.constraints.devices, device_allocator(self.offerings.index, NO_DEVICES)
        return bool(claims) and all(allocator.by_amounts(machine, claims) for machine in self._offered_devices(need))

    def _offered_devices(self, need: Need) -> list[MachineDevices]:
        offered = (it.devices for pool in need.pools for it in self.offerings.of(pool) if it.devices is not None)
        return list({id(it): it for it in offered}.values())

    def bought_before(self, need: Need) -> PlannedNodeClaims | None:
        """The machine that was bought for a pod that asks the same, where it can be had again: nothing is better."""
        known = self.best_purchases.get(_alike(need)) if self.may_buy else None
        if known is None:
            return None
        [lot] = known[1]
        return lot if self.headroom[lot.offering.pool.name].most(lot.offering) >= lot.count == 1 else None

    def most_of(self, offering: Offering, wanted: int, obstacles: "PurchaseObstacles", *, may_split: bool) -> int:
        """How many of the machines that are wanted may be of this offering: all, or what a reservation has left.

        0 and an obstacle where a limit forbids it, or, unless the purchase `may_split`, where fewer are left.
        """
        headroom = self.headroom[offering.pool.name]
        left = headroom.reserved_left(offering)
        if headroom.stopped:
            obstacles.stopped.add(headroom.stopped)
            return 0
        if zone := headroom.bound_to(offering):
            obstacles.bound.add(f"{offering.pool.spec.placement.group} in {zone}")
            return 0
        if headroom.allowed(offering) < (wanted if left is None else min(wanted, left)):
            obstacles.over_limit.add(offering.pool.name)
            return 0
        if left is None or left >= wanted:
            return wanted
        obstacles.used_up.add(str(offering.offer.pool_key))
        return max(0, left) if may_split else 0

    def spend(self, purchases: Iterable[PlannedNodeClaims]) -> None:
        """Takes purchases from what the limits and reservations of their pools still allow."""
        for bought in purchases:
            self.headroom[bought.offering.pool.name].spend(bought.offering, bought.count)

    def give_back(self, purchases: Iterable[PlannedNodeClaims]) -> None:
        """Undoes `spend`."""
        for bought in purchases:
            self.headroom[bought.offering.pool.name].spend(bought.offering, -bought.count)


def bought_alike(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Sequence[Need], *, zone_bound: bool
) -> Hashable | None:
    """What is equal for gangs that have room on no machine and would buy the same, unless limits forbid it by then.

    None for those that buy of no pool, of several pod sets, for those that ask anything of other pods or domains, and
    where one has room.
    """
    if len(needs) != 1 or zone_bound or capacity.recuts or not capacity.may_buy:
        return None
    [need], pods = needs, needs[0].pod_set
    neighbours = state.neighbours
    if not need.pools or pods.required_topology or pod_filter(neighbours, pods) or pod_score(neighbours, pods):
        return None
    free = free_capacity(state, need.asks, pods.requests, need.accepts, capacity.priced)
    return None if free.among(gang).room else _alike(need)


def _alike(need: Need) -> Hashable:
    return need.asks, need.charged, need.pod_set.count


def may_not_buy(need: Need, missing: int) -> Refusal:
    """Returns why nothing is bought for pods that have no room: nothing is to be, or no quota counts what they ask."""
    pods, has = f"{counted(missing, 'pod')} of {need.pod_set.name}", number_of(missing, "has", "have")
    if need.charged:
        return Refusal(Reason.NO_OFFER, f"{pods} {has} no room on existing machines")
    asks = number_of(missing, "asks", "ask")
    message = (
        f"{pods} {has} no room, and {asks} nothing that their queue's quota counts: "
        "such pods may use machines that run, but none is bought for them"
    )
    return Refusal(Reason.NO_OFFER, message)


@dataclass(slots=True)
class PurchaseObstacles:
    """Notes why no machine could be bought for `missing` pods in a zone, so that a refusal can say so."""

    pod_set: PodSet
    missing: int
    zone: str
    seen: int = 0
    whole: bool = False
    """Whether one machine has to hold all of them."""
    inflexible: set[str] = field(default_factory=set)
    over_limit: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    """Why pools buy nothing at all."""
    bound: set[str] = field(default_factory=set)
    """Placement groups whose machines stand in another zone."""
    used_up: set[str] = field(default_factory=set)
    """Reservations with fewer machines left than are needed."""
    too_short: set[str] = field(default_factory=set)
    """Capacity blocks that end before the pods would."""
    not_serving: frozenset[str] = frozenset()
    """Pools that are bought of for others only."""
    pools_short: list[str] = field(default_factory=list)
    short_until_s: float = 0.0

    def short(self, offering: Offering, until_s: float) -> None:
        """Notes an offering that the cloud is short of until then (epoch seconds)."""
        self.pools_short.append(str(offering.offer.pool_key))
        self.short_until_s = until_s if not self.short_until_s else min(self.short_until_s, until_s)

    def refusal(self) -> Refusal:
        """The refusal tells the nearest miss: what only time or a limit prevents goes before what can never be."""
        what = f"{counted(self.missing, 'more pod')} of {self.pod_set.name}"
        need, they = number_of(self.missing, "needs", "need"), number_of(self.missing, "it", "they")
        for stood, reason, before, after in (
            (self.pools_short, Reason.NO_CAPACITY, f"no machine for {what}: the cloud is short of", ""),
            (self.over_limit, Reason.POOL_LIMIT, f"{what} {need} machines beyond the limits of", ""),
            (self.stopped, Reason.LAYOUT_FAILED, f"no machine for {what}:", ""),
            (self.bound, Reason.POOL_LIMIT, f"{what} would stand outside of the cluster placement group", ""),
            (self.used_up, Reason.NO_CAPACITY, f"no machine for {what}: too few are left in", ""),
            (self.too_short, Reason.NO_CAPACITY, f"no machine for {what}: {they} would run past the end of", ""),
            (self.inflexible, Reason.NO_OFFER, "too few kinds of machines left for minValues of", f" to buy {what}"),
        ):
            if stood:
                return Refusal(reason, f"{before} {', '.join(sorted(stood)[:4])}{after}", self.short_until_s)
        if self.not_serving and not self.seen:
            pools = ", ".join(sorted(self.not_serving)[:4])
            return Refusal(Reason.NO_OFFER, f"no machine for {what}: {pools} does not serve gangs (spec.serves)")
        if self.seen:
            held = "one pod" if not self.whole or self.missing == 1 else f"the {self.missing} pods"
            ending = ", which keep to one machine" if self.whole and self.missing > 1 else ""
            words = f"no machine its pools may buy in {self.zone} holds {held} of {self.pod_set.name}{ending}"
            return Refusal(Reason.NO_OFFER, words)
        return Refusal(
            Reason.NO_OFFER,
            f"its pools may buy no machine in {self.zone} that {self.pod_set.name} selects and tolerates",
        )
