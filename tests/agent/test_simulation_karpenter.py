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
