"""ClusterQueues of Kueue in the fleet repository decide like Queues of ours: quota, place and machine at once."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from fleet.gangs import lifecycle
from fleet.scheduling import cycle
from fleet.snapshot import ANY_NUMBER
from model.fleet import Fleet
from model.loader import load
from tests.support.fleets import GPU, NOW, gang, pod_set
from tests.support.world import World

POOL = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "p5"},
    "spec": {"instanceTypes": ["p5.48xlarge"], "limits": {"nodes": 2}, "template": {"labels": {"gpu": "h100"}}},
}


def kueue(kind: str, name: str, spec: dict[str, Any], **metadata: str) -> dict[str, Any]:
    metadata["name"] = name
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def group(flavor: str, **nominal: int) -> dict[str, Any]:
    names = {"gpu": GPU}
    quotas = [{"name": names.get(name, name), "nominalQuota": amount} for name, amount in nominal.items()]
    return {"coveredResources": [q["name"] for q in quotas], "flavors": [{"name": flavor, "resources": quotas}]}


def cluster_queue(name: str, *groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return kueue(
        "ClusterQueue",
        name,
        {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": list(groups),
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            **spec,
        },
    )


def fleet(*documents: dict[str, Any]) -> Fleet:
    flavors = kueue("ResourceFlavor", "h100", {"nodeLabels": {"gpu": "h100"}}), kueue("ResourceFlavor", "any", {})
    text = yaml.safe_dump_all([POOL, *flavors, *documents])
    return load({"fleet.yaml": text.encode()})


def local(name: str, queue: str, namespace: str = "ns", **spec: Any) -> dict[str, Any]:
    return kueue("LocalQueue", name, {"clusterQueue": queue, **spec}, namespace=namespace)


def run(world: World) -> dict[str, tuple[str, str]]:
    world.apply(cycle.decide(world.fleet, world.snapshot()))
    return {it.job.name: (str(it.state), str(it.reason)) for it in world.gangs.values()}


def test_a_job_reaches_a_cluster_queue_through_its_local_queue_and_gets_a_machine_bought() -> None:
    world = World(fleet(cluster_queue("cq", group("h100", gpu=8, cpu=100, memory=10**12)), local("lq", "cq")))
    world.waits(gang("g", queue="lq"), gang("lost", queue="other"))
    assert run(world) == {"g": ("QuotaReserved", "Buying"), "lost": ("Pending", "QueueNotFound")}
    assert world.gang("g").flavors == {"main": ("h100",)}


def test_groups_give_flavors_of_their_own_and_the_machine_belongs_to_both() -> None:
    groups = group("h100", gpu=8), group("any", cpu=100, memory=10**12)
    world = World(fleet(cluster_queue("cq", *groups), local("lq", "cq")))
    world.waits(gang("g", queue="lq"))
    assert run(world) == {"g": ("QuotaReserved", "Buying")}
    assert world.gang("g").flavors == {"main": ("any", "h100")}


def test_a_resource_that_no_group_covers_is_refused() -> None:
    world = World(fleet(cluster_queue("cq", group("h100", gpu=8)), local("lq", "cq")))
    world.waits(gang("g", queue="lq"))
    assert run(world) == {"g": ("Pending", "NoMatchingFlavor")}
    assert "no quota for cpu" in world.gang("g").message


def test_namespaces_are_selected_by_label() -> None:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    queue = cluster_queue("cq", group("h100", gpu=8, cpu=100, memory=10**12), namespaceSelector=selector)
    world = World(fleet(queue, local("lq", "cq"), local("lq", "cq", "other")))
    world.waits(gang("in", queue="lq"), gang("out", queue="lq", namespace="other"))
    assert run(world) == {"in": ("QuotaReserved", "Buying"), "out": ("Pending", "NamespaceNotAllowed")}


def test_either_may_stop() -> None:
    queue = cluster_queue("cq", group("h100", gpu=8, cpu=100, memory=10**12))
    world = World(fleet(queue, local("a", "cq", stopPolicy="Hold"), local("b", "cq")))
    world.waits(gang("held", queue="a"), gang("goes", queue="b"))
    assert run(world) == {"held": ("Pending", "QueueStopped"), "goes": ("QuotaReserved", "Buying")}


def test_nominal_quota_is_taken_back_from_a_borrower() -> None:
    quotas = group("h100", gpu=8, cpu=100, memory=10**12)
    world = World(
        fleet(cluster_queue("mine", quotas), cluster_queue("other", quotas), local("m", "mine"), local("o", "other"))
    )
    for n in range(2):
        world.machine(f"m{n}", pool="p5")
    world.runs(gang("borrows", pod_set(count=2), queue="o", created_s=NOW - 99), ("m0", 1), ("m1", 1))
    world.waits(gang("takes", queue="m"))
    found = run(world)
    assert found["borrows"] == ("Evicting", "InCohortReclamation")
    assert found["takes"] == ("Pending", "WaitingForPreemptedWorkloads")


@pytest.mark.parametrize(("says", "expected"), [("", "NodeReplacement"), ("Evict", "NodeFailures")])
def test_a_lost_node_is_replaced_unless_the_job_says_otherwise(says: str, expected: str) -> None:
    """As by Kueue, whose queues have no word for it."""
    groups = group("h100", gpu=24), group("any", cpu=100000, memory=10**12)
    world = World(fleet(cluster_queue("cq", *groups), local("lq", "cq")))
    for name in ("m0", "m1", "spare"):
        world.machine(name, "p5")
    it = gang("g", pod_set(count=2), queue="lq")
    world.runs(it, ("m0", 1), ("m1", 1), flavors={"main": ("any", "h100")})
    world.jobs[it.uid] = replace(world.jobs[it.uid], restarts={"main": ANY_NUMBER}, on_node_failure=says)
    del world.nodes["node-m0"]
    world.apply(lifecycle.decide(world.fleet, world.snapshot()))
    run(world)
    assert world.gang("g").reason == expected
    if not says:
        assert {pin.node for pin in world.gang("g").pins} == {"node-m1", "node-spare"}
