"""How rows about pods and machines become worlds that the agent runs, and who judges what it makes of them."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.snapshot import Node
from tests.conformance.cases import Case
from tests.conformance.karpenter import pending
from tests.conformance.karpenter.agent import score
from tests.conformance.karpenter.flexibility import broken
from tests.conformance.karpenter.judge import misplaced
from tests.conformance.karpenter.manifests import pod_manifest

POD = {"labels": {"app": "a"}, "anti_affinity": [{"topology_key": "kubernetes.io/hostname", "match": {"app": "a"}}]}


def small(**given: Any) -> Case:
    """A row with one machine type of 2 CPU."""
    offer = {"capacity_type": "on-demand", "zone": "z", "price": 1.0, "available": True}
    room = {"cpu_m": 2000, "memory_bytes": 1 << 30, "pods": 5}
    machine = {"name": "t", "arch": "amd64", "os": ["linux"], "capacity": room, "offerings": [offer]}
    told = {"instance_types": [machine], "pods": [{"cpu_m": 500}], **given}
    return {"id": "small", "kind": "provision", "given": told, "expect": {}, "folder": None}


def test_a_pod_is_bought_for_and_runs() -> None:
    found = score(small(), "here")
    assert (found.good, found.faults, found.declined) == (True, [], "")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"colour": "red"}, "row: colour"),
        ({"pods": [{"cpu_m": 1, "mood": 3}]}, "pod: mood"),
        ({"pods": [{"spread": {"topology_key": "k", "max_skew": 1, "twist": 1}}]}, "spread: twist"),
        ({"pods": [{"node_affinity": [{"key": "k", "op": "Gte", "values": ["1"]}]}]}, "node affinity: operator Gte"),
        ({"node_pools": [{"shape": "round"}]}, "node pool: shape"),
    ],
)
def test_a_word_that_is_not_known_declines_the_row_by_its_name(given: dict[str, Any], reason: str) -> None:
    found = score(small(**given), "here")
    assert (found.good, found.declined) == (False, reason)


def standing_row(node: dict[str, Any], **more: Any) -> Case:
    """A row with two such machines, each with a pod that either has room for."""
    row = small()
    both = [{"name": name, "instance_type": "t", "capacity_type": "on-demand", "zone": "z", **node} for name in "ab"]
    told = [{"allocatable": {"cpu_m": 2000, "pods": 5}, "pods": [{"cpu_m": 500}], **each} for each in both]
    pool = {"name": "p", "consolidation_policy": "WhenEmpty", "consolidate_after": "Never"}
    given = {"instance_types": row["given"]["instance_types"], "nodes": told, "node_pools": [pool], **more}
    return {**row, "kind": "consolidation", "given": given, "expect": {"action": "none"}}


@pytest.mark.parametrize(
    ("node", "cost_usd_h", "placed"),
    [
        ({}, 2.0, 2),
        ({"marked_for_deletion": True}, 1.0, 2),
        ({"pods": [{"cpu_m": 500, "owner": None}], "deleting": True}, 0.0, 0),
        ({"pods": [{"cpu_m": 500, "terminal": True}]}, 2.0, 0),
    ],
)
def test_what_a_row_says_of_machines_that_stand_is_taken_for_what_it_is(
    node: dict[str, Any], cost_usd_h: float, placed: int
) -> None:
    """Whoever makes pods anew gets a machine for them; a pod of nobody is gone with its own."""
    got = score(standing_row(node)).got
    assert got is not None
    assert (got["cost_usd_h"], got["scheduled"]) == (cost_usd_h, placed)


def test_a_machine_with_fewer_kinds_than_its_pool_wants_shows() -> None:
    wanted = [{"key": "node.kubernetes.io/instance-type", "op": "Exists", "minValues": 2}]
    world = pending.play(small())
    assert broken(small(), world) == []
    told = broken(small(node_pools=[{"requirements": wanted}]), world)
    assert told == ["t:on-demand:z: 1 of 2 values of node.kubernetes.io/instance-type"]


def node(name: str, pods: int = 5) -> Node:
    """A node with room for so many pods."""
    own = {"kubernetes.io/hostname": name}
    room = {"cpu": 4000, "memory": 1 << 30, "pods": pods}
    return Node(name, name, "", own, (), room, ready=True, unschedulable=False, created_at_s=0.0)


def test_the_judge_accepts_what_kube_scheduler_would_do_and_nothing_else() -> None:
    nodes = {"n": node("n"), "m": node("m")}
    asked = {name: pod_manifest(name, POD) for name in ("a", "b")}
    apart, together = {"a": "n", "b": "m"}, {"a": "n", "b": "n"}
    assert misplaced(nodes, apart, asked, newest=asked.keys()) == []
    [first, *_] = misplaced(nodes, together, asked, newest=asked.keys())
    assert first == "a on n: node(s) didn't match pod anti-affinity rules"
    tainted = {"n": replace(nodes["n"], ready=False), "m": nodes["m"]}
    assert misplaced(tainted, apart, asked, newest=["a"]) == ["a on n: node(s) had untolerated taint(s)"]
    full = {"n": node("n", pods=0), "m": nodes["m"]}
    assert misplaced(full, apart, asked, newest=["a"]) == ["a on n: Too many pods"]
