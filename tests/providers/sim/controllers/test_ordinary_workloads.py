"""A user's day without a queue: four kinds of work at once, nodes that come, scaling, an update, a drain."""

from typing import Any

import pytest

from providers.sim.controllers.objects import labels_of, node_of
from providers.sim.store import StoreTooManyRequests
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

ZONE = "topology.kubernetes.io/zone"
APPS = ("web", "db", "log")


def template(app: str, *, image: str = "x:1", **spec: Any) -> Obj:
    made = pod_template(cpu="100m" if app == "log" else "1", labels={"app": app}, restartPolicy="Always", **spec)
    made["spec"]["containers"][0]["image"] = image
    return made


def work(app: str, **spec: Any) -> Obj:
    selector = {"matchLabels": {"app": app}}
    return {"metadata": {"name": app}, "spec": {"selector": selector, "template": template(app), **spec}}


FIRST = "system-node-critical"
"""What is bound before all that waits already: who comes last to a node finds it full."""
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


def applied(world: ControllerWorld) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    storage = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
    marks = {"storageclass.kubernetes.io/is-default-class": "true"}
    world.create("StorageClass", {"metadata": {"name": "gp3", "annotations": marks}, **storage})
    world.create("Deployment", work("web", replicas=12, template=template("web", **SPREAD)))
    world.create(
        "StatefulSet", work("db", replicas=3, volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}])
    )
    world.create("DaemonSet", work("log", template=template("log", priorityClassName=FIRST)))
    world.pod("bare", restartPolicy="Always")


def settled(world: ControllerWorld) -> dict[str, int]:
    """App -> pods that run."""
    held = [pod for pod in world.all("Pod") if pod["status"]["phase"] == "Running"]
    return {app: sum(labels_of(pod).get("app") == app for pod in held) for app in APPS}


@pytest.fixture
def fleet(world: ControllerWorld) -> ControllerWorld:
    applied(world)
    world.pass_s(30)
    assert settled(world) == dict.fromkeys(APPS, 0)
    told = {event["involvedObject"]["name"] for event in world.all("Event") if event["reason"] == "FailedScheduling"}
    waiting = {pod["metadata"]["name"] for pod in world.all("Pod")}
    assert told == waiting
    assert len(waiting) == 12 + 1 + 1  # the second of the StatefulSet waits for the first
    for i in range(6):
        world.machine(f"i-{i}", "m7i.xlarge", zone=f"us-east-1{'abc'[i % 3]}")
    world.pass_s(120)
    return world


def test_everything_runs_when_machines_come(fleet: ControllerWorld) -> None:
    assert settled(fleet) == {"web": 12, "db": 3, "log": 6}
    assert fleet.the("Pod", "bare")["status"]["phase"] == "Running"
    zones = [labels_of(fleet.the("Node", node_of(pod)))[ZONE] for pod in fleet.pods(app="web")]
    assert sorted(map(zones.count, set(zones))) == [4, 4, 4]
    fleet.check_invariants()


def test_it_is_scaled_down(fleet: ControllerWorld) -> None:
    fleet.change("Deployment", "web", replicas=3)
    fleet.change("StatefulSet", "db", replicas=1)
    fleet.pass_s(60)
    assert settled(fleet) == {"web": 3, "db": 1, "log": 6}
    assert len(fleet.all("PersistentVolumeClaim")) == 3


def test_it_is_updated(fleet: ControllerWorld) -> None:
    fleet.change("Deployment", "web", replicas=6)
    fleet.pass_s(60)
    for kind, app in (("Deployment", "web"), ("StatefulSet", "db"), ("DaemonSet", "log")):
        more: Obj = {"web": SPREAD, "log": {"priorityClassName": FIRST}}.get(app, {})
        fleet.change(kind, app, template=template(app, image="x:2", **more))
    fleet.pass_s(300)
    assert settled(fleet) == {"web": 6, "db": 3, "log": 6}
    assert {pod["spec"]["containers"][0]["image"] for app in APPS for pod in fleet.pods(app=app)} == {"x:2"}
    fleet.check_invariants()


def test_a_node_is_drained(fleet: ControllerWorld) -> None:
    """As `kubectl drain --ignore-daemonsets --force` does it, with a budget that lets one pod go at a time."""
    fleet.change("Deployment", "web", replicas=6)
    fleet.change("StatefulSet", "db", replicas=1)
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    fleet.create("PodDisruptionBudget", {"metadata": {"name": "web"}, "spec": budget})
    fleet.pass_s(60)
    leaving = node_of(fleet.pods(app="web")[0])
    fleet.change("Node", leaving, unschedulable=True)
    for _ in range(60):
        for pod in _to_evict(fleet, leaving):
            try:
                fleet.store.evict(pod["metadata"]["name"], "default")
            except StoreTooManyRequests:
                continue
        fleet.pass_s(1)
        assert settled(fleet)["web"] >= 5
    assert {labels_of(pod).get("app") for pod in fleet.all("Pod") if node_of(pod) == leaving} == {"log"}
    assert settled(fleet)["web"] == 6


def _to_evict(world: ControllerWorld, node: str) -> list[Obj]:
    return [pod for pod in world.all("Pod") if node_of(pod) == node and labels_of(pod).get("app") != "log"]
