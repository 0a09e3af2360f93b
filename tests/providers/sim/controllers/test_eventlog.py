"""Events that controllers record: alike ones are one object, counted, and no object causes a flood."""

from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.mirror import MirroredCluster
from tests.providers.sim.controllers.world import ControllerWorld, Obj


def about(world: ControllerWorld, pod: str) -> list[tuple[str, str, str, int]]:
    uid = world.the("Pod", pod)["metadata"]["uid"]
    return [
        (event["type"], event["reason"], event["message"], event["count"])
        for event in world.all("Event")
        if event["involvedObject"]["uid"] == uid
    ]


def recorded(world: ControllerWorld, times: int, *, apart_s: float, messages: int = 1) -> list[Obj]:
    pod, log = world.pod("p"), EventLog(MirroredCluster(world.store), "tester")
    world.store.delete(world.store.resource("Pod"), "p", namespace="default")
    for i in range(times):
        log.warning(pod, "Odd", f"message {i % messages}", world.now + i * apart_s)
    return world.all("Event")


def test_an_event_says_who_saw_what(world: ControllerWorld) -> None:
    [event] = recorded(world, 1, apart_s=0)
    assert event["involvedObject"]["kind"] == "Pod"
    assert event["involvedObject"]["name"] == "p"
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("p.")
    assert (event["source"]["component"], event["reportingComponent"]) == ("tester", "tester")
    assert event["firstTimestamp"] == event["lastTimestamp"]


def test_what_comes_again_is_counted_and_seldom_written(world: ControllerWorld) -> None:
    before = world.store.resource_version
    [event] = recorded(world, 121, apart_s=1.0)
    assert event["count"] == 121
    assert world.store.resource_version - before == 3 + 3  # a pod made, marked and gone; an event written thrice


def test_an_object_that_causes_a_flood_is_cut_off(world: ControllerWorld) -> None:
    assert len(recorded(world, 200, apart_s=0.1, messages=200)) == 25


def test_what_cannot_be_written_is_lost(world: ControllerWorld) -> None:
    pod, log = world.pod("p"), EventLog(MirroredCluster(world.store), "tester")
    gone = {**pod, "metadata": {**pod["metadata"], "namespace": "gone"}}
    log.normal(gone, "Odd", "message", world.now)
    assert not world.all("Event")


def test_a_pod_without_a_place_has_an_event(world: ControllerWorld) -> None:
    world.pod("p", cpu="2")
    world.pass_s(1)
    assert about(world, "p") == [("Warning", "FailedScheduling", "no nodes available to schedule pods", 1)]


def test_a_pod_that_finds_no_place_again_and_again_is_told_once(world: ControllerWorld) -> None:
    world.ready_node("n", cpu="1")
    world.pod("p", cpu="2")
    world.pass_s(1)
    [first] = about(world, "p")
    assert first[1] == "FailedScheduling"
    assert first[2].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    for i in range(30):
        world.label("Node", "n", turn=str(i))
        world.pass_s(1)
    assert about(world, "p") == [first]
    world.pass_s(60)
    world.label("Node", "n", turn="last")
    world.pass_s(1)
    [again] = about(world, "p")
    assert again[:3] == first[:3]
    assert again[3] > 30


def test_not_every_node_that_comes_makes_an_event(world: ControllerWorld) -> None:
    world.pod("p", cpu="9")
    for i in range(12):
        world.node(f"n{i}")
        world.pass_s(1)
    assert len(about(world, "p")) == 5
    world.pass_s(60)
    world.node("last")
    world.pass_s(1)
    assert about(world, "p")[-1][2].startswith("0/13 nodes are available:")
    assert len(about(world, "p")) == 6


def test_a_pod_that_waits_for_a_node_gets_the_one_that_comes(world: ControllerWorld) -> None:
    world.pod("p", cpu="2")
    world.pass_s(30)
    world.ready_node("n")
    world.pass_s(5)
    assert world.the("Pod", "p")["spec"]["nodeName"] == "n"
    assert world.condition("Pod", "p", "PodScheduled") == ("True", "")
    told = [message for _, _, message, _ in about(world, "p")]
    assert "0/1 nodes are available: 1 node(s) had untolerated taint(s)." in told[-1]


def test_a_pod_behind_a_gate_has_none(world: ControllerWorld) -> None:
    world.pod("p", schedulingGates=[{"name": "muster.dev/placement"}])
    world.pass_s(5)
    assert not world.all("Event")
