"""Kinds that pin one rule each: amounts of the tree, shares, orders, searches."""

import math
from collections.abc import Iterable
from typing import Any

from fleet.quota.admission_cycle import resources_to_reserve
from fleet.quota.assignment_search import most_possible
from fleet.quota.entries import (
    CycleEntry,
    EntryOutcome,
    TournamentStanding,
    classical_order,
    fair_key,
    requeues_immediately,
    stays_at_head,
)
from fleet.quota.fair_preemption import TargetQueueOrdering, fair_preemptions
from fleet.quota.flavor_assigner import FlavorAssigner, is_preferred
from fleet.quota.ledger import QuotaLedger
from fleet.quota.pending_queue import PendingQueue
from fleet.quota.preemption import PreemptionContext, classical_preemptions, satisfies_policy
from fleet.quota.specs import CandidatePolicy, FlavorResource, QuotaQueueSpec
from fleet.quota.tree import DominantResourceShare, QuotaNode, QuotaTree, available, charge, dominant_resource_share
from fleet.quota.workload import (
    FlavorAssignment,
    GranularMode,
    PodSetFlavors,
    PreemptionMode,
    Workload,
    WorkloadAssignment,
)
from tests.conformance.cases import Case, Runner
from tests.conformance.kueue import world
from tests.conformance.kueue.topology import gates_of
from tests.conformance.kueue.usage import LocalUsage
from tests.conformance.kueue.world import by_flavor, cells_of, holder, queue_spec, rules_of, tree_of, workload

GRANULES = {
    "no_fit": PreemptionMode.NO_FIT,
    "no_candidates": PreemptionMode.NO_CANDIDATES,
    "preempt": PreemptionMode.PREEMPT,
    "reclaim": PreemptionMode.RECLAIM,
    "fit": PreemptionMode.FIT,
}
POSSIBILITIES = {
    "NoCandidates": PreemptionMode.NO_CANDIDATES,
    "Preempt": PreemptionMode.PREEMPT,
    "Reclaim": PreemptionMode.RECLAIM,
}


def public_mode(mode: PreemptionMode) -> str:
    """Fit, Preempt or NoFit."""
    return {PreemptionMode.NO_FIT: "NoFit", PreemptionMode.FIT: "Fit"}.get(mode, "Preempt")


def _available(case: Case) -> Any:
    tree = tree_of(case)

    def of_queues(read: Any) -> Any:
        return {
            name: by_flavor(tree, {cell: read(node, cell) for cell in sorted(_own_cells(tree, name, case))})
            for name, node in tree.queues.items()
        }

    return {
        "available": of_queues(available),
        "potentially_available": of_queues(lambda node, cell: node.potential[cell]),
    }


def _own_cells(tree: QuotaTree, name: str, case: Case) -> set[int]:
    (spec,) = [queue_spec(cq) for cq in case["cluster_queues"] if cq["name"] == name]
    return {tree.cell(named) for named in spec.quotas}


def _dominant_share(case: Case) -> Any:
    tree = tree_of(case)
    for name, usage in case.get("extra_request", {}).items():
        charge(tree.queues[name], cells_of(tree, usage))
    shares = []
    for wanted in case["expect"]["shares"]:
        node = (tree.cohorts if wanted["is_cohort"] else tree.queues)[wanted["node"]]
        share = dominant_resource_share(tree, node)
        value = 2**63 - 1 if share.key[0] else math.ceil(share.key[1])
        shares.append(
            {
                "borrowing": share.borrowing,
                "dominant_resource": share.resource,
                "is_cohort": wanted["is_cohort"],
                "node": wanted["node"],
                "weighted_share": value,
            }
        )
    return {"shares": shares}


def _borrowing_on(case: Case) -> Any:
    tree = tree_of(case)
    node = tree.queues["cq"]
    return {
        "borrowing": not node.within(range(len(tree.cells))),
        "borrowing_on_requested": not node.within(cells_of(tree, case["requested"])),
    }


