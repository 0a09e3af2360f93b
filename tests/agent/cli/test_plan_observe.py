"""`muster plan --world --observe`: what would be bought on a cluster without Muster. Nothing is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from providers.clock import VirtualClock
from providers.kube.objects.crds import definitions
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store

FLEET = Path(__file__).resolve().parents[3] / "examples" / "karpenter"
PENDING = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
    ],
}


class OtherCluster(NamedTuple):
    store: Store
    kubeconfig: Path

    def plan(self, *arguments: str) -> Result:
        command = ["plan", str(FLEET), "--world", "--kubeconfig", str(self.kubeconfig), *arguments]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    def make(self, kind: str, manifest: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        return self.store.create(self.store.resource(kind), manifest, namespace=namespace)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OtherCluster]:
    """One that Karpenter runs: a machine of its own, and three pods that it has not bought for yet."""
    store = Store(VirtualClock(1_900_000_000.0))
    with ApiServer(store) as server:
        there = OtherCluster(store, server.kubeconfig(tmp_path / "kubeconfig"))
        labels = {"karpenter.sh/nodepool": "general", "kubernetes.io/hostname": "theirs"}
        there.make("Node", {"metadata": {"name": "theirs", "labels": labels}})
        requests = {"cpu": "2", "memory": "4Gi"}
        spec = {"containers": [{"name": "main", "image": "web", "resources": {"requests": requests}}]}
        chosen = {"matchLabels": {"app": "web"}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
        web = {"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": chosen, "template": template}}
        uid = there.make("ReplicaSet", web, "default")["metadata"]["uid"]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
        for name in ("a", "b", "c"):
            metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
            pod = there.make("Pod", {"metadata": metadata, "spec": spec}, "default")
            store.update(store.resource("Pod"), {**pod, "status": PENDING}, namespace="default", subresource="status")
        yield there
        server.drop_connections()


def test_it_tells_what_it_would_buy_and_writes_nothing(cluster: OtherCluster) -> None:
    before = {it.key: cluster.store.list(it) for it in cluster.store.resources()}
    done = cluster.plan("--observe", "--region", "us-east-1")
    assert done.exit_code == exits.OK, done.stderr
    bought = [line for line in done.stdout.splitlines() if line.startswith("+") and "general" in line]
    assert any("USD/h" in line for line in bought), done.stdout
    assert "theirs" not in done.stdout
    assert {it.key: cluster.store.list(it) for it in cluster.store.resources()} == before


def test_without_the_flag_it_says_that_muster_is_not_there(cluster: OtherCluster) -> None:
    done = cluster.plan()
    assert (done.exit_code, done.stdout) == (exits.ERROR, "")
    assert "Muster is not installed on this cluster: `--observe` plans what it would do there" in done.stderr


def test_with_the_flag_it_says_that_muster_is_there(cluster: OtherCluster) -> None:
    for definition in definitions():
        cluster.make("CustomResourceDefinition", definition)
    done = cluster.plan("--observe")
    assert (done.exit_code, done.stdout) == (exits.ERROR, "")
    assert "Muster is installed on this cluster: plan without `--observe`" in done.stderr


def test_it_is_about_a_cluster() -> None:
    done = CliRunner().invoke(app, ["plan", str(FLEET), "--observe"])
    assert done.exit_code == 2
    assert "it needs --world" in done.stderr
