"""DaemonSets as a real cluster runs them: a pod for every node that suits, and their updates."""

from typing import Any

import pytest

from providers.sim.controllers.apps.daemonpods import DaemonPass, DaemonWork, target_of
from providers.sim.controllers.objects import being_deleted, node_of
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

# -- which nodes, and which pods, as data -----------------------------------------------------------------------------


def work(*, rolling: Obj | None = None, kind: str = "RollingUpdate", **spec: Any) -> DaemonWork:
    strategy = {"type": kind, "rollingUpdate": rolling or {}}
    return DaemonWork.of({"spec": {"template": {"spec": {"containers": [], **spec}}, "updateStrategy": strategy}})


@pytest.mark.parametrize(
    ("spec", "taints", "runs", "stays"),
    [
        ({}, [], True, True),
        ({"nodeSelector": {"gpu": "h100"}}, [], True, True),
        ({"nodeSelector": {"gpu": "a100"}}, [], False, False),
        ({"nodeName": "n"}, [], True, True),
        ({"nodeName": "other"}, [], False, False),
        ({}, [("team", "NoSchedule")], False, True),
        ({}, [("team", "NoExecute")], False, False),
        ({}, [("team", "PreferNoSchedule")], True, True),
        ({"tolerations": [{"key": "team", "operator": "Exists"}]}, [("team", "NoExecute")], True, True),
        ({}, [("node.kubernetes.io/unschedulable", "NoSchedule")], True, True),
        ({}, [("node.kubernetes.io/not-ready", "NoExecute")], True, True),
        ({}, [("node.kubernetes.io/unreachable", "NoExecute"), ("x", "NoSchedule")], False, True),
        ({}, [("node.kubernetes.io/network-unavailable", "NoSchedule")], False, True),
        ({"hostNetwork": True}, [("node.kubernetes.io/network-unavailable", "NoSchedule")], True, True),
    ],
)
def test_which_nodes_suit(spec: Obj, taints: list[tuple[str, str]], runs: bool, stays: bool) -> None:
    held = [{"key": key, "effect": effect} for key, effect in taints]
    node = {"metadata": {"name": "n", "labels": {"gpu": "h100"}}, "spec": {"taints": held}}
    assert work(**spec).suits(node) == (runs, stays)


def pods(told: str, node: str = "n") -> list[Obj]:
    """A letter a pod, the oldest first: o(ld), n(ew); in capitals where it is not ready; d leaves, f has failed."""
    found = []
    for i, letter in enumerate(told):
        created = f"2026-01-01T00:00:{i:02d}Z"
        labels = {"controller-revision-hash": letter.lower()}
        metadata: Obj = {"name": f"{node}-{i}-{letter}", "labels": labels, "creationTimestamp": created}
        if letter == "d":
            metadata["deletionTimestamp"] = created
        phase, ready = ("Failed" if letter == "f" else "Running"), str(letter in "on")
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}
        found.append({"metadata": metadata, "spec": {"nodeName": node}, "status": status})
    return found


def names(found: list[Obj]) -> list[str]:
    return [pod["metadata"]["name"].partition("-")[2] for pod in found]


