"""What the status of a Job does not say, or says late: the agent believes the pods."""

from typing import Any

import pytest

from tests.agent.scenes import Scene, gpu_job
from tests.agent.test_simulation_people import drain
from tests.agent.test_simulation_replacement import fleet, goes_on, hardy, instance_of, where
from tests.agent.test_simulation_trouble import spot_only


def status_of(scene: Scene, name: str = "g") -> dict[str, Any]:
    found = scene.sim.object("Job", name, "t")
    assert found is not None
    return dict(found["status"])


def fails(scene: Scene, name: str = "g") -> int:
    return int(status_of(scene, name).get("failed", 0))


def is_over(scene: Scene, name: str = "g") -> bool:
    return any(c["type"] == "Failed" and c["status"] == "True" for c in status_of(scene, name).get("conditions", ()))


# -- kubectl drain ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_s", [1, 20], ids=["ends at once", "takes its grace"])
def test_a_gang_that_may_fail_once_survives_a_drain(stop_s: int) -> None:
    """Three nodes, `backoffLimit: 1`: the eviction is the one failure; no pod is sent to the cordoned node."""
    scene = Scene(fleet())
    manifest = hardy(gpu_job("g", pods=3), 1)
    manifest["spec"]["template"]["metadata"] = {"annotations": {"sim.muster.dev/stop-seconds": str(stop_s)}}
    scene.runs(manifest)
    scene.sim.advance(5)
    lost = min(scene.nodes_of("g"))
    kept = {uid: node for uid, node in where(scene, "g").items() if node != lost}
    drain(scene, lost)
    scene.sim.advance(3)
    assert (status_of(scene)["ready"], fails(scene)) == (3, 0), "the status lags: whoever trusts it sees a whole gang"
    goes_on(scene, lost, kept)
    assert not is_over(scene)
    assert fails(scene) == 1
    assert scene.bought() == 4
    scene.settle(120)


# -- failures are counted late ----------------------------------------------------------------------------------------


def test_a_second_loss_before_the_first_is_counted() -> None:
    """One may be lost, and was by a drain: an interruption then moves it whole, though `status.failed` is still 0."""
    scene = Scene(spot_only())
    scene.runs(hardy(gpu_job("g", pods=3, gpus=4), 1))
    scene.sim.advance(5)
    first, second, _ = sorted(scene.nodes_of("g"))
    drain(scene, first)
    scene.sim.advance(2)
    scene.sim.cloud.interrupt(instance_of(scene, second))
    scene.until(lambda: second not in where(scene, "g").values(), 120)
    scene.until_running("g", 1200)
    assert not is_over(scene)
    assert fails(scene) <= 1
