"""Standing machines with their pods, as the cases about disruption write them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from bench.reference.karpenter.buy import (
    KarpenterNode,
    MachineType,
    Peers,
    PoolTemplate,
    ProvisionerSettings,
    ReferenceOffering,
    Resident,
    Spread,
    WaitingPod,
    Weighted,
)
from bench.reference.karpenter.disrupt.eligibility import CandidateNode, CandidatePod
from bench.reference.karpenter.disrupt.ground import DisruptionCandidate, DisruptionWorld, reschedulable
from fleet.disruption.evaluation import eviction_cost
from model import labels
from model.kinds import NodePool
from model.requirements import Requirements
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.requirements import requirements

Given = Mapping[str, Any]
NOW = 1_800_000_000.0
RESERVED_PRICE = 1e-7
"""A reservation costs this share of the on-demand price (AWS provider): it keeps the order and is always cheaper."""
_NO_RESOURCE = frozenset({"age_s", "deletion_cost", "pdb_count", "pdb_disruptions_allowed", "pdbs", "priority"})
"""Numbers of a pod that are no amounts."""
_NO_AGE_S = 3600.0


def ground(given: Given, machines: tuple[MachineType, ...]) -> DisruptionWorld:
    """All of a case: pools, what they may buy, machines that stand, pods that wait."""
    pools = {each["name"]: node_pool(each) for each in given["node_pools"]}
    known = with_reservations(machines, given.get("reservations", ()))
    standing = [standing_of(each, given, pools) for each in given["nodes"]]
    gates = given.get("feature_gates", {})
    return DisruptionWorld(
        pools,
        tuple(templates(given["node_pools"], known)),
        tuple(standing),
        tuple(_pod("pending", number, each) for number, each in enumerate(given.get("pending_pods", ()))),
        ProvisionerSettings(respect_preferences=given.get("preference_policy") != "Ignore"),
        frozenset(pools) if gates.get("SpotToSpotConsolidation") else frozenset(),
        NOW,
    )


def node_pool(given: Given) -> NodePool:
    """A pool of ours that declares the same."""
    told = {"consolidationPolicy": "consolidation_policy", "consolidateAfter": "consolidate_after"}
    disruption = {ours: given[theirs] for ours, theirs in told.items() if theirs in given}
    if "budgets" in given:
        disruption["budgets"] = [budget(each) for each in given["budgets"]]
    spec: dict[str, Any] = {"disruption": disruption}
    if given.get("replicas") is not None:
        spec["replicas"] = given["replicas"]
    if "limits" in given:
        spec["limits"] = {"nodes": given["limits"].get("nodes")}
    return NodePool.model_validate(
        {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": given["name"]}, "spec": spec}
    )


def budget(given: Given) -> dict[str, Any]:
    """A count is text in the cases."""
    nodes = given["nodes"]
    return {**given, "nodes": int(nodes) if isinstance(nodes, str) and nodes.isdigit() else nodes}


def templates(pools: Iterable[Given], machines: tuple[MachineType, ...]) -> list[PoolTemplate]:
    """What the pools buy from; every machine carries the name of its pool."""
    made = catalogs.templates(pools, machines)
    own = (Requirements.from_labels({labels.NODE_POOL: each.name}) for each in made)
    return [replace(each, requirements=each.requirements & name) for each, name in zip(made, own, strict=True)]


def with_reservations(machines: tuple[MachineType, ...], given: Sequence[Given]) -> tuple[MachineType, ...]:
    """The types with an offer more for each reservation of them."""
    held: dict[str, list[Given]] = {}
    for each in given:
        held.setdefault(each["instance_type"], []).append(each)
    return tuple(
        replace(machine, offerings=(*machine.offerings, *_reserved(machine, held[machine.name])))
        if machine.name in held
        else machine
        for machine in machines
    )


def _reserved(machine: MachineType, given: Iterable[Given]) -> Iterable[ReferenceOffering]:
    for each in given:
        like = next(offer for offer in machine.offerings if each.get("zone", offer.zone) == offer.zone)
        left = each.get("count", 1)
        yield replace(
            like,
            capacity_type="reserved",
            price_usd_h=like.price_usd_h * RESERVED_PRICE,
            available=left > 0,
            reservation_id=each["id"],
            reserved_left=left,
        )


@dataclass(frozen=True, slots=True)
class _Aboard:
    """What stands on a machine: those that move, and those that stay with it."""

    pods: tuple[CandidatePod, ...]
    moving: tuple[WaitingPod, ...]
    staying: tuple[WaitingPod, ...]
    evictions: tuple[float, ...]


def standing_of(given: Given, scene: Given, pools: Mapping[str, NodePool]) -> DisruptionCandidate:
    """One machine. Of the only pool where it does not say; `managed: false` is of none."""
    managed = given.get("managed", True)
    pool = given.get("node_pool", next(iter(pools))) if managed else ""
    aboard = _aboard(given)
    initialized = given.get("initialized", True)
    carried = {
        labels.HOSTNAME: given["name"],
        labels.NODE_POOL: pool,
        labels.INSTANCE_TYPE: given.get("instance_type"),
        labels.CAPACITY_TYPE: given.get("capacity_type"),
        labels.ZONE: given.get("zone"),
        labels.CAPACITY_RESERVATION_ID: given.get("reservation_id"),
        **given.get("labels", {}),
    }
    node = KarpenterNode(
        given["name"],
        {key: value for key, value in carried.items() if value},
        _free(given, (*aboard.moving, *aboard.staying)),
        initialized=initialized,
        residents=tuple(Resident(pod.ask.labels, anti_affinity=pod.ask.anti_affinity) for pod in aboard.staying),
    )
    after = pools[pool].spec.disruption.consolidate_after if pool in pools else 0.0
    quiet_s = given.get("since_initialized_s", given.get("since_last_pod_event_s", inf))
    return DisruptionCandidate(
        node,
        pool,
        aboard.moving,
        aboard.evictions,
        _post(given, aboard.pods, pool_known=pool in pools),
        given.get("consolidatable", True) and quiet_s >= after,
        given.get("drifted_at_s", NOW if given.get("drifted") else 0.0),
    )


def _post(given: Given, tenants: tuple[CandidatePod, ...], *, pool_known: bool) -> CandidateNode:
    return CandidateNode(
        claimed=given.get("managed", True),
        initialized=given.get("initialized", True),
        leaving=bool(given.get("deleting") or given.get("marked_for_deletion")),
        nominated=bool(given.get("nominated")),
        pool_known=pool_known,
        do_not_disrupt=given.get("do_not_disrupt") or "",
        since_s=NOW - given.get("age_s", 0.0),
        grace_s=given.get("termination_grace_period_s") or inf,
        pods=tenants,
    )


def _free(given: Given, pods: Iterable[WaitingPod]) -> dict[str, int]:
    free = {"memory": 1 << 50, **catalogs.amounts(given["allocatable"])}
    for pod in pods:
        for name, amount in {**pod.ask.requests, "pods": 1}.items():
            free[name] = free.get(name, 0) - amount
    return free


def _aboard(given: Given) -> _Aboard:
    told = [(each, tenant_of(each), _pod(given["name"], n, each)) for n, each in enumerate(given.get("pods", ()))]
    moving = [(each, pod) for each, tenant, pod in told if reschedulable(tenant)]
    stuck = {pod.name for _, pod in moving}
    return _Aboard(
        tuple(tenant for _, tenant, _ in told),
        tuple(pod for _, pod in moving),
        tuple(pod for _, tenant, pod in told if pod.name not in stuck and not tenant.ended),
        tuple(eviction_cost(each.get("deletion_cost") or 0, each.get("priority") or 0) for each, _ in moving),
    )


_SEVERAL = ("pdbs", "pdb_count")


def tenant_of(given: Given) -> CandidatePod:
    """A pod, as far as it may stand in the way."""
    allowed = given.get("pdb_disruptions_allowed")
    several = next((given[key] for key in _SEVERAL if key in given), None)
    budgets: tuple[int, ...] = () if allowed is None else (allowed,)
    if several is not None:
        budgets = tuple(several) if isinstance(several, list) else (1,) * several
    return CandidatePod(
        do_not_disrupt=given.get("do_not_disrupt") or "",
        started_at_s=NOW - given.get("age_s", _NO_AGE_S if "age_s" in given else 0.0),
        ended=given.get("phase") in {"Succeeded", "Failed"} or bool(given.get("terminal")),
        leaving=bool(given.get("terminating")),
        mirror=bool(given.get("mirror")) or given.get("owner") == "Node",
        owner=given.get("owner") or "",
        pod_budgets=budgets,
    )


def _pod(place: str, number: int, given: Given) -> WaitingPod:
    asked = {name: value for name, value in given.items() if type(value) is int and name not in _NO_RESOURCE}
    pod = catalogs.pod(number, {**asked, "node_selector": given.get("node_selector", {})})
    liked = list(given.get("preferred_node_affinity", ()))
    ask = replace(
        pod.ask,
        labels=given.get("labels", {}),
        spreads=tuple(_spread(each) for each in _listed(given.get("spread"))),
        affinity=tuple(_peers(each) for each in _listed(given.get("affinity"))),
        anti_affinity=tuple(_peers(each) for each in _listed(given.get("anti_affinity"))),
        preferred=tuple(Weighted(each.get("weight", 1), requirements([_term(each)])) for each in liked),
    )
    return WaitingPod(f"default/{place}-{number:03}", ask, NOW - given.get("age_s", 0.0))


def _listed(given: Any) -> list[Given]:
    """One of something may stand without a list around it."""
    return [given] if isinstance(given, dict) else list(given or ())


def _peers(given: Given) -> Peers:
    return Peers(given["topology_key"], Requirements.from_labels(given.get("match", {})))


def _term(given: Given) -> Given:
    return {name: value for name, value in given.items() if name != "weight"}


def _spread(given: Given) -> Spread:
    return Spread(
        given["topology_key"],
        Requirements.from_labels(given.get("match", {})),
        given.get("max_skew", 1),
        hard=given.get("when_unsatisfiable", "DoNotSchedule") == "DoNotSchedule",
    )