RUNS, STAYS, LEAVES = (True, True), (False, True), (False, False)
SURGE = {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize(
    ("suits", "there", "rolling", "creates", "deletes", "ended"),
    [
        (RUNS, "", {}, True, [], []),
        (RUNS, "n", {}, False, [], []),
        (RUNS, "d", {}, False, [], []),  # its place is taken until it is gone
        (RUNS, "nnn", {}, False, ["1-n", "2-n"], []),  # the oldest stays
        (RUNS, "f", {}, False, [], ["0-f"]),
        (STAYS, "", {}, False, [], []),
        (STAYS, "n", {}, False, [], []),
        (LEAVES, "n", {}, False, ["0-n"], []),
        (LEAVES, "d", {}, False, [], []),
        (RUNS, "d", SURGE, True, [], []),
        (RUNS, "oN", SURGE, False, [], []),
        (RUNS, "on", SURGE, False, ["0-o"], []),
        (RUNS, "ON", SURGE, False, ["0-O"], []),  # what serves nobody need not wait
        (RUNS, "oonN", SURGE, False, ["3-N", "1-o", "0-o"], []),
    ],
)
def test_what_becomes_of_one_node(
    suits: tuple[bool, bool], there: str, rolling: Obj, creates: bool, deletes: list[str], ended: list[str]
) -> None:
    found = DaemonPass(work(rolling=rolling), "n", 0.0)
    found.look("n", suits, pods(there))
    assert (found.creates == ["n"], names(found.deletes), names(found.ended)) == (creates, deletes, ended)


@pytest.mark.parametrize(
    ("nodes", "rolling", "deletes", "creates"),
    [
        ("o o o o", {}, "a", ""),
        ("n o o o", {}, "b", ""),
        ("N o o o", {}, "", ""),  # one that is not available yet is the one
        ("d o o o", {}, "", ""),
        ("O o o o", {}, "a", ""),  # what serves nobody goes first
        ("O O o o", {}, "ab", ""),
        ("o o o o", {"maxUnavailable": 3}, "abc", ""),
        ("N o o o", {"maxUnavailable": "50%"}, "b", ""),
        ("on o o o", {}, "", ""),
        ("nn o o o", {}, "", ""),
        ("o o o o", SURGE, "", "a"),
        ("oN o o o", SURGE, "", ""),
        ("on o o o", SURGE, "a", "b"),
        ("O o o o", SURGE, "", "ab"),
        ("o o o o", {"maxSurge": "50%", "maxUnavailable": 0}, "", "ab"),
        ("n n n n", {}, "", ""),
    ],
)
def test_an_update_keeps_its_bounds(nodes: str, rolling: Obj, deletes: str, creates: str) -> None:
    by_node = {name: pods(told, name) for name, told in zip("abcd", nodes.split(), strict=True)}
    found = DaemonPass(work(rolling=rolling), "n", 0.0)
    found.roll(by_node, 4)
    assert "".join(sorted(node_of(pod) for pod in found.deletes)) == deletes
    assert "".join(sorted(found.creates)) == creates


# -- stories ----------------------------------------------------------------------------------------------------------


def logging(image: str = "x:1", **spec: Any) -> Obj:
    template = pod_template(cpu="100m", labels={"app": "log"}, restartPolicy="Always", **spec)
    template["spec"]["containers"][0]["image"] = image
    return template


def daemons(world: ControllerWorld, *, strategy: Obj | None = None, **template: Any) -> Obj:
    spec: Obj = {"selector": {"matchLabels": {"app": "log"}}, "template": logging(**template)}
    if strategy is not None:
        spec["updateStrategy"] = strategy
    return world.create("DaemonSet", {"metadata": {"name": "log"}, "spec": spec})


def places(world: ControllerWorld) -> list[str]:
    return sorted(target_of(pod) for pod in world.pods(app="log"))


def running(world: ControllerWorld, image: str) -> list[str]:
    held = (pod for pod in world.pods(app="log") if pod["spec"]["containers"][0]["image"] == image)
    return sorted(node_of(pod) for pod in held if pod["status"]["phase"] == "Running")


def status(world: ControllerWorld) -> Obj:
    found: Obj = world.the("DaemonSet", "log")["status"]
    return found


@pytest.fixture
def three(world: ControllerWorld) -> ControllerWorld:
    for name in "abc":
        world.node(name, labels={"gpu": "h100"} if name != "c" else {})
    world.pass_s(6)
    return world


def test_every_node_gets_a_pod(three: ControllerWorld) -> None:
    daemons(three)
    three.pass_s(10)
    assert running(three, "x:1") == ["a", "b", "c"]
    assert status(three) == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberAvailable": 3,
        "numberMisscheduled": 0,
        "numberReady": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
    }
    three.ready_node("d")
    assert running(three, "x:1") == ["a", "b", "c", "d"]  # it came with the node
    three.delete("Node", "d")
    three.pass_s(120)
    assert places(three) == ["a", "b", "c"]


