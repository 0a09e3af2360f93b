"""`drift`: machines that have drifted, when all is at rest; and whether a machine differs from its pool, and how."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleet.catalog import InstanceOffer, InstanceType
from fleet.nodeclaims.drift import drifts, stamp_of
from fleet.offerings.reservations import RESERVED
from fleet.snapshot import CapacityPool, Catalog, Claim, Launch, Reservation, Snapshot
from model import labels
from model.fleet import Fleet
from model.pools import pool_hash
from tests.conformance.cases import Case
from tests.conformance.karpenter import standing
from tests.conformance.karpenter.manifests import Declined, Given, Obj, only
from tests.conformance.karpenter.rounds import UpstreamAnswer, after_a_round
from tests.conformance.karpenter.worlds import NOW_S, AgentWorld, fleet_of

_ROW = ("nodes", "drifted", "budget", "largest_type_cpu_m", "static_replicas", "limit_nodes", "running")
_PRICE_USD_H = 1.0
"""Of the only type there is."""
_TYPE, _POOL, _CLAIM = "largest", "default", "n1"
ZONE = "test-zone-1"
_ON_DEMAND = "on-demand"
_NOWHERE_ELSE = {"nowhere": "else"}
_OLD_S = 7200.0


def at_rest(case: Case) -> bool:
    """Whether the row is about what becomes of machines, and not about one question."""
    return bool({"nodes", "static_replicas"} & case["given"].keys())


# -- machines that stand ----------------------------------------------------------------------------------------------


def play(case: Case) -> AgentWorld:
    """The row as a world that has come to rest."""
    return standing.settled(_scene(case["given"]), _types(case["given"]))


def _scene(given: Given) -> Given:
    only("row", given, _ROW)
    return {"nodes": [_node(each) for each in _nodes(given)], "node_pools": [_pool(given)]}


def _types(given: Given) -> list[Given]:
    return [machine_type(given.get("largest_type_cpu_m", 64000))]


def machine_type(cpu_m: int) -> Given:
    """The only type there is."""
    return {
        "name": _TYPE,
        "arch": "amd64",
        "os": ["linux"],
        "capacity": {"cpu_m": cpu_m, "memory_bytes": 1 << 40, "pods": 100},
        "offerings": [{"capacity_type": _ON_DEMAND, "zone": ZONE, "price": _PRICE_USD_H, "available": True}],
    }


def _nodes(given: Given) -> list[Given]:
    """Named, or so many of which the first have drifted."""
    nodes = given.get("nodes", given.get("running", given.get("static_replicas")))
    if not isinstance(nodes, int):
        return list(nodes)
    gone = given.get("drifted", nodes)
    return [{"name": f"n{number:02}", "drifted": number < gone} for number in range(nodes)]


def _node(given: Given) -> Given:
    """A pod that fits nowhere else selects its own machine."""
    alone = isinstance(given.get("pods"), str)
    told = standing_node(given)
    plain = {word: value for word, value in told.items() if word not in {"allocatable_cpu_m", "pods_cpu_m"}}
    return {**plain, "labels": _NOWHERE_ELSE} if alone else plain


def standing_node(given: Given) -> Given:
    """A machine of the only type there is, unless the row says more of it."""
    pods = given.get("pods", [{"cpu_m": cpu_m} for cpu_m in given.get("pods_cpu_m", ())])
    if isinstance(pods, int):
        pods = [{}] * pods
    if isinstance(pods, str):
        pods = [{"node_selector": _NOWHERE_ELSE}]
    allocatable = given.get("allocatable", {"cpu_m": given.get("allocatable_cpu_m", 32000), "pods": 100})
    return {"instance_type": _TYPE, "capacity_type": _ON_DEMAND, "zone": ZONE} | {
        **given,
        "allocatable": allocatable,
        "pods": pods,
    }


def _pool(given: Given) -> Obj:
    budget = given.get("budget", "100%")
    found: dict[str, Any] = {
        "name": _POOL,
        "consolidation_policy": "WhenEmpty",
        "consolidate_after": "Never",
        "budgets": [budget if isinstance(budget, dict) else {"nodes": budget}],
        "requirements": [{"key": labels.CAPACITY_TYPE, "op": "In", "values": [_ON_DEMAND]}],
    }
    if "static_replicas" in given:
        found["replicas"] = given["static_replicas"]
    if "limit_nodes" in given:
        found["limits"] = {"nodes": given["limit_nodes"]}
    return found


def upstream(case: Case) -> UpstreamAnswer:
    """The pods that run after the round, and what the machines that are left cost."""
    given, expect = case["given"], case["expect"]
    if "static_replicas" in given:  # one comes for one that goes
        nodes = _nodes(given)
        return UpstreamAnswer(0, expect.get("nodeclaims_after", len(nodes)) * _PRICE_USD_H)
    return after_a_round(_scene(given), expect, {each["name"]: each for each in _types(given)})


def otherwise(case: Case, world: AgentWorld) -> str:
    """How many machines that had drifted are left, and how many upstream leaves after its round."""
    drifted = {it["name"] for it in _nodes(case["given"]) if it.get("drifted")}
    left = drifted & {it.name for it in world.snapshot.claims.values() if not it.deleting}
    expect = case["expect"]
    went = len(expect["terminated"]) if "terminated" in expect else expect.get("commands", 0)
    theirs = len(drifted) - expect.get("terminated_count", went)
    return "" if len(left) == theirs else f"{len(left)} drifted machines left at rest, upstream {theirs} after a round"


# -- one machine ------------------------------------------------------------------------------------------------------


def run(case: Case) -> dict[str, Any]:
    """Whether the agent takes a machine for drifted, and why; the first of the words tells what a row is about."""
    given = case["given"]
    return next(judge(given) for word, judge in _BY_WORD if word in given)


def _verdict(fleet: Fleet, claim: Claim, catalog: Catalog | None = None, **more: Any) -> dict[str, Any]:
    seen = Snapshot(NOW_S, claims={_CLAIM: claim}, catalog=catalog or _catalog(), **more)
    found = drifts(fleet, seen).get(_CLAIM)
    reason = found.reason if found is not None else ""
    return {"drifted": bool(reason), "reason": reason or None, "condition": reason or "absent"}


def _fleet(**pool: Any) -> Fleet:
    return fleet_of([{"name": _POOL, **pool}])


def _claim(fleet: Fleet, capacity_type: Any = _ON_DEMAND, age_s: float = _OLD_S) -> Claim:
    """A machine as the pool makes them."""
    at_s, where = NOW_S - age_s, CapacityPool(capacity_type, _TYPE, ZONE)
    return Claim(
        _CLAIM, f"uid-{_CLAIM}", _POOL, pool_hash(fleet.node_pools[_POOL]), where, _PRICE_USD_H, Launch("g", 0, 1),
        at_s, instance_id="i-1", node=_CLAIM, launched_at_s=at_s, registered_at_s=at_s, ready_at_s=at_s,
    )  # fmt: skip


def _catalog(carried: Mapping[str, str] | None = None, sold: Any = ((ZONE, _ON_DEMAND),)) -> Catalog:
    """A type with these labels, and where it is sold; and another, so that the catalogue is not empty."""
    machine, other = InstanceType(_TYPE, {}, {}, carried or {}), InstanceType("other", {}, {}, {})
    offers = [InstanceOffer(machine, zone, kind, _PRICE_USD_H) for zone, kind in sold]
    known = {it.name: it for it in (machine, other)}
    return Catalog("test", known, (*offers, InstanceOffer(other, ZONE, "on-demand", _PRICE_USD_H)), NOW_S, "rows")


def _requirements(given: Given) -> dict[str, Any]:
    fleet, carried = _fleet(requirements=given["new_requirements"]), given["node_labels"]
    claim = _claim(fleet, carried.get(labels.CAPACITY_TYPE, _ON_DEMAND))
    where = [(ZONE, kind) for kind in (_ON_DEMAND, "spot")]
    return _verdict(fleet, claim, _catalog(carried, where))


CHANGES: Mapping[str, Obj] = {
    "template.metadata.annotations": {"template": {"metadata": {"annotations": {"a": "b"}}}},
    "template.metadata.labels": {"template": {"metadata": {"labels": {"a": "b"}}}},
    "template.spec.taints": {"template": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}},
    "template.spec.startupTaints": {"template": {"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}}},
    "template.spec.nodeClassRef": {"template": {"spec": {"nodeClassRef": {"name": "other"}}}},
    "template.spec.expireAfter": {"template": {"spec": {"expireAfter": "5m"}}},
    "template.spec.terminationGracePeriod": {"template": {"spec": {"terminationGracePeriod": "5m"}}},
    "template.spec.requirements": {"template": {"spec": {"requirements": [{"key": "a", "operator": "Exists"}]}}},
    "limits": {"limits": {"cpu": "3"}},
    "weight": {"weight": 80},
    "replicas": {"replicas": 2},
    "disruption": {"disruption": {"consolidateAfter": "5m"}},
}
"""What is changed -> the part of the NodePool that says so. Longest first where one begins another."""


def _changed(given: Given) -> dict[str, Any]:
    name = given["changed_field"].partition(" ")[0].removeprefix("spec.")
    known = next((each for each in sorted(CHANGES, key=len, reverse=True) if name.startswith(each)), None)
    if known is None:
        raise Declined(f"changed_field: {name}")
    before, after = _fleet(), fleet_of([{"name": _POOL, "changed": CHANGES[known]}])
    claim = _claim(before)
    hashes = {pool_hash(fleet.node_pools[_POOL]) for fleet in (before, after)}
    return {**_verdict(after, claim), "hash_changed": len(hashes) > 1}


def _hashes(given: Given) -> dict[str, Any]:
    """The pool's hash is the agent's own; a machine has another one, of the same version or not, or without any."""
    if given.get("nodepool_hash") is None or given.get("nodepool_hash_version") is None:
        raise Declined("nodepool_hash: a pool of the agent always has one")
    fleet = _fleet()
    own, claim = stamp_of(pool_hash(fleet.node_pools[_POOL])), _claim(fleet)
    found, version = given.get("nodeclaim_hash"), given.get("nodeclaim_hash_version")
    if own is None or found is None:
        return _verdict(fleet, replace(claim, pool_hash=""))
    alike = own.hash if found == given["nodepool_hash"] else found
    of_version = own.version if version == given["nodepool_hash_version"] else version
    return _verdict(fleet, replace(claim, pool_hash=alike if version is None else f"{of_version}-{alike}"))


def _type(given: Given) -> dict[str, Any]:
    """A type that is sold nowhere is not in the catalogue; what is reserved is sold while its reservation is there."""
    kind = given.get("node_capacity_type", _ON_DEMAND)
    left = given.get("remaining_offering_capacity_types", (kind,))
    sold = [(it.get("zone", ZONE), it.get("capacity_type", kind)) for it in given.get("offerings", ())]
    if "offerings" not in given:
        sold = [(ZONE, each) for each in left]
    if given.get("instance_type_in_catalog") is False:
        sold = []
    fleet, more = _fleet(), dict[str, Any]()
    claim = _claim(fleet, kind, given["age_s"])
    if kind == RESERVED:
        fleet = fleet_of([{"name": _POOL}], ["cr-1"])
        claim = _claim(fleet, kind, given["age_s"])
        claim = replace(claim, capacity_pool=replace(claim.capacity_pool, reservation="cr-1"))
        reservation = Reservation("cr-1", _TYPE, ZONE, 1, 0)
        more = {"reservations": {"cr-1": reservation} if RESERVED in left else {}, "reservations_at_s": NOW_S}
    catalog = _catalog(None, [it for it in sold if it[1] != RESERVED])
    if not sold:
        known = {name: it for name, it in catalog.types.items() if name != _TYPE}
        catalog = replace(catalog, types=known)
    return _verdict(fleet, claim, catalog, **more)


_FLAGS = ("launched", "nodepool_exists", "static", "requirements", "stale", "cloud", "previously_drifted")


def _flags(given: Given) -> dict[str, Any]:
    """Which of the differences there are."""
    only("row", given, _FLAGS)
    nowhere = [{"key": "nowhere", "op": "In", "values": ["else"]}]
    fleet = _fleet(**({"requirements": nowhere} if given.get("requirements") else {}))
    claim = _claim(fleet)
    if given.get("static"):
        claim = replace(claim, pool_hash=claim.pool_hash + "0")
    if str(given.get("launched", "True")) != "True":
        claim = replace(claim, launched_at_s=0.0, registered_at_s=0.0, ready_at_s=0.0)
    if not given.get("nodepool_exists", True):
        fleet = fleet_of([{"name": "another"}])
    strays = {_CLAIM: (given["cloud"], "it is not what the cloud would make now")} if given.get("cloud") else {}
    return _verdict(fleet, claim, _catalog(None, [] if given.get("stale") else [(ZONE, _ON_DEMAND)]), strays=strays)


_BY_WORD = (
    ("new_requirements", _requirements),
    ("changed_field", _changed),
    ("nodeclaim_hash", _hashes),
    ("age_s", _type),
    ("cloud", _flags),
    ("static", _flags),
    ("launched", _flags),
    ("nodepool_exists", _flags),
)