def _entry(item: Case, gates: Case, requeuing: str) -> CycleEntry:
    asks = workload(item, gates=gates, requeuing=requeuing)
    borrow = PodSetFlavors(
        world.pod_set({"name": "main", "count": 1}),
        1,
        {},
        {"cpu": FlavorAssignment("", PreemptionMode.FIT, item["borrowing_level"], -1)},
    )
    node = QuotaNode("q", None, 1.0, is_queue=True)
    return CycleEntry(asks, QuotaQueueSpec("q"), node, WorkloadAssignment([borrow], {}))


def _entry_order(case: Case) -> Any:
    config = case["config"]
    entries = [_entry(item, gates_of(case), world.requeuing_of(case)) for item in case["entries"]]
    ordered = classical_order(entries, rules_of(config))
    return {"order": [entry.workload.name.removeprefix("/") for entry in ordered]}


def _fair_entry_less(case: Case) -> Any:
    rules = rules_of(case["config"])

    def side(item: Case) -> tuple[Workload, TournamentStanding]:
        name = f"default/{item['name']}"
        share = case.get("share", {}).get(name, {})
        requested = {(f, r) for f, resources in case.get("requested", {}).get(name, {}).items() for r in resources}
        borrowed = {tuple(pair) for pair in share.get("borrowed", ())}
        standing = TournamentStanding(
            DominantResourceShare(
                float(share.get("unweighted_ratio", 0)), world.weight_of(share), "", share.get("borrowing", False)
            ),
            bool(requested & borrowed),
        )
        return workload(item, gates=gates_of(case)), standing

    return {"a_before_b": fair_key(*side(case["a"]), rules) < fair_key(*side(case["b"]), rules)}


def _queue_order(case: Case) -> Any:
    usage_of = None
    local = LocalUsage.of(case) if case.get("admission_scope") == "UsageBasedAdmissionFairSharing" else None
    if local is not None:
        kept = local.values()

        def usage_of(asks: Workload) -> float:
            return kept.get(asks.local_queue, 0.0)

    line = PendingQueue(case["strategy"] == "StrictFIFO", usage_of)
    for item in case["workloads"]:
        line.push(workload(item, gates=gates_of(case), requeuing=world.requeuing_of(case)))
    if case.get("sticky"):
        line.sticky = case["sticky"]
    head = line.pop()
    return {"head": head.name if head else None}


def _requeue(case: Case) -> Any:
    strict = case["strategy"] == "StrictFIFO"
    hints = case.get("next_index_hints") or []
    outcome = EntryOutcome(case["reason"])
    untried = any(index != -1 for hint in hints for index in hint.values())
    return {
        "inadmissible": not requeues_immediately(outcome, strict=strict, untried=untried),
        "sticky_at_head": stays_at_head(outcome, strict=strict),
    }


def _reserve(case: Case) -> Any:
    spec = queue_spec(case["cluster_queue"])
    tree = QuotaTree([], [spec])
    node = tree.queues[spec.name]
    charge(node, cells_of(tree, case["usage"]))
    usage = cells_of(tree, case["assignment_usage"])
    mode = PreemptionMode.FIT if case["assignment_mode"] == "Fit" else PreemptionMode.PREEMPT
    pods = PodSetFlavors(
        world.pod_set({"name": "main", "count": 1}),
        1,
        {},
        {"any": FlavorAssignment("", mode, case["borrowing_level"], -1)},
    )
    reserved = resources_to_reserve(node, WorkloadAssignment([pods], usage))
    return {"reserved": by_flavor(tree, dict.fromkeys(usage, 0) | reserved)}


def _preference(case: Case) -> Any:
    a, b = (GranularMode(GRANULES[case[side]["mode"]], case[side]["borrowing_level"]) for side in "ab")
    return {"a_preferred": is_preferred(a, b, world.fungibility_of(case["flavor_fungibility"]))}


def _partial(case: Case) -> Any:
    most = case["fits_when_total_at_most"]
    wanted = [(pods["count"], pods.get("min_count")) for pods in case["pod_sets"]]
    found = most_possible(wanted, lambda counts: sum(counts) <= most)
    return {"found": found is not None, "total": sum(found) if found else 0}


def _policy(case: Case) -> Any:
    gates, requeuing = gates_of(case), world.requeuing_of(case)
    preemptor, candidate = (
        workload(case[side], gates=gates, requeuing=requeuing) for side in ("preemptor", "candidate")
    )
    return {"allowed": satisfies_policy(CandidatePolicy(case["policy"]), preemptor, candidate)}


