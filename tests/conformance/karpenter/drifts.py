"""`drift`: whether a machine differs from its pool and why, and what a round does with machines that do."""

from collections.abc import Callable, Mapping
from typing import Any

from bench.reference.karpenter.disrupt.rounds import DisruptionRound, decide
from fleet.nodeclaims.drift_facts import DriftFacts, OfferingAvailability, TemplateHash, drift_reason
from fleet.reasons import Reason
from model.pools import pool_hash
from model.requirements import Requirements
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.requirements import requirements
from tests.conformance.karpenter.scenes import ground, node_pool

Given = Mapping[str, Any]
ZONE = "test-zone-1"
HERE = OfferingAvailability(ZONE, "on-demand")
NOWHERE_ELSE = {"nowhere": "else"}
OTHER = TemplateHash("other", "v1")
SAME = TemplateHash("same", "v1")


def run(case: Case) -> dict[str, Any]:
    """By the first of the words that tell what a case is about."""
    given = case["given"]
    return next(judge(given) for word, judge in _BY_WORD if word in given)


def _verdict(facts: DriftFacts) -> dict[str, Any]:
    reason = drift_reason(facts)
    return {"drifted": bool(reason), "reason": reason or None, "condition": reason or "absent"}


# -- one machine ------------------------------------------------------------------------------------------------------


def _requirements(given: Given) -> dict[str, Any]:
    wanted = requirements(given["new_requirements"])
    return _verdict(DriftFacts(carried=given["node_labels"], wanted=wanted))


CHANGES: Mapping[str, Given] = {
    "template.metadata.annotations": {"template": {"annotations": {"a": "b"}}},
    "template.metadata.labels": {"template": {"labels": {"a": "b"}}},
    "template.spec.taints": {"template": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
    "template.spec.startupTaints": {"template": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}},
    "template.spec.nodeClassRef": {"template": {"amis": [{"id": "ami-1"}]}},
    "template.spec.expireAfter": {"template": {"expireAfter": "5m"}},
    "template.spec.terminationGracePeriod": {"template": {"terminationGracePeriod": "5m"}},
    "template.spec.requirements": {"requirements": [{"key": "a", "operator": "Exists"}]},
    "limits": {"limits": {"nodes": 3}},
    "weight": {"weight": 80},
    "replicas": {"replicas": 2},
    "disruption": {"disruption": {"consolidateAfter": "5m"}},
}
"""What is changed upstream -> the same in our words. Longest first where one begins another."""


def _changed(given: Given) -> dict[str, Any]:
    name = given["changed_field"].partition(" ")[0].removeprefix("spec.")
    change = CHANGES[next(each for each in sorted(CHANGES, key=len, reverse=True) if name.startswith(each))]
    bare = node_pool({"name": "default"})
    told = bare.model_dump(mode="json", by_alias=True, exclude_unset=True)
    changed = type(bare).model_validate({**told, "spec": {**told.get("spec", {}), **change}})
    before, after = TemplateHash(pool_hash(bare), "v1"), TemplateHash(pool_hash(changed), "v1")
    return {**_verdict(DriftFacts(pool=after, machine=before)), "hash_changed": before != after}


def _hashes(given: Given) -> dict[str, Any]:
    return _verdict(DriftFacts(pool=_stamp(given, "nodepool"), machine=_stamp(given, "nodeclaim")))


def _stamp(given: Given, whose: str) -> TemplateHash | None:
    found, version = given.get(f"{whose}_hash"), given.get(f"{whose}_hash_version")
    return None if found is None or version is None else TemplateHash(found, version)


def _type(given: Given) -> dict[str, Any]:
    """A type that is not in the catalogue is sold nowhere."""
    market = OfferingAvailability(ZONE, given.get("node_capacity_type", HERE.capacity_type))
    sold: set[OfferingAvailability] = {market}
    if given.get("instance_type_in_catalog") is False:
        sold = set()
    elif "offerings" in given:
        usual = {"zone": ZONE, "capacity_type": market.capacity_type}
        told = ({**usual, **each} for each in given["offerings"])
        sold = {OfferingAvailability(each["zone"], each["capacity_type"]) for each in told}
    elif "remaining_offering_capacity_types" in given:
        sold = {OfferingAvailability(ZONE, each) for each in given["remaining_offering_capacity_types"]}
    return _verdict(DriftFacts(market=market, on_sale=sold, age_s=given["age_s"]))


