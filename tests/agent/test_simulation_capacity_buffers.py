"""CapacityBuffers in the whole loop: room is bought ahead, pods start there at once, and it is given back."""

from pathlib import Path
from typing import Any

from tests.agent.scenes import G6, P5, Doc, Scene, doc, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import UNDERUSED, deployment, plain, running, scale

SERVES: dict[str, Any] = {"serves": ["Gangs", "Pods"]}


def template(name: str = "spare", gpus: int = 8) -> Doc:
    """Pods with that many GPUs."""
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    body = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name, "namespace": "t"}, "template": body}


def buffer(name: str = "ahead", of: str = "spare", **spec: Any) -> Doc:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": "t"},
        "spec": {"podTemplateRef": {"name": of}, **spec},
    }


def with_buffer(gpus: int = 8, replicas: int = 2, **spec: Any) -> dict[str, str]:
    return files(pool(**SERVES, **spec), team(), queue(), template(gpus=gpus), buffer(replicas=replicas))


LIFTED = doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": "Unlimited"})


def test_room_is_bought_ahead_used_at_once_and_bought_anew() -> None:
    scene = Scene(with_buffer())
    scene.until(lambda: len(scene.sim.objects("Node")) == 2, 900)
    scene.sim.advance(600)
    assert scene.bought(P5) == 2
    scene.sim.submit(plain("p", gpus=8))
    scene.until(lambda: running(scene) == 1, 10)
    scene.until(lambda: len(scene.sim.machines()) == 3, 60)
    scene.sim.advance(900)
    assert scene.bought(P5) == len(scene.sim.machines()) == 3


def test_what_a_buffer_kept_is_given_back_when_it_goes() -> None:
    kept = (pool(**SERVES), team(), queue(), LIFTED)
    scene = Scene(files(*kept, template(), buffer(replicas=2)))
    scene.until(lambda: len(scene.sim.objects("Node")) == 2, 900)
    scene.sim.advance(600)
    scene.sim.push(files(*kept))
    scene.sim.advance(50)
    assert len(scene.sim.machines()) == 2, "consolidateAfter counts from when nobody needs them"
    scene.until(lambda: not scene.sim.machines(), 120)


def test_guard_rails_count_what_a_buffer_would_buy() -> None:
    rails = doc("FleetPolicy", "p", guardRails={"maxNodesAdded": 1})
    kept = (pool(**SERVES), team(), queue(), rails)
    scene = Scene(files(*kept))
    scene.sim.push(files(*kept, template(), buffer(replicas=2)))
    scene.sim.advance(300)
    sync = scene.sim.sync()
    assert sync["appliedRevision"] != sync["attemptedRevision"]
    assert scene.bought() == 0
    scene.sim.push(files(*kept, template(), buffer(replicas=1)))
    scene.until(lambda: scene.bought(P5) == 1, 60)


def test_beside_work_that_comes_and_goes_a_buffer_comes_to_rest() -> None:
    """Room is found beside pods, machines are merged over it, and nothing is bought and given back in turns."""
    scene = Scene(with_buffer(gpus=2, replicas=3, types=(P5, G6), disruption=UNDERUSED))
    scene.sim.submit(deployment("web", 12))
    scene.until(lambda: running(scene) == 12, 900)
    scale(scene, "web", 3)
    scene.sim.advance(3600)
    bought, standing = scene.bought(), sorted(machine.instance_type for machine in scene.sim.machines())
    scene.sim.advance(3600)
    assert (scene.bought(), sorted(machine.instance_type for machine in scene.sim.machines())) == (bought, standing)
    assert running(scene) == 3


def test_the_room_outlives_the_agent_and_the_machine() -> None:
    scene = Scene(with_buffer(replicas=1))
    scene.until(lambda: len(scene.sim.objects("Node")) == 1, 900)
    scene.sim.crash()
    scene.sim.restart()
    scene.sim.advance(300)
    assert scene.bought(P5) == 1
    [node] = scene.sim.objects("Node")
    scene.sim.delete(node)
    scene.until(lambda: scene.bought(P5) == 2, 300)


def test_the_example_keeps_its_room() -> None:
    text = (Path(__file__).resolve().parents[2] / "examples" / "capacity-buffer" / "fleet.yaml").read_text("utf-8")
    scene = Scene({"fleet.yaml": text})
    scene.until(lambda: len(scene.sim.objects("Node")) == 1, 900)
    [machine] = scene.sim.machines()
    assert machine.instance_type == G6


def test_gangs_go_first_where_the_limit_is_tight() -> None:
    scene = Scene(with_buffer(limits={"nodes": 2}))
    scene.until(lambda: len(scene.sim.objects("Node")) == 2, 900)
    scene.sim.submit(gpu_job("train", pods=2))
    scene.until_running("train", 60)
    scene.sim.advance(600)
    assert scene.bought(P5) == 2
