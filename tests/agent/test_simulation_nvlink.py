"""Gangs over several machines of an NVL72 stay in one NVLink domain, on capacity blocks of UltraServers, end to end."""

from collections import Counter
from typing import Any

from model import labels
from providers.sim.ec2 import HeldReservation
from tests.agent.scenes import B, Manifest, Scene, doc, files, pool, queue, sold, team
from tests.agent.test_simulation_dra import claiming, devices, exactly, template

GB200 = "p6e-gb200.36xlarge"
CATALOG = sold(GB200)
CLIQUE = "nvidia.com/gpu.clique"
HOUR_S = 3600.0


def nvl(**spec: Any) -> dict[str, str]:
    dense = {"capacityTypes": ["reserved"], "sharing": {"dra": {}}} | spec
    return files(
        pool("gb200", (GB200,), **dense),
        doc("Topology", "nvl", levels=["topology.kubernetes.io/zone", CLIQUE, "kubernetes.io/hostname"]),
        doc("Flavor", "nvl", nodePools=["gb200"], topology="nvl"),
        team(quotas={"nvl": {"nvidia.com/gpu": 144}}),
        queue(flavors=("nvl",)),
    )


def scene_with(*blocks: int, **spec: Any) -> Scene:
    """A scene with capacity blocks of so many machines, each of an UltraServer of its own."""
    scene = Scene(nvl(**spec), catalog=CATALOG)
    for n, machines in enumerate(blocks):
        ends_s, tags = scene.sim.now_s + 48 * HOUR_S, {labels.CLUSTER: "default"}
        held = HeldReservation(f"cr-{n}", GB200, B, machines, kind="capacity-block", ends_s=ends_s, tags=tags)
        scene.sim.cloud.account.reserve(held)
    scene.sim.submit(template("four", exactly("gpus", count=4)))
    scene.sim.advance(61)
    return scene


def domain(scene: Scene, name: str = "channel") -> None:
    channel = {"resourceClaimTemplate": {"name": name}}
    meta = {"name": name, "namespace": "t"}
    spec = {"numNodes": 0, "channel": channel}
    scene.sim.submit(
        {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": meta, "spec": spec}
    )
    scene.sim.advance(5)


def joined(name: str, pods: int, *, channel: str = "channel", annotations: dict[str, str] | None = None) -> Manifest:
    """A Job whose pods have the four GPUs of a machine each, and a channel to the others."""
    manifest = claiming(name, "four", pods=pods)
    pod = manifest["spec"]["template"]
    pod["spec"]["resourceClaims"].append({"name": "channel", "resourceClaimTemplateName": channel})
    pod["spec"]["containers"][0]["resources"]["claims"].append({"name": "channel"})
    pod.setdefault("metadata", {}).setdefault("annotations", {}).update(annotations or {})
    return manifest


def cliques(scene: Scene, name: str) -> list[int]:
    """How many machines of a gang are in each NVLink domain, once feature discovery has said so."""
    scene.sim.advance(120)
    nodes = {it["metadata"]["name"]: it["metadata"]["labels"] for it in scene.sim.objects("Node")}
    return sorted(Counter(nodes[node][CLIQUE] for node in scene.nodes_of(name)).values())


def test_a_gang_with_channels_is_bought_whole_in_one_block() -> None:
    scene = scene_with(6, 18)
    domain(scene)
    scene.runs(joined("a", 8), 900)
    assert cliques(scene, "a") == [8]
    assert {machine.reservation for machine in scene.sim.machines()} == {"cr-1"}
    assert all(names == ["channel-0", *(f"gpu-{n}" for n in range(4))] for names in devices(scene).values())
    (made,) = scene.sim.objects("ComputeDomain")
    assert (made["status"]["status"], len(made["status"]["nodes"])) == ("Ready", 8)
    domain(scene, "other")
    scene.runs(joined("b", 6, channel="other"), 900)
    assert cliques(scene, "b") == [6]
    scene.settle()


def test_a_gang_that_no_domain_holds_waits_and_buys_nothing() -> None:
    scene = scene_with(6, 6)
    domain(scene)
    scene.sim.submit(joined("a", 8))
    scene.sim.advance(120)
    gang = scene.sim.gang("a")
    assert gang is not None
    assert gang.state == "Pending"
    assert "8 pods of main need one NVLink domain" in gang.message, gang.message
    assert scene.bought() == 0
    scene.settle()


def test_a_stated_split_is_over_two_domains() -> None:
    scene = scene_with(6, 6)
    domain(scene)
    split = {
        "kueue.x-k8s.io/podset-slice-required-topology": CLIQUE,
        "kueue.x-k8s.io/podset-slice-size": "4",
    }
    scene.runs(joined("a", 8, annotations=split), 900)
    assert cliques(scene, "a") == [4, 4]
    scene.settle()


def test_without_a_block_it_is_said_that_none_is_bought() -> None:
    scene = scene_with()
    domain(scene)
    scene.sim.submit(joined("a", 2))
    scene.sim.submit(claiming("single", "four"))
    scene.sim.advance(120)
    for name in ("a", "single"):
        gang = scene.sim.gang(name)
        assert gang is not None
        assert f"{GB200} is sold by the UltraServer, as a capacity block" in gang.message, gang.message
    scene.settle()


def test_a_machine_that_is_lost_is_replaced_in_the_same_domain() -> None:
    scene = scene_with(18, 18)
    domain(scene)
    manifest = joined("a", 4)
    manifest["metadata"].setdefault("annotations", {})["muster.dev/on-node-failure"] = "Replace"
    manifest["spec"]["backoffLimit"] = 10
    scene.runs(manifest, 900)
    first = scene.sim.machines()[0]
    scene.sim.cloud.account.terminate([first.id])
    scene.until(lambda: scene.bought() == 5, 900, "another machine is bought")
    scene.until_running("a", 900)
    assert cliques(scene, "a") == [4]
    assert {machine.reservation for machine in scene.sim.machines()} == {first.reservation}
    scene.settle()
