"""From a case's JSON to the values of the quota engine."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from fleet.quota.build_tree import quota_specs
from fleet.quota.ledger import AdmittedWorkload
from fleet.quota.specs import (
    UNLIMITED,
    AdmissionRules,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    FungibilityPolicy,
    PreemptionStrategy,
    QueueFungibility,
    QueuePreemption,
    QuotaCohortSpec,
    QuotaFlavorSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import QuotaTree, charge
from fleet.quota.workload import NEVER_CREATED_S, PodSetAssignment, Workload
from fleet.snapshot import PodSet, Slice
from model.fleet import Fleet
from model.kinds import RequirementTerm, Taint, Toleration
from tests.support.quotas import usage_in

Json = Mapping[str, Any]


def amount(value: Any) -> int:
    """A quantity of a case."""
    return UNLIMITED if value == "unlimited" else int(value)


def quotas(groups: Iterable[Json]) -> dict[FlavorResource, CellQuota]:
    """The cells of resource groups."""
    found = {}
    for group in groups:
        for flavor in group.get("flavors", ()):
            for resource, quota in flavor.get("quotas", {}).items():
                borrowing, lending = quota.get("borrowing_limit"), quota.get("lending_limit")
                found[FlavorResource(flavor["name"], resource)] = CellQuota(
                    amount(quota.get("nominal", 0)),
                    None if borrowing in {None, "unlimited"} else int(borrowing),
                    None if lending in {None, "unlimited"} else int(lending),
                )
    return found


def queue_spec(cq: Json) -> QuotaQueueSpec:
    """A ClusterQueue."""
    groups = cq.get("resource_groups") or ()
    preemption, fungibility = cq.get("preemption") or {}, cq.get("flavor_fungibility") or {}
    borrow = preemption.get("borrow_within_cohort") or {}
    reclaim = "Never" if cq.get("reclaim_unset") else preemption.get("reclaim_within_cohort")
    return QuotaQueueSpec(
        cq["name"],
        cq.get("cohort") or "",
        tuple(
            QuotaResourceGroup(tuple(g.get("resources", ())), tuple(f["name"] for f in g.get("flavors", ())))
            for g in groups
        ),
        quotas(groups),
        weight_of(cq),
        strict=cq.get("strategy") == "StrictFIFO",
        preemption=QueuePreemption(
            CandidatePolicy(preemption.get("within_cluster_queue") or "Never"),
            CandidatePolicy(reclaim or "Never"),
            CandidatePolicy(borrow.get("policy") or "Never"),
            borrow.get("max_priority_threshold"),
        ),
        fungibility=fungibility_of(fungibility),
        usage_ordered=cq.get("admission_scope") == "UsageBasedAdmissionFairSharing",
    )


def weight_of(node: Json) -> float:
    """The weight of a ClusterQueue, Cohort or LocalQueue."""
    weight = node.get("fair_weight")
    return 1.0 if weight is None else float(weight)


def fungibility_of(given: Json) -> QueueFungibility:
    """A ClusterQueue's flavorFungibility."""
    return QueueFungibility(
        FungibilityPolicy(given.get("when_can_borrow") or "MayStopSearch"),
        FungibilityPolicy(given.get("when_can_preempt") or "TryNextFlavor"),
        prefer_preemption=given.get("preference") == "PreemptionOverBorrowing",
    )


def cohort_spec(cohort: Json) -> QuotaCohortSpec:
    """A Cohort."""
    return QuotaCohortSpec(
        cohort["name"],
        cohort.get("parent") or "",
        quotas(cohort.get("resource_groups") or ()),
        weight_of(cohort),
    )


def tree_of(case: Json) -> QuotaTree:
    """The tree of a case, with its `usage` charged."""
    queues = [queue_spec(cq) for cq in case["cluster_queues"]]
    tree = QuotaTree([cohort_spec(cohort) for cohort in case.get("cohorts") or ()], queues)
    for name, usage in (case.get("usage") or {}).items():
        charge(tree.queues[name], cells_of(tree, usage))
    return tree


def cells_of(tree: QuotaTree, usage: Json) -> dict[int, int]:
    """`{flavor: {resource: amount}}` as cells."""
    return {
        tree.cell(FlavorResource(flavor, resource)): amount(value)
        for flavor, resources in usage.items()
        for resource, value in resources.items()
    }


def by_flavor(tree: QuotaTree, usage: Mapping[int, int]) -> dict[str, dict[str, int]]:
    """Cells as `{flavor: {resource: amount}}`."""
    found: dict[str, dict[str, int]] = {}
    for cell, value in usage.items():
        named = tree.cells[cell]
        found.setdefault(named.flavor, {})[named.resource] = value
    return found


