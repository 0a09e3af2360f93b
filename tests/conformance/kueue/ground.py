"""The nodes of a case as the quota engine's ground: pods of flavors with a topology get places on it."""

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fleet.placement.topology import (
    NodeReplacement,
    PreferredSchedulingTerm,
    PreviousAssignment,
    Topologies,
    TopologyAssignment,
    TopologyFlavor,
    TopologyRequest,
)
from fleet.quota.ledger import AdmittedWorkload, PlacementRefusal
from fleet.quota.workload import PodSetAssignment, Workload
from fleet.reasons import Reason, Refusal
from fleet.snapshot import PodSet
from tests.conformance.cases import Case
from tests.conformance.kueue.topology import (
    foreign_use,
    gates_of,
    nodes_of,
    options_of,
    preferences_of,
    toleration_of,
)

Places = tuple[TopologyAssignment, ...]


@dataclass(slots=True)
class Nodes:
    """Places of workloads are placements of their pod sets, in order."""

    keeps_nominated: ClassVar[bool] = True
    topologies: Topologies
    levels: Mapping[str, tuple[str, ...]]
    """Flavor -> levels of its topology."""
    delayed: AbstractSet[tuple[str, str]] = frozenset()
    """(queue, flavor) whose nodes come only after the quota is reserved: until then pods have no place."""
    preferences: Mapping[tuple[str, str], tuple[PreferredSchedulingTerm, ...]] = field(default_factory=dict)
    """(uid, pod set) -> what it likes of nodes."""
    again: bool = True
    """A place that went to another is looked for again."""
    grown: dict[str, Mapping[str, PreviousAssignment]] = field(default_factory=dict)
    """uid -> pod set -> the place of the slice it replaces, which it keeps."""
    standing: dict[str, Mapping[str, NodeReplacement | None]] = field(default_factory=dict)
    """uid -> pod set -> the place it has a part of still, or none yet; of workloads that hold their quota."""

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
        gates = gates_of(case)
        if not flavors or gates.get("TopologyAwareScheduling") is False:
            return None
        tree = Topologies(nodes_of(case), foreign_use(case), flavors, options_of(gates))
        levels = {flavor.name: flavor.levels for flavor in flavors}
        again = gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True)
        preferences = {
            (entry.get("uid") or f"{entry.get('namespace', '')}/{entry['name']}", pods["name"]): preferences_of(pods)
            for entry in case["workloads"]
            for pods in entry.get("pod_sets") or ()
        }
        return cls(tree, levels, provisioned(case), preferences, again=again)

    def flavor_of(self, given: PodSetAssignment) -> str | None:
        """The flavor that places a pod set."""
        return next((flavor for _, flavor in sorted(given.flavors.items()) if flavor in self.levels), None)

    def placed(self, holder: AdmittedWorkload, admitted: Sequence[Case]) -> Places:
        """Where a workload stands, as its admission says."""
        requests = {pod_set.name: pod_set.requests for pod_set in holder.workload.pod_sets}
        found = []
        for one, pods in zip(holder.given, admitted, strict=True):
            flavor, topology = self.flavor_of(one), pods.get("topology")
            if flavor and topology:
                domains = {tuple(it["values"]): it["count"] for it in topology["domains"]}
                found.append(
                    TopologyAssignment(one.name, flavor, requests[one.name], tuple(topology["levels"]), domains)
                )
        return tuple(found)

    def reseat(self, holder: AdmittedWorkload, lost: str, *, movable: bool) -> None:
        """From now on its pods on a node that is `lost` ask for another place, or all that have none yet."""
        places = {place.pod_set: place for place in holder.place or ()}  # type: ignore[attr-defined]
        standing = {one.name: places.get(one.name) for one in holder.given}
        self.standing[holder.workload.uid] = {
            name: place and NodeReplacement(place, lost, movable) for name, place in standing.items()
        }

    def scale(self, workload: Workload, replaced: AdmittedWorkload) -> None:
        """Its pods go on where those of the slice it replaces are."""
        places: Any = replaced.place or ()
        self.grown[workload.uid] = {place.pod_set: PreviousAssignment(place) for place in places}

    def find(
        self, workload: Workload, given: Sequence[PodSetAssignment], *, empty: bool = False, before: object = None
    ) -> Places | PlacementRefusal:
        """Places for the pod sets whose flavor has a topology; those found `before` while they are free."""
        pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        standing = self.standing.get(workload.uid)
        if before and standing is None:
            if self.topologies.fits(before):  # type: ignore[arg-type]
                return before  # type: ignore[return-value]
            if not self.again:
                return PlacementRefusal(tuple(pod_sets), Refusal(Reason.TOPOLOGY, "its place went to another"))
        asks = []
        for one in given:
            flavors = {flavor for flavor in one.flavors.values() if flavor in self.levels}
            if len(flavors) > 1:
                return PlacementRefusal((one.name,), Refusal(Reason.TOPOLOGY, f"{one.name} would need two topologies"))
            if standing is None:
                flavors = {flavor for flavor in flavors if (workload.queue, flavor) not in self.delayed}
            kept = self.grown.get(workload.uid, {}) if standing is None else standing
            stands = kept.get(one.name)
            likes = self.preferences.get((workload.uid, one.name), ())
            asks += [
                TopologyRequest(_sized(pod_sets[one.name], one.count), flavor, likes, stands) for flavor in flavors
            ]
        found = self.topologies.find(asks, empty=empty)
        if found.refusal is None:
            return found.assignments
        group = pod_sets[found.refusal.pod_set].group
        refused = tuple(
            ask.pod_set.name
            for ask in asks
            if ask.pod_set.name == found.refusal.pod_set or (group and ask.pod_set.group == group)
        )
        return PlacementRefusal(refused, Refusal(Reason.TOPOLOGY, found.refusal.message))

    def fits(self, workload: Workload, given: Sequence[PodSetAssignment]) -> bool:
        """Whether there are places."""
        return not isinstance(self.find(workload, given), PlacementRefusal)

    def alike(self, workload: Workload, given: Sequence[PodSetAssignment]) -> Hashable | None:
        return None

    def put(self, holder: AdmittedWorkload) -> None:
        self.hold(holder.workload, holder.place)

    def lift(self, holder: AdmittedWorkload) -> None:
        self.release(holder.workload, holder.place)

    def hold(self, workload: Workload, place: object) -> None:
        for placement in place or ():  # type: ignore[attr-defined]
            self.topologies.take(placement)

    def release(self, workload: Workload, place: object) -> None:
        for placement in reversed(place or ()):  # type: ignore[call-overload]
            self.topologies.give(placement)


def provisioned(case: Case) -> frozenset[tuple[str, str]]:
    """(queue, flavor) that a provisioning request stands before: its nodes exist only once it is Ready."""
    provisioning = {
        check["name"]
        for check in case.get("admission_checks", ())
        if check.get("controller") == "kueue.x-k8s.io/provisioning-request"
    }
    return frozenset(
        (queue["name"], flavor["name"])
        for queue in case["cluster_queues"]
        for group in queue.get("resource_groups", ())
        for flavor in group.get("flavors", ())
        if any(name in provisioning for name in checks_of(queue, {flavor["name"]}))
    )


def checks_of(queue: Case, flavors: AbstractSet[str]) -> set[str]:
    """Names of a queue's admission checks that concern any of the flavors; those that name none concern all."""
    found = set()
    for check in queue.get("admission_checks") or ():
        on_flavors = check.get("on_flavors") or check.get("flavors") or ()
        if not on_flavors or flavors & set(on_flavors):
            found.add(check["name"])
    return found


def _sized(pod_set: PodSet, count: int) -> PodSet:
    return replace(pod_set, count=count)
