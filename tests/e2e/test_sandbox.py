"""`muster sandbox` as a newcomer uses it: a job runs, kubectl reads well, a push is followed, SIGTERM ends it all."""

import html
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
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
        made.process.terminate()  # as Ctrl-C does: killed, it would leave its agent behind
        made.process.wait(30)


@pytest.mark.e2e
def test_a_sandbox_from_start_to_end(sandbox: Sandbox) -> None:
    """One story, since a sandbox takes its time to start: a job, kubectl where there is one, a push, the end."""
    batch, custom = sandbox.client()
    batch.create_namespaced_job("research", WORK)
    sandbox.until(lambda: "PodsReady" in sandbox.muster("get", "workloads"), "the job runs")
    assert len(sandbox.muster("get", "claims").splitlines()) == 3
    assert "state:    Admitted" in sandbox.muster("explain", "workload", "hello")
    page = re.search(r"The page: +(http://\S+/)", sandbox.said.read_text())
    assert page, "the address that the sandbox tells"
    sandbox.until(lambda: "research/hello" in words(f"{page[1]}gangs"), "the page shows the job")
    _a_push_is_followed(sandbox, custom)
    _a_pull_request_is_reviewed_and_merged(sandbox, custom)
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

    sandbox.until(lambda: applied(custom) == commit, "the push is in force")
    assert "PodsReady" in sandbox.muster("get", "workloads"), "nobody was disturbed"


def applied(custom: Any) -> str:
    """The commit that the FleetSync says is in force."""
    (sync,) = custom.list_cluster_custom_object("muster.dev", "v1alpha1", "fleetsyncs")["items"]
    return str((sync.get("status") or {}).get("appliedRevision", "")).rpartition(":")[2]


def _a_pull_request_is_reviewed_and_merged(sandbox: Sandbox, custom: Any) -> None:
    """All over git and HTTP: a branch, the page that git names, a typo at its line, a command, the button, the end."""
    clone = sandbox.folder / "fleet"
    pools = clone / "pools.yaml"
    right = pools.read_text(encoding="utf-8").replace("nodes: 7", "nodes: 6")
    git(clone, "switch", "--quiet", "--create", "fewer")
    _commit(clone, pools, right.replace("nodes: 6", "ndoes: 6"))
    told = subprocess.run(
        ["git", "push", "--quiet", "--set-upstream", "origin", "fewer"],
        cwd=clone,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"Pull request 1: (http://127\.0\.0\.1:[0-9]+)(/\S+)", told.stderr)
    assert found, told.stderr
    assert found[1] in sandbox.said.read_text(), "the address that the sandbox tells"
    page = found[1] + found[2]
    sandbox.until(lambda: "is invalid" in words(page), "the agent comments on the typo")
    assert re.search(r"failure muster/sandbox .* pools\.yaml:\d+ .*ndoes", words(page))

    _commit(clone, pools, right)
    git(clone, "push", "--quiet")
    sandbox.until(lambda: "would come into force" in words(page), "the status tells the verdict")
    sandbox.until(lambda: "spec.limits.nodes: 7 -> 6" in words(page), "the same comment has the plan, a moment later")
    assert words(page).count("muster[bot] commented") == 1
    press(page, "comment", "ada", "/muster plan")
    sandbox.until(lambda: "\N{THUMBS UP SIGN}" in words(page), "the command is answered")

    press(page, "merge", "grace")
    (merged,) = re.findall(r"merged ada: .* as ([0-9a-f]{12})", words(page))
    sandbox.until(lambda: f"{merged} is in force" in words(page), "the comment tells what became of it")
    sandbox.until(lambda: applied(custom).startswith(merged), "the FleetSync tells it too, which is written apart")
    git(clone, "switch", "--quiet", "main")
    git(clone, "pull", "--quiet", "--ff-only")
    assert git(clone, "log", "-1", "--format=%an %s").strip() == "grace Merge pull request #1 from fewer"


def _commit(clone: Path, file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    git(clone, "commit", "--quiet", "--all", "--message", "Fewer machines are enough")


def words(address: str) -> str:
    """What somebody sees of a page."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", answer.read().decode()).split()))


def press(page: str, button: str, who: str, text: str = "") -> None:
    """Presses a button of a request's page."""
    origin = page[: page.index("/", len("http://"))]
    form = urllib.parse.urlencode({"as": who, "text": text}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{page}/{button}", form, {"Origin": origin}), timeout=10) as it:
        assert it.status == 200, "the page that one is sent back to"


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
    sandbox.until(lambda: "PodsReady" in sandbox.muster("get", "workloads"), "the job runs")
    table = run("get", "workloads,nodeclaims", "-A")
    assert "workload.muster.dev/job-hello-" in table
    assert table.count("nodeclaim.muster.dev/") == 2
    described = run("describe", "workloads", "-n", "research")
    assert "Admitted" in described
    assert "Events:" in described
