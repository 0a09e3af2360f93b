"""NVLink domains: which machines are in one, and the channels that pods claim."""

import re
from collections import Counter

import pytest

from providers.sim.store.errors import StoreInvalid
from tests.providers.sim.controllers.dra.claim_world import ClaimWorld
from tests.providers.sim.controllers.world import Obj

CLIQUE = "nvidia.com/gpu.clique"
GB200 = "p6e-gb200.36xlarge"


def domain(nodes: int) -> Obj:
    """As in the driver's demo of a multi-node job."""
    channel = {"resourceClaimTemplate": {"name": "channel"}}
    return {"metadata": {"name": "job"}, "spec": {"numNodes": nodes, "channel": channel}}


def together() -> Obj:
    """All of one clique, a node each."""
    term = {"labelSelector": {"matchLabels": {"job": "a"}}, "topologyKey": CLIQUE}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def clique(world: ClaimWorld, node: str) -> str:
    return str(world.the("Node", node)["metadata"]["labels"][CLIQUE])


def test_eighteen_machines_are_an_nvlink_domain() -> None:
    world = ClaimWorld()
    for n in range(20):
        world.node(f"n{n:02d}", labels={"node.kubernetes.io/instance-type": GB200}, cpu="144", pods="110")
    world.pass_s(120)
    cliques = Counter(clique(world, f"n{n:02d}") for n in range(20))
    assert sorted(cliques.values()) == [2, 18]
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.32766", it) for it in cliques)


def test_the_cloud_says_which_ultraserver_a_machine_is_in() -> None:
    world = ClaimWorld()
    for name, server in (("a", "us-1"), ("b", "us-2"), ("c", "us-1")):
        labels = {"node.kubernetes.io/instance-type": GB200, "topology.k8s.aws/ultraserver-id": server}
        world.node(name, labels=labels, cpu="144", pods="110")
    world.pass_s(120)
    assert clique(world, "a") == clique(world, "c") != clique(world, "b")


def test_a_job_over_two_machines_has_its_channels() -> None:
    world = ClaimWorld()
    for name in ("n1", "n2", "n3"):
        world.gpu_node(name, GB200)
    world.create("ComputeDomain", domain(2))
    world.pass_s(2)
    spec = world.the("ResourceClaimTemplate", "channel")["spec"]["spec"]["devices"]
    assert spec["requests"][0]["exactly"]["deviceClassName"] == "compute-domain-default-channel.nvidia.com"
    parameters = spec["config"][0]["opaque"]["parameters"]
    assert parameters["domainID"] == world.the("ComputeDomain", "job")["metadata"]["uid"]
    for name in ("first", "second"):
        world.pod_from(name, "channel", labels={"job": "a"}, affinity=together())
    world.pass_s(3)
    assert {world.phase(name) for name in ("first", "second")} == {"Pending"}  # until the domain's daemons are ready
    world.pass_s(30)
    assert {world.phase(name) for name in ("first", "second")} == {"Running"}
    status = world.the("ComputeDomain", "job")["status"]
    assert status["status"] == "Ready"
    assert [(it["index"], it["status"]) for it in status["nodes"]] == [(0, "Ready"), (1, "Ready")]
    assert {it["cliqueID"] for it in status["nodes"]} == {clique(world, "n1")}
    nodes = {world.the("Pod", name)["spec"]["nodeName"] for name in ("first", "second")}
    assert nodes == {it["name"] for it in status["nodes"]}  # a channel for each node: two pods, two nodes
    uid = world.the("ComputeDomain", "job")["metadata"]["uid"]
    labelled = {
        it["metadata"]["name"]
        for it in world.all("Node")
        if it["metadata"]["labels"].get("resource.nvidia.com/computeDomain") == uid
    }
    assert labelled == nodes


def test_a_domain_goes_when_nobody_is_in_it() -> None:
    world = ClaimWorld()
    world.gpu_node("n1", GB200)
    world.create("ComputeDomain", domain(1))
    world.pass_s(2)
    world.pod_from("only", "channel")
    world.pass_s(30)
    assert world.phase("only") == "Running"
    world.delete("ComputeDomain", "job")
    world.pass_s(5)
    assert world.get("ResourceClaimTemplate", "channel") is None
    assert world.get("ComputeDomain", "job") is not None
    world.delete("Pod", "only")
    world.pass_s(60)
    assert world.get("ComputeDomain", "job") is None
    assert "resource.nvidia.com/computeDomain" not in world.the("Node", "n1")["metadata"]["labels"]


def test_a_domain_never_changes() -> None:
    world = ClaimWorld()
    world.settle()
    world.create("ComputeDomain", domain(1))
    with pytest.raises(StoreInvalid, match=r"A computeDomain.spec is immutable"):
        world.change("ComputeDomain", "job", numNodes=2)
