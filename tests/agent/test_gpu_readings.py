"""Readings of dcgm-exporter as the agent takes them: its pods, one that fails, and what cannot be listed."""

from contextlib import ExitStack
from typing import Any

import pytest

from agent.config import DcgmSettings
from agent.gpu_readings import FOUND_AGAIN_S, readings_listener
from agent.inbox import Event, GpusRead
from providers.clock import VirtualClock
from providers.kube.errors import Forbidden
from providers.kube.exporters import find_exporters
from providers.sim.direct import DirectTransport
from providers.sim.store import Store
from tests.providers.test_dcgm import exporter, line

NAMESPACE = "gpu-operator"
ACTIVE, USED, XID = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_XID_ERRORS"
HELD = {"namespace": "ml", "pod": "a", "hostname": "a-pod-of-the-exporter"}
TEXT = (line(ACTIVE, 0.5, **HELD) + line(USED, 700, **HELD) + line(XID, 79)).encode()


class ExporterCluster:
    """Pods of an exporter in a store, and an agent that reads them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = Store(self.clock)
        self.store.create(self.store.resource("Namespace"), {"metadata": {"name": NAMESPACE}})
        self.transport = DirectTransport(self.store, self.clock)
        self.heard: list[Event] = []
        self.counted: list[tuple[str, str]] = []

    def pod(self, node: str, ip: str, port: int | None, *, phase: str = "Running", app: str = "") -> None:
        ports = [{"name": "health", "containerPort": 1}]
        ports += [{"name": "metrics", "containerPort": port}] if port else []
        meta = {"name": f"exporter-{node}-{ip}".replace(".", "-").replace(":", "-"), "namespace": NAMESPACE}
        body = {
            "metadata": {**meta, "labels": {"app": app or "nvidia-dcgm-exporter"}},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "x", "ports": ports}]},
        }
        pods = self.store.resource("Pod")
        made = self.store.create(pods, body, namespace=NAMESPACE)
        status = {"phase": phase, "podIP": ip}
        self.store.update(pods, {**made, "status": status}, namespace=NAMESPACE, subresource="status")

    def listener(self, **said: Any) -> Any:
        settings = DcgmSettings.model_validate(said)
        return readings_listener(
            settings, self.transport, self.heard.append, self.clock, lambda *what: self.counted.append(what)
        )

    def last(self) -> GpusRead:
        found = self.heard[-1]
        assert isinstance(found, GpusRead)
        return found


def test_the_pods_that_run_are_found_one_a_node_by_their_port() -> None:
    cluster = ExporterCluster()
    cluster.pod("n1", "10.0.0.1", 9401)
    cluster.pod("n2", "fd00::2", None)
    cluster.pod("n3", "10.0.0.3", 9400, phase="Pending")
    cluster.pod("n4", "10.0.0.4", 9400, app="another")
    found = find_exporters(cluster.transport, NAMESPACE, "app=nvidia-dcgm-exporter")
    assert [tuple(it) for it in found] == [
        ("n1", "http://10.0.0.1:9401/metrics"),
        ("n2", "http://[fd00::2]:9400/metrics"),
    ]
    forced = find_exporters(cluster.transport, NAMESPACE, "app=nvidia-dcgm-exporter", 80)
    assert {it.url.rpartition(":")[2] for it in forced} == {"80/metrics"}


def test_one_that_does_not_answer_is_told_of_and_stops_nothing() -> None:
    cluster = ExporterCluster()
    with ExitStack() as running:
        url = running.enter_context(exporter(content=TEXT))
        cluster.pod("n1", "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
        cluster.pod("n2", "127.0.0.1", 1)
        listen = cluster.listener(timeoutS=1.0)
        assert listen() >= 30.0
        cluster.clock.advance(30)
        listen()
    (use,) = cluster.last().uses["ml/a"]
    assert (use.readings, use.last.node) == (2, "n1"), "of the node that the pod is on, whatever it calls itself"
    assert [it.complaint.code for it in cluster.last().faults["n1"]] == [79]
    assert cluster.last().trouble.startswith("1 of 2 exporters of readings give none, on n2: http://127.0.0.1:1/")
    assert cluster.counted == [("dcgm", "scrape")] * 2


def test_pods_that_come_are_found_within_a_minute() -> None:
    cluster = ExporterCluster()
    listen = cluster.listener(intervalS=60.0)
    listen()
    assert cluster.last().uses == {}
    assert cluster.last().trouble == "", "a cluster without GPU nodes has none"
    with exporter(content=TEXT) as url:
        cluster.pod("n1", "127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]))
        cluster.clock.advance(FOUND_AGAIN_S)
        listen()
    assert list(cluster.last().uses) == ["ml/a"]


def test_pods_that_may_not_be_listed_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise Forbidden("pods is forbidden", code=403)

    cluster = ExporterCluster()
    monkeypatch.setattr(cluster.transport, "list_pages", refused)
    cluster.listener()()
    assert "cannot be listed: pods is forbidden" in cluster.last().trouble