def test_a_node_that_no_longer_suits_loses_its_pod(three: ControllerWorld) -> None:
    daemons(three, nodeSelector={"gpu": "h100"})
    three.pass_s(10)
    assert places(three) == ["a", "b"]
    three.label("Node", "a", gpu=None)
    three.label("Node", "c", gpu="h100")
    three.pass_s(60)
    assert places(three) == ["b", "c"]


def test_a_cordoned_node_keeps_its_pod_and_gets_one(three: ControllerWorld) -> None:
    three.change("Node", "a", unschedulable=True)
    daemons(three)
    three.pass_s(10)
    assert running(three, "x:1") == ["a", "b", "c"]


def test_a_pod_that_finds_no_room_waits_for_its_own_node(three: ControllerWorld) -> None:
    three.pod("big", cpu="4", nodeName="a")
    three.pass_s(5)
    daemons(three)
    three.pass_s(10)
    assert (places(three), running(three, "x:1")) == (["a", "b", "c"], ["b", "c"])
    assert status(three)["numberUnavailable"] == 1
    three.delete("Pod", "big", grace_period_s=0)
    three.pass_s(10)
    assert running(three, "x:1") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("strategy", "least", "most"),
    [
        ({"rollingUpdate": {"maxUnavailable": 1}}, 2, 3),
        ({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 3, 4),
    ],
)
def test_an_update_is_rolled_out(three: ControllerWorld, strategy: Obj, least: int, most: int) -> None:
    daemons(three, strategy=strategy)
    three.pass_s(10)
    three.change("DaemonSet", "log", template=logging("x:2"))
    for _ in range(60):
        three.pass_s(0.5)
        assert len(running(three, "x:1")) + len(running(three, "x:2")) >= least
        assert len([pod for pod in three.pods(app="log") if not being_deleted(pod)]) <= most
    assert running(three, "x:2") == ["a", "b", "c"]
    assert len(three.pods(app="log")) == 3
    assert status(three)["updatedNumberScheduled"] == 3
    assert [one["revision"] for one in three.all("ControllerRevision")].count(2) == 1


def test_on_delete_waits_for_people(three: ControllerWorld) -> None:
    daemons(three, strategy={"type": "OnDelete"})
    three.pass_s(10)
    three.change("DaemonSet", "log", template=logging("x:2"))
    three.pass_s(30)
    assert running(three, "x:1") == ["a", "b", "c"]
    [on_a] = [pod for pod in three.pods(app="log") if node_of(pod) == "a"]
    three.delete("Pod", on_a["metadata"]["name"])
    three.pass_s(30)
    assert (running(three, "x:1"), running(three, "x:2")) == (["b", "c"], ["a"])


def test_a_pod_that_fails_is_made_anew_after_ever_longer_waits(three: ControllerWorld) -> None:
    daemons(three, nodeSelector={"gpu": "h100"})
    three.pass_s(10)
    seen: set[str] = set()
    for _ in range(240):
        for pod in three.pods(app="log"):
            if node_of(pod) == "a" and pod["status"]["phase"] == "Running":
                seen.add(pod["metadata"]["uid"])
                failed = {**pod, "status": {**pod["status"], "phase": "Failed"}}
                resource = three.store.resource("Pod")
                three.store.update(resource, failed, namespace="default", subresource="status")
        three.pass_s(1)
    assert 5 <= len(seen) <= 9  # 1, 2, 4, ... 128 s
    assert any(event["reason"] == "FailedDaemonPod" for event in three.all("Event"))


def test_a_daemon_set_at_rest_is_not_written_to(three: ControllerWorld) -> None:
    daemons(three)
    three.pass_s(60)
    before = three.all("DaemonSet"), three.all("ControllerRevision")
    three.pass_s(3000)
    assert (three.all("DaemonSet"), three.all("ControllerRevision")) == before


def test_what_is_deleted_goes_with_its_pods(three: ControllerWorld) -> None:
    daemons(three)
    three.pass_s(10)
    three.delete("DaemonSet", "log")
    three.pass_s(60)
    assert not three.pods(app="log")
    assert not three.all("ControllerRevision")
