"""The real kubectl and ordinary workloads, as in the sandbox: the embedded server with the simulated controllers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from providers.clock import SystemClock
from providers.sim.apiserver import ApiServer
from providers.sim.controllers import HeartbeatOptions, KubeletOptions, SimulationOptions, assemble
from providers.sim.ec2.simulator import AwsSimulator
from providers.sim.store import Store
from tests.providers.sim.apiserver.clusters import Kubectl, kubectl_of

WORK = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 12
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "registry.test/c:1", resources: {requests: {cpu: 500m}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 3
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "registry.test/c:1", resources: {requests: {cpu: 500m}}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: log}
spec:
  selector: {matchLabels: {app: log}}
  template:
    metadata: {labels: {app: log}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "registry.test/c:1", resources: {requests: {cpu: 100m}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "registry.test/c:1", resources: {requests: {cpu: 500m}}}]
"""
EVERY = ("deploy/web", "sts/db", "ds/log")
QUICK = SimulationOptions(
    heartbeat=HeartbeatOptions(ready_delay_s=0.1), kubelet=KubeletOptions(start_delay_s=0.1), podgc_quarantine_s=1.0
)


@pytest.fixture
def store() -> Store:
    made = Store(SystemClock())
    made.create(made.resource("StorageClass"), dict(AwsSimulator.storage_class))
    return made


@pytest.fixture
def kubectl(store: Store, tmp_path: Path) -> Iterator[Kubectl]:
    with ApiServer(store) as server, assemble(store, SystemClock(), options=QUICK).in_real_time():
        yield kubectl_of(server.kubeconfig(tmp_path / "kubeconfig"), "default", tmp_path)


def joined(store: Store, name: str, zone: str) -> None:
    amounts = {"cpu": "12", "memory": "16Gi", "pods": "60"}
    metadata = {"name": name, "labels": {"topology.kubernetes.io/zone": zone}}
    status = {"capacity": amounts, "allocatable": amounts}
    store.create(store.resource("Node"), {"metadata": metadata, "spec": {}, "status": status})


def column(table: str, number: int) -> list[str]:
    return [line.split()[number] for line in table.splitlines()]


def test_ordinary_work_as_its_users_see_it(kubectl: Kubectl, store: Store) -> None:
    kubectl("apply", "-f", "-", stdin=WORK)
    kubectl("wait", "pod/bare", "--for=condition=PodScheduled=false", "--timeout=20s")
    described = kubectl("describe", "pod", "bare").stdout
    assert "FailedScheduling" in described
    assert "no nodes available to schedule pods" in described
    joined(store, "n-a", "a")
    joined(store, "n-b", "b")
    for each in EVERY:
        kubectl("rollout", "status", each, "--timeout=25s")
    kubectl("wait", "pod/bare", "--for=condition=Ready", "--timeout=20s")
    assert column(kubectl("get", "deploy,sts,ds", "--no-headers").stdout.replace("\n\n", "\n"), 1) == [
        "12/12",
        "3/3",
        "2",
    ]
    claims = kubectl("get", "pvc", "--no-headers").stdout
    assert (column(claims, 0), column(claims, 1)) == (["data-db-0", "data-db-1", "data-db-2"], ["Bound"] * 3)
    assert kubectl("get", "sc", "--no-headers").stdout.startswith("gp3 (default)")
    _scaled_and_updated(kubectl)
    _drained(kubectl)


def _scaled_and_updated(kubectl: Kubectl) -> None:
    kubectl("scale", "deploy/web", "--replicas=4")
    kubectl("scale", "sts/db", "--replicas=2")
    kubectl("rollout", "status", "deploy/web", "--timeout=25s")
    assert kubectl("get", "rs", "--no-headers").stdout.split()[1:4] == ["4", "4", "4"]
    for each in EVERY:
        kubectl("set", "image", each, "c=registry.test/c:2")
        kubectl("rollout", "status", each, "--timeout=25s")
        assert column(kubectl("rollout", "history", each).stdout.strip(), 0)[2:] == ["1", "2"]
    images = kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}", "-l", "app").stdout
    assert set(images.split()) == {"registry.test/c:2"}
    kubectl("rollout", "undo", "deploy/web")
    kubectl("rollout", "status", "deploy/web", "--timeout=25s")
    image = "-o=jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deploy/web", image).stdout == "registry.test/c:1"


def _drained(kubectl: Kubectl) -> None:
    kubectl("drain", "n-a", "--ignore-daemonsets", "--force", "--timeout=25s")
    kubectl("wait", "deploy/web", "--for=condition=Available", "--timeout=25s")
    left = kubectl("get", "pods", "--no-headers", "--field-selector=spec.nodeName=n-a").stdout
    assert [name.split("-")[0] for name in column(left, 0)] == ["log"]
    kubectl("delete", "deploy/web", "sts/db", "ds/log", "--cascade=foreground", "--timeout=25s")
    assert kubectl("get", "rs,controllerrevisions", "--no-headers").stdout == ""
