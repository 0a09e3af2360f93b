"""LimitRanges count: pods of templates ask what the API server gives them, and what it would refuse waits."""

from typing import Any

from agent.demo.jobs import Manifest
from agent.simulation.operations import patch
from fleet.snapshot import Gang
from tests.agent.scenes import Scene, gpu_job, simple
from tests.agent.test_simulation_refused import events


def limits(namespace: str = "t", **item: Any) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def asking(name: str = "g", *, pods: int = 1, **resources: Any) -> Manifest:
    """A Job whose container asks just that."""
    manifest = gpu_job(name, pods=pods)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    return manifest


def found(scene: Scene, name: str = "g") -> Gang:
    gang = scene.sim.gang(name)
    assert gang is not None
    return gang


def pod_requests(scene: Scene) -> list[dict[str, str]]:
    return [pod["spec"]["containers"][0]["resources"]["requests"] for pod in scene.sim.objects("Pod")]


def change(scene: Scene, **item: Any) -> None:
    patch(scene.sim, limits(), {"spec": {"limits": [{"type": "Container", **item}]}})


def test_a_job_that_asks_nothing_is_charged_and_placed_by_the_defaults() -> None:
    """Eight GPUs by default fill a machine: four pods take four machines, and a fifth waits for quota."""
    scene = Scene(simple())
    scene.sim.submit(limits(default={"nvidia.com/gpu": "8", "memory": "64Gi"}, defaultRequest={"cpu": "4"}))
    scene.sim.submit(asking(pods=4))
    scene.until_running("g")
    scene.settle()
    assert dict(found(scene).pod_sets[0].requests) == {"cpu": 4000, "memory": 64 << 30, "nvidia.com/gpu": 8}
    assert pod_requests(scene) == [{"cpu": "4", "memory": "64Gi", "nvidia.com/gpu": "8"}] * 4
    assert (scene.bought(), len(scene.nodes_of("g"))) == (4, 4)
    scene.sim.submit(asking("more"))
    scene.sim.advance(60)
    assert found(scene, "more").reason == "WaitingForQuota"


def test_a_template_above_max_is_refused_before_anything_is_bought() -> None:
    scene = Scene(simple())
    scene.sim.submit(limits(max={"cpu": "1"}))
    scene.sim.submit(gpu_job("g"))
    scene.sim.advance(120)
    assert (found(scene).state, found(scene).reason, scene.bought()) == ("Pending", "PodsForbidden", 0)
    words = 'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'
    assert words in found(scene).message
    assert len(events(scene, "PodsForbidden")) == 2, "on the job, and on its Workload"
    change(scene, max={"cpu": "4"})
    scene.until_running("g")
    scene.settle()


def test_a_limit_above_max_is_told_in_the_words_of_kubernetes() -> None:
    scene = Scene(simple())
    scene.sim.submit(limits(max={"memory": "4Gi"}))
    gpus = {"nvidia.com/gpu": "8"}
    scene.sim.submit(asking(limits={"memory": "8Gi", **gpus}))
    scene.sim.advance(60)
    said = "spec.containers[0]: maximum memory usage per Container is 4Gi, but limit is 8Gi (LimitRange limits)"
    assert said in found(scene).message
    assert scene.bought() == 0


def test_a_change_is_for_those_that_wait_and_not_for_those_that_run() -> None:
    scene = Scene(simple())
    scene.sim.submit(limits(default={"nvidia.com/gpu": "8"}, defaultRequest={"cpu": "4"}))
    scene.sim.submit(asking(pods=4))
    scene.until_running("g")
    scene.sim.submit(asking("waits"))
    scene.sim.advance(60)
    change(scene, default={"nvidia.com/gpu": "4"}, defaultRequest={"cpu": "2"})
    scene.sim.advance(120)
    assert (found(scene).pod_sets[0].requests["cpu"], found(scene).pod_sets[0].requests["nvidia.com/gpu"]) == (4000, 8)
    assert scene.state("g") == "Admitted"
    waiting = found(scene, "waits")
    assert (waiting.pod_sets[0].requests["nvidia.com/gpu"], waiting.reason) == (4, "WaitingForQuota")
    assert len(pod_requests(scene)) == 4


def test_another_namespace_has_its_own() -> None:
    scene = Scene(simple())
    scene.sim.submit(limits("other", max={"cpu": "1"}))
    scene.runs(gpu_job("g"))
