"""Pods on a queue that no job has made, as those of a Deployment: each is a gang of its own."""

from pathlib import Path
from typing import Any

import yaml

from tests.agent.scenes import P5, Scene, files, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import deployment, pods, running, scale

POLICIES = Path(__file__).resolve().parents[2] / "deploy/components/admission-policy"
GATE = [{"name": "muster.dev/placement"}]


def world(gpus: int = 8, **spec: Any) -> dict[str, str]:
    return files(pool(**spec), team(quotas={"h100": {"nvidia.com/gpu": gpus}}), queue())


def on_queue(replicas: int, gpus: int = 2, name: str = "web") -> dict[str, Any]:
    """A Deployment whose pods come with the label and the gate."""
    made = deployment(name, replicas, gpus, schedulingGates=GATE)
    made["spec"]["template"]["metadata"]["labels"]["muster.dev/queue"] = "t"
    return made


def states(scene: Scene) -> list[str]:
    return sorted(f"{gang.state} {gang.reason}" for gang in scene.sim.gangs().values())


def test_each_is_admitted_by_quota_and_gets_a_machine() -> None:
    scene = Scene(world(gpus=4))
    scene.sim.submit(on_queue(3))
    scene.until(lambda: running(scene) == 2)
    scene.sim.advance(60)
    assert scene.bought(P5) == 1
    assert states(scene) == ["Admitted PodsReady", "Admitted PodsReady", "Pending WaitingForQuota"]
    owners = [it["metadata"]["ownerReferences"][0]["kind"] for it in scene.sim.objects("Workload")]
    assert owners == ["Pod"] * 3


def test_scaling_down_gives_quota_and_machine_back() -> None:
    scene = Scene(world(gpus=4))
    scene.sim.submit(on_queue(3))
    scene.until(lambda: running(scene) == 2)
    scale(scene, "web", 1)
    scene.until(lambda: states(scene) == ["Admitted PodsReady"] and running(scene) == 1)
    scale(scene, "web", 0)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.gangs(), 900)


def test_a_pod_that_is_deleted_is_followed_by_one_that_is_admitted_anew() -> None:
    scene = Scene(world())
    scene.sim.submit(on_queue(1))
    scene.until(lambda: running(scene) == 1)
    (name,) = pods(scene)
    scene.sim.delete(pods(scene)[name])
    scene.until(lambda: running(scene) == 1 and name not in pods(scene))
    assert states(scene) == ["Admitted PodsReady"]


def test_a_drifted_machine_is_replaced_first() -> None:
    scene = Scene(world())
    scene.sim.submit(on_queue(2))
    scene.until(lambda: running(scene) == 2)
    scene.sim.push(world(template={"labels": {"new": "yes"}}))
    scene.until(lambda: scene.bought() == 2, 300)
    assert running(scene) == 2
    scene.until(lambda: len(scene.sim.machines()) == 1 and running(scene) == 2, 1800)
    assert scene.bought() == 2


def test_a_pod_without_the_gate_gets_no_machine_and_is_told_why() -> None:
    scene = Scene(files(pool(serves=["Gangs", "Pods"]), team(), queue()))
    ungated = on_queue(1)
    del ungated["spec"]["template"]["spec"]["schedulingGates"]
    scene.sim.submit(ungated)
    scene.sim.advance(120)
    assert scene.bought() == 0
    told = [it["message"] for it in scene.sim.objects("Event") if it["reason"] == "FailedScheduling"]
    assert any("names queue t and has no scheduling gate muster.dev/placement" in words for words in told), told


def test_the_policies_make_a_deployment_on_a_queue_wait_there() -> None:
    scene = Scene(world(gpus=4))
    for name in ("pods.yaml", "templates.yaml"):
        for document in yaml.safe_load_all((POLICIES / name).read_text("utf-8")):
            scene.sim.submit(document)
    plain = deployment("web", 3, 2)
    plain["metadata"]["labels"] = {"muster.dev/queue": "t"}
    scene.sim.submit(plain)
    scene.until(lambda: running(scene) == 2)
    scene.sim.advance(60)
    assert states(scene) == ["Admitted PodsReady", "Admitted PodsReady", "Pending WaitingForQuota"]


def test_a_stateful_set_starts_its_pods_one_after_the_other() -> None:
    scene = Scene(world())
    made = on_queue(3)
    scene.sim.submit({**made, "kind": "StatefulSet", "spec": {**made["spec"], "serviceName": "web"}})
    scene.until(lambda: running(scene) == 3)
    assert sorted(pods(scene)) == ["web-0", "web-1", "web-2"]
    assert scene.bought(P5) == 1