def flavor_spec(flavor: Json) -> QuotaFlavorSpec:
    """A ResourceFlavor."""
    return QuotaFlavorSpec(
        flavor["name"],
        flavor.get("node_labels") or {},
        tuple(taint(entry) for entry in flavor.get("taints") or ()),
        tuple(toleration(entry) for entry in flavor.get("tolerations") or ()),
    )


def taint(entry: Json) -> Taint:
    """A node taint."""
    return Taint(key=entry["key"], value=entry.get("value") or "", effect=entry["effect"])


def toleration(entry: Json) -> Toleration:
    """A toleration."""
    return Toleration.model_validate({key: value for key, value in entry.items() if value})


def pod_set(entry: Json, count: int | None = None) -> PodSet:
    """A pod set; `count` stands in for its own."""
    topology = entry.get("topology_request") or {}
    requests = {name: amount(value) for name, value in (entry.get("requests") or {}).items()}
    return PodSet(
        entry["name"],
        entry["count"] if count is None else count,
        requests,
        node_selector=entry.get("node_selector") or {},
        required_affinity=affinity(entry.get("node_affinity") or {}),
        tolerations=tuple(toleration(item) for item in entry.get("tolerations") or ()),
        required_topology=topology.get("required") or "",
        preferred_topology=topology.get("preferred") or "",
        any_topology=bool(topology.get("unconstrained")),
        slices=slices(topology),
        group=topology.get("group") or topology.get("pod_set_group") or entry.get("group") or "",
        min_count=entry.get("min_count"),
    )


def slices(topology: Json) -> tuple[Slice, ...]:
    """Slice constraints, coarse to fine."""
    if layers := topology.get("slice_constraints"):
        return tuple(Slice(layer["topology"], layer["size"]) for layer in layers)
    if topology.get("slice_required"):
        return (Slice(topology["slice_required"], topology.get("slice_size") or 0),)
    return ()


def affinity(entry: Json) -> tuple[tuple[RequirementTerm, ...], ...]:
    """Required node affinity."""
    required = entry.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return tuple(
        tuple(
            RequirementTerm(key=e["key"], operator=e["operator"], values=tuple(e.get("values") or ()))
            for e in term.get("matchExpressions") or ()
        )
        for term in required.get("nodeSelectorTerms") or ()
    )


def workload(
    entry: Json, queue: str = "", *, implied: bool = False, gates: Json | None = None, requeuing: str = "Eviction"
) -> Workload:
    """A workload. Its uid is `entry`'s, or its name."""
    gates = gates or {}
    name = workload_name(entry)
    created = entry.get("created_s")
    reclaimed = reclaimed_of(entry, gates)
    return Workload(
        entry.get("uid") or name,
        name,
        queue,
        priority_of(entry, gates),
        NEVER_CREATED_S if created is None else float(created),
        tuple(
            _placed(pod_set(p, p["count"] - reclaimed.get(p["name"], 0)), implied) for p in entry.get("pod_sets") or ()
        ),
        queued_at_s=queued_at(entry, gates, requeuing),
        evicted_at_s=max(
            (float(c.get("at_s") or 0) for c in entry.get("conditions") or () if c["type"] in {"Evicted", "Preempted"}),
            default=0.0,
        ),
        local_queue=f"{entry.get('namespace', '')}/{entry.get('queue', '')}",
        may_evict=not (gates.get("MultiKueueOrchestratedPreemption") and is_gated(entry)),
        nominated=bool(entry.get("waiting_for_preemption")),
        replaces=replaced_by(entry) if gates.get("ElasticJobsViaWorkloadSlices", True) else "",
    )


def _placed(found: PodSet, implied: bool) -> PodSet:
    """A pod set that asks for no place gets one all the same where every flavor of its queue has a topology."""
    asks = found.required_topology or found.preferred_topology or found.any_topology or found.slices
    return found if asks or not implied else replace(found, any_topology=True)


def workload_name(entry: Json) -> str:
    """`namespace/name`, as cases write it."""
    return f"{entry.get('namespace', '')}/{entry['name']}"


def priority_of(entry: Json, gates: Json) -> int:
    """Priority with its boost, where boosts count."""
    boost = str((entry.get("annotations") or {}).get("kueue.x-k8s.io/priority-boost", "0"))
    if not gates.get("PriorityBoost") or not boost.lstrip("-").isdigit():
        boost = "0"
    return int(entry.get("priority") or 0) + int(boost)


def queued_at(entry: Json, gates: Json, requeuing: str) -> float | None:
    """The time that counts in its queue, when that is not its creation (reference 2.2)."""
    for condition in entry.get("conditions") or ():
        if condition.get("status") != "True":
            continue
        kind, reason = condition["type"], condition.get("reason", "")
        if kind == "Evicted" and (
            reason == "AdmissionCheck" or (reason == "PodsReadyTimeout" and requeuing == "Eviction")
        ):
            return float(condition.get("at_s") or 0)
        if (
            kind == "Preempted"
            and reason == "InCohortReclaimWhileBorrowing"
            and gates.get("PrioritySortingWithinCohort") is False
        ):
            return float(condition.get("at_s") or 0) + 0.001
    return None


