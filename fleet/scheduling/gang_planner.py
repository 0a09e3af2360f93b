"""Finds a place for every pod of one gang on a cluster state, or returns the refusal."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from fleet.placement.buyable_capacity import BuyableCapacity, bought_alike
from fleet.placement.cluster_state import ClusterState, NodeAssignment, NodeSlot, StateVersion, planned_slot
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.followers import follows_onto, place_company, place_leading, stands_by_others
from fleet.placement.free_capacity import FreeCapacity, best_first, free_capacity
from fleet.placement.place import ZoneAttempt, place_gang, standing
from fleet.placement.place_pods import place_first
from fleet.placement.plan import Need, PlacementPlan, PlannedNodeClaims
from fleet.placement.pod_filter import company, pod_filter
from fleet.placement.pod_score import pod_score
from fleet.placement.shared_domains import ways_over_nvlink
from fleet.quota.specs import FlavorResource, QuotaQueueSpec
from fleet.quota.tree import QuotaTree, available
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from fleet.snapshot.affinity import near_each_other

if TYPE_CHECKING:
    from fleet.placement.topology_placer import TopologyPlacer

_MOST_ASKED: Final = 16_384
"""Assignments that are remembered at once."""
_MOST_BESIDE: Final = 128
"""Waiting pods with a view to which a place is chosen for the first of them: about what a machine holds."""


@dataclass(slots=True)
class _AskedAbout:
    """`_AskedAbout` is a gang with an assignment of which the planner was asked: several things, one by one."""

    workload: Workload
    given: Sequence[PodSetAssignment]
    needs: list[Need]
    alike: Hashable
    """Queue, shape and assignment."""
    state: ClusterState | None = None
    """Where `room` was looked for; None = nowhere yet."""
    version: StateVersion | None = None
    room: bool | None = None


@dataclass(slots=True)
class GangPlanner:
    """A `GangPlanner` plans gangs one at a time.

    It computes what pods of one shape need once a pass, and the topology domains once a cluster state.
    """

    queues: Mapping[str, QuotaQueueSpec]
    tree: QuotaTree
    capacity: BuyableCapacity
    flavors: FleetFlavors
    now_s: float
    gathering: dict[Hashable, dict[str, int]] = field(default_factory=dict)
    """Class of pods that keep near each other -> uid of each gang of such pods that waits for its place -> its pods."""
    seeking: dict[str, Workload] = field(default_factory=dict)
    """uid -> gang that waits for its place, and some of whose pods have to stand on a machine of another gang's.

    Only the first of them: every gang that is placed is compared with all of these.
    """
    leading: set[str] = field(default_factory=set)
    """uids of gangs whose place has been chosen with a view to those."""
    _needs: dict[Hashable, list[Need]] = field(default_factory=dict)
    _asked_about: dict[int, _AskedAbout] = field(default_factory=dict)
    """Identity of an assignment -> what was asked about it, which keeps it alive."""
    _topologies: "dict[int, TopologyPlacer]" = field(default_factory=dict)
    _rooms: dict[Hashable, int] = field(default_factory=dict)
    """What pods ask for -> how many there is room for on machines that are kept for nobody, as things stood then."""
    _rooms_at: tuple[ClusterState | None, StateVersion | None] = (None, None)

    def plan(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | Refusal:
        """Plans all pods of a gang and takes the capacity on the state; on refusal the state is unchanged.

        Pod sets with a topology request are placed by the topology first. Where that fails, they are bought for, unless
        the request needs a domain that a purchase cannot promise.
        """
        needs = self.needs(workload, given)
        wishing = [need.pod_set for need in needs if need.pod_set.wishes]
        if not wishing:
            return self._placed(state, workload, given, needs)
        ways = ways_over_nvlink(needs)
        if (tied := next((n for n in needs if pod_filter(state.neighbours, n.pod_set) is not None), None)) is not None:
            name = tied.pod_set.name
            message = (
                f"pods of {name} have a topology request and constraints on other pods, ports or volumes: drop one"
            )
            return self._first_way(state, workload, ways) or Refusal(Reason.TOPOLOGY, message)
        found = self._on_topology(state, workload, given, needs)
        if isinstance(found, PlacementPlan):
            return found
        if ways:
            return self._first_way(state, workload, ways) or found
        if any(pods.slices or pods.group or pods.required_topology for pods in wishing):
            return found  # the domain of a machine that is not there yet is unknown
        return place_gang(state, self.capacity, workload.uid, needs)

    def _first_way(
        self, state: ClusterState, workload: Workload, ways: Sequence[Sequence[Need]]
    ) -> PlacementPlan | Refusal | None:
        """Returns the plan of the first of several ways that has one, else the refusal of the last; None = no way."""
        found = None
        for way in ways:
            found = place_gang(state, self.capacity, workload.uid, way)
            if isinstance(found, PlacementPlan):
                return found
        return found

    def _on_topology(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment], needs: Sequence[Need]
    ) -> PlacementPlan | Refusal:
        """Plans all pods on the topology domains of what stands, and takes the capacity."""
        flavors = (self.flavors_of(workload, one) for one in given)
        found = self.topology(state).find([(need.pod_set, names) for need, names in zip(needs, flavors, strict=True)])
        if not isinstance(found, Refusal) and any(s.slot.closes_s <= n.until_s for s in found for n in needs):
            found = Refusal(Reason.TOPOLOGY, "it would run past the end of a capacity block it would be placed on")
        if not isinstance(found, Refusal):
            pod_sets = {need.pod_set.name: need.pod_set for need in needs}
            for assigned in found:
                state.place(assigned.slot, pod_sets[assigned.pod_set], assigned.count)
            return PlacementPlan(tuple(found))
        return found

    def foreseen(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment], *, full: bool
    ) -> PlacementPlan | None:
        """Returns what `plan` would find for a single pod that stands anywhere, without taking anything.

        None where only `plan` tells: pods ask something of domains, of others or of what is cut, or limits have a say
        in what is bought. `full`: `has_room` has found no room.
        """
        asked = self._asked(workload, given)
        [need, *more], known = asked.needs, asked.state is state and asked.version == state.version
        pods, capacity, fits = need.pod_set, self.capacity, known and asked.room is True
        if self.seeking and any(follows_onto(it, pods) for other in self.seeking.values() for it in other.pod_sets):
            return None
        if more or pods.count != 1 or capacity.recuts or not (fits or _stands_anywhere(state, pods)):
            return None
        if pod_score(state.neighbours, pods) is not None:
            return None
        if not full:
            free = free_capacity(state, need.asks, pods.requests, need.accepts, capacity.priced)
            if (there := _best_for_one(free, workload.uid)) is not None:
                return PlacementPlan((NodeAssignment(pods.name, there, 1),))
        lot = capacity.bought_before(need) or _bought_for_one(state, capacity, workload.uid, need)
        if lot is None:
            return None
        slot = planned_slot(lot.offering, "new/0/0", workload.uid, room=lot.room)
        return PlacementPlan((NodeAssignment(pods.name, slot, 1),), purchases=(lot,))

    def has_places(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment], count: int
    ) -> bool:
        """Returns whether it is certain that such a single pod finds a place after others, `count` with it.

        Each of those takes room from one machine, or buys one: as many have room, or as many can be bought.
        """
        [need, *more] = self.needs(workload, given)
        pods, capacity = need.pod_set, self.capacity
        alone = not (more or self.seeking or self.gathering or capacity.recuts) and workload.buys and pods.count == 1
        if not alone or not _stands_anywhere(state, pods) or pod_score(state.neighbours, pods) is not None:
            return False
        free = free_capacity(state, need.asks, pods.requests, need.accepts, capacity.priced)
        machines = sum(len(slots) for buckets in free.among().buckets() for slots in buckets.of_room.values())
        lot = capacity.bought_before(need)
        return machines >= count or (
            lot is not None and capacity.headroom[lot.offering.pool.name].most(lot.offering) >= count
        )

    def _placed(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment], needs: Sequence[Need]
    ) -> PlacementPlan | Refusal:
        """Plans a gang; the first of several whose pods keep near each other begins where most of them find a place."""
        if self.gathering and (others := self._others(state, workload, given)):
            return place_first(state, self.capacity, workload.uid, needs[0], others)
        self.leading.discard(workload.uid)
        if self.seeking and (followers := self._followers(state, workload, given)):
            self.leading.add(workload.uid)
            return place_leading(state, self.capacity, workload.uid, needs[0], followers)
        return place_company(state, self.capacity, workload.uid, needs)

    def _others(self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]) -> int:
        """Returns how many pods wait that keep near those of a gang, have quota left, and stand nowhere yet."""
        waiting = self.gathering.get(_near(workload.pod_sets), {})
        others = sum(waiting.values()) - waiting.get(workload.uid, 0)
        if others <= 0 or company(state.neighbours, workload.pod_sets[0]):
            return 0
        [one], queue = given, self.tree.queues[workload.queue]
        for name, flavor in one.flavors.items():
            named, amount = FlavorResource(flavor, name), one.amounts.get(name, 0)
            if amount and self.tree.counts(queue, named):
                others = min(others, available(queue, self.tree.cell(named)) * one.count // amount - one.count)
        return max(0, min(_MOST_BESIDE, others))

    def _followers(self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Need]:
        """Returns what pods of waiting gangs need who have quota, and have to stand where those of this gang stand.

        None of whom others stand already that will do.
        """
        if len(workload.pod_sets) != 1:
            return []
        [one], [leader], found = given, workload.pod_sets, list[Need]()
        left = _MOST_BESIDE
        for other in self.seeking.values():
            for pods in other.pod_sets if other.uid != workload.uid else ():
                follows = follows_onto(pods, leader) and not company(state.neighbours, pods)
                if follows and pods.count <= left and self._has_quota(other, pods, workload, one):
                    left -= pods.count
                    found.append(self.flavors.need(pods, self.flavors_of(workload, one)))
        return found

    def _has_quota(self, other: Workload, pods: PodSet, leader: Workload, one: PodSetAssignment) -> bool:
        """Returns whether a queue has quota for pods of a set in the flavors of their leader, and for that as well."""
        queue = self.tree.queues[other.queue]
        for name, flavor in one.flavors.items():
            named, amount = FlavorResource(flavor, name), pods.requests.get(name, 0) * pods.count
            beside = one.amounts.get(name, 0) if other.queue == leader.queue else 0
            if amount and self.tree.counts(queue, named) and available(queue, self.tree.cell(named)) < amount + beside:
                return False
        return True

    def expect(self, workload: Workload) -> None:
        """Notes that a gang waits for a place, where its pods keep near others."""
        sets = workload.pod_sets
        if (near := _near(sets)) is not None:
            self.gathering.setdefault(near, {})[workload.uid] = sets[0].count
        elif len(self.seeking) < _MOST_BESIDE and any(_seeks_others(pods, sets) for pods in sets):
            self.seeking[workload.uid] = workload

    def settle(self, uid: str) -> None:
        """Notes that a gang has its place."""
        self.seeking.pop(uid, None)
        for waiting in self.gathering.values():
            waiting.pop(uid, None)

    def has_room(self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]) -> bool | None:
        """Returns whether a plan would be found; None where only planning tells.

        For pods of one set that stand anywhere, what is free on the machines that suit them decides as long as nothing
        can be bought or cut anew: searches for victims ask that thousands of times in a row.
        """
        asked, version = self._asked(workload, given), state.version
        if asked.state is not state or asked.version != version:
            asked.state, asked.version = state, version
            asked.room = self._has_room(state, workload, asked.needs)
        return asked.room

    def _has_room(self, state: ClusterState, workload: Workload, needs: Sequence[Need]) -> bool | None:
        if len(needs) != 1 or not _stands_anywhere(state, needs[0].pod_set):
            return None
        [need] = needs
        if self._room(state, workload, need) >= need.pod_set.count:
            return True
        return None if need.pools or self.capacity.recuts else False

    def _room(self, state: ClusterState, workload: Workload, need: Need) -> int:
        """Returns how many such pods there is room for; asked once for all for whom no machine is kept."""
        version, standing = state.version, None if workload.buys else True
        if self._rooms_at[0] is not state or self._rooms_at[1] != version:
            self._rooms_at, self._rooms = (state, version), {}
        free = free_capacity(state, need.asks, need.pod_set.requests, need.accepts, self.capacity.priced)
        if free.keeps(workload.uid):
            return free.among(workload.uid, standing=standing).room
        asks = need.asks, standing
        if asks not in self._rooms:
            self._rooms[asks] = free.among(standing=standing).room
        return self._rooms[asks]

    def topology(self, state: ClusterState) -> "TopologyPlacer":
        """Returns the topology placer of a cluster state."""
        from fleet.placement.topology_placer import TopologyPlacer  # imports numpy, which most passes do not need

        if id(state) not in self._topologies:
            self._topologies[id(state)] = TopologyPlacer(state, self.flavors.placing)
        return self._topologies[id(state)]

    def needs(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Need]:
        """Returns what the pods of a gang need, pod set by pod set; gangs of one shape share the answer."""
        return self._asked(workload, given).needs

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable:
        """Returns queue, shape and assignment: equal for gangs that need the same."""
        return self._asked(workload, given).alike

    def _asked(self, workload: Workload, given: Sequence[PodSetAssignment]) -> _AskedAbout:
        known = self._asked_about.get(id(given))
        if known is None or known.workload is not workload:
            like = known is not None and known.workload.is_like(workload)
            alike = known.alike if known is not None and like else _alike(workload, given)
            own = self._needs.get(alike)
            if own is None:
                own = self._needs[alike] = list(self._compute_needs(workload, given))
            if len(own) == 1 == len(workload.pod_sets):
                needs = [own[0].of(workload.pod_sets[0])]
            else:
                pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
                needs = [need.of(pod_sets[need.pod_set.name]) for need in own]
            if len(self._asked_about) >= _MOST_ASKED:
                self._asked_about.clear()
            known = self._asked_about[id(given)] = _AskedAbout(workload, given, needs, alike)
        return known

    def _compute_needs(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Iterator[Need]:
        """Yields what each pod set needs with the flavors and the count it was given."""
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        for one in given:
            pod_set = pod_sets[one.name]
            yield self.need(workload, one, pod_set if one.count == pod_set.count else replace(pod_set, count=one.count))

    def need(self, workload: Workload, one: PodSetAssignment, sized: PodSet) -> Need:
        """Returns what pods of one set need with the flavors that quota gave the set."""
        need = self.flavors.need(sized, self.flavors_of(workload, one), charged=self._charged(workload, one))
        return replace(need, until_s=self.now_s + (workload.runs_s or 0.0)) if self.capacity.closing else need

    def flavors_of(self, workload: Workload, one: PodSetAssignment) -> tuple[str, ...]:
        """Returns the flavors of a pod set; one without requests gets the first flavor of its queue."""
        return tuple(dict.fromkeys(one.flavors.values())) or (self.queues[workload.queue].groups[0].flavors[0],)

    def _charged(self, workload: Workload, one: PodSetAssignment) -> bool:
        """Returns whether a quota counts some resource that the pod set takes of its flavors, and the gang may buy."""
        queue = self.tree.queues[workload.queue]
        asked = ((flavor, name) for name, flavor in one.flavors.items() if one.amounts.get(name))
        return workload.buys and any(self.tree.counts(queue, FlavorResource(flavor, name)) for flavor, name in asked)


def _near(pod_sets: Sequence[PodSet]) -> Hashable | None:
    """Returns what is equal for gangs of one pod set whose pods ask the same and keep near each other; None = none."""
    if len(pod_sets) != 1 or not near_each_other(pod_sets[0]):
        return None
    [pods] = pod_sets
    requests, selector = tuple(sorted(pods.requests.items())), tuple(sorted(pods.node_selector.items()))
    return pods.namespace, pods.constraints, requests, selector, pods.required_affinity, pods.tolerations


def _seeks_others(pods: PodSet, sets: Sequence[PodSet]) -> bool:
    """Returns whether pods have to stand by pods of other gangs: none of their own gang's would do."""
    return stands_by_others(pods) and not any(follows_onto(pods, it) for it in sets)


