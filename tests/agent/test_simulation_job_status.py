"""What the status of a Job does not say, or says late: the agent believes the pods."""

from typing import Any

import pytest

from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team
from tests.agent.test_simulation_activity import activate
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


# -- a suspended Job says at once that nothing is active ---------------------------------------------------------------


def slow(name: str, pods: int = 2, stop_s: int = 60) -> dict[str, Any]:
    """A job whose pods take a minute to end."""
    manifest = gpu_job(name, pods=pods)
    template = manifest["spec"]["template"]
    template["spec"]["terminationGracePeriodSeconds"] = 2 * stop_s
    template["metadata"] = {"annotations": {"sim.muster.dev/stop-seconds": str(stop_s)}}
    return manifest


def on_nodes(scene: Scene, name: str) -> list[str]:
    """Nodes of pods that have not ended."""
    pods = [pod for pod in scene.sim.objects("Pod") if pod["metadata"]["name"].startswith(f"{name}-")]
    return [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"]


def test_what_a_suspended_gang_still_holds_is_given_to_nobody() -> None:
    """`active` is gone and `startTime` too, a minute before the pods are: their GPUs and their quota are not free."""
    scene = Scene(files(pool(), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue()))
    scene.runs(slow("g"))
    scene.sim.submit(gpu_job("h", pods=2))
    scene.sim.advance(5)
    activate(scene, False)
    scene.until(lambda: "active" not in status_of(scene), 30)
    assert "startTime" not in status_of(scene)
    assert status_of(scene)["terminating"] == 2
    while len(on_nodes(scene, "g")) == 2:
        assert on_nodes(scene, "h") == []
        assert len(scene.sim.machines()) <= 2
        scene.sim.advance(1)
    scene.until_running("h", 120)
    assert scene.bought() == 2
    scene.settle(30)


def test_pods_that_somebody_else_holds_do_not_hold_the_gang() -> None:
    """They have ended, the Job counts none of them as terminating, and only their objects stay."""
    scene = Scene(simple())
    manifest = gpu_job("g", pods=2)
    manifest["spec"]["template"]["metadata"] = {"finalizers": ["example.com/hold"]}
    scene.runs(manifest)
    held = set(where(scene, "g"))
    activate(scene, False)
    scene.until_state("g", "Pending", 120)
    scene.sim.advance(2)
    assert status_of(scene)["terminating"] == 0
    activate(scene, True)
    scene.until_running("g", 120)
    assert held < set(where(scene, "g")), "the old ones are still there, and no seat is taken by them"
    assert scene.bought() == 2
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.pods_ready
