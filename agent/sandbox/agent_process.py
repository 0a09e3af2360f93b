"""The agent as a process of its own, started like on a cluster: `muster run --config`."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import yaml

from agent.sandbox.repository import Repository
from agent.sandbox.world import SandboxWorld

SECRET = "sandbox-webhook"  # noqa: S105 - loopback only, and the sandbox is gone with the process
_READY_S = 30.0


class AgentProcess:
    """Starts, kills and restarts one agent; its log goes to a file.

    `more` are further sections of its settings; `ports` are of its pages, and of its webhook.
    """

    def __init__(
        self,
        folder: Path,
        world: SandboxWorld,
        repository: Repository,
        *,
        more: Mapping[str, object],
        ports: tuple[int, int],
        poll_s: float = 5.0,
    ) -> None:
        self.folder = folder
        self.log = folder / "agent.log"
        self.journal = folder / "journal.jsonl"
        self.ledger = folder / "ledger.db"
        self.record = folder / "record.jsonl"
        self.config = folder / "muster.yaml"
        self.port, self.webhook_port = ports
        self._world = world
        self._process: subprocess.Popen[bytes] | None = None
        settings = {**self._settings(repository, poll_s), **more}
        self.config.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _settings(self, repository: Repository, poll_s: float) -> dict[str, object]:
        return {
            "cluster": self._world.cluster,
            "region": self._world.simulator.region,
            "source": {
                "url": str(repository.bare),
                "ref": {"branch": "main"},
                "pollIntervalS": poll_s,
                "cacheDir": str(self.folder / "git-cache"),
            },
            "kube": {"kubeconfig": str(self._world.kubeconfig)},
            "cloud": self._world.simulator.name,
            self._world.simulator.name: {
                "endpointUrl": self._world.cloud.url,
                "interruptionQueueUrl": self._world.cloud.queue_url,
                "pollIntervalS": 1.0,
            },
            "http": {"host": "127.0.0.1", "port": self.port},
            "web": {"access": "Anonymous"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self.webhook_port,
                "secretEnv": "MUSTER_WEBHOOK_SECRET",
                "requestsPerMinute": 0,
            },
            "leaderElection": False,
            "installCrds": True,
            "journal": str(self.journal),
            "ledger": {"path": str(self.ledger)},
            "record": str(self.record),
            "dcgm": {"intervalS": 2.0},
        }

    @property
    def url(self) -> str:
        """Where its health and metrics are served."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process id; 0 when it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    def start(self) -> None:
        """Start it; returns at once."""
        environment = {
            **os.environ,
            "MUSTER_WEBHOOK_SECRET": SECRET,
            **self._world.simulator.environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "agent", "run", "--config", str(self.config)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_healthy(self) -> None:
        """Until its health page answers; raises `TimeoutError` or `ChildProcessError`."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if not self.pid:
                raise ChildProcessError(f"the agent ended at once; see {self.log}")
            if self.get("/healthz")[0] == 200:
                return
            time.sleep(0.05)
        raise TimeoutError(f"the agent does not answer on {self.url}; see {self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; (0, reason) when it does not answer."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=2) as answer:  # noqa: S310 - loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def kill(self) -> None:
        """SIGKILL: no chance to clean up."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not heard."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
