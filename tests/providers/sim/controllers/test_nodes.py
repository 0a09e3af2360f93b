"""Heartbeats, the node lifecycle, eviction by taints, pod garbage collection."""

import pytest

from providers.sim.controllers.objects import condition_of, instant
from tests.providers.sim.controllers.world import ControllerWorld, Obj

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def taints(world: ControllerWorld, name: str) -> set[tuple[str, str]]:
    return {(t["key"], t["effect"]) for t in world.the("Node", name)["spec"].get("taints") or ()}


def both(key: str) -> set[tuple[str, str]]:
    return {(key, "NoSchedule"), (key, "NoExecute")}


def test_a_node_turns_ready_and_reports(world: ControllerWorld) -> None:
    world.node("n")
    world.pass_s(4)
    assert taints(world, "n") == both(NOT_READY)
    world.pass_s(1)
    assert world.condition("Node", "n", "Ready") == ("True", "KubeletReady")
    assert taints(world, "n") == set()
    first = condition_of(world.the("Node", "n"), "Ready")
    world.pass_s(400)
    later = condition_of(world.the("Node", "n"), "Ready")
    assert instant(later["lastHeartbeatTime"]) - instant(first["lastHeartbeatTime"]) == 300
    assert later["lastTransitionTime"] == first["lastTransitionTime"]


@pytest.mark.parametrize("fault", ["fail_node", "stop_heartbeats"])
def test_fifty_seconds_of_silence(world: ControllerWorld, fault: str) -> None:
    """They count from the next look of the node monitor, which looks every five seconds."""
    world.ready_node("n")
    world.pod("p")
    world.pass_s(5)
    getattr(world.sim.health, fault)("n")
    assert world.now % 5 == 1
    world.pass_s(53)
    assert world.condition("Node", "n", "Ready") == ("True", "KubeletReady")
    assert world.condition("Pod", "p", "Ready") == ("True", "")
    world.pass_s(1)
    assert world.condition("Pod", "p", "Ready") == ("False", "")
    assert world.condition("Node", "n", "Ready") == ("Unknown", "NodeStatusUnknown")
    assert taints(world, "n") == both(UNREACHABLE)
    world.sim.health.heal("n")
    world.pass_s(1)
    assert world.condition("Node", "n", "Ready") == ("True", "KubeletReady")
    assert taints(world, "n") == set()


def test_a_worse_fault_does_not_start_the_clock_again(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.sim.health.stop_heartbeats("n")
    world.pass_s(30)
    world.sim.health.fail_node("n")
    world.pass_s(24)
    assert world.condition("Node", "n", "Ready") == ("Unknown", "NodeStatusUnknown")


def test_an_unready_node_is_tainted_at_once(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.sim.health.make_unready("n")
    world.pass_s(1)
    assert world.condition("Node", "n", "Ready") == ("False", "KubeletNotReady")
    assert taints(world, "n") == both(NOT_READY)


def test_foreign_taints_stay(world: ControllerWorld) -> None:
    world.node("n", taints=[{"key": "gpu", "value": "a100", "effect": "NoSchedule"}])
    world.pass_s(60)
    assert taints(world, "n") == {("gpu", "NoSchedule")}


def toleration(key: str, seconds: int | None = None) -> Obj:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


@pytest.mark.parametrize(
    ("tolerations", "leaves_after"),
    [
        ([], 0),
        ([toleration("drain", 20)], 20),
        ([toleration("drain", 20), toleration("drain", 5)], 5),
        ([toleration("drain")], None),
        ([toleration("other")], 0),
    ],
)
def test_noexecute_taints_drive_pods_out(
    world: ControllerWorld, tolerations: list[Obj], leaves_after: int | None
) -> None:
    world.ready_node("n")
    world.pod("p", tolerations=tolerations, notes={"stop-seconds": "0"})
    world.pod("over", notes={"run-seconds": "1"})
    world.pass_s(5)
    world.change("Node", "n", taints=[{"key": "drain", "effect": "NoExecute"}])
    gone_at = None
    for second in range(60):
        world.settle()
        if world.get("Pod", "p") is None:
            gone_at = second
            break
        world.pass_s(1)
    assert gone_at == leaves_after
    assert world.get("Pod", "over") is not None  # what is over is not driven out


def test_a_taint_that_goes_in_time_drives_nobody_out(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.pod("p", tolerations=[toleration("drain", 20)])
    world.pass_s(5)
    for _ in range(3):
        world.change("Node", "n", taints=[{"key": "drain", "effect": "NoExecute"}])
        world.pass_s(15)
        world.change("Node", "n", taints=[])
        world.pass_s(15)
    assert world.the("Pod", "p")["status"]["phase"] == "Running"


def test_pods_leave_an_unreachable_node_after_five_minutes(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.pod("p")
    world.pass_s(5)
    world.sim.health.fail_node("n")
    world.pass_s(54 + 299)
    assert "deletionTimestamp" not in world.the("Pod", "p")["metadata"]
    world.pass_s(2)
    assert "deletionTimestamp" in world.the("Pod", "p")["metadata"]
    assert world.condition("Pod", "p", "DisruptionTarget") == ("True", "DeletionByTaintManager")


def test_pods_of_a_deleted_node_are_collected(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.job("j", completions=1, backoffLimit=5)
    world.pass_s(5)
    world.delete("Node", "n")
    assert world.now % 20 == 11  # it is noticed 9 s later, and has to be gone for 40 s from then on
    world.pass_s(48)
    assert world.phases("j") == ["Running"]
    ended: list[Obj] = []
    world.store.subscribe(lambda event: ended.append(event.object), resource=world.store.resource("Pod"))
    world.pass_s(2)
    collected = next(pod for pod in ended if pod["status"]["phase"] == "Failed")
    assert condition_of(collected, "DisruptionTarget")["reason"] == "DeletionByPodGC"
    world.ready_node("m")
    world.pass_s(20)
    assert [(pod["spec"]["nodeName"], pod["status"]["phase"]) for pod in world.pods_of("j")] == [("m", "Running")]


def test_a_node_back_within_the_quarantine_keeps_its_pods(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.pod("p")
    world.pass_s(5)
    world.delete("Node", "n")
    world.pass_s(20)
    world.ready_node("n")
    world.pass_s(100)
    assert world.the("Pod", "p")["status"]["phase"] == "Running"


def test_a_pod_told_to_stop_while_its_node_was_away_stops_when_it_is_back(world: ControllerWorld) -> None:
    world.ready_node("n")
    world.pod("p")
    world.pass_s(5)
    world.delete("Node", "n")
    world.delete("Pod", "p")
    world.pass_s(20)
    assert world.get("Pod", "p") is not None
    world.ready_node("n")
    assert world.get("Pod", "p") is None
