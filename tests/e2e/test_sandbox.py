"""`muster sandbox` as a newcomer uses it: a job runs, kubectl reads well, a push is followed, SIGTERM ends it all."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.demo.jobs import job
from agent.sandbox.repository import git

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 60.0
WORK = job("hello", "research", "normal", pods=2, requests={"nvidia.com/gpu": "8"})


def children_of(pid: int) -> set[int]:
    """Every process below `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.parent.name)] = int(fields[1])
    found, todo = set[int](), [pid]
    while todo:
        below = {child for child, parent in parents.items() if parent == todo[-1]} - found
        todo.pop()
        found |= below
        todo += sorted(below)
    return found


class Sandbox:
    """A running sandbox and the ways a user has into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = folder.parent / "said.txt"
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "agent", "sandbox", "--dir", str(folder), "--speed", "40"],
                cwd=ROOT,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.until(lambda: "Ctrl-C" in self.said.read_text(), "the sandbox is up")

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def until(self, holds: Callable[[], Any], words: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            if holds():
                return
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(0.1)
        raise AssertionError(f"not within {WITHIN_S:.0f} s: {words}\n{self.said.read_text()}")

    def client(self) -> Any:
        from kubernetes import client, config

        api = config.new_client_from_config(config_file=str(self.kubeconfig))
        return client.BatchV1Api(api), client.CustomObjectsApi(api)

    def muster(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "agent", *arguments, "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path_factory.mktemp("e2e") / "sandbox")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.wait(10)


@pytest.mark.e2e
def test_a_sandbox_from_start_to_end(sandbox: Sandbox) -> None:
    """One story, since a sandbox takes its time to start: a job, kubectl where there is one, a push, the end."""
    batch, custom = sandbox.client()
    batch.create_namespaced_job("research", WORK)
    sandbox.until(lambda: "Running" in sandbox.muster("get", "workloads"), "the job runs")
    assert len(sandbox.muster("get", "claims").splitlines()) == 3
    assert "state:    Admitted" in sandbox.muster("explain", "workload", "hello")
    _a_push_is_followed(sandbox, custom)
    _the_end_leaves_nothing(sandbox)


def _a_push_is_followed(sandbox: Sandbox, custom: Any) -> None:
    clone = sandbox.folder / "fleet"
    pools = clone / "pools.yaml"
    docs = list(yaml.safe_load_all(pools.read_text(encoding="utf-8")))
    docs[0]["spec"]["limits"]["nodes"] = 7
    pools.write_text(yaml.safe_dump_all(docs), encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--message", "Seven machines are enough")
    git(clone, "push", "--quiet", "origin", "main")
    commit = git(clone, "rev-parse", "HEAD").strip()

    def followed() -> bool:
        sync = custom.list_cluster_custom_object("muster.dev", "v1alpha1", "fleetsyncs")["items"][0]
        return str((sync.get("status") or {}).get("appliedRevision", "")).endswith(commit)

    sandbox.until(followed, "the push is in force")
    assert "Running" in sandbox.muster("get", "workloads"), "nobody was disturbed"


def _the_end_leaves_nothing(sandbox: Sandbox) -> None:
    below = children_of(sandbox.process.pid)
    assert below, "the agent is a process of its own"
    sandbox.process.send_signal(signal.SIGTERM)
    assert sandbox.process.wait(30) == 0, sandbox.said.read_text()
    alive = {pid for pid in below if Path(f"/proc/{pid}").exists()}
    assert not alive, [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in alive]


@pytest.mark.e2e
def test_kubectl_reads_well(tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    made = Sandbox(tmp_path / "sandbox")
    try:
        _kubectl_story(made, kubectl, tmp_path)
    finally:
        made.process.terminate()
        made.process.wait(30)


def _kubectl_story(sandbox: Sandbox, kubectl: str, folder: Path) -> None:
    manifest = folder / "job.yaml"
    manifest.write_text(yaml.safe_dump(WORK), encoding="utf-8")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "KUBECONFIG": str(sandbox.kubeconfig), "HOME": str(folder)}
        done = subprocess.run(
            [kubectl, *arguments], env=environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("apply", "-f", str(manifest))
    sandbox.until(lambda: "Running" in sandbox.muster("get", "workloads"), "the job runs")
    table = run("get", "workloads,nodeclaims", "-A")
    assert "workload.muster.dev/job-hello-" in table
    assert table.count("nodeclaim.muster.dev/") == 2
    described = run("describe", "workloads", "-n", "research")
    assert "Admitted" in described
    assert "Events:" in described
