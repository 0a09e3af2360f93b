"""CapacityBuffers in the whole loop: room is bought ahead, pods start there at once, and it is given back."""

from typing import Any

from tests.agent.scenes import P5, Doc, Scene, doc, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_ordinary_pods import plain, running

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


def test_gangs_go_first_where_the_limit_is_tight() -> None:
    scene = Scene(with_buffer(limits={"nodes": 2}))
    scene.until(lambda: len(scene.sim.objects("Node")) == 2, 900)
    scene.sim.submit(gpu_job("train", pods=2))
    scene.until_running("train", 60)
    scene.sim.advance(600)
    assert scene.bought(P5) == 2
