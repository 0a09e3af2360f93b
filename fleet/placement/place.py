"""A gang gets a place for every pod or for none: on ready machines, on idle ones cut anew, on ones bought for it.

The order of preference is free to dear: what stands idle, and of that what has drifted last; then a re-cut, then a
purchase of exactly what is missing.
Among what stands idle a place goes by its opportunity cost (`fleet.placement.opportunity_cost`). Purchases stay in one
zone, and prefer (capacity type by the pool's order, weight of the pool, expected cost, name): the order in which
`CreateFleet` is attempted, because a shortage removes an offering and the next call finds the next best.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fleet.placement.buyable_capacity import BuyableCapacity, PurchaseObstacles, bought_alike, may_not_buy
from fleet.placement.candidate_offerings import CandidateOffering, CandidateOfferings
from fleet.placement.cluster_state import PODS, ClusterState, NodeAssignment, NodeSlot, planned_slot
from fleet.placement.constrained import ConstrainedPods
from fleet.placement.free_capacity import FreeCapacity, assign, free_capacity
from fleet.placement.offering_columns import DIGITS
from fleet.placement.plan import Need, PlacementPlan, PlannedNodeClaims, Recut, hardest_first
from fleet.placement.pod_filter import PodFilter, pod_filter
from fleet.placement.pod_score import PodScore, pod_score
from fleet.placement.shared_domains import (
    most_telling,
    no_nvlink_domain,
    nvlink_domains,
    nvlink_parts,
    promised_domains,
    tied,
)
from fleet.placement.volume_filter import stands_by_its_volume
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from model import labels
from model.plain_text import counted, number_of
from model.quantity import Resources


def place_gang(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Iterable[Need]
) -> PlacementPlan | Refusal:
    """The best plan for all of `needs`, taken from the state and the headroom; on refusal nothing is changed.

    Where pods have to share a domain that none has the room for, it is bought if pools promise one: all machines of a
    pool carry the labels of its template.
    """
    asked = list(needs)
    if parts := nvlink_parts(asked):
        return _place_by_nvlink(state, capacity, gang, asked, parts)
    found = _place_within_zones(state, capacity, gang, asked)
    if isinstance(found, PlacementPlan) or found.reason is not Reason.TOPOLOGY or not capacity.may_buy:
        return found
    cheapest, _ = _cheapest(state, capacity, gang, promised_domains(asked))
    return found if cheapest is None else _place_within_zones(state, capacity, gang, cheapest)


def _place_by_nvlink(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Sequence[Need], parts: Sequence[Sequence[Need]]
) -> PlacementPlan | Refusal:
    """Each part goes into the NVLink domain in which a plan for it, and those before it, costs least."""
    settled = [need for need in needs if not any(need is it for part in parts for it in part)]
    for part in parts:
        ties = nvlink_domains(state, capacity.offerings, part)
        tried = ((f"{n:04}", [*settled, *(tied(need, tie) for need in part)]) for n, tie in enumerate(ties))
        cheapest, refusals = _cheapest(state, capacity, gang, tried)
        if cheapest is None:
            return no_nvlink_domain(capacity.offerings, part, refusals)
        settled = cheapest
    return _place_within_zones(state, capacity, gang, settled)


def _cheapest(
    state: ClusterState, capacity: BuyableCapacity, gang: str, ways: Iterable[tuple[str, list[Need]]]
) -> tuple[list[Need] | None, list[Refusal]]:
    """The needs of the way, of several, in which a plan costs least; None and the refusals where there is no plan."""
    best: tuple[bool, float, str, list[Need]] | None = None
    refusals = []
    for name, needs in ways:
        mark = state.mark()
        plan = _place_within_zones(state, capacity, gang, needs)
        if isinstance(plan, Refusal):
            refusals.append(plan)
            continue
        state.undo(mark)
        capacity.give_back(plan.purchases)
        rank = bool(plan.purchases), round(plan.cost_usd_h, DIGITS), name
        if best is None or rank < best[:3]:
            best = *rank, needs
    return None if best is None else best[3], refusals


def _place_within_zones(
    state: ClusterState, capacity: BuyableCapacity, gang: str, needs: Sequence[Need]
) -> PlacementPlan | Refusal:
    """The best plan where only zones and hosts may be shared on what is bought: the best attempt, made once more."""
    ordered = sorted(needs, key=hardest_first) if len(needs) > 1 else list(needs)
    zone_bound = any(need.pod_set.required_topology == labels.ZONE for need in ordered)

    def attempt(zone: str, *, may_split: bool = True) -> ZoneAttempt:
        return ZoneAttempt(state, capacity, gang, zone, zone_bound, capacity.may_buy and bool(zone), may_split)

    alike = bought_alike(state, capacity, gang, ordered, zone_bound=zone_bound)
    if (known := capacity.best_purchases.get(alike)) is not None:
        tried = attempt(known[0])
        outcome = tried.run(ordered)
        if isinstance(outcome, PlacementPlan) and outcome.purchases == known[1] and not tried.obstructed:
            return outcome  # limits only make other zones worse
        tried.undo()
    best: tuple[tuple[object, ...], str, bool] | None = None
    refusals: list[Refusal] = []
    obstructed = alike is None
    for zone in _zones_to_try(state, capacity, ordered, zone_bound=zone_bound):
        tried = attempt(zone)
        outcome = tried.run(ordered)
        if best is None and not zone_bound and _settles(state, capacity, outcome, ordered):
            return outcome
        tried.undo()
        obstructed |= tried.obstructed
        if isinstance(outcome, Refusal) and tried.has_split:
            tried = attempt(zone, may_split=False)
            outcome = tried.run(ordered)
            tried.undo()
        if isinstance(outcome, Refusal):
            refusals.append(outcome)
        elif best is None or (tried.rank(), zone, tried.may_split) < best:
            best = (tried.rank(), zone, tried.may_split)
    if best is None:
        return most_telling(refusals if zone_bound else refusals[1:] or refusals)
    outcome = attempt(best[1], may_split=best[2]).run(ordered)
    if not obstructed and isinstance(outcome, PlacementPlan):
        capacity.best_purchases[alike] = best[1], outcome.purchases
    return outcome


def _settles(
    state: ClusterState, capacity: BuyableCapacity, outcome: PlacementPlan | Refusal, needs: Sequence[Need]
) -> bool:
    """Nothing is better than what is there, and nothing else is tried if none is bought."""
    if isinstance(outcome, Refusal) or outcome.ready or not capacity.may_buy:
        return isinstance(outcome, PlacementPlan)
    bare = not (outcome.purchases or outcome.recuts)
    return bare and all(pod_score(state.neighbours, need.pod_set) is None for need in needs)


def _zones_to_try(
    state: ClusterState, capacity: BuyableCapacity, needs: Sequence[Need], *, zone_bound: bool
) -> list[str]:
    """Zones that can be bought in, after "" for no purchase; where pods are bound to one, those with machines, too."""
    pools = (pool for need in needs for pool in need.pools)
    if zone_bound:
        standing = {slot.labels.get(labels.ZONE, "") for slot in state.slots.values()}
        return sorted(standing.union(*map(capacity.offerings.zones, pools)) - {""})
    return (
        ["", *sorted({zone for pool in pools for zone in capacity.offerings.zones(pool)})] if capacity.may_buy else [""]
    )


def standing(free: FreeCapacity, gang: str) -> Iterator[FreeCapacity]:
    """What stands: first the machines that were bought for the gang to move to, which nobody else can use.

    Of those, what is for it alone comes before what others move to as well, whose place it could take.
    Elsewhere it might be in the way of the next to move: what it left may be one of several machines to go.
    Machines that are to leave come last: whoever starts there is stopped once more.
    """
    if free.keeps(gang):
        yield from (free.kept_for(gang, alone=alone) for alone in (True, False))
    yield from (free.among(gang, standing=True, leaving=leaving) for leaving in (False, True))


@dataclass(slots=True)
class ZoneAttempt:
    """A `ZoneAttempt` tries to place a gang with purchases in one zone; everything it takes is undone by `undo`."""

    state: ClusterState
    capacity: BuyableCapacity
    gang: str
    zone: str
    zone_bound: bool
    """Every pod set that asks for one zone is held to `zone`, on existing machines too."""
    may_buy: bool
    may_split: bool = True
    """Whether the rest of a reservation may be bought for some of the pods, and other machines for the others."""
    has_split: bool = False
    """Whether that has happened."""
    obstructed: bool = False
    """Whether limits have left less to choose from, or reservations more: it may be another choice next time."""
    assignments: list[NodeAssignment] = field(default_factory=list)
    recuts: list[Recut] = field(default_factory=list)
    purchases: list[PlannedNodeClaims] = field(default_factory=list)
    worst_capacity_rank: int = 0
    worst_pool_rank: int = 0
    elsewhere: set[str] = field(default_factory=set)
    """Other zones that it buys in, as volumes are there."""
    liked: int = 0
    """How much pods that prefer some places like theirs."""
    _mark: int = -1

    def run(self, needs: list[Need]) -> PlacementPlan | Refusal:
        """Places the needs in their order and takes what they get; the refusal of the first that gets nothing."""
        self._mark = self.state.mark()
        for need in needs:
            refusal = self._place(need) if need.pod_set.count else None
            if refusal is not None:
                return refusal
        return PlacementPlan(tuple(self.assignments), tuple(self.recuts), tuple(self.purchases))

    def undo(self) -> None:
        """Takes everything back."""
        self.state.undo(self._mark)
        self.capacity.give_back(self.purchases)

    def rank(self) -> tuple[object, ...]:
        """The place of the plan among those of other zones: the lowest is the best."""
        cost = sum(self.capacity.expected_usd_h(bought.offering.offer) * bought.count for bought in self.purchases)
        cost = round(cost, DIGITS)
        ranks = self.worst_capacity_rank, self.worst_pool_rank
        return (bool(self.purchases), len(self.elsewhere), *ranks, cost, len(self.recuts), -self.liked)

    # -- one pod set, step by step ------------------------------------------------------------------------------------

    def _place(self, need: Need) -> Refusal | None:
        free = free_capacity(self.state, need.asks, need.pod_set.requests, need.accepts, self.capacity.priced)
        rules, score = pod_filter(self.state.neighbours, need.pod_set), pod_score(self.state.neighbours, need.pod_set)
        if rules is not None or (score is not None and not self.capacity.recuts):
            return self._place_under(rules or PodFilter(need.pod_set, ()), score, need, free)
        if need.pod_set.required_topology in {"", labels.ZONE}:
            return self._place_in_zone(need, free)
        return self._place_in_one_domain(need, free)

    def _place_under(self, rules: PodFilter, score: PodScore | None, need: Need, free: FreeCapacity) -> Refusal | None:
        """Places pods that ask something of other pods, of ports or of volumes, or prefer some places."""
        zones = self._zones_under(rules, need) if self.may_buy and need.charged else []
        together = any(term.topology_key == labels.HOSTNAME for term in need.pod_set.constraints.affinity)

        def choose(able: CandidateOfferings, missing: int) -> PlannedNodeClaims | Refusal:
            return self._choose_among(able, need, missing, whole=together)

        pods = ConstrainedPods(
            self.state, self.capacity, self.gang, need, rules, choose, zones, score, len(self.purchases)
        )
        parts = [*standing(free, self.gang)]
        if self.may_buy or not (rules.spreads_evenly and self.capacity.may_buy and need.charged):
            parts.append(free.among(self.gang, standing=False))  # spread over what may be bought, they do not pile up
        label = need.pod_set.required_topology
        if self._held_to_zone(need):
            parts = [part.within(labels.ZONE, self.zone) for part in parts]
        elif label:
            return self._place_under_in_one_domain(pods, label, parts)
        return self._taken_over(pods, pods.place(parts))

    def _zones_under(self, rules: PodFilter, need: Need) -> list[str]:
        """The zones that such pods may be bought for in: one, unless they have to stand in several, or in another."""
        fixed = stands_by_its_volume(self.state.neighbours.volumes, need.pod_set)
        if self.zone_bound or not (rules.spreads_over_zones or fixed):
            return [self.zone]
        sold = {zone for pool in need.pools for zone in self.capacity.offerings.zones(pool)}
        return [self.zone, *sorted(sold - {self.zone})]

    def _place_under_in_one_domain(
        self, pods: ConstrainedPods, label: str, parts: Sequence[FreeCapacity]
    ) -> Refusal | None:
        """The same where all pods of the set have to share a domain of what stands."""
        count, name = pods.need.pod_set.count, pods.need.pod_set.name
        rooms = Counter[str]()
        for part in parts:
            rooms.update(part.totals(label))
        pods.zones = ()
        for domain in sorted((it for it in rooms if rooms[it] >= count), key=lambda it: (rooms[it], it)):
            if pods.place([part.within(label, domain) for part in parts]) is None:
                return self._taken_over(pods, None)
        words = (
            f"{counted(count, 'pod')} of {name} {number_of(count, 'needs', 'need')} one domain of {label} that "
            f"{number_of(count, 'its', 'their')} other constraints allow; none has the room"
        )
        return Refusal(Reason.TOPOLOGY, words)

    def _taken_over(self, pods: ConstrainedPods, refusal: Refusal | None) -> Refusal | None:
        self.assignments += pods.assignments
        self.purchases += pods.purchases
        self.liked += pods.worth
        if not pods.rules.spreads_over_zones:
            self.elsewhere |= {bought.offering.offer.zone for bought in pods.purchases} - {self.zone}
        return refusal

    def _place_in_one_domain(self, need: Need, free: FreeCapacity) -> Refusal | None:
        """Places all pods in one domain of what stands, else of all machines; one host can be bought."""
        pod_set, label = need.pod_set, need.pod_set.required_topology
        parts = (*standing(free, self.gang), free.among(self.gang, standing=True), free.among(self.gang))
        found = (part.tightest_domain(label, pod_set.count) for part in parts)
        domain = next((domain for domain in found if domain is not None), None)
        if domain is not None:
            self.assignments += assign(self.state, domain, pod_set, pod_set.count)
            return None
        if label != labels.HOSTNAME:
            return Refusal(
                Reason.TOPOLOGY,
                f"{counted(pod_set.count, 'pod')} of {pod_set.name} {number_of(pod_set.count, 'needs', 'need')} "
                f"one domain of {label}; "
                "no domain has the room, and no pool that may buy more has that label in its template",
            )
        return self._buy(need, pod_set.count, whole=True)

    def _place_in_zone(self, need: Need, free: FreeCapacity) -> Refusal | None:
        """Places pods on what stands idle first, then on machines on their way, idle ones cut anew, and ones bought."""
        pod_set, missing = need.pod_set, need.pod_set.count
        parts = [*standing(free, self.gang), free.among(self.gang, standing=False)]
        if self._held_to_zone(need):
            parts = [part.within(labels.ZONE, self.zone) for part in parts]
        if not self.capacity.recuts and (refusal := self._refused_at_once(need, parts)) is not None:
            return refusal
        for part in parts:  # machines on the way only for what the standing ones do not hold
            if not (missing := missing - self._assign(part, pod_set, missing)):
                return None
        missing -= self._recut_idle(need, missing)
        return self._buy(need, missing, whole=False) if missing else None

    def _refused_at_once(self, need: Need, parts: Iterable[FreeCapacity]) -> Refusal | None:
        """The refusal that comes after all the room there is has been taken, found without taking it; None: no such."""
        short = need.pod_set.count
        for part in parts:
            if (short := short - part.room) <= 0:
                return None
        chosen = self.choose(need, short, whole=False)
        return chosen if isinstance(chosen, Refusal) else None

    def _held_to_zone(self, need: Need) -> bool:
        return self.zone_bound and need.pod_set.required_topology == labels.ZONE

    def _assign(self, among: FreeCapacity | Sequence[NodeSlot], pod_set: PodSet, missing: int) -> int:
        """Assigns what fits there; returns how many pods that is."""
        assigned = assign(self.state, among, pod_set, missing)
        self.assignments += assigned
        return sum(it.count for it in assigned)

    # -- re-cut -------------------------------------------------------------------------------------------------------

    def _recut_idle(self, need: Need, missing: int) -> int:
        """Places pods on idle machines cut anew, as few as will do; returns how many found a place.

        Of equal ones that which takes least from all other work (`OpportunityCosts.regret`). A machine that is to be
        replaced is cut last: its work would soon be stopped again.
        """
        placed = 0
        while placed < missing and (options := self._recut_options(need)):
            chosen = min(options, key=partial(self._recut_rank, need.pod_set.requests, missing - placed))
            slot = replace(
                chosen.slot,
                name=f"recut/{chosen.claim}",
                claim=chosen.claim,
                free=dict(chosen.slot.free),
                only_for=frozenset({self.gang}),
            )
            self.state.close(chosen.slot.name)
            self.state.add(slot)
            self.recuts.append(chosen)
            placed += self._assign([slot], need.pod_set, missing - placed)
        return placed

    def _recut_options(self, need: Need) -> list[Recut]:
        """The re-cuts of machines that are still idle and would take pods of a need."""
        used = {recut.claim for recut in self.recuts}
        idle = [it for it in self.capacity.recuts if it.claim not in used and self._untouched(it)]
        if self._held_to_zone(need):
            idle = [it for it in idle if it.slot.labels.get(labels.ZONE) == self.zone]
        return [it for it in idle if it.slot.room_for(need.pod_set.requests) and need.accepts(it.slot)]

    def _recut_rank(self, requests: Resources, missing: int, recut: Recut) -> tuple[bool, int, int, int, str, str]:
        standing, room = self.state.slots[recut.slot.name], recut.slot.room_for(requests)
        count = min(room, missing)
        regret = self.capacity.regret(standing, recut.slot, requests, count)
        return standing.leaving, -count, regret, -room, recut.claim, recut.layout

    def _untouched(self, recut: Recut) -> bool:
        """Whether nothing has been placed on the machine as it is: only then can it be cut anew."""
        standing = self.state.slots.get(recut.slot.name)
        return standing is not None and standing.free.get(PODS, 0) == recut.slot.free.get(PODS, 0)

    # -- purchase -----------------------------------------------------------------------------------------------------

    def _buy(self, need: Need, missing: int, *, whole: bool) -> Refusal | None:
        """Buys machines until all missing pods have a place; `whole`: all of them on one machine."""
        while missing:
            chosen = self.choose(need, missing, whole=whole)
            if isinstance(chosen, Refusal):
                return chosen
            self.capacity.spend([chosen])
            self.purchases.append(chosen)
            number = len(self.purchases) - 1
            names = (f"new/{number}/{n}" for n in range(chosen.count))
            bought = [planned_slot(chosen.offering, name, self.gang, room=chosen.room) for name in names]
            for slot in bought:
                self.state.add(slot)
            missing -= self._assign(bought, need.pod_set, missing)
        return None

    def choose(self, need: Need, missing: int, *, whole: bool) -> PlannedNodeClaims | Refusal:
        """The first purchase that holds all, by capacity type in the pool's order, pool by weight, cost, name.

        Of a reservation it may hold less: what is left there is used up before anything else is bought.
        """
        if not (self.may_buy and need.charged):
            return may_not_buy(need, missing)
        return self._choose_among(self.capacity.candidates(need, self.zone), need, missing, whole=whole)

    def _choose_among(
        self, candidates: CandidateOfferings, need: Need, missing: int, *, whole: bool
    ) -> PlannedNodeClaims | Refusal:
        ranking = candidates.ranking(missing, whole=whole)
        pods, seen = need.pod_set, candidates.seen
        obstacles = PurchaseObstacles(pods, missing, self.zone, seen, whole, set(ranking.inflexible))
        obstacles.too_short |= candidates.too_short
        obstacles.not_serving = candidates.not_serving
        found = [self._available(it, missing, whole=whole, obstacles=obstacles) for it in ranking.reserved]
        plain = (self._available(it, missing, whole=whole, obstacles=obstacles) for it in ranking.open)
        ranked = [it for it in (*found, next((it for it in plain if it is not None), None)) if it is not None]
        self.obstructed |= bool(ranking.reserved or obstacles.over_limit or obstacles.bound)
        if not ranked:
            return obstacles.refusal()
        rank, chosen, candidate = min(ranked, key=lambda it: it[0])
        self.has_split = self.has_split or rank[2] != 0
        self.worst_capacity_rank = max(self.worst_capacity_rank, candidate.capacity_rank)
        self.worst_pool_rank = max(self.worst_pool_rank, candidate.pool_rank)
        return replace(chosen, room=candidates.room_of(candidate))

    def _available(
        self, candidate: CandidateOffering, missing: int, *, whole: bool, obstacles: PurchaseObstacles
    ) -> tuple[tuple[object, ...], PlannedNodeClaims, CandidateOffering] | None:
        """The purchase that can be made of a candidate now, with its rank; else None, and the obstacle is noted."""
        offering = candidate.offering
        wanted = -(-missing // candidate.fits)
        count = self.capacity.most_of(offering, wanted, obstacles, may_split=self.may_split and not whole)
        if not count:
            return None
        if (until := self.capacity.shortages.get(offering.offer.pool_key)) is not None:
            obstacles.short(offering, until)
            return None
        left = self.capacity.headroom[offering.pool.name].reserved_left(offering) or 0
        return candidate.rank(missing, count, left), PlannedNodeClaims(offering, count), candidate
