"""The agent's process on a real API server, a real EC2 wire and a real repository; two of them and one lease."""

import functools
import hashlib
import hmac
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import process as process_module
from agent.cli.run import ClusterVersion, install_crds, open_cloud
from agent.config import Settings
from agent.demo.jobs import job
from agent.fleet_source import open_source
from agent.process import Agent
from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld
from providers.clock import SystemClock
from providers.kube.config import from_url
from providers.kube.elector import ElectionTiming, Elector
from providers.kube.errors import Unreachable
from providers.kube.transport import KubeTransport
from tests.agent.scenes import simple
from tests.support.work import group_pod

WITHIN_S = 60.0
LASTING = ElectionTiming(lease_s=60, renew_s=40.0, retry_s=1.5)
"""Held however slow the machine is, and taken over soon after it was given up."""
SHORT = ElectionTiming(lease_s=3, renew_s=2.0, retry_s=0.3)
"""For a leader that is to lose it."""


def until(holds: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {WITHIN_S} s: {words}")


class Running:
    """An agent in a thread."""

    def __init__(
        self, place: "AgentPlace", name: str, *, election: bool, timing: ElectionTiming, poll_s: float = 0.5
    ) -> None:
        place.monkeypatch.setattr(process_module, "Elector", functools.partial(Elector, timing=timing))
        settings = Settings.model_validate(
            {
                "cluster": "test",
                "region": "us-east-1",
                "source": {
                    "url": str(place.repository.bare),
                    "pollIntervalS": poll_s,
                    "cacheDir": str(place.folder / name),
                },
                "aws": {"endpointUrl": place.world.cloud.url, "pollIntervalS": 0.5},
                "http": {"host": "127.0.0.1", "port": 0},
                "webhook": {"host": "127.0.0.1", "port": 0, "secretFile": str(place.folder / "secret")},
                "leaderElection": election,
                "journal": str(place.folder / f"{name}.jsonl"),
            }
        )
        clock = SystemClock()
        self.journal = settings.journal or Path()
        self.transport = KubeTransport(from_url(place.world.api.url))
        self.source = open_source(settings, clock)
        cloud, _, _ = open_cloud(settings, clock, ClusterVersion(self.transport, clock))
        self.agent = Agent(settings, self.transport, cloud, self.source, clock=clock)
        self.thread = threading.Thread(target=self.agent.run, daemon=True)
        self.thread.start()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.agent.status_pages.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def deliver(self, secret: str) -> int:
        """A forge says that something was pushed; the status of the answer."""
        assert self.agent.webhook is not None
        body = b"{}"
        proof = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.agent.webhook.port, timeout=WITHIN_S)
        connection.request("POST", "/webhook", body, {"X-Signature": proof})
        status = connection.getresponse().status
        connection.close()
        return status

    @property
    def leads(self) -> bool:
        return "muster_leading 1.0" in self.get("/metrics")[1]

    def stop(self) -> None:
        self.agent.stop()
        self.thread.join(15.0)
        self.source.close()
        assert not self.thread.is_alive()

    def lines(self, event: str) -> list[dict[str, object]]:
        text = self.journal.read_text(encoding="utf-8") if self.journal.exists() else ""
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]


class AgentPlace:
    """A sandbox's world with an empty agent's seat."""

    def __init__(self, folder: Path, world: SandboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.world = world
        self.repository = Repository(folder)
        example = folder / "example"
        example.mkdir()
        (example / "fleet.yaml").write_text(simple()["fleet.yaml"], encoding="utf-8")
        self.repository.create(example)
        self.repository.push("The fleet")
        install_crds(KubeTransport(from_url(world.api.url)))
        world.store.create(world.store.resource("Namespace"), {"metadata": {"name": "t"}})
        self.agents: list[Running] = []

    def start(
        self, name: str, *, election: bool = True, timing: ElectionTiming = LASTING, poll_s: float = 0.5
    ) -> Running:
        self.agents.append(Running(self, name, election=election, timing=timing, poll_s=poll_s))
        return self.agents[-1]

    def sync(self) -> dict[str, Any]:
        """The FleetSync."""
        (found,) = self.world.store.list(self.world.store.resource("FleetSync"))
        return found

    def applied(self) -> str:
        """The revision in force, as the FleetSync tells it."""
        return str((self.sync().get("status") or {}).get("appliedRevision", ""))

    def handled(self) -> str:
        """The request to poll that was heard last."""
        return str((self.sync().get("status") or {}).get("lastHandledRequest", ""))

    def submit(self, name: str) -> None:
        manifest = job(name, "t", "normal", pods=1, requests={"nvidia.com/gpu": "8"})
        self.world.store.create(self.world.store.resource("Job"), manifest, namespace="t")

    def billed(self) -> int:
        """What the books in the cluster say."""
        maps = self.world.store.list(self.world.store.resource("ConfigMap"), "muster-system")
        kept = [it["data"]["books.json"] for it in maps if it["metadata"]["name"] == "muster-books"]
        return int(json.loads(kept[0])["total"]) if kept else 0

    def running(self, name: str) -> bool:
        workloads = self.world.store.list(self.world.store.resource("Workload"))
        states = {w["spec"]["job"]["name"]: (w.get("status") or {}).get("reason") for w in workloads}
        return states.get(name) == "PodsReady"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentPlace]:
    monkeypatch.setattr(process_module, "settle_heap", lambda: None)
    with SandboxWorld(tmp_path / "world", cluster="test", speed=60.0) as world:
        made = AgentPlace(tmp_path, world, monkeypatch)
        yield made
        for running in made.agents:
            if running.thread.is_alive():
                running.stop()
        world.api.drop_connections()


