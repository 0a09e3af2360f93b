from math import inf

import pytest

from providers.sim.controllers import assemble
from providers.sim.controllers.kubelet import PodScript
from providers.sim.controllers.objects import condition_of, instant
from providers.sim.kernel import VirtualDriver
from tests.providers.sim.controllers.world import QUICK, ControllerWorld, Obj, pod_template


@pytest.fixture
def cluster(world: ControllerWorld) -> ControllerWorld:
    world.ready_node("n1", cpu="8", pods="20", **{"nvidia.com_gpu": "2"})
    return world


@pytest.mark.parametrize(
    ("notes", "script"),
    [
        ({}, PodScript(inf, 0, 1, 1.0)),
        ({"run-seconds": "30", "stop-seconds": "5"}, PodScript(30, 0, 1, 5)),
        ({"run-seconds": "0"}, PodScript(0, 0, 1, 1)),
        ({"fail": "true"}, PodScript(inf, inf, 1, 1)),
        ({"fail": "2"}, PodScript(inf, 2, 1, 1)),
        ({"exit-code": "17"}, PodScript(inf, inf, 17, 1)),
        ({"exit-code": "17", "fail": "1"}, PodScript(inf, 1, 17, 1)),
        ({"exit-code": "0"}, PodScript(inf, 0, 0, 1)),
        ({"run-seconds": "soon", "stop-seconds": "-1"}, PodScript(inf, 0, 1, 1)),
    ],
)
def test_scripts(notes: dict[str, str], script: PodScript) -> None:
    assert PodScript.of(pod_template(notes=notes)) == script


def state(pod: Obj) -> str:
    return next(iter(pod["status"]["containerStatuses"][0]["state"]))


def test_a_pod_starts_runs_and_succeeds(cluster: ControllerWorld) -> None:
    cluster.pod("p", notes={"run-seconds": "10"})
    cluster.settle()
    pod = cluster.the("Pod", "p")
    assert (pod["status"]["phase"], state(pod)) == ("Pending", "waiting")
    admitted_at = pod["status"]["startTime"]
    cluster.pass_s(1)
    pod = cluster.the("Pod", "p")
    assert (pod["status"]["phase"], state(pod)) == ("Running", "running")
    assert pod["status"]["startTime"] == admitted_at
    assert [
        cluster.condition("Pod", "p", kind)[0] for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ] == ["True"] * 4
    cluster.pass_s(9)
    assert cluster.the("Pod", "p")["status"]["phase"] == "Running"
    cluster.pass_s(1)
    pod = cluster.the("Pod", "p")
    assert (pod["status"]["phase"], state(pod)) == ("Succeeded", "terminated")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], instant(ended["finishedAt"]) - instant(ended["startedAt"])) == (0, 10)
    assert cluster.condition("Pod", "p", "Ready") == ("False", "PodCompleted")


@pytest.mark.parametrize(
    ("policy", "notes", "phase", "restarts"),
    [
        ("Never", {"run-seconds": "1", "fail": "true"}, "Failed", 0),
        ("OnFailure", {"run-seconds": "1", "fail": "2"}, "Succeeded", 2),
        ("OnFailure", {"run-seconds": "1", "fail": "true"}, "Running", 4),
        ("Always", {"run-seconds": "1"}, "Running", 4),
    ],
)
def test_restart_policies(
    cluster: ControllerWorld, policy: str, notes: dict[str, str], phase: str, restarts: int
) -> None:
    cluster.pod("p", notes=notes, restartPolicy=policy)
    cluster.pass_s(160)  # pauses of 10, 20, 40 and 80 s
    status = cluster.the("Pod", "p")["status"]
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["restartCount"] == restarts


@pytest.mark.parametrize(
    ("stop", "grace", "gone_after", "code"),
    [("1", None, 1, 143), ("8", None, 8, 143), ("100", None, 30, 137), ("100", 5, 5, 137), ("3", 10, 3, 143)],
)
def test_graceful_end(cluster: ControllerWorld, stop: str, grace: int | None, gone_after: int, code: int) -> None:
    cluster.pod("p", notes={"stop-seconds": stop})
    cluster.pass_s(5)
    ended: list[Obj] = []
    cluster.store.subscribe(lambda event: ended.append(event.object), resource=cluster.store.resource("Pod"))
    cluster.delete("Pod", "p", grace_period_s=grace)
    cluster.pass_s(gone_after - 1)
    assert cluster.the("Pod", "p")["status"]["phase"] == "Running"
    cluster.pass_s(1)
    assert cluster.get("Pod", "p") is None
    assert ended[-1]["status"]["phase"] == "Failed"
    assert ended[-1]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


def test_a_shorter_grace_hastens_the_end(cluster: ControllerWorld) -> None:
    cluster.pod("p", notes={"stop-seconds": "100"})
    cluster.pass_s(5)
    cluster.delete("Pod", "p", grace_period_s=60)
    cluster.pass_s(5)
    cluster.delete("Pod", "p", grace_period_s=2)
    cluster.pass_s(3)
    assert cluster.get("Pod", "p") is None


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (pod_template(cpu="9"), "OutOfcpu"),
        (pod_template(gpus=3), "OutOfnvidia.com/gpu"),
        (pod_template(nodeSelector={"pool": "gold"}), "NodeAffinity"),
    ],
)
def test_what_does_not_fit_is_rejected(cluster: ControllerWorld, template: Obj, reason: str) -> None:
    spec = {**template["spec"], "nodeName": "n1"}
    cluster.create("Pod", {"metadata": {"name": "p"}, "spec": spec})
    cluster.pass_s(5)
    status = cluster.the("Pod", "p")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)