def _contest(tree: QuotaTree, spec: QuotaQueueSpec, asks: Workload, usage: Any, cells: Any) -> PreemptionContext:
    return PreemptionContext(QuotaLedger(tree), asks, spec, tree.queues[spec.name], usage, cells)


def _candidate_order(case: Case) -> Any:
    names = sorted(
        {
            case["preemptor_cluster_queue"],
            *(c["admission"]["cluster_queue"] for c in case["candidates"] if c.get("admission")),
        }
    )
    tree = QuotaTree([], [QuotaQueueSpec(name) for name in names])
    gates = gates_of(case)
    holders = [holder(tree, candidate, gates=gates) for candidate in case["candidates"]]
    usage = {
        f"{c.get('namespace', '')}/{c.get('queue', '')}": c["local_queue_usage"]
        for c in case["candidates"]
        if c.get("local_queue_usage") is not None
    }
    preemptor = case["preemptor_cluster_queue"]
    contest = _contest(tree, QuotaQueueSpec(preemptor), workload({"name": "x"}, preemptor), {}, ())
    configured = world.switched_on(case["config"].get("admission_fair_sharing"))
    usage_based = configured and gates.get("AdmissionFairSharing", True)
    contest.local_usage = usage if usage_based else {}
    return {"order": [found.workload.name.split("/", 1)[1] for found in contest.ordered(holders)]}


def _fair_target_order(case: Case) -> Any:
    tree = tree_of(case)
    ledger = QuotaLedger(tree)
    for item in case["workloads"]:
        ledger.add(holder(tree, item))
    preemptor = case["preemptor_cluster_queue"]
    spec = next(queue_spec(cq) for cq in case["cluster_queues"] if cq["name"] == preemptor)
    contest = PreemptionContext(
        ledger, workload({"name": "x"}, preemptor), spec, tree.queues[preemptor], {}, range(len(tree.cells))
    )
    wanted = set(case["candidate_cluster_queues"])
    candidates = contest.ordered([h for h in ledger.holders.values() if h.queue.name in wanted])
    targets = TargetQueueOrdering.of(contest, candidates)
    actions = iter(case["actions"])
    order = []
    for queue in targets:
        order.append(queue.name)
        action = next(actions, "pop")
        if action == "drop":
            targets.drop(queue)
        else:
            targets.left[queue.name].pop(0)
    return {"order": order}


def _preemption(case: Case) -> Any:
    tree = tree_of(case)
    ledger = QuotaLedger(tree)
    gates, requeuing = gates_of(case), world.requeuing_of(case)
    for item in case["workloads"]:
        if item.get("admission"):
            ledger.add(holder(tree, item, gates=gates))
    incoming = case["incoming"]
    queue = incoming["cluster_queue"]
    spec = next(queue_spec(cq) for cq in case["cluster_queues"] if cq["name"] == queue)
    asks = workload(incoming, queue, gates=gates, requeuing=requeuing)
    usage: dict[int, int] = {}
    contested = set()
    requests = {pods["name"]: pods for pods in incoming.get("pod_sets", ())}
    for pods in case["assignment"]:
        for resource, choice in pods.get("flavors", {}).items():
            cell = tree.cell(FlavorResource(choice["flavor"], resource))
            amounts = requests[pods["name"]].get("requests", {})
            usage[cell] = usage.get(cell, 0) + world.amount(amounts.get(resource, 0)) * pods["count"]
            if choice["mode"] != "Fit":
                contested.add(cell)
    contest = PreemptionContext(ledger, asks, spec, tree.queues[queue], usage, frozenset(contested))
    rules = rules_of(case["config"])
    victims = (
        fair_preemptions(contest, rules.fair, upstream=rules.upstream_defects)
        if rules.fair
        else classical_preemptions(contest)
    )
    found = [{"reason": victim.reason.value, "workload": victim.holder.workload.name} for victim in victims]
    return {"preempted": sorted(found, key=lambda item: item["workload"])}


