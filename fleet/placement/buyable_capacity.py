"""Buyable capacity is what can be bought or re-cut in a pass: the candidates for some pods in the order they are tried.

Which machines hold the pods of a class, and what they cost, is the same for every gang and worked out once a pass.
Limits, shortages and what is left of reservations change from gang to gang: they are asked when a purchase is chosen,
and what stands in the way is noted for the refusal.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.catalog import InstanceOffer
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offering, Offerings
from fleet.placement.candidate_offerings import MOST_KNOWN, CandidateOfferings, KnownCandidates
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.device_allocator import device_allocator
from fleet.placement.free_capacity import SlotCost, free_capacity, no_cost
from fleet.placement.offering_columns import PoolColumns
from fleet.placement.plan import Need, PlannedNodeClaims, Recut
from fleet.placement.pod_filter import pod_filter
from fleet.placement.pod_score import pod_score
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, PodSet
from fleet.snapshot.devices import NO_DEVICES, MachineDevices
from model.kinds import NodePool
from model.plain_text import counted, number_of
from model.quantity import Resources


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
    known_candidates: KnownCandidates = field(default_factory=KnownCandidates, repr=False)
    best_purchases: dict[Hashable, tuple[str, tuple[PlannedNodeClaims, ...]]] = field(default_factory=dict, repr=False)
    """Zone and purchases of gangs that are alike and have room nowhere, where nothing stood in the way in any zone."""

    def expected_usd_h(self, offer: InstanceOffer) -> float:
        """What an offer is ordered by: its price, what its interruptions waste, and what any machine costs beside."""
        premium = self.premiums.get(offer.pool_key, 0.0) if self.premiums else 0.0
        return offer.price_usd_h * (1.0 + premium) + self.machine_usd_h

    def candidates(self, need: Need, zone: str) -> CandidateOfferings:
        """What could be bought for pods of a need in a zone."""
        asked = (need.asks, zone)
        known = self.known_candidates.of_needs
        found = known.get(asked)
        if found is None:
            if len(known) >= MOST_KNOWN:
                known.clear()
            sold = set[str]().union(*map(self.offerings.zones, need.pools)) if zone else ()
            here = CandidateOfferings.by_zone(need, {zone, *sold}, self.offerings, self._columns)
            known.update({(need.asks, its_zone): it for its_zone, it in here.items()})
            found = here[zone]
        return found

    def _columns(self, pool: NodePool) -> PoolColumns:
        known = self.known_candidates.columns
        if pool.name not in known:
            known[pool.name] = PoolColumns.of(pool, self.offerings, self.expected_usd_h)
        return known[pool.name]

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
        if not (claims := need.pod_set.constraints.devices):
            return False
        allocator = device_allocator(self.offerings.index, NO_DEVICES)
        return all(allocator.by_amounts(machine, claims) for machine in self._offered_devices(need))

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
        selects = f"that {self.pod_set.name} selects{_selected(self.pod_set)} and tolerates"
        return Refusal(Reason.NO_OFFER, f"its pools may buy no machine in {self.zone} {selects}")


def _selected(pods: PodSet) -> str:
    """Returns what pods ask of the labels of nodes: pairs of the node selector, keys of the affinity; empty = none."""
    keys = {requirement.key for term in pods.required_affinity for requirement in term}
    words = [*(f"{key}={value}" for key, value in sorted(pods.node_selector.items())), *sorted(keys)]
    return f" ({', '.join(words[:4])}{', ...' if len(words) > 4 else ''})" if words else ""
