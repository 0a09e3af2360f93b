"""Machines of other people in the simulation: adopted by their tag and by nothing else, whenever the agent dies."""

from collections.abc import Mapping
from typing import Any

import pytest

from agent.simulation import Moment, Tempo
from fleet.actions import TagMachine
from fleet.snapshot import CapacityPool, LaunchRequest
from model import labels
from providers.sim.ec2.memory import MemoryCloud
from tests.agent.scenes import P5, A, Nurse, Scene, files, gpu_job, pool, queue, simple, team

KEPT = {"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}}


def stranger(scene: Scene, token: str = "x", **tags: str) -> str:
    """A machine that somebody else launched; its node joins after a while. Its id."""
    where = CapacityPool("on-demand", P5, A)
    outcome = MemoryCloud.launch(scene.sim.cloud, LaunchRequest(token, 1, where, "", {}, (), tags))
    return outcome.instances[0]


def tag(scene: Scene, instance: str, value: str = "default/h100") -> None:
    scene.sim.cloud.account.tag(instance, {labels.ADOPT: value})


def ready(scene: Scene) -> list[str]:
    """Instances of claims that are ready."""
    return sorted(claim.instance_id for claim in scene.sim.claims().values() if claim.state == "Ready")


def tags_of(scene: Scene, instance: str) -> dict[str, str]:
    return dict(scene.sim.cloud.account.get(instance).tags)


def half_adopted(*, then: Mapping[str, str] | None = None) -> tuple[Scene, str]:
    """The agent has died between the claim and the tags; `then` is a revision that came in force in time."""
    scene = Scene(simple(**KEPT), tempo=Tempo(latency_s=lambda action: 5.0 * isinstance(action, TagMachine)))
    instance = stranger(scene)
    scene.sim.advance(300)
    tag(scene, instance)
    scene.until(lambda: bool(scene.sim.claims()), 60)
    if then:
        scene.sim.push(then)
        scene.sim.advance(2)
    scene.sim.crash()
    assert (list(scene.sim.claims()), labels.CLUSTER in tags_of(scene, instance)) == ([f"adopted-{instance}"], False)
    return scene, instance


def events(scene: Scene, reason: str) -> list[dict[str, Any]]:
    return [event for event in scene.sim.objects("Event") if event["reason"] == reason]


def test_without_the_tag_nothing_happens() -> None:
    scene = Scene(simple())
    instance = stranger(scene)
    scene.sim.advance(1200)
    assert scene.sim.claims() == {}
    assert tags_of(scene, instance).keys() <= {"aws:ec2:fleet-id"}
    assert [machine.id for machine in scene.sim.machines()] == [instance]


def test_with_it_the_machine_is_one_of_its_pool() -> None:
    scene = Scene(simple(**KEPT))
    instance = stranger(scene)
    scene.sim.advance(300)
    tag(scene, instance)
    scene.until(lambda: ready(scene) == [instance], 60)
    [event] = events(scene, "Adopted")
    assert event["involvedObject"]["name"] == f"adopted-{instance}"
    scene.runs(gpu_job("a"))
    assert scene.bought() == 1, "the job runs on it, and nothing was bought"
    scene.settle()


def test_tagged_at_its_launch_it_waits_for_its_node() -> None:
    scene = Scene(simple(**KEPT))
    instance = stranger(scene, **{labels.ADOPT: "default/h100"})
    scene.sim.advance(30)
    [event] = events(scene, "NodeNotJoined")
    assert (event["involvedObject"]["kind"], event["type"]) == ("NodePool", "Warning")
    scene.until(lambda: ready(scene) == [instance], 300)
    scene.settle()


def test_empty_it_is_given_back_like_any_other() -> None:
    scene = Scene(simple())
    instance = stranger(scene, **{labels.ADOPT: "default/h100"})
    scene.until(lambda: ready(scene) == [instance], 300)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 300)
    scene.settle()


def test_taking_the_tag_away_afterwards_changes_nothing() -> None:
    scene = Scene(simple(**KEPT))
    instance = stranger(scene, **{labels.ADOPT: "default/h100"})
    scene.until(lambda: ready(scene) == [instance], 300)
    scene.sim.cloud.account.untag(instance, {labels.ADOPT: None})
    scene.settle(1200)
    assert ready(scene) == [instance]