def test_plain_pods_run_on_a_cluster_that_has_none_of_the_operators(place: AgentPlace) -> None:
    first = place.start("first", election=False)
    for name in ("a", "b"):
        place.world.store.create(place.world.store.resource("Pod"), group_pod(name), namespace="t")
    until(lambda: place.running("g"), "the group runs")
    pods = place.world.store.list(place.world.store.resource("Pod"), "t")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    first.stop()


def test_an_agent_starts_works_and_stops(place: AgentPlace) -> None:
    first = place.start("first", election=False)
    until(lambda: first.get("/readyz") == (200, "ok\n"), "ready")
    assert first.get("/healthz") == (200, "ok\n")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert "muster_machines_bought_total" in first.get("/metrics")[1]
    until(lambda: place.billed() > 0, "the machine is billed")
    first.stop()
    assert not first.agent.lost_lease
    assert first.get("/healthz")[0] == 0
    assert [line["event"] for line in first.lines("launched")] == ["launched"]
    again = place.start("again", election=False)
    until(lambda: again.get("/readyz") == (200, "ok\n"), "ready again")
    place.submit("b")
    until(lambda: place.running("b"), "the next job runs")
    assert len(place.world.cloud.ledger()) == 2


def test_it_is_not_ready_and_says_why_while_no_fleet_is_in_force(place: AgentPlace) -> None:
    (place.repository.clone / "fleet.yaml").write_text("kind: Nonsense\n", encoding="utf-8")
    place.repository.push("A mistake")
    first = place.start("first", election=False)
    until(lambda: "no fleet in force" in first.get("/readyz")[1], "it says why")
    assert first.get("/readyz")[0] == 503
    assert first.get("/healthz")[0] == 200
    (place.repository.clone / "fleet.yaml").write_text(simple()["fleet.yaml"], encoding="utf-8")
    place.repository.push("Mended")
    until(lambda: first.get("/readyz")[0] == 200, "ready")


def test_of_two_agents_one_acts_and_the_other_takes_over_when_it_is_stopped(place: AgentPlace) -> None:
    first = place.start("first")
    until(lambda: first.leads, "the first leads")
    second = place.start("second")
    until(lambda: second.get("/readyz") == (200, "ok\n"), "a standby is ready to take over")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert first.leads
    assert not second.leads
    assert second.lines("launched") == []
    first.stop()
    assert not first.agent.lost_lease, "it gave the lease up of its own will"
    until(lambda: second.leads, "the second leads")
    place.submit("b")
    until(lambda: place.running("b"), "the next job runs")
    assert place.running("a")
    assert len(second.lines("launched")) == 1
    assert len(place.world.cloud.ledger()) == 2


@pytest.mark.parametrize("to_standby", [False, True])
def test_a_delivery_counts_whichever_agent_it_reaches(place: AgentPlace, to_standby: bool) -> None:
    """The next poll is an hour away: only the delivery can bring the push to the leader."""
    (place.folder / "secret").write_text("test\n", encoding="utf-8")
    first = place.start("first", poll_s=3600.0)
    until(lambda: first.leads and first.get("/readyz")[0] == 200, "the first leads")
    second = place.start("second", poll_s=3600.0)
    until(lambda: second.get("/readyz") == (200, "ok\n"), "a standby waits")
    commit = place.repository.push("Another revision")
    reached = second if to_standby else first
    assert reached.deliver("wrong") == 403
    assert reached.deliver("test") == 202
    until(lambda: commit in place.applied(), "the push is in force")
    assert not second.leads
    if to_standby:
        until(lambda: place.sync()["metadata"]["annotations"]["muster.dev/requested-at"] == place.handled(), "its echo")
    assert 'muster_webhook_deliveries_total{sender="generic",status="202"} 1.0' in reached.get("/metrics")[1]


def test_a_deposed_agent_ends_with_an_error_and_the_other_takes_over(
    place: AgentPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.start("first", timing=SHORT)
    until(lambda: first.leads, "the first leads")
    second = place.start("second")

    def cut_off(*_: object, **__: object) -> bytes:
        raise Unreachable("no route to host")

    assert first.agent._elector is not None
    lease = first.agent._elector._lease
    monkeypatch.setattr(lease, "read", cut_off)
    monkeypatch.setattr(lease, "update", cut_off)
    first.thread.join(WITHIN_S)
    assert not first.thread.is_alive()
    assert first.agent.lost_lease, "which `muster run` turns into exit code 1"
    until(lambda: second.leads, "the second leads")
    place.submit("a")
    until(lambda: place.running("a"), "the job runs")
    assert first.lines("launched") == []


def test_a_deposed_agent_is_not_elected_again_while_it_shuts_down(
    place: AgentPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its workers still had in line would be carried out in a term whose decisions somebody else has made."""
    shut_down = threading.Event()

    def lead(agent: Agent) -> None:
        agent._stopping.wait(WITHIN_S)
        shut_down.wait(WITHIN_S)

    monkeypatch.setattr(Agent, "_lead", lead)
    first = place.start("first", timing=SHORT)
    until(lambda: first.agent._elector is not None and first.agent._elector.leading(), "the first leads")
    elector = first.agent._elector
    assert elector is not None

    def cut_off(*_: object, **__: object) -> bytes:
        raise Unreachable("no route to host")

    with monkeypatch.context() as cut:
        cut.setattr(elector._lease, "read", cut_off)
        cut.setattr(elector._lease, "update", cut_off)
        until(lambda: first.agent.lost_lease, "its lease runs out")
    second = place.start("second", timing=SHORT)
    until(lambda: second.agent._elector is not None and second.agent._elector.leading(), "the second leads")
    assert first.thread.is_alive(), "still shutting down"
    assert not elector.leading()
    shut_down.set()
    first.thread.join(WITHIN_S)
    assert not first.thread.is_alive()
