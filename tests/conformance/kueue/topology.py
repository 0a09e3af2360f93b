"""Kind `topology`: nodes, pods, levels and pod sets to domains with counts, or a refusal."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.placement.topology import (
    NodeReplacement,
    PreferredSchedulingTerm,
    PreviousAssignment,
    Topologies,
    TopologyAssignment,
    TopologyFlavor,
    TopologyOptions,
    TopologyRequest,
)
from fleet.snapshot import Node, PodSet, Slice
from model.kinds import RequirementTerm, Taint, Toleration
from tests.conformance.cases import Case, Runner

FLAVOR, SIBLING = "flavor", "sibling"


def run(case: Case) -> dict[str, Any]:
    """Places for every pod set in one call, up to the first refusal."""
    gates = gates_of(case)
    tree = Topologies(nodes_of(case), foreign_use(case), flavors_of(case), options_of(gates))
    for key, flavor in (("usage_in_flavor", FLAVOR), ("usage_in_sibling_flavor", SIBLING)):
        for entry in case.get(key, ()):
            usage = {tuple(entry["values"]): entry["count"]}
            tree.take(TopologyAssignment("", flavor, entry["per_pod"], tuple(case["levels"]), usage))
    asks = [_ask(pod_set, case, gates) for pod_set in case["pod_sets"]]
    found = tree.find(asks)
    placed = [{"name": it.pod_set, "topology": shown(it)} for it in found.assignments]
    if found.refusal is None:
        return {"pod_sets": placed}
    group = next(ask.pod_set.group for ask in asks if ask.pod_set.name == found.refusal.pod_set)
    refused = [
        ask.pod_set.name
        for ask in asks
        if ask.pod_set.name == found.refusal.pod_set or (group and ask.pod_set.group == group)
    ]
    return {"pod_sets": [*placed, *({"name": name, "refused": True} for name in refused)]}


def gates_of(case: Case) -> Mapping[str, bool]:
    """Feature gates that a case sets; all others have their defaults."""
    return (case.get("config") or {}).get("feature_gates") or {}


def options_of(gates: Mapping[str, bool]) -> TopologyOptions:
    """Feature gates that change how places are chosen."""
    return TopologyOptions(
        least_free_first=gates.get("TASProfileMixed", True),
        balanced=gates.get("TASBalancedPlacement", False),
        weigh_preferences=gates.get("TASRespectNodeAffinityPreferred", False),
    )


def nodes_of(case: Case) -> Iterable[Node]:
    """The nodes of a case."""
    for node in case.get("nodes", ()):
        taints = tuple(Taint(**{key: value or "" for key, value in it.items()}) for it in node.get("taints") or ())
        well, closed = node.get("ready", False), node.get("unschedulable", False)
        labels, there = node.get("labels") or {}, node.get("allocatable") or {}
        yield Node(node["name"], node["name"], "", labels, taints, there, well, closed, 0.0)


def foreign_use(case: Case) -> dict[str, dict[str, int]]:
    """What pods that stand on a node and have not ended take there."""
    found: dict[str, dict[str, int]] = {}
    for pod in case.get("pods") or ():
        if pod.get("node") and pod.get("phase") not in {"Succeeded", "Failed"}:
            taken = found.setdefault(pod["node"], {})
            for resource, amount in {"pods": 1, **(pod.get("requests") or {})}.items():
                taken[resource] = taken.get(resource, 0) + amount
    return found


def flavors_of(case: Case) -> list[TopologyFlavor]:
    """The flavor asked for, and one beside it over the same hosts."""
    levels, own = tuple(case["levels"]), case.get("flavor_node_labels") or {}
    tolerations = tuple(toleration_of(it) for it in case.get("flavor_tolerations") or ())
    return [TopologyFlavor(name, levels, own, tolerations) for name in (FLAVOR, SIBLING)]


def toleration_of(toleration: Mapping[str, Any]) -> Toleration:
    """A toleration as a case spells it."""
    return Toleration(**{"operator": "Equal", **{key: value for key, value in toleration.items() if value}})


def pod_set_of(pod_set: Mapping[str, Any]) -> PodSet:
    """A pod set with what it asks of topology."""
    wish = pod_set.get("topology_request") or {}
    affinity = pod_set.get("node_affinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return PodSet(
        pod_set["name"],
        pod_set["count"],
        pod_set.get("requests") or {},
        pod_set.get("node_selector") or {},
        tuple(_terms(term) for term in required.get("nodeSelectorTerms") or ()),
        tuple(toleration_of(it) for it in pod_set.get("tolerations") or ()),
        required_topology=wish.get("required") or "",
        preferred_topology=wish.get("preferred") or "",
        any_topology=bool(wish.get("unconstrained") or pod_set.get("implied")),
        slices=_slices(wish),
        group=pod_set.get("group") or "",
    )


def preferences_of(pod_set: Mapping[str, Any]) -> tuple[PreferredSchedulingTerm, ...]:
    """Its preferred node affinity."""
    affinity = pod_set.get("node_affinity") or {}
    terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(PreferredSchedulingTerm(term["weight"], _terms(term["preference"])) for term in terms)


def shown(placement: TopologyAssignment) -> dict[str, Any]:
    """A placement as a case spells it."""
    domains = [{"values": list(values), "count": count} for values, count in placement.domains.items()]
    return {"levels": list(placement.levels), "domains": domains}


def placement_of(topology: Mapping[str, Any], pod_set: PodSet) -> TopologyAssignment:
    """The placement that a case shows."""
    domains = {tuple(it["values"]): it["count"] for it in topology["domains"]}
    return TopologyAssignment(pod_set.name, FLAVOR, pod_set.requests, tuple(topology["levels"]), domains)


def _terms(term: Mapping[str, Any]) -> tuple[RequirementTerm, ...]:
    return tuple(
        RequirementTerm(key=it["key"], operator=it["operator"], values=tuple(it.get("values") or ()))
        for it in term.get("matchExpressions") or ()
    )


def _slices(wish: Mapping[str, Any]) -> tuple[Slice, ...]:
    if constraints := wish.get("slice_constraints"):
        return tuple(Slice(it["topology"], it["size"]) for it in constraints)
    return (Slice(wish["slice_required"], wish.get("slice_size") or 0),) if wish.get("slice_required") else ()


def _ask(written: Mapping[str, Any], case: Case, gates: Mapping[str, bool]) -> TopologyRequest:
    pod_set = pod_set_of(written)
    return TopologyRequest(pod_set, FLAVOR, preferences_of(written), _standing(written, pod_set, case, gates))


def _standing(
    written: Mapping[str, Any], pod_set: PodSet, case: Case, gates: Mapping[str, bool]
) -> PreviousAssignment | NodeReplacement | None:
    workload = case.get("workload") or {}
    lost = workload.get("unhealthy_nodes") or ()
    admitted = (workload.get("admission") or {}).get("pod_sets", ())
    before = next((it.get("topology") for it in admitted if it["name"] == pod_set.name), None)
    if lost and before:
        skip = gates.get("SkipReassignmentForPodOwnedWorkloads", True) and is_one_pod(workload)
        return NodeReplacement(placement_of(before, pod_set), lost[0], movable=not skip)
    if written.get("previous") and gates.get("ElasticJobsViaWorkloadSlicesWithTAS", False):
        return PreviousAssignment(placement_of(written["previous"], pod_set))
    return None


def is_one_pod(workload: Mapping[str, Any]) -> bool:
    """Whether a workload is a pod by itself, rather than a job or a group of pods."""
    owners, annotations = workload.get("owners") or (), workload.get("annotations") or {}
    grouped = annotations.get("kueue.x-k8s.io/is-group-workload") == "true"
    return len(owners) == 1 and owners[0]["kind"] == "Pod" and not grouped


RUNNERS: dict[str, Runner] = {"topology": run}