def _flavor_assignment(case: Case) -> Any:
    given = [case["cluster_queue"], case["other_cluster_queue"]]
    specs = [queue_spec(cq) for cq in given if cq]
    tree = QuotaTree([world.cohort_spec(cohort) for cohort in case.get("cohorts", ())], specs)
    for spec, usage in zip(specs, (case["usage"], case["other_usage"]), strict=False):
        charge(tree.queues[spec.name], cells_of(tree, usage))
    simulated = {
        tree.cell(FlavorResource(item["flavor"], item["resource"])): GranularMode(
            POSSIBILITIES[item.get("possibility", "Preempt")], item.get("borrow_after", 0)
        )
        for item in case["simulated_preemption"]
    }
    default = case["simulated_preemption_default"]
    fallback = GranularMode(POSSIBILITIES[default.get("possibility", "Preempt")], default.get("borrow_after", 0))
    gates = gates_of(case)
    reclaimable = case.get("reclaimable", {}) if gates.get("ReclaimablePods", True) else {}
    pod_sets = tuple(world.pod_set(p, p["count"] - reclaimable.get(p["name"], 0)) for p in case["pod_sets"])
    assigner = FlavorAssigner(
        tree,
        specs[0],
        tree.queues[specs[0].name],
        {f["name"]: world.flavor_spec(f) for f in case["flavors"]},
        lambda cell, amount: simulated.get(cell, fallback),
        fair=world.switched_on(case["config"].get("fair_sharing")),
    )
    if case.get("replaced_slice"):
        replaced = case["replaced_slice"]
        pods = replaced.get("pod_sets") or (replaced.get("admission") or {}).get("pod_sets") or ()
        assigner.own_usage = cells_of(tree, replaced["usage"]) if "usage" in replaced else usage_of(tree, pods)
        assigner.only = {one["name"]: one["flavors"] for one in pods if one.get("flavors")} or None
    found = assigner.assign(Workload("uid", "asks", specs[0].name, 0, 0.0, pod_sets))
    if "flavors" in case["expect"]:
        flavors = {r: c.flavor for pods in found.pod_sets for r, c in (pods.choices or {}).items()}
        return {"flavors": flavors, "mode": public_mode(found.mode)}
    return assignment_out(tree, found)


def usage_of(tree: QuotaTree, pod_sets: Iterable[Case]) -> dict[int, int]:
    """What admitted pod sets take; requests are of all their pods."""
    found: dict[int, int] = {}
    for pods in pod_sets:
        for resource, value in (pods.get("usage") or pods.get("requests") or {}).items():
            if flavor := (pods.get("flavors") or {}).get(resource):
                cell = tree.cell(FlavorResource(flavor, resource))
                found[cell] = found.get(cell, 0) + world.amount(value)
    return found


def assignment_out(tree: QuotaTree, found: WorkloadAssignment) -> Any:
    """An assignment as cases write it."""
    return {
        "mode": public_mode(found.mode),
        "borrowing_level": found.borrow,
        "usage": by_flavor(tree, found.usage),
        "no_fit_reason": found.no_fit_reason.value if found.no_fit_reason else None,
        "pod_sets": [_pods_out(pods) for pods in found.pod_sets],
    }


def _pods_out(pods: PodSetFlavors) -> Any:
    found: dict[str, Any] = {"name": pods.pod_set.name, "count": pods.count}
    if pods.choices is not None:
        found["flavors"] = {
            resource: {"flavor": c.flavor, "mode": public_mode(c.mode), "next_index_hint": c.next_index}
            for resource, c in pods.choices.items()
        }
    return found


RUNNERS: dict[str, Runner] = {
    "available": _available,
    "dominant_share": _dominant_share,
    "borrowing_on": _borrowing_on,
    "entry_order": _entry_order,
    "fair_entry_less": _fair_entry_less,
    "queue_order": _queue_order,
    "requeue": _requeue,
    "reserve_for_blocked_preemptor": _reserve,
    "flavor_preference": _preference,
    "partial_admission_search": _partial,
    "preemption_policy": _policy,
    "candidate_order": _candidate_order,
    "fair_target_order": _fair_target_order,
    "preemption": _preemption,
    "flavor_assignment": _flavor_assignment,
}
