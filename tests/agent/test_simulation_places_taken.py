"""Pods of no gang come to a machine that stood idle a moment before the gang that was given a place there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agent.scenes import G6, P5, Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import UNDERUSED, Pod, deployment, plain, pods, running
from tests.agent.test_simulation_replacement import hardy, where

IDLE = {"consolidateAfter": "1h"}


def idle_machine() -> Scene:
    """One machine that stands idle, as the gang that it was bought for has finished."""
    scene = Scene(files(pool(disruption=IDLE), team(), queue(podsReady={"recoveryTimeout": "20m"})))
    scene.runs(gpu_job("first", run_s=30))
    scene.until(lambda: scene.state("first") == "Finished")
    return scene


@contextmanager
def unseen(scene: Scene) -> Iterator[None]:
    """The agent sees pods a few seconds late."""
    scene.sim.stalled_tables |= {"pods"}
    yield
    scene.sim.advance(5)
    scene.sim.stalled_tables -= {"pods"}


def intrude(scene: Scene, node: str, gpus: int = 1) -> None:
    """Somebody binds a pod by hand: no scheduler is asked whether there is room for it."""
    scene.sim.submit(plain("intruder", gpus=gpus, nodeName=node))


def why_evicted(scene: Scene) -> list[str]:
    """What the events on the job say."""
    told = (it for it in scene.sim.objects("Event") if it["involvedObject"]["kind"] == "Job")
    return [it["message"] for it in told if it["reason"] == "Evicted"]


@pytest.mark.parametrize(("pods", "gpus"), [pytest.param(1, 8, id="its only pod"), pytest.param(8, 1, id="one of 8")])
def test_a_gang_whose_place_is_taken_before_it_started_goes_elsewhere_at_once(pods: int, gpus: int) -> None:
    scene = idle_machine()
    (node,) = scene.sim.objects("Node")
    with unseen(scene):
        intrude(scene, node["metadata"]["name"])
        scene.sim.submit(hardy(gpu_job("g", pods=pods, gpus=gpus), limit=0))
    scene.until_running("g")
    name = node["metadata"]["name"]
    taken = f"Evicting: node {name} has not enough nvidia.com/gpu left: other pods came before those of the gang"
    assert why_evicted(scene) == [taken]
    assert scene.laws.evictions == {"g": 1}
    assert scene.bought(P5) == 2
    scene.settle(300)


SCARCE = {"serves": ["Gangs", "Pods"], "limits": {"nodes": 1}}


@pytest.mark.parametrize("seen", [pytest.param(True, id="the agent sees it end"), pytest.param(False, id="too late")])
@pytest.mark.parametrize(("grace_s", "others"), [(0, 2), (20, 2), (0, 1)])
def test_pods_that_wait_do_not_keep_the_place_of_a_pod_that_is_made_anew(grace_s: int, others: int, seen: bool) -> None:
    """Nothing more may be bought, and others wait: a gang that loses a pod does not lose its machine."""
    scene = Scene(files(pool(**SCARCE), team(), queue()))
    job = hardy(gpu_job("g", pods=2, gpus=4))
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace_s
    scene.runs(job)
    scene.sim.submit(deployment("others", others, 4))
    scene.sim.advance(60)
    (pod, *_) = (it for it in scene.sim.objects("Pod") if it["metadata"]["name"].startswith("g-"))
    if seen:
        scene.sim.delete(pod)
    else:
        with unseen(scene):
            scene.sim.delete(pod)
            scene.sim.advance(grace_s)
    scene.until(lambda: scene.sim.running("g") and len(where(scene, "g")) == 2, 240)
    assert scene.laws.evictions == {}
    assert scene.bought(P5) == 1
    scene.settle()
    (node,) = scene.sim.objects("Node")
    assert not node["spec"].get("taints"), "kept for the gang only while it lacks a pod"


def test_a_place_that_is_taken_while_its_pod_is_made_anew_is_replaced_alone() -> None:
    scene = Scene(files(pool(disruption=IDLE), team(), queue(podsReady={"recoveryTimeout": "20m"})))
    scene.runs(hardy(gpu_job("g", pods=2)))
    before = where(scene, "g")
    lost, node = min(before.items())
    (pod,) = (it for it in scene.sim.objects("Pod") if it["metadata"]["uid"] == lost)
    with unseen(scene):
        scene.sim.delete(pod)
        scene.sim.advance(1)
        intrude(scene, node)
    scene.until(lambda: scene.sim.running("g") and node not in scene.nodes_of("g"), 900)
    assert scene.laws.evictions == {}
    assert before.items() - {(lost, node)} <= where(scene, "g").items()
    assert scene.bought(P5) == 3


def small(name: str, replicas: int) -> Pod:
    """A Deployment of pods that ask for processors alone."""
    return deployment(name, replicas, gpus=0)


def mixed(**gangs_alone: Any) -> Scene:
    """Dear machines for gangs alone, cheap ones for pods."""
    return Scene(
        files(
            pool(disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "60s"}, **gangs_alone),
            pool("small", types=(G6,), serves=["Pods"], disruption=UNDERUSED),
            *(team(), queue()),
        )
    )


def test_pods_that_wait_with_a_gang_do_not_take_its_machines_of_a_pool_for_gangs_alone() -> None:
    scene = mixed()
    scene.sim.submit(plain("notebook"))
    scene.sim.submit(small("web", 3))
    scene.sim.submit(gpu_job("g", pods=2, gpus=8))
    scene.until_running("g")
    scene.until(lambda: running(scene) == 6)
    assert scene.laws.evictions == {}
    assert scene.bought(P5) == 2
    scene.settle()
    assert not any(node["spec"].get("taints") for node in scene.sim.objects("Node")), "kept until the gang has come"


def test_a_few_small_pods_do_not_keep_a_machine_that_was_bought_for_a_gang() -> None:
    """The pool gives back empty machines only, and is for gangs: of them the machine is empty."""
    scene = mixed()
    scene.sim.submit(small("web", 3))
    scene.runs(gpu_job("g", run_s=300))
    (node,) = scene.nodes_of("g")
    assert any(pod["spec"].get("nodeName") == node for pod in pods(scene).values() if pod["metadata"]["name"] != "g")
    scene.until(lambda: scene.state("g") == "Finished")
    scene.until(lambda: {it.instance_type for it in scene.sim.machines()} == {G6} and running(scene) == 3, 900)
    scene.settle()
