"""Agents as processes of their own before a repository that is pushed to and a forge, over the wire: what is to hold
whatever happens to process and forge."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli.run import install_crds
from agent.demo.jobs import job
from agent.sandbox.agent_process import AgentProcess
from agent.sandbox.command import free_port, sandboxed
from agent.sandbox.forge import SandboxForge
from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld
from providers.kube.config import from_url
from providers.kube.transport import KubeTransport
from providers.sim.forge.server import ForgeExchange
from tests.agent.scenes import files, pool, queue, simple, team

pytestmark = pytest.mark.slow
WITHIN_S = 90.0
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
        install_crds(KubeTransport(from_url(world.api.url)))

    def another(self) -> AgentProcess:
        """A second agent of the same cluster."""
        folder = self.folder / f"agent-{len(self.agents)}"
        folder.mkdir()
        ports = free_port(), free_port()
        made = AgentProcess(folder, self.world, self.repository, review=self.forge.review, ports=ports)
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

    def submit(self, name: str) -> None:
        manifest = job(name, "research", "normal", pods=1, requests={"nvidia.com/gpu": "8"})
        self.world.store.create(self.world.store.resource("Job"), manifest, namespace="research")

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
