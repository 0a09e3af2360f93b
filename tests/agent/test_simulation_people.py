"""What people do to a cluster with kubectl, and what becomes of the gangs there: drain, delete a node or its claim."""

from collections.abc import Callable

import pytest

from agent.simulation import Tempo
from providers.sim.store import PatchType
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_replacement import fleet, goes_on, hardy, instance_of, started, where


def pods_on(scene: Scene, node: str) -> list[str]:
    found = [pod for pod in scene.sim.objects("Pod") if pod["spec"].get("nodeName") == node]
    return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]


def drain(scene: Scene, node: str) -> None:
    """`kubectl drain`: cordon, then evict."""
    store = scene.sim.store
    store.patch(store.resource("Node"), node, {"spec": {"unschedulable": True}}, PatchType.MERGE)
    for pod in scene.sim.objects("Pod"):
        if pod["spec"].get("nodeName") == node:
            store.evict(pod["metadata"]["name"], pod["metadata"]["namespace"])


def delete_node(scene: Scene, node: str) -> None:
    scene.sim.store.delete(scene.sim.store.resource("Node"), node)


def delete_claim(scene: Scene, node: str) -> None:
    claim = next(it.name for it in scene.sim.claims().values() if it.node == node)
    scene.sim.store.delete(scene.sim.store.resource("NodeClaim"), claim)


@pytest.mark.parametrize("act", [drain, delete_node, delete_claim], ids=["drain", "delete node", "delete nodeclaim"])
def test_a_gang_goes_on_elsewhere_and_nobody_who_was_not_hit_moves(act: Callable[[Scene, str], None]) -> None:
    scene = Scene(fleet())
    lost, kept = started(scene)
    act(scene, lost)
    goes_on(scene, lost, kept)
    assert scene.bought() == 4
    assert job_failures(scene) <= 1, "the one that the eviction itself is"


def job_failures(scene: Scene) -> int:
    found = scene.sim.object("Job", "g", "t")
    assert found is not None
    return int(found["status"].get("failed", 0))


@pytest.mark.parametrize("act", [delete_node, delete_claim], ids=["node", "nodeclaim"])
def test_a_machine_is_drained_before_it_is_terminated(act: Callable[[Scene, str], None]) -> None:
    """Its pods end with their own grace, and only then the instance goes; every word of it is true."""
    scene = Scene(fleet())
    slow = hardy(gpu_job("g", pods=3))
    template = slow["spec"]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = 60
    template["metadata"] = {"annotations": {"sim.muster.dev/stop-seconds": "45"}}
    scene.runs(slow)
    lost = min(scene.nodes_of("g"))
    began_s, instance = scene.sim.now_s, instance_of(scene, lost)
    standing = {it.id for it in scene.sim.machines()}
    act(scene, lost)
    scene.until(lambda: instance not in {it.id for it in scene.sim.machines()}, 1200)
    assert instance in standing
    assert scene.sim.now_s - began_s >= 45, "what its pods take to end"
    scene.until(lambda: scene.sim.object("Node", lost) is None, 300)
    told = " ".join(event["message"] for event in scene.sim.objects("Event"))
    assert "somebody deleted" in told
    assert "is gone" not in told


def test_a_node_that_somebody_taints_before_its_gang_starts_takes_none_of_it() -> None:
    """Found by `--profile humans --seed 10129`: the pod was let go onto it and never bound, the gang stayed in part."""
    scene = Scene(fleet())
    scene.sim.submit(hardy(gpu_job("g", pods=3)))
    scene.until(lambda: bool(scene.sim.objects("Node")), 600)
    store, node = scene.sim.store, scene.sim.objects("Node")[0]
    taints = [*node["spec"].get("taints", ()), {"key": "maintenance", "effect": "NoSchedule"}]
    store.patch(store.resource("Node"), node["metadata"]["name"], {"spec": {"taints": taints}}, PatchType.MERGE)
    scene.until(lambda: scene.sim.running("g"), 900)
    assert node["metadata"]["name"] not in scene.nodes_of("g")
    assert scene.bought() == 4, "one more, as nothing of it can stand there"


def test_a_machine_that_nobody_uses_is_deleted_by_its_node() -> None:
    scene = Scene(fleet())
    scene.runs(hardy(gpu_job("g")))
    (node,) = scene.nodes_of("g")
    scene.sim.delete(hardy(gpu_job("g")))
    scene.until(lambda: not where(scene, "g"), 60)
    delete_node(scene, node)
    scene.until(lambda: not scene.sim.machines(), 300)
    scene.until(lambda: scene.sim.object("Node", node) is None, 60)
    assert scene.sim.claims() == {}


def test_a_job_that_was_created_running_beside_idle_machines_buys_none() -> None:
    """Its own pods stand there until it is suspended: what is about to be free counts."""
    scene = Scene(fleet())
    scene.runs(gpu_job("first", pods=2, run_s=30.0))
    scene.until_state("first", "Finished", 300)
    eager = gpu_job("g", pods=2)
    eager["spec"]["suspend"] = False
    scene.runs(eager)
    assert scene.bought() == 2


def test_the_place_of_a_gang_whose_workload_is_deleted_is_given_to_nobody_while_its_pods_run() -> None:
    """Another one was let go onto a machine that was full, when its Workload had been gone for no time."""
    scene = Scene(files(pool(limits={"nodes": 2}), team(), queue()))
    scene.runs(gpu_job("g", pods=2))
    scene.sim.submit(gpu_job("next", pods=2))
    scene.sim.advance(5)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert scene.state("next") == "Pending"
    found = scene.sim.object("Workload", gang.workload, gang.namespace)
    assert found is not None
    scene.sim.delete(found)
    for _ in range(4):
        scene.sim.advance(0.5)
        assert scene.state("next") == "Pending"
    scene.until_running("next", 120)


def test_the_place_of_a_deleted_job_is_free_as_soon_as_its_pods_have_ended() -> None:
    """Its Workload is deleted with it, by another hand than the agent's. No tick is waited for."""
    scene = Scene(files(pool(limits={"nodes": 2}), team(), queue()), tempo=Tempo(tick_s=60.0))
    job = gpu_job("g", pods=2)
    scene.runs(job)
    scene.sim.submit(gpu_job("next", pods=2))
    scene.sim.advance(61)
    assert scene.state("next") == "Pending"
    scene.sim.delete(job)
    scene.until(lambda: not where(scene, "g"), 40)
    scene.sim.advance(1)
    assert scene.state("next") == "Admitted"


def test_a_running_gang_whose_workload_is_deleted_is_stopped_once_told_of_and_runs_again() -> None:
    scene = Scene(fleet())
    scene.runs(gpu_job("g", pods=2))
    before, gang = where(scene, "g"), scene.sim.gang("g")
    assert gang is not None
    found = scene.sim.object("Workload", gang.workload, gang.namespace)
    assert found is not None
    scene.sim.delete(found)
    scene.sim.advance(2)
    scene.until_running("g", 120)
    told = [it for it in scene.sim.objects("Event") if it["reason"] == "Stopped"]
    assert ["No matching Workload" in (it.get("note") or it["message"]) for it in told] == [True]
    assert not before.keys() & where(scene, "g").keys(), "its pods are new"
    assert scene.bought() == 2
    scene.settle(120)
