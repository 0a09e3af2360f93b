"""Volcano's queues in the fleet repository: shares by weight or by what is deserved, bounds, reclaim."""

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import yaml

from fleet.quota.tree import QuotaTree
from fleet.quota.volcano import ANY_MACHINE, VolcanoDemand, volcano_specs
from fleet.scheduling import cycle
from fleet.snapshot import Hold
from model.fleet import Fleet
from model.loader import load
from tests.support.fleets import GPU, NOW, gang, plain_node, pod_set
from tests.support.world import World

POOL = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "p5"},
    "spec": {"instanceTypes": ["p5.48xlarge"], "limits": {"nodes": 0}},
}


def volcano(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def fleet(*documents: dict[str, Any]) -> Fleet:
    return load({"fleet.yaml": yaml.safe_dump_all([POOL, *documents]).encode()})


def world(mine: dict[str, Any], other: dict[str, Any]) -> World:
    """Two machines of eight GPUs, both in use by `other`; `mine` wants one."""
    made = World(fleet(volcano("mine", **mine), volcano("other", **other)))
    for n in range(2):
        made.machine(f"m{n}", pool="p5")
    for n, name in enumerate(("old", "young")):
        running = gang(name, queue="other", created_s=NOW - 99 + n)
        made.runs(running, (f"m{n}", 1), flavor=ANY_MACHINE, quota_reserved_at_s=NOW - 90 + n)
    made.waits(gang("w", queue="mine"))
    return made


def run(made: World) -> dict[str, tuple[str, str]]:
    made.apply(cycle.decide(made.fleet, made.snapshot()))
    return {it.job.name: (str(it.state), str(it.reason)) for it in made.gangs.values()}


@pytest.mark.parametrize(
    ("mine", "other", "evicted"),
    [
        ({}, {}, {"young"}),
        ({"weight": 1}, {"weight": 3}, set()),
        ({"deserved": {GPU: 8}}, {"deserved": {GPU: 8}}, {"young"}),
        ({"deserved": {GPU: 8}}, {"deserved": {GPU: 16}}, set()),
        ({}, {"reclaimable": False}, set()),
    ],
    ids=["equal weights", "the other weighs three times", "deserved", "the other deserves all", "not reclaimable"],
)
def test_a_queue_takes_back_what_it_deserves(mine: dict[str, Any], other: dict[str, Any], evicted: set[str]) -> None:
    found = run(world(mine, other))
    assert {name for name, (state, _) in found.items() if state == "Evicting"} == evicted
    assert found["w"][1] == ("WaitingForPreemptedWorkloads" if evicted else "PoolLimitReached")


@pytest.mark.parametrize(
    ("cores_of_other", "evicted"),
    [(1, {"young"}), (8, set())],
    ids=["it has more of what it deserves", "it has less of what it deserves"],
)
def test_one_resource_within_what_it_deserves_entitles_a_queue_unless_it_would_have_more_than_the_other(
    cores_of_other: int, evicted: set[str]
) -> None:
    """A pod asks for 8 GPUs and 4 cores. `mine` deserves the GPUs, and one core."""
    mine = {"deserved": {GPU: 8, "cpu": 1}}
    made = World(fleet(volcano("mine", **mine), volcano("other", deserved={GPU: 8, "cpu": cores_of_other})))
    sets = pod_set(requests={GPU: 8, "cpu": 4_000})
    for n, name in enumerate(("old", "young")):
        made.machine(f"m{n}", pool="p5")
        running = gang(name, sets, queue="other", created_s=NOW - 99 + n)
        made.runs(running, (f"m{n}", 1), flavor=ANY_MACHINE, quota_reserved_at_s=NOW - 90 + n)
    made.waits(gang("w", sets, queue="mine"))
    assert {name for name, (state, _) in run(made).items() if state == "Evicting"} == evicted


@pytest.mark.parametrize(
    ("mine", "other"),
    [({"weight": 3}, {"weight": 1}), ({"deserved": {"cpu": 6}}, {"deserved": {"cpu": 2}})],
    ids=["by weight", "by what is deserved"],
)
def test_what_starts_together_starts_by_what_queues_deserve(mine: dict[str, Any], other: dict[str, Any]) -> None:
    """With one head a queue in turn both would start four, and two of them be evicted again."""
    made = World(fleet(volcano("mine", **mine), volcano("other", **other)))
    made.nodes["n"] = plain_node("n", {"cpu": 8000, "pods": 100})
    for n, name in product(range(8), ("mine", "other")):
        made.waits(gang(f"{name}-{n}", pod_set(requests={"cpu": 1000}), queue=name, created_s=float(n)))
    for _ in range(3):
        run(made)
    states = Counter((it.queue, str(it.state)) for it in made.gangs.values())
    assert states == {
        ("mine", "Admitted"): 6,
        ("mine", "Pending"): 2,
        ("other", "Admitted"): 2,
        ("other", "Pending"): 6,
    }


def test_what_joins_beyond_the_cores_joins_by_what_queues_deserve() -> None:
    made = World(fleet(volcano("mine", weight=3), volcano("other", weight=1)))
    made.nodes["n"] = plain_node("n", {"cpu": 8000, "pods": 100})
    for n, name in enumerate(("other", "mine")):
        it = gang(name, replace(pod_set(count=8, requests={"cpu": 1000}), core=1), queue=name, created_s=float(n))
        made.waits(it)
        made.jobs[it.uid] = replace(made.jobs[it.uid], hold=Hold.PODS, pod_sets=it.pod_sets)
    for _ in range(3):
        run(made)
    assert {it.queue: it.pod_sets[0].count for it in made.gangs.values()} == {"mine": 6, "other": 2}
    assert made.gang("mine").message == "5 pods of main joined beyond its minimum"


def test_capability_bounds_a_queue() -> None:
    made = World(fleet(volcano("q", capability={GPU: 8})))
    for n in range(2):
        made.machine(f"m{n}", pool="p5")
    made.waits(gang("first", queue="q", created_s=NOW - 9), gang("second", queue="q", created_s=NOW - 8))
    made.waits(gang("large", pod_set(count=2), queue="q", created_s=NOW - 7))
    found = run(made)
    assert found["first"] == ("Admitted", "Admitted")
    assert found["second"] == ("Pending", "WaitingForQuota")
    assert found["large"] == ("Pending", "ExceedsMaxQuota")


def test_queues_below_a_queue_share_what_it_deserves() -> None:
    declared = fleet(
        volcano("science", weight=3),
        volcano("serving", weight=1),
        volcano("vision", parent="science"),
        volcano("speech", parent="science", weight=2),
    )
    asked = {name: {GPU: 99} for name in ("vision", "speech", "serving")}
    cohorts, queues = volcano_specs(declared.volcano_queues, VolcanoDemand({GPU: 16}, asked))
    tree = QuotaTree(cohorts, list(queues.values()))
    cell = tree.cells_of(GPU)[0]
    assert {name: node.subtree[cell] for name, node in tree.queues.items()} == {"serving": 4, "speech": 8, "vision": 4}
    assert tree.cohorts["science"].subtree[cell] == 12


def test_a_guarantee_is_deserved_whoever_asks() -> None:
    declared = fleet(volcano("a", guarantee={"resource": {GPU: 6}}), volcano("b"))
    cohorts, queues = volcano_specs(declared.volcano_queues, VolcanoDemand({GPU: 8}, {"a": {GPU: 1}, "b": {GPU: 8}}))
    tree = QuotaTree(cohorts, list(queues.values()))
    cell = tree.cells_of(GPU)[0]
    assert {name: node.subtree[cell] for name, node in tree.queues.items()} == {"a": 6, "b": 2}
