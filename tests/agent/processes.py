"""Agents in threads of the test's process, on a sandbox's world: API server, EC2 and a repository, over the wire."""

import functools
import hashlib
import hmac
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import process as process_module
from agent.accounts import Bookkeeper
from agent.cli.cost import month_records
from agent.cli.run import ClusterVersion, install_crds, open_cloud
from agent.config import Settings
from agent.demo.jobs import job
from agent.fleet_source import open_source
from agent.process import Agent
from agent.review.opening import review_ports
from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld
from fleet.cost.statement import Month
from providers.clock import SystemClock
from providers.kube.config import from_url
from providers.kube.elector import ElectionTiming, Elector
from providers.kube.transport import KubeTransport
from providers.store.sqlite import SqliteLedger
from tests.agent.scenes import simple

WITHIN_S = 180.0
LASTING = ElectionTiming(lease_s=60, renew_s=40.0, retry_s=1.5)
"""Held however slow the machine is, and taken over soon after it was given up."""
SHORT = ElectionTiming(lease_s=6, renew_s=4.0, retry_s=0.3)
"""For a leader that is to lose it, and not before: on a busy machine a turn may take a second or two."""


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
        self,
        place: "AgentPlace",
        name: str,
        *,
        election: bool,
        timing: ElectionTiming,
        poll_s: float = 0.5,
        review: dict[str, Any] | None = None,
    ) -> None:
        place.monkeypatch.setattr(process_module, "Elector", functools.partial(Elector, timing=timing))
        place.monkeypatch.setattr(process_module, "Bookkeeper", functools.partial(Bookkeeper, every_s=1.0))
        settings = Settings.model_validate(
            {
                "cluster": place.cluster,
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
                "review": review,
                "journal": str(place.folder / f"{name}.jsonl"),
                "ledger": {"path": str(place.folder / "ledger.db")},
            }
        )
        clock = SystemClock()
        self.journal = settings.journal or Path()
        self.transport = KubeTransport(from_url(place.world.api.url))
        self.source = open_source(settings, clock)
        cloud, _, _ = open_cloud(settings, clock, ClusterVersion(self.transport, clock))
        self.agent = Agent(
            settings, self.transport, cloud, self.source, review=review_ports(settings, clock), clock=clock
        )
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
        self.cluster = "test"
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
        self,
        name: str,
        *,
        election: bool = True,
        timing: ElectionTiming = LASTING,
        poll_s: float = 0.5,
        review: dict[str, Any] | None = None,
    ) -> Running:
        self.agents.append(Running(self, name, election=election, timing=timing, poll_s=poll_s, review=review))
        return self.agents[-1]

    def sync(self) -> dict[str, Any]:
        """The FleetSync; empty while nobody has written it yet."""
        return next(iter(self.world.store.list(self.world.store.resource("FleetSync"))), {})

    def applied(self) -> str:
        """The revision in force, as the FleetSync tells it."""
        return str((self.sync().get("status") or {}).get("appliedRevision", ""))

    def handled(self) -> str:
        """The request to poll that was heard last."""
        return str((self.sync().get("status") or {}).get("lastHandledRequest", ""))

    def submit(self, name: str) -> None:
        manifest = job(name, "t", "normal", pods=1, requests={"nvidia.com/gpu": "8"})
        self.world.store.create(self.world.store.resource("Job"), manifest, namespace="t")

    def in_the_ledger(self) -> dict[str, float]:
        """USD by subject, as far as the agents have kept it; closed hours and open ones."""
        ledger = SqliteLedger(self.folder / "ledger.db", read_only=True)
        month = Month.of(time.time())
        usd: dict[str, float] = {}
        for it in month_records(ledger, month):
            usd[it.name] = usd.get(it.name, 0.0) + it.cost_micro_usd / 1e6
        ledger.close()
        return usd

    def billed(self) -> int:
        """What the books in the cluster say."""
        maps = self.world.store.list(self.world.store.resource("ConfigMap"), "muster-system")
        kept = [it["data"]["books.json"] for it in maps if it["metadata"]["name"] == "muster-books"]
        return int(json.loads(kept[0])["total"]) if kept else 0

    def running(self, name: str) -> bool:
        workloads = self.world.store.list(self.world.store.resource("Workload"))
        states = {w["spec"]["job"]["name"]: (w.get("status") or {}).get("reason") for w in workloads}
        return states.get(name) == "PodsReady"
