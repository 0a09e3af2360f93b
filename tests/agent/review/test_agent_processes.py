"""Agents as processes of their own before a repository that is pushed to and a forge, over the wire: what is to hold
whatever happens to process and forge."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pygit2
import pytest
import yaml

from agent.cli.run import install_crds
from agent.demo.jobs import job
from agent.sandbox.agent_process import SECRET, AgentProcess
from agent.sandbox.command import free_port, sandboxed
from agent.sandbox.forge import SandboxForge
from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld
from providers.kube.config import from_url
from providers.kube.transport import KubeTransport
from providers.sim.forge.hosting import HostedRepository, deliver
from providers.sim.forge.server import ForgeExchange
from tests.agent.review.place import recorded
from tests.agent.scenes import files, pool, queue, simple, team

pytestmark = pytest.mark.slow
WITHIN_S = 90.0
PUSHES = 1000
ROOT = Path(__file__).resolve().parents[3]


class ReviewedSandbox:
    """A sandbox with a small fleet in its repository, and as many agents as are started."""

    def __init__(
        self, world: SandboxWorld, repository: Repository, forge: SandboxForge, agent: AgentProcess, folder: Path
    ) -> None:
        self.world, self.repository, self.forge, self.folder = world, repository, forge, folder
        self.agents = [agent]
        repository.write({str(it.relative_to(repository.clone)): None for it in repository.clone.glob("**/*.yaml")})
        repository.write(simple())
        self.first = repository.push("The fleet")
        self.server = forge._server
        webhook = f"http://127.0.0.1:{agent.webhook_port}/webhook"
        tell = partial(deliver, webhook, SECRET)
        self.hosting = HostedRepository(repository.bare, forge.state, forge.state.account("ada", "write"), tell)
        world.store.create(world.store.resource("Namespace"), {"metadata": {"name": "t"}})
        install_crds(KubeTransport(from_url(world.api.url)))

    def another(self) -> AgentProcess:
        """A second agent of the same cluster."""
        folder = self.folder / f"agent-{len(self.agents)}"
        folder.mkdir()
        ports = free_port(), free_port()
        made = AgentProcess(folder, self.world, self.repository, more=self.forge.settings, ports=ports)
        self.agents.append(made)
        return made

    def started(self, agent: AgentProcess, **settings: Any) -> AgentProcess:
        said = yaml.safe_load(agent.config.read_text("utf-8")) | {"installCrds": False} | settings
        agent.config.write_text(yaml.safe_dump(said), "utf-8")
        agent.start()
        return agent

    def until(self, holds: Callable[[], object], words: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            if holds():
                return
            time.sleep(0.02)
        logs = "\n".join(it.log.read_text("utf-8")[-3000:] for it in self.agents if it.log.exists())
        raise AssertionError(f"not within {WITHIN_S:.0f} s: {words}\n{logs}")

    def comments(self) -> list[str]:
        return [it.body for it in self.forge.state.comments.values()]

    def written(self) -> int:
        """How many comments were written, whatever became of them."""
        return sum(it.method == "POST" and it.path.endswith("/comments") for it in self.server.exchanges)

    def sync(self) -> dict[str, Any]:
        """The status of the FleetSync."""
        found = next(iter(self.world.store.list(self.world.store.resource("FleetSync"))), {})
        return dict(found.get("status") or {})

    def submit(self, name: str, run_s: float | None = None) -> None:
        manifest = job(name, "t", "normal", pods=1, requests={"nvidia.com/gpu": "8"}, run_s=run_s)
        self.world.store.create(self.world.store.resource("Job"), manifest, namespace="t")

    def reason(self, name: str) -> str:
        workloads = self.world.store.list(self.world.store.resource("Workload"))
        found = {it["spec"]["job"]["name"]: (it.get("status") or {}).get("reason", "") for it in workloads}
        return str(found.get(name, ""))


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[ReviewedSandbox]:
    with sandboxed(tmp_path, cluster="test", speed=60.0, poll_s=2.0) as (world, repository, forge, agent):
        made = ReviewedSandbox(world, repository, forge, agent, tmp_path)
        yield made
        for each in made.agents:
            each.kill()  # it may be suspended


def more() -> dict[str, str]:
    return files(pool(), pool("more"), team(), queue())


def test_an_agent_that_is_deposed_in_the_midst_of_a_review_writes_no_second_comment(sandbox: ReviewedSandbox) -> None:
    """Suspended between reading the comments and writing its own, for as long as another is elected and writes one."""
    first = sandbox.started(sandbox.agents[0], leaderElection=True)
    sandbox.until(lambda: first.get("/readyz")[0] == 200 and sandbox.sync().get("appliedRevision"), "the first leads")
    suspended: list[int] = []

    def suspend(exchange: ForgeExchange) -> None:
        if not suspended and exchange.method == "GET" and exchange.path.endswith("/issues/1/comments"):
            suspended.append(first.pid)
            os.kill(first.pid, signal.SIGSTOP)

    sandbox.server._on_exchange = suspend
    second = sandbox.started(sandbox.another(), leaderElection=True)
    sandbox.until(lambda: second.get("/readyz")[0] == 200, "the second stands by")
    sandbox.repository.write(more())
    sandbox.repository.push("A pool more", "change")
    sandbox.until(lambda: suspended, "the first has read the comments")
    sandbox.until(sandbox.comments, "the second writes one")
    os.kill(first.pid, signal.SIGCONT)
    sandbox.until(lambda: not first.pid, "the first has ended")
    assert "lease_lost" in first.log.read_text("utf-8")
    assert sandbox.written() == 1
    assert len(sandbox.comments()) == 1


def test_the_record_of_an_agent_is_read_by_replay(sandbox: ReviewedSandbox, tmp_path: Path) -> None:
    """Work that comes, runs and ends on a cluster; the agent is killed in between and goes on with the same file."""
    record = tmp_path / "kept" / "record.jsonl"
    agent = sandbox.started(sandbox.agents[0], record=str(record))
    sandbox.until(lambda: agent.get("/readyz")[0] == 200, "ready")
    sandbox.submit("kept")
    sandbox.submit("first", run_s=1.0)
    sandbox.until(lambda: ended(record) == ["first"], "its end is recorded")
    sandbox.until(lambda: sandbox.reason("kept") == "PodsReady", "the other runs")
    agent.kill()
    with record.open("a", encoding="utf-8") as file:
        file.write('{"at_s": 17')
    agent.start()
    sandbox.until(lambda: agent.get("/readyz")[0] == 200, "ready again")
    sandbox.submit("second", run_s=1.0)
    sandbox.until(lambda: ended(record) == ["first", "second"], "its end is recorded")

    arguments = ["--recorded", str(record), "--from", "main", "--jobs", "1", "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "replay", str(sandbox.repository.clone), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1 gang had not ended" in done.stderr
    for outcome in json.loads(done.stdout)["outcomes"]:
        assert [(it["queue"], it["gangs"], it["started"], it["finished"]) for it in outcome["queues"]] == [
            ("t", 3, 3, 3)
        ]
        assert outcome["usd"] > 0
        assert outcome["total"]["gpu_h"] > 0


def ended(record: Path) -> list[str]:
    lines = record.read_text("utf-8").splitlines() if record.exists() else ()
    return [it["name"] for it in map(json.loads, lines) if it["run_s"] is not None]


def test_a_thousand_pushes_are_one_comment_of_the_last(sandbox: ReviewedSandbox) -> None:
    """Each moves the branch and is delivered to the agent's webhook by itself, signed, over HTTP."""
    agent = sandbox.started(sandbox.agents[0])
    sandbox.until(lambda: agent.get("/readyz")[0] == 200 and sandbox.sync().get("appliedRevision"), "in force")
    sandbox.repository.write(more())
    first = sandbox.repository.push("A pool more", "change")
    bare = pygit2.Repository(str(sandbox.repository.bare))
    for number in range(PUSHES):
        who = pygit2.Signature("ada", "ada@example.com", 1_700_000_000 + number, 0)
        head = str(bare.create_commit(None, who, who, f"Amended {number}", bare[first].tree_id, [sandbox.first]))
        bare.references.create("refs/heads/change", head, force=True)
        sandbox.hosting.look()

    def delivered() -> float:
        lines = [it for it in agent.get("/metrics")[1].splitlines() if it.startswith("muster_webhook_deliveries_total")]
        return sum(float(it.rpartition(" ")[2]) for it in lines if 'status="202"' in it)

    sandbox.until(lambda: delivered() >= PUSHES, "all are delivered")
    sandbox.until(lambda: head[:12] in "".join(sandbox.comments()), "the comment is of the last")
    assert sandbox.forge.state.latest_checks(head), "and so is the status"
    assert "Failed" not in "".join(sandbox.comments())
    assert len(sandbox.comments()) == 1
    assert agent.get("/healthz")[0] == 200


