"""`muster sandbox`: stays up until Ctrl-C and says how to use it."""

import contextlib
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from agent.cli import exits
from agent.logs import configure_logs
from agent.sandbox.agent_process import SECRET, AgentProcess
from agent.sandbox.example import example_fleet
from agent.sandbox.forge import SandboxForge
from agent.sandbox.repository import GitFailed, Repository
from agent.sandbox.world import SandboxWorld

HELP = """
A world on this machine. It ends with Ctrl-C; nothing of it is real but git, kubectl and the agent.

  export KUBECONFIG={kubeconfig} MUSTER_AGENT={agent}
  kubectl get nodes,nodeclaims,workloads,queues.muster.dev,nodepools.muster.dev -A
  kubectl describe fleetsync {cluster}

  cd {clone}            # the fleet repository; change it, commit, git push
  muster plan {clone} --world --kubeconfig {kubeconfig}

The page:       {agent}/   # queues, gangs, machines, money, and why
Pull requests:  {forge}   # push a branch, and it is one; the agent answers there

Submit work (see docs/guides/first-fleet.md): a Job, JobSet or Deployment with the label muster.dev/queue.
Cause faults:   curl --json '{{"instance_type": "p5.48xlarge", "zone": "us-east-1a"}}' {cloud}/muster-sim/shortage
Agent:          {agent}/readyz  {agent}/metrics   log {log}   journal {journal}
Costs:          muster cost --ledger {ledger} --by team,gang
Waits:          muster replay {clone} --recorded {record} --from main --to BRANCH
"""


@contextlib.contextmanager
def sandboxed(
    folder: Path, *, cluster: str, speed: float, api_port: int = 0, poll_s: float = 5.0, consumable_shares: str = ""
) -> Iterator[tuple[SandboxWorld, Repository, SandboxForge, AgentProcess]]:
    """A world with its repository (nothing pushed yet), the forge before it and the agent (not started yet).

    Raises `FileExistsError`, before anything is written, for a folder in which there is something: another sandbox may
    be running on it.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; give a folder that no sandbox has used")
    repository = Repository(folder)
    with SandboxWorld(
        folder, cluster=cluster, speed=speed, api_port=api_port, consumable_shares=consumable_shares
    ) as world:
        repository.create(example_fleet())
        ports = free_port(), free_port()
        webhook = f"http://127.0.0.1:{ports[1]}/webhook"
        with SandboxForge(folder, repository.bare, world.clock, webhook, SECRET) as forge:
            repository.notify(forge.url)
            agent = AgentProcess(folder, world, repository, more=forge.settings, ports=ports, poll_s=poll_s)
            try:
                yield world, repository, forge, agent
            finally:
                agent.stop()


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_sandbox(folder: Path | None, api_port: int, speed: float, consumable_shares: str) -> int:
    """Bring the world up, push the example fleet, wait for a signal; the exit code."""
    configure_logs("console", level="WARNING")
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with contextlib.ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-sandbox-")))
        try:
            world, repository, forge, agent = stack.enter_context(
                sandboxed(place, cluster="sandbox", speed=speed, api_port=api_port, consumable_shares=consumable_shares)
            )
            repository.push("The example fleet")
            agent.start()
            agent.wait_healthy()
        except (GitFailed, OSError) as error:
            sys.stderr.write(f"muster: {error}\n")
            return exits.ERROR
        sys.stdout.write(
            HELP.format(
                kubeconfig=world.kubeconfig,
                cluster=world.cluster,
                clone=repository.clone,
                cloud=world.cloud.url,
                forge=forge.url,
                agent=agent.url,
                log=agent.log,
                journal=agent.journal,
                ledger=agent.ledger,
                record=agent.record,
            )
        )
        sys.stdout.flush()
        while not stopping.wait(1.0):
            if not agent.pid:
                sys.stderr.write(f"muster: the agent has ended; see {agent.log}\n")
                return exits.ERROR
    return exits.OK
