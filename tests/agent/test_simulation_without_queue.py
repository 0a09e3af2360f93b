"""Jobs that name no queue: left, held, or taken into their team's default queue."""

from typing import Any

import pytest

from fleet.plan.simulated_run import simulate
from fleet.snapshot import GangState
from model.loader import load
from providers.sim.store import PatchType
from tests.agent.scenes import P5, Scene, files, gpu_job, pool, queue, team

Manifest = dict[str, Any]
Says = dict[str, Any]
LEAVES: Says = {}
HOLDS: Says = {"manageJobsWithoutQueueName": True}
DEFAULTS: Says = {"defaultQueue": "t"}


def fleet(says: Says, **spec: Any) -> dict[str, str]:
    return files(pool(**spec), team(**says), queue())


def nameless(*, suspend: bool, **more: Any) -> Manifest:
    """A job without the label of a queue."""
    made = gpu_job("g", pods=2, **more)
    del made["metadata"]["labels"]["muster.dev/queue"]
    made["spec"]["suspend"] = suspend
    return made


def the_job(scene: Scene) -> Manifest:
    (found,) = scene.sim.objects("Job")
    return found


def named(scene: Scene) -> None:
    """Its owner gives the job a queue."""
    labels = {"metadata": {"labels": {"muster.dev/queue": "t"}}}
    scene.sim.store.patch(scene.sim.store.resource("Job"), "g", labels, PatchType.MERGE, namespace="t")


@pytest.mark.parametrize("suspend", [True, False])
def test_it_waits_in_the_default_queue(suspend: bool) -> None:
    scene = Scene(fleet(DEFAULTS))
    scene.sim.submit(nameless(suspend=suspend))
    scene.until_running("g")
    (workload,) = scene.sim.objects("Workload")
    assert workload["spec"]["queue"] == "t"
    assert scene.bought(P5) == 2
    scene.settle()


@pytest.mark.parametrize("suspend", [True, False])
def test_a_plan_tells_that_it_starts(suspend: bool) -> None:
    """Also of one whose pods wait for a place: it is suspended first."""
    scene = Scene(fleet(LEAVES))
    scene.sim.submit(nameless(suspend=suspend))
    scene.sim.advance(30)
    snapshot = scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset())
    head = load({path: text.encode() for path, text in fleet(DEFAULTS).items()})
    end = simulate(head, snapshot).end
    (gang,) = end.gangs.values()
    assert (gang.state, len(end.claims), len(end.waiting_pods)) == (GangState.ADMITTED, 2, 0)
    scene.sim.push(fleet(DEFAULTS))
    scene.until_running("g")
    assert scene.bought() == 2


@pytest.mark.parametrize("suspend", [True, False])
def test_it_is_held_until_it_names_a_queue(suspend: bool) -> None:
    scene = Scene(fleet(HOLDS))
    scene.sim.submit(nameless(suspend=suspend))
    scene.sim.advance(60)
    (workload,) = scene.sim.objects("Workload")
    assert workload["status"]["reason"] == "QueueNotFound"
    assert "names no queue" in workload["status"]["message"]
    assert the_job(scene)["spec"]["suspend"]
    assert scene.bought() == 0
    named(scene)
    scene.until_running("g")


def test_it_is_left_where_nobody_says_otherwise() -> None:
    scene = Scene(fleet(LEAVES))
    scene.sim.submit(nameless(suspend=True))
    scene.sim.advance(60)
    assert not scene.sim.objects("Workload")
    scene.sim.push(fleet(DEFAULTS))
    scene.until_running("g")


@pytest.mark.parametrize("says", [HOLDS, DEFAULTS])
def test_one_that_runs_is_left_alone_by_a_push(says: Says) -> None:
    scene = Scene(fleet(LEAVES, serves=["Gangs", "Pods"]))
    scene.sim.submit(nameless(suspend=False))
    scene.until(lambda: the_job(scene).get("status", {}).get("ready") == 2)
    scene.sim.push(fleet(says, serves=["Gangs", "Pods"]))
    scene.settle(300)
    assert not scene.sim.objects("Workload")
    assert the_job(scene)["status"]["ready"] == 2
    assert scene.bought(P5) == 2
