"""Layouts that depart from what claims say: the machine takes no new work, and is put right or replaced in time."""

from typing import Any

import pytest

from tests.agent.scenes import P4DE, B, C, Scene, files, gpu_job, pool, queue, team
from tests.agent.test_simulation_mig import CONFIG, STATE, fault, labels, mig, sliced

RECUTTING = "muster.dev/recutting"
WITHIN_S = 120.0


def tainted(scene: Scene) -> bool:
    return any(
        taint["key"] == RECUTTING for found in scene.sim.objects("Node") for taint in found["spec"].get("taints", [])
    )


def claim(scene: Scene) -> Any:
    (found,) = scene.sim.claims().values()
    return found


def right(scene: Scene) -> bool:
    """Whether all ready machines are cut as their claims say, and take new work."""
    nodes = scene.sim.objects("Node")
    return bool(nodes) and all(
        found["metadata"]["labels"].get(STATE) == "success"
        and found["metadata"]["labels"][CONFIG].startswith("thin-")
        and found["status"]["allocatable"].get("nvidia.com/mig-1g.10gb") == "56"
        and not tainted(scene)
        for found in nodes
    )


HARMLESS: list[dict[str, object]] = [
    {"relabel": "all-disabled"},
    {"relabel": "nobody-wrote-it"},
    {"restart": True},
]
"""What leaves the GPUs under running work as they are."""


@pytest.mark.parametrize("body", HARMLESS, ids=lambda body: "-".join(map(str, *body.items())))
def test_a_busy_machine_is_put_right_under_its_work(body: dict[str, object]) -> None:
    """A label set by hand failed silently on it, and stayed so."""
    scene = Scene(mig())
    scene.runs(sliced("g"))
    fault(scene, **body)
    if "relabel" in body:
        scene.until(lambda: tainted(scene), 60, "it takes no new work")
    scene.until(lambda: right(scene), WITHIN_S, "it is put right")
    assert scene.sim.running("g")
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.evictions, scene.bought(P4DE)) == (0, 1)


IDLE: list[dict[str, object]] = [*HARMLESS, {"forget": True}]


@pytest.mark.parametrize("body", IDLE, ids=lambda body: "-".join(map(str, *body.items())))
def test_an_idle_machine_is_put_right_and_waited_for(body: dict[str, object]) -> None:
    """A label set by hand really cut it, and a second machine was bought."""
    scene = Scene(mig(disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2h"}))
    scene.runs(sliced("f"))
    scene.sim.delete(sliced("f"))
    scene.sim.advance(60)
    fault(scene, **body)
    scene.sim.advance(5)
    scene.sim.submit(sliced("g"))
    scene.until(lambda: right(scene) and scene.sim.running("g"), WITHIN_S, "it is put right, and used")
    assert scene.bought(P4DE) == 1


def test_lost_geometry_stops_the_work_on_it_and_is_made_again() -> None:
    """Pods hold slices that are not there any more: they leave, the machine is cut again, and they come back."""
    scene = Scene(mig())
    scene.runs(sliced("g"))
    fault(scene, forget=True)
    scene.until(lambda: claim(scene).cut is not None, 60, "it is seen")
    assert claim(scene).cut.reason == "LayoutDrift"
    assert "declared thin-" in claim(scene).cut.message
    assert "allocatable 8 nvidia.com/gpu" in claim(scene).cut.message
    scene.until(lambda: right(scene), WITHIN_S, "it is cut again")
    scene.until_running("g", 60)
    assert scene.bought(P4DE) == 1


@pytest.mark.parametrize("keeps", ["keeps", "loses"])
def test_a_reboot(keeps: str) -> None:
    scene = Scene(mig())
    scene.runs(sliced("g"))
    fault(scene, reboot=keeps)
    scene.sim.advance(400)
    scene.until(lambda: right(scene) and scene.sim.running("g"), 600, "it runs again")


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
@pytest.mark.parametrize("trouble", [{"hang": True}, {"fail": 50}], ids=["hang", "fail"])
def test_what_cannot_be_put_right_is_replaced(busy: bool, trouble: dict[str, object]) -> None:
    scene = Scene(mig(disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2h"}))
    scene.runs(sliced("g"))
    if not busy:
        scene.sim.delete(sliced("g"))
        scene.sim.advance(30)
    old = claim(scene).name
    fault(scene, **trouble)
    fault(scene, forget=True)
    scene.sim.advance(10)
    if not busy:
        scene.sim.submit(sliced("g"))

    def going() -> bool:
        found = scene.sim.claims().get(old)
        return found is None or (found.disruption is not None and found.disruption.reason == "LayoutDrift")

    scene.until(going, WITHIN_S + 60, "it goes")
    scene.until_running("g", 1200)
    assert scene.bought(P4DE) == 2


def test_whole_machines_that_somebody_cuts_are_put_right() -> None:
    whole = pool(
        "whole", (P4DE,), zones=[B, C], disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "2h"}
    )
    scene = Scene(files(whole, team(quotas={"whole": {"nvidia.com/gpu": 16}}), queue(flavors=("whole",))))
    scene.runs(gpu_job("g"))
    scene.sim.delete(gpu_job("g"))
    scene.sim.advance(60)
    fault(scene, relabel="all-enabled")
    scene.sim.advance(1)
    scene.until(lambda: not tainted(scene) and labels(scene)[CONFIG] == "all-disabled", WITHIN_S, "it is put right")
    scene.runs(gpu_job("h"), 60)
    assert scene.bought(P4DE) == 1


def test_events_and_the_claim_tell() -> None:
    scene = Scene(mig())
    scene.runs(sliced("g"))
    fault(scene, relabel="nobody-wrote-it")
    scene.until(lambda: claim(scene).cut is not None, 60, "it is seen")
    (shown,) = scene.sim.objects("NodeClaim")
    (condition,) = [it for it in shown["status"]["conditions"] if it["type"] == "LayoutDrift"]
    assert "label nobody-wrote-it" in condition["message"]
    scene.until(lambda: right(scene), WITHIN_S, "it is put right")
    told = [it["reason"] for it in scene.sim.objects("Event") if it["involvedObject"]["kind"] == "NodeClaim"]
    assert {"LayoutDrift", "LayoutRight"} <= set(told)