def replaced_by(entry: Json) -> str:
    """Name of the workload whose slice it replaces."""
    return str((entry.get("annotations") or {}).get("kueue.x-k8s.io/workload-slice-replacement-for") or "")


def is_gated(entry: Json) -> bool:
    """Whether a gate holds its preemptions back: one that nobody has opened."""
    told = (gate for key in entry if key.startswith("preemption_gate") for gate in entry[key] or ())
    opened = {gate["name"] for gate in told if _opened(gate)}
    return any(gate["name"] not in opened for gate in entry.get("preemption_gates") or ())


def _opened(gate: Json) -> bool:
    return "Open" in {gate.get("position"), gate.get("state"), gate.get("status")}


def is_leaving(entry: Json) -> bool:
    """Whether it is evicted already."""
    return any(c["type"] == "Evicted" and c.get("status") == "True" for c in entry.get("conditions") or ())


def holder(tree: QuotaTree, entry: Json, *, gates: Json | None = None) -> AdmittedWorkload:
    """A workload with its admission."""
    admission = entry.get("admission") or {"cluster_queue": next(iter(tree.queues)), "pod_sets": ()}
    queue = admission["cluster_queue"]
    given = tuple(_given(pods, entry, gates or {}) for pods in admission.get("pod_sets") or ())
    return AdmittedWorkload(
        workload(entry, queue, gates=gates),
        tree.queues[queue],
        given,
        usage_in(tree, given),
        float(admission.get("reserved_at_s") or 0),
        leaving=is_leaving(entry),
    )


def requeuing_of(case: Json) -> str:
    """Which time counts for a workload whose pods were not ready in time: that of its eviction, or its creation."""
    return (case.get("config") or {}).get("requeuing_timestamp") or "Eviction"


def reclaimed_of(entry: Json, gates: Json) -> dict[str, int]:
    """Pod set -> pods that have finished and need nothing any more."""
    found = entry.get("reclaimable_pods") or () if gates.get("ReclaimablePods", True) else ()
    return {pods["name"]: pods["count"] for pods in found}


def _given(pods: Json, entry: Json, gates: Json) -> PodSetAssignment:
    """What an admission gives a pod set; pods that it no longer has, or no longer needs, have given theirs back."""
    reclaimed = reclaimed_of(entry, gates)
    wanted = next((p["count"] for p in entry.get("pod_sets") or () if p["name"] == pods["name"]), pods["count"])
    count = min(pods["count"], wanted - reclaimed.get(pods["name"], 0))
    usage = {r: amount(v) for r, v in (pods.get("usage") or {}).items()}
    if count < pods["count"]:
        usage = {r: v * count // pods["count"] for r, v in usage.items()}
    return PodSetAssignment(pods["name"], count, pods.get("flavors") or {}, usage)


def transformed(requests: Mapping[str, int], rules: Iterable[Json]) -> dict[str, int]:
    """Requests after resource transformations: outputs for every unit of the input, which is kept or replaced."""
    found = dict(requests)
    for rule in rules:
        units = requests.get(rule["input"], 0)
        if rule.get("strategy") == "Replace":
            found.pop(rule["input"], None)
        per = 1000 if rule["input"] == "cpu" else 1
        for output, factor in rule["outputs"].items():
            found[output] = found.get(output, 0) + units * int(factor) // per
    return found


def switched_on(part: Any) -> bool:
    """Whether a part of a configuration is there, be it empty."""
    return part is not None and part is not False


BY_AGENT: Final = "by the agent"
"""In a configuration: the agent's own switches decide, where the case leaves them open."""


def rules_of(config: Json) -> AdmissionRules:
    """What a case's configuration switches on, beside upstream's defects or the agent's own switches."""
    fair = config.get("fair_sharing")
    gates = config.get("feature_gates") or {}
    strategies = (fair.get("strategies") if isinstance(fair, dict) else None) or [s.value for s in PreemptionStrategy]
    agents = config.get(BY_AGENT, False)
    return replace(
        quota_specs(Fleet()).rules if agents else AdmissionRules(upstream_defects=True),
        fair_trees=None,
        fair=tuple(PreemptionStrategy(name) for name in strategies) if switched_on(fair) else (),
        place_again=gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True),
        victims_again=gates.get("RecomputeAssignmentUponPreemptionTargetsOverlap", True),
        lost_leave=gates.get("TASFailedNodeReplacementFailFast", True),
        partial_admission=gates.get("PartialAdmission", True),
        priority_between_queues=gates.get("PrioritySortingWithinCohort", True),
        count_declared_only=config.get("quota_check_strategy") == "IgnoreUndeclared",
        preemptors_first=gates.get("PrioritizePreemptorWorkloads", agents),
    )
