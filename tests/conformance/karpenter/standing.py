"""`consolidation` for the agent: machines that stand with their pods.

Rows tell one round; the agent goes on until it is at rest, and what is left counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fleet.nodeclaims.launch import own_tags
from fleet.offerings.offerings import Offering, Offerings
from fleet.reasons import Reason
from fleet.snapshot import (
    Claim,
    Instance,
    Launch,
    Node,
    NodeDisruption,
    PodBudget,
    Reservation,
)
from model import labels
from model.fleet import Fleet
from model.pools import pool_hash
from model.upstream.selectors import LabelSelector
from providers.kube.objects.names import MIRROR
from tests.conformance.cases import Case
from tests.conformance.karpenter.catalogs import amounts
from tests.conformance.karpenter.manifests import NAMESPACE, Declined, Given, Obj, only, pod_manifest
from tests.conformance.karpenter.rounds import UpstreamAnswer, after_a_round
from tests.conformance.karpenter.worlds import (
    NOW_S,
    AgentWorld,
    catalog_of,
    fleet_of,
    shortages_of,
    types_of,
)

HOUR_S = 3600.0
_ROW = ("node_pools", "instance_types", "nodes", "feature_gates", "pending_pods", "reservations", "preference_policy")
_NODE = ("name", "instance_type", "capacity_type", "zone", "allocatable", "pods", "consolidatable", "initialized")
_MORE_NODE = (
    "managed",
    "age_s",
    "drifted",
    "since_initialized_s",
    "since_last_pod_event_s",
    "drifted_at_s",
    "deleting",
    "marked_for_deletion",
    "do_not_disrupt",
    "termination_grace_period_s",
    "labels",
    "node_pool",
)
_BESIDE = (
    "do_not_disrupt",
    "age_s",
    "pdb_disruptions_allowed",
    "owner",
    "mirror",
    "terminating",
    "terminal",
    "phase",
    "deletion_cost",
    "pdb_count",
    "pdbs",
    "priority",
)
"""Words of a pod that runs, beside those of one that waits."""
_OWNERS = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "Node": "v1"}
_BUDGETED = "budgeted"
_POLICIES = frozenset({None, "Ignore", "Respect"})
"""What upstream does with preferences; the agent never pays for them."""
_QUIET_S = 7000.0
_DRIFTED, _LEAVES = ("drifted", "drifted_at_s"), ("deleting", "marked_for_deletion")
_OF_BEFORE = "-before"
"""What makes a hash that of another template."""


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    return settled(case["given"], types_of(case["given"]["instance_types"], case["folder"]))


def settled(given: Given, types: Sequence[Given]) -> AgentWorld:
    """Machines of these types that stand, when all is at rest."""
    world, fleet, waiting = scene(given, types)
    world.settle(fleet, waiting, HOUR_S)
    return world


def scene(given: Given, types: Sequence[Given]) -> tuple[AgentWorld, Fleet, list[Obj]]:
    """Machines of these types that stand, before anything is done, and the pods that wait."""
    only("row", given, _ROW)
    gates = {name for name, on in given.get("feature_gates", {}).items() if on}
    only("feature gates", dict.fromkeys(gates), ("SpotToSpotConsolidation", "ReservedCapacity"))
    if given.get("preference_policy") not in _POLICIES:
        raise Declined(f"preference_policy: {given['preference_policy']}")
    world = AgentWorld(catalog_of(types), shortages=shortages_of(types))
    reserved = [_reservation(each, types) for each in given.get("reservations", ())]
    pods = {each["name"]: _manifests(each) for each in given["nodes"]}
    waiting = [pod_manifest(f"pending-{n}", each) for n, each in enumerate(given.get("pending_pods", ()))]
    every = [it for those in pods.values() for it in those]
    fleet = fleet_of(_pools(given), [it.id for it in reserved])
    if "SpotToSpotConsolidation" in gates:
        fleet = _spot_to_spot(fleet)
    world.snapshot = replace(
        world.snapshot,
        pod_budgets=_budgets(given),
        reservations={it.id: it for it in reserved},
        reservations_at_s=NOW_S,
    )
    for each in given["nodes"]:
        _stand(world, fleet, each, pods[each["name"]])
    world.newest = frozenset(it["metadata"]["name"] for it in every)
    return world, fleet, waiting


def _pools(given: Given) -> list[Given]:
    """What is said of machines and holds for all of a pool's is said of the pool."""
    graces = {each["termination_grace_period_s"] for each in given["nodes"] if "termination_grace_period_s" in each}
    more = {"termination_grace_period_s": graces.pop()} if graces else {}
    return [{**pool, **more} for pool in given["node_pools"]]