def test_what_is_refused_is_left_alone_and_told_once_for_each_reason() -> None:
    scene = Scene(simple(limits={"nodes": 0}, **KEPT))
    instance = stranger(scene)
    scene.sim.advance(300)
    tag(scene, instance, "default/h1000")
    scene.sim.advance(600)
    tag(scene, instance)
    scene.sim.advance(600)
    for reason in ("NodePoolNotFound", "PoolLimitReached"):
        [event] = events(scene, reason)
        assert (event["involvedObject"]["kind"], event["count"]) == ("Node", 1)
    assert [machine.id for machine in scene.sim.machines()] == [instance]
    scene.sim.push(simple(limits={"nodes": 3}, **KEPT))
    scene.until(lambda: ready(scene) == [instance], 60)
    scene.settle()


def test_the_tag_of_another_cluster_is_none() -> None:
    scene = Scene(simple())
    instance = stranger(scene, **{labels.ADOPT: "default2/h100"})
    scene.sim.advance(600)
    assert scene.sim.claims() == {}
    assert [machine.id for machine in scene.sim.machines()] == [instance]


def test_a_machine_that_dies_on_the_way_leaves_nothing() -> None:
    scene, instance = half_adopted()
    scene.sim.cloud.kill(instance)
    scene.sim.restart()
    scene.until(lambda: not scene.sim.claims(), 300)
    scene.settle(300)


def test_after_a_crash_between_claim_and_tags_it_goes_on() -> None:
    scene, instance = half_adopted()
    scene.sim.advance(600)
    scene.sim.restart()
    scene.until(lambda: ready(scene) == [instance], 60)
    assert scene.bought() == 1
    scene.settle()


def test_its_pool_removed_meanwhile_it_is_let_go() -> None:
    scene, instance = half_adopted(then=files(pool("other"), team(quotas={}), queue(flavors=("other",))))
    scene.sim.restart()
    scene.until(lambda: not scene.sim.claims(), 300)
    scene.sim.advance(600)
    assert [machine.id for machine in scene.sim.machines()] == [instance]
    assert len(events(scene, "NodePoolNotFound")) == 1


def test_withdrawn_while_the_agent_is_dead_it_stays_as_it_was() -> None:
    scene, instance = half_adopted()
    [before] = scene.sim.objects("Node")
    scene.sim.cloud.account.untag(instance, {labels.ADOPT: None})
    scene.sim.restart()
    scene.until(lambda: not scene.sim.claims(), 300)
    scene.sim.advance(600)
    [after] = scene.sim.objects("Node")
    assert (after["metadata"]["uid"], after["metadata"]["labels"]) == (
        before["metadata"]["uid"],
        before["metadata"]["labels"],
    )
    assert [machine.id for machine in scene.sim.machines()] == [instance]
    assert labels.CLUSTER not in tags_of(scene, instance)


def test_a_fixed_pool_takes_what_it_lacks_before_it_buys() -> None:
    scene = Scene(files(pool(replicas=0), team(), queue()))
    found = sorted(stranger(scene, token, **{labels.ADOPT: "default/h100"}) for token in "xy")
    scene.sim.advance(300)
    assert len(events(scene, "PoolLimitReached")) == 2
    scene.sim.push(files(pool(replicas=3), team(), queue()))
    scene.until(lambda: len(ready(scene)) == 3, 600)
    assert set(ready(scene)) > set(found)
    assert scene.bought() == 3
    scene.settle()


# -- the agent dies --------------------------------------------------------------------------------------------------


def story(nurse: Nurse) -> tuple[Scene, list[str]]:
    """Two machines of somebody else that have joined, beside a pool that could have them."""
    scene = Scene(more=[nurse])
    nurse.sim = scene.sim
    found = sorted(stranger(scene, token) for token in "xy")
    scene.sim.push(simple(**KEPT))
    scene.sim.advance(300)
    return scene, found


def tell(scene: Scene, found: list[str]) -> None:
    for instance in found:
        tag(scene, instance)
    scene.until(lambda: ready(scene) == found, 300)
    scene.until(lambda: scene.sim.alive, 60)


def writes_of_the_story() -> tuple[int, int]:
    scene, found = story(Nurse())
    first = scene.sim.writes
    tell(scene, found)
    return first, scene.sim.writes


FIRST, LAST = writes_of_the_story()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(FIRST + 1, LAST))
def test_machines_are_adopted_once_whenever_the_agent_dies(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene, found = story(nurse)
    scene.sim.crash_at(write, moment)
    tell(scene, found)
    assert nurse.deaths == 1
    assert scene.bought() == 2, "those two, and no other"
    assert not any(entry.ended_at_s for entry in scene.sim.cloud.ledger())
    assert [tags_of(scene, instance)[labels.CLUSTER] for instance in found] == ["default", "default"]
    scene.settle(180)
    assert ready(scene) == found
