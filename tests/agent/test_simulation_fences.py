"""Fences in virtual time: whatever a decider fails on, everybody else goes on, and the sick one when it is over."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from agent.simulation import Tempo
from fleet.gangs import lifecycle
from fleet.quota.assignment_search import AssignmentSearch
from tests.agent.scenes import Scene, files, gpu_job, pool, queue, simple, team

SEEDS = range(3)
JOBS = tuple(f"job-{n}" for n in range(5))
Fault = Callable[[pytest.MonkeyPatch, str], None]
"""Makes a decider raise for the gang of this uid."""


def in_the_life_of_a_gang(patch: pytest.MonkeyPatch, uid: str) -> None:
    sound = lifecycle._step

    def step(fleet: Any, snapshot: Any, gang: Any, *more: Any) -> Any:
        if gang.uid == uid:
            raise KeyError(f"no step for {gang.name}")
        return sound(fleet, snapshot, gang, *more)

    patch.setattr(lifecycle, "_step", step)


def when_it_is_opened(patch: pytest.MonkeyPatch, uid: str) -> None:
    sound = lifecycle._open

    def opened(fleet: Any, snapshot: Any, job: Any) -> Any:
        if job.ref.uid == uid:
            raise ValueError("a job like no other\nand a second line")
        return sound(fleet, snapshot, job)

    patch.setattr(lifecycle, "_open", opened)


def when_it_is_nominated(patch: pytest.MonkeyPatch, uid: str) -> None:
    sound = AssignmentSearch.best

    def best(self: Any, workload: Any, *more: Any) -> Any:
        if workload.uid == uid:
            raise ZeroDivisionError("a share of nothing")
        return sound(self, workload, *more)

    patch.setattr(AssignmentSearch, "best", best)


FAULTS: dict[str, tuple[str, Fault]] = {
    "gangs, a step": ("gangs", in_the_life_of_a_gang),
    "gangs, opening": ("gangs", when_it_is_opened),
    "scheduling": ("scheduling", when_it_is_nominated),
}


def fleet() -> dict[str, str]:
    return files(pool(), team(quotas={"h100": {"nvidia.com/gpu": 256}}), queue())


def condition(scene: Scene, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
    """The condition DecisionFailed of an object."""
    found = scene.sim.object(kind, name, namespace) or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((it for it in conditions if it["type"] == "DecisionFailed"), None)


def warnings(scene: Scene) -> list[dict[str, Any]]:
    return [it for it in scene.sim.objects("Event") if it.get("reason") == "DecisionFailed"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("where", FAULTS)
def test_one_sick_gang_stops_nobody_else(where: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    decider, fault = FAULTS[where]
    scene = Scene(fleet())
    order = random.Random(seed).sample(JOBS, len(JOBS))
    sick = order[seed % len(order)]
    with monkeypatch.context() as patch:
        for name in order:
            # of several pods: single ones that are alike are admitted without a search
            uid = scene.sim.submit(gpu_job(name, pods=2 + seed))["metadata"]["uid"]
            if name == sick:
                fault(patch, uid)
        for name in order:
            if name != sick:
                scene.until_running(name)
        scene.sim.advance(600)
        assert not scene.sim.running(sick)
        (found,) = [it for it in scene.sim.brain.failures if it.decider == decider]
        assert found.times < 40, "it is left alone longer each time"
        gang = scene.sim.gang(sick)
        if gang is not None:
            told = condition(scene, "Workload", gang.workload, "t")
            assert told is not None
            assert (told["status"], told["reason"]) == ("True", found.failure.error)
            assert "\n" not in told["message"]
        shown = condition(scene, "FleetSync", scene.sim.cluster_name)
        assert shown is not None
        assert decider in shown["message"]
        told_of = {(it["type"], it["involvedObject"]["kind"], it["involvedObject"]["name"]) for it in warnings(scene)}
        workload = ("Warning", "Workload", gang.workload if gang is not None else "")  # once its uid is known
        assert told_of - {workload} == {("Warning", "Job", sick)}
        assert len(warnings(scene)) == len(told_of)
    scene.until_running(sick, 300)
    scene.sim.advance(5)
    gang = scene.sim.gang(sick)
    assert gang is not None
    assert gang.failure is None
    assert condition(scene, "Workload", gang.workload, "t") is None
    assert condition(scene, "FleetSync", scene.sim.cluster_name) is None
    scene.settle()


def test_a_condition_left_by_an_agent_that_died_goes_when_the_next_one_can_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(simple())
    scene.runs(gpu_job("well"))
    with monkeypatch.context() as patch:
        uid = scene.sim.submit(gpu_job("sick"))["metadata"]["uid"]
        when_it_is_nominated(patch, uid)
        scene.until(lambda: (gang := scene.sim.gang("sick")) is not None and gang.failure is not None, 60)
        scene.sim.crash()
        scene.sim.restart()
        scene.sim.advance(10)
        gang = scene.sim.gang("sick")
        assert gang is not None
        assert gang.failure is not None
    scene.until_running("sick", 300)
    scene.until(lambda: (gang := scene.sim.gang("sick")) is not None and gang.failure is None, 60)


def test_what_runs_and_cannot_be_charged_keeps_its_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else is put onto the machines of a gang about which nothing can be decided."""
    from fleet.scheduling.cycle import AdmissionPass

    scene = Scene(fleet())
    scene.runs(gpu_job("sick", pods=2, gpus=4))
    sound, sick = AdmissionPass._charge, scene.sim.gang("sick")
    assert sick is not None

    def charge(self: Any, gang: Any, usage: Any) -> None:
        if gang.uid == sick.uid:
            raise LookupError(gang.name)
        sound(self, gang, usage)

    monkeypatch.setattr(AdmissionPass, "_charge", charge)
    scene.runs(gpu_job("half", gpus=4))
    assert scene.nodes_of("half").isdisjoint(scene.nodes_of("sick"))
    assert scene.sim.running("sick")


