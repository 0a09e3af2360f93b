"""A place for every pod of a gang on one cluster state: what its pods need, and a plan for all of them or a refusal."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.quota.specs import FlavorResource, QuotaQueueSpec
from fleet.quota.tree import QuotaTree
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet

if TYPE_CHECKING:
    from fleet.placement.topology_placer import TopologyPlacer


@dataclass(slots=True)
class GangPlanner:
    """Plans gangs one at a time. What the pods of one shape need is worked out once a pass, topologies once a state."""

    queues: Mapping[str, QuotaQueueSpec]
    tree: QuotaTree
    capacity: BuyableCapacity
    flavors: FleetFlavors
    now_s: float
    _needs: dict[Hashable, list[Need]] = field(default_factory=dict)
    _topologies: "dict[int, TopologyPlacer]" = field(default_factory=dict)

    def plan(
        self, state: ClusterState, workload: Workload, given: Sequence[PodSetAssignment]
    ) -> PlacementPlan | Refusal:
        """A plan, taken on the state: on the topology where the pods wish for more than one domain, else anywhere."""
        needs = self.needs(workload, given)
        wishing = [need.pod_set for need in needs if need.pod_set.wishes]
        if not wishing:
            return place_gang(state, self.capacity, workload.uid, needs)
        flavors = (self.flavors_of(workload, one) for one in given)
        found = self.topology(state).find([(need.pod_set, names) for need, names in zip(needs, flavors, strict=True)])
        if not isinstance(found, Refusal) and any(s.slot.closes_s <= n.until_s for s in found for n in needs):
            found = Refusal(Reason.TOPOLOGY, "it would run past the end of a capacity block it would be placed on")
        if not isinstance(found, Refusal):
            requests = {need.pod_set.name: need.pod_set.requests for need in needs}
            for assigned in found:
                state.take(assigned.slot, requests[assigned.pod_set], assigned.count)
            return PlacementPlan(tuple(found))
        if any(pods.slices or pods.group or pods.required_topology for pods in wishing):
            return found  # a purchase could not promise it
        return place_gang(state, self.capacity, workload.uid, needs)

    def topology(self, state: ClusterState) -> "TopologyPlacer":
        """The topologies of a cluster state."""
        from fleet.placement.topology_placer import TopologyPlacer  # numpy with it, which most passes have no use for

        if id(state) not in self._topologies:
            self._topologies[id(state)] = TopologyPlacer(state, self.flavors.placing)
        return self._topologies[id(state)]

    def needs(self, workload: Workload, given: Sequence[PodSetAssignment]) -> list[Need]:
        """What the pods need, worked out once for all gangs of one shape."""
        key = (workload.queue, workload.shape, shape_of(given))
        if key not in self._needs:
            self._needs[key] = list(self._worked_out(workload, given))
        return self._needs[key]

    def _worked_out(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Iterator[Need]:
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        for one in given:
            pod_set = pod_sets[one.name]
            yield self.need(workload, one, pod_set if one.count == pod_set.count else replace(pod_set, count=one.count))

    def need(self, workload: Workload, one: PodSetAssignment, sized: PodSet) -> Need:
        """What pods of a set need with the flavors that the set was given."""
        need = self.flavors.need(sized, self.flavors_of(workload, one), charged=self._charged(workload, one))
        return replace(need, until_s=self.now_s + (workload.runs_s or 0.0)) if self.capacity.closing else need

    def flavors_of(self, workload: Workload, one: PodSetAssignment) -> tuple[str, ...]:
        """The flavors of a pod set; one that asks for nothing goes with the queue's first."""
        return tuple(dict.fromkeys(one.flavors.values())) or (self.queues[workload.queue].groups[0].flavors[0],)

    def _charged(self, workload: Workload, one: PodSetAssignment) -> bool:
        """Whether any quota counts what a pod of the set takes of the flavor."""
        queue = self.tree.queues[workload.queue]
        asked = ((flavor, name) for name, flavor in one.flavors.items() if one.amounts.get(name))
        return workload.buys and any(self.tree.counts(queue, FlavorResource(flavor, name)) for flavor, name in asked)


def shape_of(given: Sequence[PodSetAssignment]) -> Hashable:
    """Equal for assignments that give pod sets of one shape the same places to look for."""
    return tuple((one.name, one.count, tuple(one.flavors.items())) for one in given)
