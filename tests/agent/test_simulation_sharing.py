"""GPUs offered several times: the device plugin gets its configuration, and replicas place, pack and charge."""

from typing import Any

import pytest
import yaml

from agent.demo.jobs import Manifest, job
from tests.agent.scenes import Scene, files, pool, queue, sold, team

L4 = "g6.xlarge"
CATALOG = sold(L4)
SHARED = "nvidia.com/gpu.shared"


def scene(sharing: dict[str, Any], resource: str = "nvidia.com/gpu", **pool_spec: Any) -> Scene:
    return Scene(fleet(sharing, resource, **pool_spec), catalog=CATALOG)


def fleet(sharing: dict[str, Any], resource: str = "nvidia.com/gpu", **pool_spec: Any) -> dict[str, str]:
    return files(
        pool("l4", (L4,), sharing=sharing, **pool_spec),
        team(quotas={"l4": {resource: 8}}),
        queue(flavors=("l4",)),
    )


def notebooks(name: str, pods: int = 4, resource: str = "nvidia.com/gpu", each: int = 1) -> Manifest:
    requests = {"cpu": "500m", "memory": "2Gi", resource: str(each)}
    return job(name, "t", "normal", pods=pods, requests=requests)


def configs(it: Scene) -> dict[str, Any]:
    held = it.sim.object("ConfigMap", "muster-device-plugin-config", "gpu-operator")
    assert held is not None
    return {name: yaml.safe_load(text)["sharing"] for name, text in held["data"].items()}


def node(it: Scene) -> dict[str, Any]:
    (found,) = it.sim.objects("Node")
    return found


def charged(it: Scene) -> list[tuple[str, str]]:
    queue_object = it.sim.object("Queue", "t")
    assert queue_object is not None
    usage = queue_object["status"]["usage"]
    return [(one["resource"], one["used"]) for one in usage if one["resource"].startswith("nvidia.com")]


def test_four_pods_run_on_one_l4_within_a_minute() -> None:
    it = scene({"timeSlicing": {"replicas": 4}}, replicas=1)
    it.until(lambda: it.sim.objects("Node") and "nvidia.com/gpu" in node(it)["status"]["allocatable"])
    it.runs(notebooks("four"), within_s=60)
    assert it.bought(L4) == it.bought() == 1
    assert it.nodes_of("four") == {node(it)["metadata"]["name"]}


def test_a_machine_is_born_with_the_configuration_that_the_plugin_reads_and_replicas_are_charged() -> None:
    it = scene({"timeSlicing": {"replicas": 4}})
    assert configs(it) == {
        "time-slicing-4": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    }
    it.runs(notebooks("four"), within_s=120)
    assert it.bought(L4) == it.bought() == 1
    assert node(it)["metadata"]["labels"]["nvidia.com/device-plugin.config"] == "time-slicing-4"
    assert node(it)["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    it.settle()
    assert charged(it) == [("nvidia.com/gpu", "4")]


def test_two_jobs_pack_onto_the_replicas_of_one_gpu_and_a_fifth_pod_needs_another() -> None:
    it = scene({"mps": {"replicas": 4}})
    it.runs(notebooks("three", 3))
    it.runs(notebooks("one", 1))
    assert it.bought() == 1
    it.runs(notebooks("fifth", 1))
    assert it.bought() == 2


def test_renamed_replicas_are_asked_for_by_their_own_name() -> None:
    it = scene({"timeSlicing": {"replicas": 4, "renameByDefault": True}}, SHARED)
    assert configs(it)["time-slicing-4-renamed"]["timeSlicing"]["renameByDefault"] is True
    it.runs(notebooks("four", resource=SHARED))
    assert it.bought() == 1
    assert (node(it)["status"]["allocatable"][SHARED], charged(it)) == ("4", [(SHARED, "4")])
    it.sim.submit(notebooks("whole", 1))
    it.settle()
    assert it.sim.gang("whole").state == "Pending"


@pytest.mark.parametrize(
    ("sharing", "name"),
    [
        ({"mps": {"replicas": 4}}, "mps-4"),
        ({"timeSlicing": {"replicas": 4, "failRequestsGreaterThanOne": True}}, "time-slicing-4-one-each"),
    ],
)
def test_pods_that_the_device_plugin_would_refuse_are_bought_nothing(sharing: dict[str, Any], name: str) -> None:
    it = scene(sharing)
    assert next(iter(configs(it)[name].values()))["failRequestsGreaterThanOne"] is True
    it.sim.submit(notebooks("two-each", 1, each=2))
    it.settle()
    gang = it.sim.gang("two-each")
    assert (gang.state, gang.reason, it.bought()) == ("Pending", "UnsupportedConstraint", 0)
    assert "one replica of those of l4" in gang.message


def test_several_replicas_may_be_asked_for_where_the_plugin_lets_them() -> None:
    it = scene({"timeSlicing": {"replicas": 4}})
    it.runs(notebooks("two-each", 2, each=2))
    assert it.bought() == 1


def test_other_replicas_are_another_configuration_and_the_old_one_stays_while_a_node_carries_it() -> None:
    it = scene({"timeSlicing": {"replicas": 4}})
    it.runs(notebooks("four"))
    it.sim.push(fleet({"timeSlicing": {"replicas": 2}}))
    it.sim.advance(5)
    assert set(configs(it)) == {"time-slicing-2", "time-slicing-4"}
    it.until(lambda: it.bought() == 3, words="the machine is replaced by two")
    it.until_running("four")
    it.until(lambda: set(configs(it)) == {"time-slicing-2"}, 900, "the old configuration goes")
    it.settle()


@pytest.mark.parametrize("note", ["gpu-fraction", "gpu-memory"])
def test_a_fraction_by_annotation_is_refused_by_its_name(note: str) -> None:
    it = scene({"timeSlicing": {"replicas": 4}})
    asked = notebooks("part", 1)
    asked["spec"]["template"]["metadata"] = {"annotations": {note: "0.25"}}
    it.sim.submit(asked)
    it.settle()
    gang = it.sim.gang("part")
    assert (gang.reason, it.bought()) == ("UnsupportedConstraint", 0)
    assert f"metadata.annotations[{note}]" in gang.message
    assert "sharing.timeSlicing" in gang.message