def _spot_to_spot(fleet: Fleet) -> Fleet:
    """The switch is one of Karpenter's process; here a pool says it."""
    pools = {}
    for name, pool in fleet.node_pools.items():
        disruption = pool.spec.disruption.model_copy(update={"spot_to_spot": True})
        pools[name] = pool.model_copy(update={"spec": pool.spec.model_copy(update={"disruption": disruption})})
    return replace(fleet, node_pools=pools)


def _reservation(given: Given, types: Sequence[Given]) -> Reservation:
    only("reservation", given, ("id", "instance_type", "count"))
    zone = next(it["offerings"][0]["zone"] for it in types if it["name"] == given["instance_type"])
    name = "cr-" + "".join(it for it in given["id"] if it.isalnum())
    return Reservation(name, given["instance_type"], zone, given["count"], given["count"])


# -- pods -------------------------------------------------------------------------------------------------------------


def _manifests(node: Given) -> list[Obj]:
    return [_running(node["name"], number, each) for number, each in enumerate(node.get("pods", ()))]


def _running(node: str, number: int, given: Given) -> Obj:
    """A pod that runs; its budgets select it by a label each."""
    own = {**given.get("labels", {}), **{f"{_BUDGETED}-{n}-{it}": "yes" for n, it in enumerate(_allowed(given))}}
    plain = {word: value for word, value in given.items() if word not in _BESIDE}
    manifest = pod_manifest(f"{node}-{number:03}", {**plain, "labels": own})
    meta, marks = manifest["metadata"], dict[str, str]()
    if given.get("do_not_disrupt"):
        marks[labels.DO_NOT_DISRUPT] = str(given["do_not_disrupt"])
    if given.get("mirror"):
        marks[MIRROR] = "m"
    if given.get("deletion_cost"):
        marks["controller.kubernetes.io/pod-deletion-cost"] = str(given["deletion_cost"])
    if given.get("priority"):
        manifest["spec"]["priority"] = given["priority"]
    if given.get("terminating"):
        meta["deletionTimestamp"] = datetime.fromtimestamp(NOW_S + 30.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if "owner" in given:
        meta["ownerReferences"] = _owners(given["owner"])
    if ended := given.get("phase", "Succeeded" if given.get("terminal") else ""):
        manifest["status"] = {"phase": ended}
    return {**manifest, "metadata": {**meta, "annotations": marks}}


def _owners(kind: str | None) -> list[Obj]:
    if kind and kind not in _OWNERS:
        raise Declined(f"pod: owner {kind}")
    return (
        [{"apiVersion": _OWNERS[kind], "kind": kind, "name": "o", "uid": "uid-o", "controller": True}] if kind else []
    )


def _allowed(given: Given) -> list[int]:
    """What each PodDisruptionBudget of a pod allows; in some rows only how many there are."""
    several = next((given[word] for word in ("pdbs", "pdb_count") if word in given), ())
    found = list(several) if isinstance(several, list | tuple) else [1] * several
    return found + ([given["pdb_disruptions_allowed"]] if given.get("pdb_disruptions_allowed") is not None else [])


def _budgets(given: Given) -> dict[str, PodBudget]:
    told = (pod for node in given["nodes"] for pod in node.get("pods", ()))
    names = {(f"{_BUDGETED}-{n}-{it}", it) for pod in told for n, it in enumerate(_allowed(pod))}
    found = (PodBudget(NAMESPACE, name, LabelSelector(match_labels={name: "yes"}), it) for name, it in sorted(names))
    return {budget.key: budget for budget in found}


# -- machines ---------------------------------------------------------------------------------------------------------


def _stand(world: AgentWorld, fleet: Fleet, given: Given, manifests: Sequence[Obj]) -> None:
    """One machine with its pods."""
    only("node", given, {*_NODE, *_MORE_NODE})
    room = {"memory": 1 << 50, **amounts(given["allocatable"])}
    if not given.get("managed", True):
        world.stand(given["name"], {labels.ZONE: given["zone"], **given.get("labels", {})}, room)
        return
    offering = _offering(world, fleet, given)
    claim = _claim(given, offering, room)
    now, node = world.snapshot, _node(given, claim, offering, room)
    world.snapshot = replace(
        now,
        nodes={**now.nodes, node.name: node},
        claims={**now.claims, claim.name: claim},
        instances={**now.instances, claim.instance_id: _instance(claim)},
    )
    for manifest, told in zip(manifests, given.get("pods", ()), strict=True):
        world.run(manifest, claim.node, started_at_s=NOW_S - told.get("age_s", _QUIET_S))


def _offering(world: AgentWorld, fleet: Fleet, given: Given) -> Offering:
    pool = fleet.node_pools[given.get("node_pool", next(iter(fleet.node_pools)))]
    wanted = (given["instance_type"], given["zone"], given["capacity_type"])
    for it in Offerings(fleet, world.catalog).of(pool):
        if (it.offer.instance_type.name, it.offer.zone, it.offer.capacity_type) == wanted:
            return it
    raise Declined("node: its pool does not sell it")


def _claim(given: Given, it: Offering, room: Mapping[str, int]) -> Claim:
    name, at_s = given["name"], NOW_S - given.get("age_s", _QUIET_S)
    born_with = pool_hash(it.pool) + (_OF_BEFORE if any(map(given.get, _DRIFTED)) else "")
    leaves = any(map(given.get, _LEAVES))
    told_s = given.get("since_initialized_s", given.get("since_last_pod_event_s", _QUIET_S))
    quiet_s = told_s if given.get("consolidatable", True) else 0.0
    ready_at_s = at_s if given.get("initialized", True) else 0.0
    return Claim(
        name, f"uid-{name}", it.pool.name, born_with, it.offer.pool_key, it.offer.price_usd_h,
        Launch(f"group-{name}", 0, 1), at_s, resources=dict(room), instance_id=f"i-{name}", node=name,
        launched_at_s=at_s, registered_at_s=at_s, ready_at_s=ready_at_s, emptied_at_s=NOW_S - quiet_s,
        deleting=leaves, disruption=NodeDisruption(Reason.DELETED, "it is told to go", NOW_S) if leaves else None,
    )  # fmt: skip


def _node(given: Given, claim: Claim, it: Offering, room: Mapping[str, int]) -> Node:
    carried = {**it.labels, labels.HOSTNAME: claim.node, labels.NODE_CLAIM: claim.name, **given.get("labels", {})}
    return Node(
        claim.node, f"uid-{claim.node}", f"aws:///{it.offer.zone}/{claim.instance_id}", carried, it.taints, dict(room),
        ready=True, unschedulable=False, created_at_s=claim.launched_at_s, ready_changed_at_s=claim.launched_at_s,
        has_finalizer=True, do_not_disrupt=given.get("do_not_disrupt", ""),
    )  # fmt: skip


def _instance(claim: Claim) -> Instance:
    where = claim.capacity_pool
    return Instance(
        claim.instance_id, where.instance_type, where.zone, where.capacity_type, "running", claim.launched_at_s,
        own_tags(claim, "default"),
    )  # fmt: skip


def gone(given: Given, world: AgentWorld) -> set[str]:
    """The machines of the row that have left."""
    left = {it.name for it in world.snapshot.claims.values() if not it.deleting}
    return {it["name"] for it in given["nodes"] if it.get("managed", True)} - left


# -- upstream ---------------------------------------------------------------------------------------------------------


def upstream(case: Case) -> UpstreamAnswer:
    """The pods that run after the round, and what the machines that are left cost."""
    types = types_of(case["given"]["instance_types"], case["folder"])
    return after_a_round(case["given"], case["expect"], {it["name"]: it for it in types})


def otherwise(case: Case, world: AgentWorld) -> str:
    """Which machines go here and stay upstream, or the other way round; empty where the same go."""
    if "terminated" not in case["expect"]:
        return ""
    theirs, ours = set(case["expect"]["terminated"]), gone(case["given"], world)
    return "" if ours == theirs else f"gone {sorted(ours)[:5]}, upstream {sorted(theirs)[:5]}"
