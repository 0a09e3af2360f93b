"""What a RuntimeClass adds to pods is asked for with them; and node affinity that names a node by its field."""

from typing import Any

from agent.demo.jobs import Manifest
from tests.agent.scenes import Scene, gpu_job, simple
from tests.agent.test_simulation_refused import events

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def runtime(overhead_cpu: str = "1", **scheduling: Any) -> Manifest:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": overhead_cpu}},
        "scheduling": scheduling,
    }


def asking(name: str = "g", pods: int = 1, **spec: Any) -> Manifest:
    manifest = gpu_job(name, pods=pods)
    manifest["spec"]["template"]["spec"] |= spec
    return manifest


def test_a_class_that_is_not_there_is_named_and_nothing_is_bought() -> None:
    scene = Scene(simple())
    scene.sim.submit(asking(runtimeClassName="kata"))
    scene.sim.advance(120)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, gang.reason, scene.bought()) == ("Pending", "RuntimeClassNotFound", 0)
    assert "RuntimeClass 'kata' does not exist" in gang.message
    assert len(events(scene, "RuntimeClassNotFound")) == 2, "on the job, and on its Workload"
    scene.sim.submit(runtime())
    scene.until_running("g")
    scene.settle()


def test_what_it_adds_is_asked_for() -> None:
    toleration = {"key": "kata", "operator": "Exists", "effect": "NoSchedule"}
    scene = Scene(simple(template={"labels": {"runtime": "kata"}, "taints": [{"key": "kata", "effect": "NoSchedule"}]}))
    scene.sim.submit(runtime(nodeSelector={"runtime": "kata"}, tolerations=[toleration]))
    scene.sim.submit(asking("plain"))
    scene.runs(asking(runtimeClassName="kata"))
    gang = scene.sim.gang("g")
    assert gang is not None
    (pods,) = gang.pod_sets
    assert (pods.requests["cpu"], pods.runtime_class, dict(pods.node_selector)) == (3000, "kata", {"runtime": "kata"})
    assert [it.key for it in pods.tolerations] == ["kata"]
    (pod,) = [it for it in scene.sim.objects("Pod") if it["metadata"]["name"].startswith("g-")]
    assert pod["spec"]["overhead"] == {"cpu": "1"}
    assert scene.state("plain") == "Pending"


def test_a_change_of_the_class_is_a_change_of_the_template() -> None:
    scene = Scene(simple())
    scene.sim.submit(runtime(nodeSelector={"runtime": "none"}))
    scene.sim.submit(asking(runtimeClassName="kata"))
    scene.sim.advance(60)
    assert scene.state("g") == "Pending"
    found = scene.sim.object("RuntimeClass", "kata")
    assert found is not None
    scene.sim.delete(found)
    scene.sim.submit(runtime(overhead_cpu="2"))
    scene.until_running("g")
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.pod_sets[0].requests["cpu"], dict(gang.pod_sets[0].node_selector)) == (4000, {})


def test_a_class_that_selects_other_nodes_than_its_pods_is_refused() -> None:
    scene = Scene(simple())
    scene.sim.submit(runtime(nodeSelector={"runtime": "kata"}))
    scene.sim.submit(asking(runtimeClassName="kata", nodeSelector={"runtime": "runc"}))
    scene.sim.advance(60)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.reason == "UnsupportedConstraint"
    assert "spec.nodeSelector[runtime]" in gang.message


def test_a_node_can_be_named_by_its_field() -> None:
    """It was read as a label, which no node has."""
    scene = Scene(simple(replicas=3))
    scene.sim.advance(600)
    wanted = sorted(it["metadata"]["name"] for it in scene.sim.objects("Node"))[1]
    field = {"key": "metadata.name", "operator": "In", "values": [wanted]}
    term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    scene.runs(asking(affinity={"nodeAffinity": {REQUIRED: term}}))
    assert scene.nodes_of("g") == {wanted}