def test_devices_nobody_serves_are_an_unexpected_admission_error(cluster: ControllerWorld) -> None:
    cluster.ready_node("plain")
    cluster.create("Pod", {"metadata": {"name": "p"}, "spec": {**pod_template(gpus=1)["spec"], "nodeName": "plain"}})
    cluster.pass_s(5)
    assert cluster.the("Pod", "p")["status"]["reason"] == "UnexpectedAdmissionError"


def test_two_bound_pods_race_for_one_slot_and_one_is_rejected(cluster: ControllerWorld) -> None:
    for name in ("a", "b"):
        cluster.create("Pod", {"metadata": {"name": name}, "spec": {**pod_template(gpus=2)["spec"], "nodeName": "n1"}})
    cluster.pass_s(5)
    assert sorted(pod["status"]["phase"] for pod in cluster.all("Pod")) == ["Failed", "Running"]
    cluster.check_invariants()


def test_a_terminating_pod_holds_its_place_until_it_is_over(cluster: ControllerWorld) -> None:
    cluster.pod("a", cpu="8", notes={"stop-seconds": "20"})
    cluster.pass_s(5)
    cluster.delete("Pod", "a")
    cluster.pod("b", cpu="8")
    cluster.pass_s(10)
    assert "nodeName" not in cluster.the("Pod", "b")["spec"]
    cluster.pass_s(15)
    assert cluster.the("Pod", "b")["status"]["phase"] == "Running"


class TestFaults:
    def test_nothing_is_heard_of_a_dead_node_and_its_containers_are_lost(self, cluster: ControllerWorld) -> None:
        cluster.pod("p", notes={"run-seconds": "10"})
        cluster.pass_s(5)
        cluster.sim.health.fail_node("n1")
        cluster.pass_s(30)
        assert cluster.the("Pod", "p")["status"]["phase"] == "Running"
        cluster.sim.health.heal("n1")
        cluster.pass_s(1)
        status = cluster.the("Pod", "p")["status"]
        assert status["phase"] == "Failed"
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137

    def test_a_death_nobody_saw_counts_and_later_pods_are_spared(self, cluster: ControllerWorld) -> None:
        cluster.pod("before")
        cluster.pass_s(5)
        cluster.sim.health.fail_node("n1")
        cluster.sim.health.heal("n1")
        cluster.pod("after")
        cluster.pass_s(5)
        assert cluster.the("Pod", "before")["status"]["phase"] == "Failed"
        assert cluster.the("Pod", "after")["status"]["phase"] == "Running"

    def test_a_silent_node_runs_on(self, cluster: ControllerWorld) -> None:
        cluster.pod("p", notes={"run-seconds": "10"})
        cluster.pass_s(5)
        cluster.sim.health.stop_heartbeats("n1")
        cluster.pass_s(30)
        assert cluster.the("Pod", "p")["status"]["phase"] == "Running"
        cluster.sim.health.heal("n1")
        cluster.pass_s(1)
        assert cluster.the("Pod", "p")["status"]["phase"] == "Succeeded"

    def test_deletion_on_a_silent_node_does_not_end(self, cluster: ControllerWorld) -> None:
        cluster.pod("p")
        cluster.pass_s(5)
        cluster.sim.health.stop_heartbeats("n1")
        cluster.delete("Pod", "p", grace_period_s=5)
        cluster.pass_s(30)
        assert cluster.get("Pod", "p") is not None
        cluster.sim.health.heal("n1")
        cluster.pass_s(10)
        assert cluster.get("Pod", "p") is None


def test_a_finalizer_holds_a_pod_that_is_over(cluster: ControllerWorld) -> None:
    template = pod_template()
    cluster.create("Pod", {"metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": template["spec"]})
    cluster.pass_s(5)
    cluster.delete("Pod", "p")
    cluster.pass_s(60)
    held = cluster.the("Pod", "p")
    assert held["status"]["phase"] == "Failed"
    assert condition_of(held, "Ready")["status"] == "False"
    pods = cluster.store.resource("Pod")
    cluster.store.update(pods, {**held, "metadata": {**held["metadata"], "finalizers": []}}, namespace="default")
    cluster.pass_s(1)
    assert cluster.get("Pod", "p") is None


def test_new_controllers_take_over_what_runs(cluster: ControllerWorld) -> None:
    cluster.pod("p", cpu="6", notes={"run-seconds": "30"})
    cluster.pass_s(10)
    version = cluster.the("Pod", "p")["metadata"]["resourceVersion"]
    again = assemble(cluster.store, cluster.clock, options=QUICK)
    driver = VirtualDriver(again.kernel, cluster.clock)
    driver.settle()
    assert cluster.the("Pod", "p")["metadata"]["resourceVersion"] == version
    cluster.pod("q", cpu="6", nodeName="n1")
    driver.settle()
    assert cluster.the("Pod", "q")["status"]["reason"] == "OutOfcpu"
    driver.advance_by(21)
    assert cluster.the("Pod", "p")["status"]["phase"] == "Succeeded"
