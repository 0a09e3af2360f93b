"""A repository of Karpenter, as it stands in `examples/karpenter`, under the whole agent."""

from pathlib import Path
from typing import Any

from agent.simulation import Tempo
from providers.sim.controllers.userdata import kubelet_arguments
from tests.agent.scenes import P4DE, P5, Scene, gpu_job

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "karpenter"
TOLERANT = [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def repository(**changes: tuple[str, str]) -> dict[str, str]:
    """The example's files, with `old -> new` in one of them."""
    found = {str(path.relative_to(EXAMPLE)): path.read_text("utf-8") for path in sorted(EXAMPLE.rglob("*.yaml"))}
    for name, (old, new) in changes.items():
        path = next(each for each in found if Path(each).stem == name.replace("_", "-"))
        assert old in found[path]
        found[path] = found[path].replace(old, new)
    return found


def tolerant(name: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = dict(gpu_job(name, namespace="research", **more))
    del made["metadata"]["labels"]["muster.dev/priority-class"]
    made["spec"]["template"]["spec"]["tolerations"] = TOLERANT
    return made


def test_a_gang_gets_machines_of_a_pool_of_karpenter() -> None:
    scene = Scene(repository())
    scene.runs(tolerant("large"))
    [machine] = scene.sim.machines()
    assert (machine.instance_type, machine.capacity_type) == (P4DE, "spot")
    assert machine.tags["cost-centre"] == "4711"
    [node] = scene.sim.objects("Node")
    wanted = {"karpenter.sh/nodepool": "gpu-large", "karpenter.k8s.aws/ec2nodeclass": "gpu", "team": "research"}
    assert node["metadata"]["labels"].items() >= wanted.items()
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert node["status"]["allocatable"]["pods"] == "58"
    [born] = scene.sim.cloud.list()
    assert kubelet_arguments(born.user_data).max_pods == 58
    scene.settle()


def test_an_overlay_changes_what_is_bought() -> None:
    on_demand = ("values: [spot, on-demand]", "values: [on-demand]")
    listed = Scene(repository(gpu_large=on_demand))
    listed.runs(tolerant("large"))
    assert [machine.instance_type for machine in listed.sim.machines()] == [P4DE]
    cheap = Scene(repository(gpu_large=on_demand, savings=('"-35%"', '"-90%"')))
    cheap.runs(tolerant("large"))
    assert [machine.instance_type for machine in cheap.sim.machines()] == [P5]


def test_a_change_of_the_class_drifts_the_machines_of_its_pools() -> None:
    scene = Scene(repository(), tempo=Tempo(tick_s=20.0))  # half a day of waiting, in fewer looks
    scene.runs(tolerant("large"))
    [before] = scene.sim.machines()
    scene.sim.push(repository(gpu=("al2023@v20250505", "al2023@v20250601")))
    within_s = 12 * 3600  # by day, drift is not allowed
    scene.until(lambda: before.id not in {machine.id for machine in scene.sim.machines()}, within_s)
    scene.until_running("large")
    scene.settle()


def fabric_pod(name: str, interfaces: int) -> dict[str, Any]:
    """A pod of no gang that asks for a GPU, and for interfaces of EFA unless these are 0."""
    asks = {"nvidia.com/gpu": "1", **({"vpc.amazonaws.com/efa": str(interfaces)} if interfaces else {})}
    container = {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}
    spec = {"containers": [container], "tolerations": TOLERANT, "nodeSelector": {"karpenter.sh/nodepool": "gpu-large"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "research"}, "spec": spec}


def test_pods_that_ask_for_efa_share_a_machine_launched_with_all_interfaces_of_its_type() -> None:
    scene = Scene(repository())
    scene.sim.submit(fabric_pod("plain", 0))
    scene.until(lambda: placed(scene).keys() == {"plain"})
    for name, interfaces in (("one", 1), ("two", 2)):
        scene.sim.submit(fabric_pod(name, interfaces))
    scene.until(lambda: len(placed(scene)) == 3)
    assert placed(scene)["one"] == placed(scene)["two"] != placed(scene)["plain"]
    assert sorted(machine.efa for machine in scene.sim.cloud.list()) == [0, 4]
    assert scene.bought(P4DE) == 2
    scene.settle()


def placed(scene: Scene) -> dict[str, str]:
    """Pod that runs -> its node."""
    found = (pod for pod in scene.sim.objects("Pod") if pod["status"].get("phase") == "Running")
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found}