def _flags(given: Given) -> dict[str, Any]:
    """Which of the differences there are."""
    return _verdict(
        DriftFacts(
            launched=str(given.get("launched", "True")) == "True",
            pool_declared=given.get("nodepool_exists", True),
            pool=SAME,
            machine=OTHER if given.get("static") else SAME,
            wanted=Requirements.from_labels(NOWHERE_ELSE) if given.get("requirements") else None,
            market=HERE,
            on_sale=() if given.get("stale") or given.get("instance_type") is False else None,
            provider=given.get("cloud", ""),
        )
    )


# -- a round ----------------------------------------------------------------------------------------------------------


def machine_type(cpu_m: int) -> Given:
    return {
        "name": "largest",
        "arch": "amd64",
        "os": ["linux"],
        "capacity": {"cpu_m": cpu_m, "memory_bytes": 1 << 40, "pods": 100},
        "offerings": [{"capacity_type": "on-demand", "zone": ZONE, "price": 1.0, "available": True}],
    }


def _round(given: Given) -> dict[str, Any]:
    nodes = given["nodes"]
    if isinstance(nodes, int):
        drifted = given.get("drifted", nodes)
        nodes = [{"name": f"n{number:02}", "drifted": number < drifted} for number in range(nodes)]
    found = _decided(given, nodes, {})
    return {
        "terminated": sorted(name for move in found.moves for name in move.names),
        "terminated_count": sum(len(move.names) for move in found.moves),
        "launched": [purchase.types[0] for move in found.moves for purchase in move.bought],
        "commands": len(found.moves),
    }


def _fixed(given: Given) -> dict[str, Any]:
    """A fixed pool: what comes of it when every machine bought for it is there and those it replaces are gone."""
    count = given.get("running", given["static_replicas"])
    nodes = [{"name": f"n{number:02}", "drifted": number < given["drifted"]} for number in range(count)]
    more: dict[str, Any] = {"replicas": given["static_replicas"]}
    if "limit_nodes" in given:
        more["limits"] = {"nodes": given["limit_nodes"]}
    found = _decided(given, nodes, more)
    going = sum(len(move.names) for move in found.moves)
    return {
        "commands": len(found.moves),
        "terminated_count": going,
        "nodeclaims_after": count - going + sum(len(move.bought) for move in found.moves),
    }


def _decided(given: Given, nodes: Any, more: Given) -> DisruptionRound:
    """Consolidation and emptiness have no say in these cases: nothing has been quiet for long enough."""
    told = given.get("budgets") or [given.get("budget", "100%")]
    budgets = [each if isinstance(each, dict) else {"nodes": each} for each in told]
    usual = {"consolidate_after": "Never", "budgets": budgets, **more}
    pools = [{**each, **usual} for each in given.get("node_pools", [{"name": "default"}])]
    kinds = catalogs.machines([machine_type(given.get("largest_type_cpu_m", 64000))], given.get("folder"))
    scene = ground({"node_pools": pools, "nodes": [standing_node(each) for each in nodes]}, kinds)
    found = decide(scene)
    assert not found.moves or found.reason is Reason.DRIFTED
    return found


def standing_node(given: Given) -> Given:
    pods = given.get("pods", [{"cpu_m": cpu_m} for cpu_m in given.get("pods_cpu_m", ())])
    if isinstance(pods, int):
        pods = [{}] * pods
    if isinstance(pods, str):
        pods = [{"node_selector": NOWHERE_ELSE}]
    allocatable = given.get("allocatable", {"cpu_m": given.get("allocatable_cpu_m", 32000), "pods": 100})
    return {
        **given,
        "instance_type": given.get("instance_type", "largest"),
        "capacity_type": given.get("capacity_type", HERE.capacity_type),
        "zone": given.get("zone", ZONE),
        "allocatable": allocatable,
        "pods": pods,
    }


_BY_WORD: tuple[tuple[str, Callable[[Given], dict[str, Any]]], ...] = (
    ("new_requirements", _requirements),
    ("changed_field", _changed),
    ("nodeclaim_hash", _hashes),
    ("static_replicas", _fixed),
    ("nodes", _round),
    ("age_s", _type),
    ("cloud", _flags),
    ("static", _flags),
    ("launched", _flags),
    ("nodepool_exists", _flags),
)