def test_a_forge_that_is_down_keeps_nothing_else_waiting_and_is_caught_up_with(sandbox: ReviewedSandbox) -> None:
    """While nobody answers, work runs and a merge comes into force; what was missed is said when it is back."""
    agent = sandbox.started(sandbox.agents[0])
    sandbox.until(lambda: agent.get("/readyz")[0] == 200 and sandbox.sync().get("appliedRevision"), "in force")
    sandbox.repository.write(more())
    head = sandbox.repository.push("A pool more", "change")
    sandbox.until(lambda: "would come into force" in "".join(sandbox.comments()), "the comment is there")
    sandbox.server.stop()
    sandbox.submit("job")
    sandbox.until(lambda: sandbox.reason("job") == "PodsReady", "work runs")
    sandbox.until(lambda: "ReviewFailed" in str(sandbox.sync().get("conditions")), "the FleetSync tells of it")
    merged = sandbox.repository.push("Merged by hand")
    sandbox.until(lambda: str(sandbox.sync().get("appliedRevision")).endswith(merged), "the merge is in force")
    assert merged != head
    sandbox.server.start()
    sandbox.hosting.look()
    sandbox.until(lambda: "is in force" in "".join(sandbox.comments()), "the comment is caught up with")
    sandbox.until(lambda: "ReviewFailed" not in str(sandbox.sync().get("conditions")), "and the trouble is over")
    assert len(sandbox.comments()) == 1


def test_a_forecast_follows_the_comment(sandbox: ReviewedSandbox, tmp_path: Path) -> None:
    """Of work that an agent recorded, by a process beside it; the comment is there before."""
    agent = sandbox.started(sandbox.agents[0], record=str(recorded(tmp_path / "record.jsonl")))
    sandbox.until(lambda: agent.get("/readyz")[0] == 200 and sandbox.sync().get("appliedRevision"), "in force")
    sandbox.repository.write(files(pool(limits={"nodes": 1}), team(), queue()))
    sandbox.repository.push("One machine at most", "change")
    sandbox.until(sandbox.comments, "the comment is there")
    assert "Forecast" not in sandbox.comments()[0]
    sandbox.until(lambda: "Forecast: the last 7 days again" in sandbox.comments()[0], "the forecast follows")
    row = next(line for line in sandbox.comments()[0].splitlines() if line.startswith("| t |"))
    assert "->" in row, "with one machine all wait longer"