def _stands_anywhere(state: ClusterState, pods: PodSet) -> bool:
    return not (pods.wishes or pods.required_topology) and pod_filter(state.neighbours, pods) is None


def _best_for_one(free: FreeCapacity, gang: str) -> NodeSlot | None:
    """Returns the slot for one pod that stands anywhere; None where there is no room."""
    if free.keeps(gang):
        return next(best_first((*standing(free, gang), free.among(gang, standing=False))), None)
    if not (there := free.kept_for_nobody()):
        return None
    (stands, _, _), first = there[0]
    if stands or len(there) == 1:
        return next(first.best(1))[2]
    return next(best_first((free.among(gang, standing=False),)))


def _bought_for_one(state: ClusterState, capacity: BuyableCapacity, gang: str, need: Need) -> PlannedNodeClaims | None:
    """Returns the machine that `place_gang` would buy for one pod that stands anywhere and has room nowhere.

    None where limits or reservations have a say, and where nothing can be bought: then only planning tells.
    """
    alike = bought_alike(state, capacity, gang, [need], zone_bound=False)
    if alike is None or not need.charged:
        return None
    best: tuple[tuple[object, ...], str, PlannedNodeClaims] | None = None
    for zone in sorted({zone for pool in need.pools for zone in capacity.offerings.zones(pool)}):
        tried = ZoneAttempt(state, capacity, gang, zone, zone_bound=False, may_buy=True)
        chosen = tried.choose(need, 1, whole=False)
        if tried.obstructed:
            return None
        if isinstance(chosen, PlannedNodeClaims):
            tried.purchases.append(chosen)
            if best is None or (tried.rank(), zone) < best[:2]:
                best = tried.rank(), zone, chosen
    if best is None:
        return None
    capacity.best_purchases[alike] = best[1], (best[2],)
    return best[2]


def _alike(workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable:
    return workload.queue, workload.shape, shape_of(given)


def shape_of(given: Sequence[PodSetAssignment]) -> Hashable:
    """Returns a key that is equal for assignments under which equal gangs would be placed alike."""
    return tuple((one.name, one.count, tuple(one.flavors.items())) for one in given)
