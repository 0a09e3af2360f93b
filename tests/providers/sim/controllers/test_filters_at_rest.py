"""After any history the scheduler knows what a fresh one reads from the store, and leaves no feasible pod waiting."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import node_of
from providers.sim.controllers.persistent_volumes import VolumeController
from providers.sim.controllers.scheduler import Scheduler
from providers.sim.store import Store

Obj = dict[str, Any]
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APPS = ("a", "b", "c")
STEPS = 60


class SchedulingHistory:
    """A small cluster to which random things happen."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.clock = VirtualClock()
        self.store = Store(self.clock)
        cluster = MirroredCluster(self.store)
        self.volumes, self.scheduler = VolumeController(cluster), Scheduler(cluster)
        self.made = 0
        storage = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
        self.create("StorageClass", {"metadata": {"name": "gp3"}, **storage})
        for i in range(5):
            self.node(f"n{i}")

    def create(self, kind: str, obj: Obj) -> Obj:
        resource = self.store.resource(kind)
        return self.store.create(resource, obj, namespace="default" if resource.namespaced else "")

    def all(self, kind: str) -> list[Obj]:
        return self.store.list(self.store.resource(kind))

    def node(self, name: str) -> None:
        labels = {HOST: name, ZONE: self.draw.choice("xyz")}
        status = {
            "allocatable": {"cpu": "4", "pods": "20", "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.create("Node", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})

    def pod(self) -> None:
        self.made += 1
        name = f"p{self.made}"
        selector = {"matchLabels": {"app": self.draw.choice(APPS)}}
        term = {"topologyKey": self.draw.choice((ZONE, HOST)), "labelSelector": selector}
        constraint = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}
        spec: Obj = self.draw.choice(
            (
                {},
                {"affinity": {"podAffinity": {REQUIRED: [term]}}},
                {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}},
                {"topologySpreadConstraints": [constraint]},
                {"containers": [{**container, "ports": [{"containerPort": 80, "hostPort": 80}]}]},
                {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": self.claim()}}]},
            )
        )
        metadata = {"name": name, "labels": {"app": self.draw.choice(APPS)}}
        self.create("Pod", {"metadata": metadata, "spec": {"containers": [container], **spec}})

    def claim(self) -> str:
        name = f"c{self.draw.randrange(6)}"
        if not any(held["metadata"]["name"] == name for held in self.all("PersistentVolumeClaim")):
            requests = {"requests": {"storage": "1Gi"}}
            spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3", "resources": requests}
            self.create("PersistentVolumeClaim", {"metadata": {"name": name}, "spec": spec})
        return name

    def delete_pod(self) -> None:
        if pods := self.all("Pod"):
            name = self.draw.choice(pods)["metadata"]["name"]
            grace = self.draw.choice((0, None))
            self.store.delete(self.store.resource("Pod"), name, namespace="default", grace_period_s=grace)

    def relabel(self) -> None:
        if pods := self.all("Pod"):
            pod = self.draw.choice(pods)
            metadata = {**pod["metadata"], "labels": {"app": self.draw.choice(APPS)}}
            self.store.update(self.store.resource("Pod"), {**pod, "metadata": metadata}, namespace="default")

    def cordon(self) -> None:
        node = self.draw.choice(self.all("Node"))
        spec = {**node["spec"], "unschedulable": not node["spec"].get("unschedulable")}
        self.store.update(self.store.resource("Node"), {**node, "spec": spec})

    def end_pod(self) -> None:
        if running := [pod for pod in self.all("Pod") if node_of(pod)]:
            pod = self.draw.choice(running)
            ended = {**pod, "status": {**pod["status"], "phase": "Succeeded"}}
            self.store.update(self.store.resource("Pod"), ended, namespace="default", subresource="status")

    def happen(self) -> None:
        things: list[Callable[[], None]] = [self.delete_pod, self.relabel, self.cordon, self.end_pod]
        self.draw.choice((*[self.pod] * 6, *things))()

    def settle(self) -> None:
        for _ in range(50):
            before = self.store.resource_version
            self.volumes.step(self.clock.now())
            more = self.scheduler.step(self.clock.now())
            if self.store.resource_version == before and more is None:
                return
        raise AssertionError("the scheduler does not come to rest")


@pytest.mark.parametrize("seed", [*range(20), 45, 78, 102, 142])
def test_it_knows_what_a_fresh_one_would_and_leaves_nobody_waiting(seed: int) -> None:
    history = SchedulingHistory(seed)
    bound = 0
    for _ in range(STEPS):
        history.happen()
        history.settle()
        fresh = Scheduler(MirroredCluster(history.store))
        for pod in history.all("Pod"):
            if not node_of(pod):
                assert history.scheduler.diagnosis(pod) == fresh.diagnosis(pod)
                assert fresh.diagnosis(pod).feasible == (), pod["metadata"]["name"]
            bound += bool(node_of(pod))
    assert bound
