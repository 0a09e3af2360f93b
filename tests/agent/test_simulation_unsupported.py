"""A job that asks for what is not honoured says so, wherever people look, holds nothing, and buys nothing."""

from typing import Any

import pytest

from agent.demo.jobs import Manifest
from agent.explanation import explanation_lines
from agent.web.seen import explained_at_once
from model.fleet import Fleet
from tests.agent.scenes import Scene, gpu_job, simple
from tests.agent.test_simulation_refused import condition, events, workload

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
BY_INDEX = {"matchExpressions": [{"key": "batch.kubernetes.io/job-completion-index", "operator": "Exists"}]}
APART = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": BY_INDEX}]}}


def fleet_of(scene: Scene) -> Fleet:
    found = scene.sim.brain.sync.fleet
    assert found is not None
    return found


def asking(name: str, spec: dict[str, Any]) -> Manifest:
    manifest = gpu_job(name, pods=2)
    manifest["spec"]["template"]["spec"] |= spec
    return manifest


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (CLAIM, "spec.resourceClaims[0].resourceClaimTemplateName"),
        ({"affinity": APART}, f"spec.affinity.podAntiAffinity.{REQUIRED}[0].labelSelector"),
        ({"schedulingGates": [{"name": "example.com/later"}]}, "spec.schedulingGates[0]"),
    ],
    ids=["claim", "label set later", "gate"],
)
def test_it_waits_with_the_fields_path_and_buys_nothing(spec: dict[str, Any], path: str) -> None:
    scene = Scene(simple())
    scene.sim.submit(asking("g", spec))
    scene.sim.advance(120)
    told = condition(workload(scene, "g"), "QuotaReserved")
    assert (told["status"], told["reason"]) == ("False", "UnsupportedConstraint")
    assert f"pod set 'main' asks for {path}, which is not supported: " in told["message"]
    told_of = events(scene, "UnsupportedConstraint")
    assert len(told_of) == 2, "on the job, and on its Workload"
    assert all(path in event for event in told_of)
    gang = scene.sim.gang("g")
    assert gang is not None
    assert (gang.state, gang.flavors, gang.pins, scene.bought()) == ("Pending", {}, (), 0)
    snapshot = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    shown = "\n".join(explanation_lines(explained_at_once(fleet_of(scene), snapshot, gang)))
    assert path in shown
    assert "would help: correct the field" in shown
    scene.runs(gpu_job("other"))
    assert scene.state("g") == "Pending"
    scene.settle()


def test_a_restart_forgets_nothing_of_it() -> None:
    scene = Scene(simple())
    scene.sim.submit(asking("g", CLAIM))
    scene.sim.advance(60)
    before = workload(scene, "g")
    scene.sim.restart()
    scene.sim.advance(60)
    after = workload(scene, "g")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["reason"] == "UnsupportedConstraint"
