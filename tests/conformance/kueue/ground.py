"""The nodes of a case as the quota engine's ground: pods of flavors with a topology get places on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.admission.quota.ground import Misfit
from fleet.admission.quota.workload import Given, Holder, Workload
from fleet.placement.topology import Ask, Placement, Topologies, TopologyFlavor
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from tests.conformance.cases import Case
from tests.conformance.kueue.topology import foreign_use, nodes_of, options_of, toleration_of

Places = tuple[Placement, ...]


@dataclass(slots=True)
class Nodes:
    """Places of workloads are placements of their pod sets, in order."""

    topologies: Topologies
    levels: Mapping[str, tuple[str, ...]]
    """Flavor -> levels of its topology."""
    pods: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, case: Case) -> "Nodes | None":
        """The ground of a case; None when no flavor has a topology."""
        declared = {it["name"]: tuple(it["levels"]) for it in case.get("topologies", ())}
        flavors = [
            TopologyFlavor(
                flavor["name"],
                declared[flavor["topology"]],
                flavor.get("node_labels", {}),
                tuple(toleration_of(it) for it in flavor.get("tolerations", ())),
            )
            for flavor in case["flavors"]
            if flavor.get("topology") in declared
        ]
        gates = case["config"].get("feature_gates", {})
        if not flavors or gates.get("TopologyAwareScheduling") is False:
            return None
        tree = Topologies(nodes_of(case), foreign_use(case), flavors, options_of(gates))
        return cls(tree, {flavor.name: flavor.levels for flavor in flavors})

    def flavor_of(self, given: Given) -> str | None:
        """The flavor that places a pod set."""
        return next((flavor for _, flavor in sorted(given.flavors.items()) if flavor in self.levels), None)

    def standing(self, holder: Holder, admitted: Sequence[Case]) -> Places:
        """Where a workload stands, as its admission says."""
        requests = {pod_set.name: pod_set.requests for pod_set in holder.workload.pod_sets}
        found = []
        for one, pods in zip(holder.given, admitted, strict=True):
            flavor, topology = self.flavor_of(one), pods.get("topology")
            if flavor and topology:
                domains = {tuple(it["values"]): it["count"] for it in topology["domains"]}
                found.append(Placement(one.name, flavor, requests[one.name], tuple(topology["levels"]), domains))
        return tuple(found)

    def find(self, workload: Workload, given: Sequence[Given], *, empty: bool = False) -> Places | Misfit:
        """Places for the pod sets whose flavor has a topology."""
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        asks = []
        for one in given:
            flavors = {flavor for flavor in one.flavors.values() if flavor in self.levels}
            if len(flavors) > 1:
                return Misfit((one.name,), Refusal(Reason.TOPOLOGY, f"{one.name} would need two topologies"))
            asks += [Ask(_sized(pod_sets[one.name], one.count), flavor) for flavor in flavors]
        found = self.topologies.find(asks, empty=empty)
        if found.refusal is None:
            return found.placements
        group = pod_sets[found.refusal.pod_set].group
        refused = tuple(
            ask.pod_set.name
            for ask in asks
            if ask.pod_set.name == found.refusal.pod_set or (group and ask.pod_set.group == group)
        )
        return Misfit(refused, Refusal(Reason.TOPOLOGY, found.refusal.message))

    def put(self, holder: Holder) -> None:
        self.hold(holder.workload, holder.place)

    def lift(self, holder: Holder) -> None:
        self.release(holder.workload, holder.place)

    def hold(self, workload: Workload, place: object) -> None:
        for placement in place or ():  # type: ignore[attr-defined]
            self.topologies.take(placement)

    def release(self, workload: Workload, place: object) -> None:
        for placement in reversed(place or ()):  # type: ignore[call-overload]
            self.topologies.give(placement)


def _sized(pod_set: PodSet, count: int) -> PodSet:
    return replace(pod_set, count=count)
