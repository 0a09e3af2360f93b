"""After any history of people's changes the controllers of `apps/v1` come to rest with what was asked for."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from providers.sim.controllers.objects import being_deleted, is_true, labels_of, node_of
from providers.sim.store import StoreTooManyRequests
from tests.providers.sim.controllers.world import ControllerWorld, Obj, pod_template

STEPS = 40
KINDS = {"web": "Deployment", "db": "StatefulSet", "log": "DaemonSet"}


class WorkloadHistory:
    """Three workloads on a few nodes, to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.world = ControllerWorld()
        self.version = 1
        self.joined = 3
        for i in range(3):
            self.world.ready_node(f"n{i}", cpu="16", pods="60")
        storage = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
        marks = {"storageclass.kubernetes.io/is-default-class": "true"}
        self.world.create("StorageClass", {"metadata": {"name": "gp3", "annotations": marks}, **storage})
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        rolling = self.draw.choice(
            ({"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 2}, {"maxSurge": "50%"})
        )
        strategy = self.draw.choice(({"type": "Recreate"}, {"rollingUpdate": rolling}, {"rollingUpdate": rolling}))
        self.apply("web", replicas=3, strategy=strategy, minReadySeconds=self.draw.choice((0, 7)))
        order = self.draw.choice(("OrderedReady", "Parallel"))
        templates = [{"metadata": {"name": "data"}, "spec": claim}]
        self.apply("db", replicas=2, podManagementPolicy=order, volumeClaimTemplates=templates)
        daemons = self.draw.choice(({"maxUnavailable": 1}, {"maxUnavailable": 0, "maxSurge": 1}))
        self.apply("log", updateStrategy={"rollingUpdate": daemons})

    def template(self, app: str) -> Obj:
        template = pod_template(cpu="100m", labels={"app": app}, restartPolicy="Always")
        template["spec"]["containers"][0]["image"] = f"x:{self.version}"
        return template

    def apply(self, app: str, **spec: Any) -> None:
        wanted = {"selector": {"matchLabels": {"app": app}}, "template": self.template(app), **spec}
        self.world.create(KINDS[app], {"metadata": {"name": app}, "spec": wanted})

    # What happens

    def scale(self) -> None:
        app = self.draw.choice(("web", "db"))
        self.world.change(KINDS[app], app, replicas=self.draw.randrange(7))

    def update(self) -> None:
        self.version = self.draw.randrange(1, 4)
        app = self.draw.choice(tuple(KINDS))
        self.world.change(KINDS[app], app, template=self.template(app))

    def delete_pod(self) -> None:
        if pods := self.world.all("Pod"):
            self.world.delete("Pod", self.draw.choice(pods)["metadata"]["name"])

    def fail_pod(self) -> None:
        pods = [pod for pod in self.world.all("Pod") if pod["status"]["phase"] == "Running"]
        if pods:
            pod = self.draw.choice(pods)
            failed = {**pod, "status": {**pod["status"], "phase": "Failed"}}
            resource = self.world.store.resource("Pod")
            self.world.store.update(resource, failed, namespace="default", subresource="status")

    def relabel_pod(self) -> None:
        if pods := self.world.all("Pod"):
            pod = self.draw.choice(pods)
            labels = {**labels_of(pod), "app": self.draw.choice(("web", "db", "log", "none"))}
            self.world.set_labels("Pod", pod["metadata"]["name"], labels)

    def evict(self) -> None:
        if pods := self.world.all("Pod"):
            try:
                self.world.store.evict(self.draw.choice(pods)["metadata"]["name"], "default")
            except StoreTooManyRequests:
                return

    def cordon(self) -> None:
        node = self.draw.choice(self.world.all("Node"))
        self.world.change("Node", node["metadata"]["name"], unschedulable=not node["spec"].get("unschedulable"))

    def lose_node(self) -> None:
        nodes = self.world.all("Node")
        if len(nodes) > 2:
            self.world.delete("Node", self.draw.choice(nodes)["metadata"]["name"])
        else:
            self.world.node(f"n{self.joined}", cpu="16", pods="60")
            self.joined += 1

    def delete_set(self) -> None:
        if sets := self.world.all("ReplicaSet"):
            held = self.draw.choice(sets)["metadata"]["name"]
            self.world.delete("ReplicaSet", held, propagation=self.draw.choice(("Orphan", "Background")))

    def pause(self) -> None:
        held = self.world.the("Deployment", "web")
        self.world.change("Deployment", "web", paused=not held["spec"].get("paused"))

    def happen(self) -> None:
        things: list[Callable[[], None]] = [
            *[self.scale, self.update, self.delete_pod] * 2,
            self.fail_pod,
            self.relabel_pod,
            self.evict,
            self.cordon,
            self.lose_node,
            self.delete_set,
            self.pause,
        ]
        self.draw.choice(things)()
        self.world.pass_s(self.draw.choice((0, 0, 0.5, 3, 20)))

    # What is asked for

    def at_ease(self) -> None:
        """People leave everything alone, and nothing hinders it."""
        for node in self.world.all("Node"):
            self.world.change("Node", node["metadata"]["name"], unschedulable=False)
        self.world.change("Deployment", "web", paused=False)
        for pod in self.world.all("Pod"):
            if not pod["metadata"].get("ownerReferences") and not being_deleted(pod):
                self.world.delete("Pod", pod["metadata"]["name"])
        self.world.pass_s(2000)

    def living(self, app: str) -> list[Obj]:
        pods = (pod for pod in self.world.pods(app=app) if pod["status"]["phase"] not in ("Failed", "Succeeded"))
        return [pod for pod in pods if pod["metadata"].get("ownerReferences")]


@pytest.mark.parametrize("seed", range(18))
def test_they_come_to_rest_with_what_was_asked_for(seed: int) -> None:
    history = WorkloadHistory(seed)
    for _ in range(STEPS):
        history.happen()
    history.at_ease()
    world = history.world
    nodes = sorted(node["metadata"]["name"] for node in world.all("Node"))
    assert sorted(node_of(pod) for pod in history.living("log")) == nodes
    replicas = world.the("StatefulSet", "db")["spec"]["replicas"]
    assert sorted(pod["metadata"]["name"] for pod in history.living("db")) == [f"db-{i}" for i in range(replicas)]
    assert len(history.living("web")) == world.the("Deployment", "web")["spec"]["replicas"]
    for app, kind in KINDS.items():
        image = world.the(kind, app)["spec"]["template"]["spec"]["containers"][0]["image"]
        for pod in history.living(app):
            assert pod["spec"]["containers"][0]["image"] == image
            assert is_true(pod, "Ready"), (app, pod["metadata"]["name"])
        held = world.the(kind, app)
        assert held["status"]["observedGeneration"] == held["metadata"]["generation"]
    before = world.store.resource_version
    world.pass_s(3000)
    kinds = (*KINDS.values(), "ReplicaSet", "ControllerRevision", "Pod", "PersistentVolumeClaim", "Event")
    written = [one for kind in kinds for one in world.all(kind) if int(one["metadata"]["resourceVersion"]) > before]
    assert not written
