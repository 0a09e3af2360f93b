"""A DaemonSet on the agent's machines: it comes with each of them, and keeps none."""

from typing import Any

import pytest

from tests.agent.scenes import Scene, gpu_job, simple

Obj = dict[str, Any]


def daemons(**pods: Any) -> Obj:
    container = {"name": "c", "image": "registry.test/log:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": "log"}}, "spec": {"containers": [container], **pods}}
    metadata = {"name": "log", "namespace": "monitoring"}
    spec = {"selector": {"matchLabels": {"app": "log"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def held(scene: Scene, kind: str) -> list[Obj]:
    return scene.sim.store.list(scene.sim.store.resource(kind))


@pytest.mark.parametrize(
    "tolerations", [pytest.param([], id="its own only"), pytest.param([{"operator": "Exists"}], id="everything")]
)
def test_machines_come_and_go_with_their_daemons(tolerations: list[Obj]) -> None:
    scene = Scene(simple())
    scene.sim.submit(daemons(tolerations=tolerations))
    scene.runs(gpu_job("j", pods=2))
    scene.settle(30, settled=False)
    [there] = held(scene, "DaemonSet")
    assert there["status"]["numberReady"] == there["status"]["desiredNumberScheduled"] == len(held(scene, "Node")) == 2
    scene.sim.delete(gpu_job("j", pods=2))
    scene.until(lambda: not held(scene, "Node"), words="idle machines are given back")
    scene.until(lambda: not held(scene, "Pod"), words="their daemons are gone")
    made = held(scene, "Event")
    scene.sim.advance(600)
    assert [
        one for one in held(scene, "Event") if one["involvedObject"]["kind"] == "DaemonSet" and one not in made
    ] == []
    assert not held(scene, "Pod")