def test_decisions_go_on_while_a_revision_is_planned() -> None:
    scene = Scene(simple(), tempo=Tempo(planning_s=120.0))
    scene.sim.advance(180)
    began_s = scene.sim.now_s
    scene.sim.push(simple(limits={"nodes": 8}))
    scene.sim.advance(1)
    (told,) = [it for it in scene.sim.sync()["conditions"] if it["type"] == "Reconciling"]
    assert told["reason"] == "Planning"
    scene.runs(gpu_job("g"), 110)
    assert scene.sim.now_s - began_s < 120
    assert scene.sim.sync()["appliedRevision"] != scene.sim.sync()["observedRevision"]
    scene.sim.advance(120)
    assert scene.sim.sync()["appliedRevision"] == scene.sim.sync()["observedRevision"]


def test_a_revision_whose_planning_fails_is_stalled_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_named: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    scene = Scene(simple())
    before = scene.sim.sync()["appliedRevision"]
    with monkeypatch.context() as patch:
        patch.setattr("agent.planning.make_plan", broken)
        scene.sim.push(simple(limits={"nodes": 8}))
        scene.sim.advance(400)
        found = {it["type"]: it for it in scene.sim.sync()["conditions"]}
        assert (found["Stalled"]["status"], found["Stalled"]["reason"]) == ("True", "PlanningFailed")
        assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "PlanningFailed")
        sync = scene.sim.sync()
        assert sync["appliedRevision"] == before
        assert sync["observedRevision"] == sync["attemptedRevision"] != before
        scene.runs(gpu_job("g"))
        (failed,) = scene.sim.brain.failures
        assert failed.times < 15
    scene.sim.advance(301)
    assert scene.sim.sync()["appliedRevision"] == scene.sim.sync()["observedRevision"]
