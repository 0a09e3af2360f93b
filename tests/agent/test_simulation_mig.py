"""MIG as it goes wrong: what the agent makes of a manager that restarts, fails, hangs and forgets."""

from typing import Any

import pytest
import yaml

from agent.demo.jobs import Manifest, job
from providers.sim.controllers.mig_manager import read_mig_fault
from tests.agent.scenes import P4DE, B, C, Scene, files, gpu_job, layout, pool, queue, team

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SLICE = "nvidia.com/mig-1g.10gb"
PARTED = """\
version: v1
mig-configs:
  sevenths:
  - device-filter: ["0x20B210DE", "0x20B510DE", "0x20F310DE", "0x20F510DE"]
    devices: all
    mig-enabled: true
    mig-devices: {1g.10gb: 7}
"""


def mig(count: int = 7, layouts: str = "thin", **spec: Any) -> dict[str, str]:
    return files(
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": [layouts]}}, **spec),
        *([layout("thin", **{"1g_10gb": count})] if layouts == "thin" else []),
        team(quotas={"mig": {SLICE: 112}}),
        queue(flavors=("mig",)),
    )


def sliced(name: str) -> Manifest:
    return job(name, "t", "normal", pods=1, requests={SLICE: "1"})


def node(scene: Scene) -> dict[str, Any]:
    (found,) = scene.sim.objects("Node")
    return found


def labels(scene: Scene) -> dict[str, str]:
    found: dict[str, str] = node(scene)["metadata"]["labels"]
    return found


def fault(scene: Scene, **body: object) -> None:
    name = node(scene)["metadata"]["name"]
    scene.sim.mig_manager.cause(read_mig_fault({"node": name, **body}))


def configs(scene: Scene) -> set[str]:
    held = scene.sim.object("ConfigMap", "muster-mig-config", "gpu-operator")
    assert held is not None
    return set(yaml.safe_load(held["data"]["config.yaml"])["mig-configs"])


@pytest.mark.parametrize("crash", [False, True], ids=["", "and the agent has been restarted"])
def test_a_manager_that_restarts_finds_the_configuration_of_before(crash: bool) -> None:
    """It was gone from the file with the layout: the node was `failed`, though nothing had happened to its GPUs."""
    scene = Scene(mig())
    scene.runs(sliced("g"))
    before = labels(scene)[CONFIG]
    scene.sim.push(mig(6))
    scene.sim.advance(30)
    if crash:
        scene.sim.crash()
        scene.sim.restart()
        scene.sim.advance(400)
    assert before in configs(scene)
    fault(scene, restart=True)
    scene.sim.advance(60)
    assert (labels(scene)[CONFIG], labels(scene)[STATE]) == (before, "success")
    assert scene.sim.running("g")


def test_what_nobody_carries_goes() -> None:
    scene = Scene(mig())
    scene.runs(sliced("g"))
    before = labels(scene)[CONFIG]
    scene.sim.push(mig(6))
    scene.sim.delete(sliced("g"))
    scene.until(lambda: before not in configs(scene), 1200, "the old configuration is gone")


@pytest.mark.parametrize("layouts", [True, False], ids=["with layouts", "without any"])
def test_whole_machines_carry_all_disabled_from_birth(layouts: bool) -> None:
    whole = [pool("whole", (P4DE,), zones=[B, C]), team(quotas={"whole": {"nvidia.com/gpu": 16}})]
    scene = Scene(files(*whole, queue(flavors=("whole",)), *([layout("thin", **{"1g_10gb": 7})] if layouts else [])))
    scene.runs(gpu_job("g"))
    assert (labels(scene)[CONFIG], labels(scene)[STATE]) == ("all-disabled", "success")
    fault(scene, restart=True)
    scene.settle(120)
    assert labels(scene)[STATE] == "success"


def test_a_file_of_mig_parted_is_bought_and_cut_by() -> None:
    scene = Scene({**mig(layouts="sevenths"), "mig/config.yaml": PARTED})
    scene.runs(sliced("g"))
    assert labels(scene)[CONFIG].startswith("sevenths-")
    assert node(scene)["status"]["allocatable"][SLICE] == "56"


FAULTS: list[dict[str, object]] = [
    {"hang": True},
    {"fail": 1},
    {"forget": True},
    {"restart": True},
    {"relabel": "all-disabled"},
    {"relabel": "nobody-wrote-it"},
    {"reboot": "loses"},
    {"reboot": "keeps"},
]


@pytest.mark.parametrize("change", [False, True], ids=["", "and another layout"])
@pytest.mark.parametrize("body", FAULTS, ids=lambda body: "-".join(map(str, *body.items())))
def test_work_goes_on_after_every_fault(body: dict[str, object], change: bool) -> None:
    scene = Scene(mig())
    scene.runs(sliced("f"))
    scene.sim.delete(sliced("f"))
    scene.sim.advance(5)
    fault(scene, **body)
    if change:
        scene.sim.push(mig(6))
    scene.sim.submit(sliced("g"))
    scene.until_running("g", 7200)


@pytest.mark.parametrize("body", FAULTS, ids=lambda body: "-".join(map(str, *body.items())))
def test_other_work_starts_beside_what_runs(body: dict[str, object]) -> None:
    scene = Scene(mig())
    scene.runs(sliced("f"))
    fault(scene, **body)
    scene.sim.advance(30)
    scene.sim.submit(sliced("g"))
    scene.until(lambda: scene.sim.running("g") and scene.sim.running("f"), 7200, "both run")
