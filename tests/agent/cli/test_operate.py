"""Operating by hand, as a person types it: against an agent that runs on an API server, a cloud and a repository."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from agent.cli.run import install_crds
from agent.sandbox.repository import git
from providers.clock import VirtualClock
from providers.kube.config import from_url
from providers.kube.objects import Finding, SyncAttempt, SyncReport, sync_object, sync_status
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.agent.processes import AgentPlace, until
from tests.agent.scenes import simple

ROOT = Path(__file__).resolve().parents[3]


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


class Console:
    """A shell beside a cluster: a kubeconfig, and a clone of the fleet repository."""

    def __init__(self, place: AgentPlace) -> None:
        self.place = place
        self.clone = place.repository.clone
        self.kubeconfig = place.world.api.kubeconfig(place.folder / "kubeconfig")

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A process of its own: the agent's thread writes its log where this one writes."""
        command = [sys.executable, "-m", "agent", *map(str, arguments), "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    def push(self, words: str, **pool: Any) -> str:
        """Push a fleet with another pool; the commit."""
        (self.clone / "fleet.yaml").write_text(simple(**pool)["fleet.yaml"], encoding="utf-8")
        return self.place.repository.push(words)

    def events(self) -> list[tuple[str, str]]:
        found = self.place.world.store.list(self.place.world.store.resource("Event"), "default")
        return [(it["reason"], it["message"]) for it in found if it["involvedObject"]["kind"] == "FleetSync"]

    def conditions(self) -> dict[str, dict[str, Any]]:
        return {it["type"]: it for it in self.place.sync()["status"]["conditions"]}


@pytest.mark.slow
def test_a_day_of_operating_by_hand(place: AgentPlace) -> None:
    """One story: the agent polls once an hour, so that all it does sooner is what it was asked for."""
    console = Console(place)
    running = place.start("agent", election=False, poll_s=3600.0)
    until(lambda: running.get("/readyz")[0] == 200 and place.applied(), "the fleet is in force")
    first = place.applied()

    second = console.push("Heavier", weight=2)
    done = console.run("diff", console.clone)
    assert (done.returncode, "and the newest that the agent has seen" in done.stderr) == (exits.OK, True)
    done = console.run("diff", console.clone, "--ref", second, "--detailed-exitcode")
    assert done.returncode == exits.CHANGES, done.stdout + done.stderr
    assert "weight" in done.stdout

    _reconcile_brings_it_in(console, second)
    _nothing_comes_into_force_while_it_is_suspended(console, second)
    _what_is_refused_has_its_exit_code(console)
    _history_and_the_way_back(console, first)
    _every_condition_tells_its_generation(console)
    running.stop()


def _reconcile_brings_it_in(console: Console, second: str) -> None:
    done = console.run("reconcile")
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert done.stdout.startswith(f"Ready=True Applied: main@sha1:{second} is in force\n")
    assert console.place.applied().endswith(second)
    until(console.place.handled, "the request is echoed")
    until(lambda: console.conditions()["Done"]["status"] == "True", "nothing is left to do")
    until(lambda: "Done" in dict(console.events()), "and an event says so")
    (message,) = [words for reason, words in console.events() if reason == "Applied" and second in words]
    assert "(plan " in message
    assert "by " in message


def _nothing_comes_into_force_while_it_is_suspended(console: Console, second: str) -> None:
    place = console.place
    done = console.run("suspend", "--reason", "an audit")
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert "Suspended=True Suspended: no revision comes into force: an audit;" in done.stdout
    done = console.run("reconcile")
    assert (done.returncode, "muster resume" in done.stderr) == (exits.ERROR, True)
    third = console.push("Heavier still", weight=3)
    (place.folder / "secret").write_text("test\n", encoding="utf-8")
    assert place.agents[0].deliver("test") == 202
    until(lambda: third in place.sync()["status"]["observedRevision"], "the agent sees what is pushed")
    done = console.run("diff", console.clone)
    assert (done.returncode, "weight" in done.stdout) == (exits.OK, True), done.stdout + done.stderr
    place.submit("while-suspended")
    until(lambda: place.running("while-suspended"), "what is in force goes on: jobs are admitted, machines bought")
    assert place.applied().endswith(second)
    done = console.run("resume")
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert place.applied().endswith(third)
    until(lambda: {"Suspended", "Resumed"} <= dict(console.events()).keys(), "both are events")


def _what_is_refused_has_its_exit_code(console: Console) -> None:
    (console.clone / "fleet.yaml").write_text("kind: Nonsense\n", encoding="utf-8")
    console.place.repository.push("A mistake")
    done = console.run("reconcile")
    assert done.returncode == exits.INVALID, done.stdout + done.stderr
    assert "Ready=False Invalid" in done.stdout


def _history_and_the_way_back(console: Console, first: str) -> None:
    done = console.run("history")
    head, *rows = done.stdout.splitlines()
    assert " ".join(head.split()) == "REVISION AT OUTCOME PLAN AUTHOR SIGNED BY APPROVED BY MERGED BY MESSAGE"
    assert ["Invalid" in rows[0], rows[1].startswith("*"), len(rows)] == [True, True, 4]
    shown = json.loads(console.run("history", "-o", "json").stdout)
    assert [it["outcome"] for it in shown] == ["Invalid", "Applied", "Applied", "Applied"]
    assert [it["in force"] for it in shown] == [False, True, False, False]
    assert all(it["plan"] and it["author"] for it in shown[1:])
    done = console.run("rollback", first, console.clone)
    assert done.returncode == exits.OK, done.stdout + done.stderr
    assert "weight" in done.stdout
    steps = [line.strip() for line in done.stdout.splitlines() if line.startswith("    git ")]
    assert len(steps) == 5
    for step in steps:
        words = step.replace("'", "").split()
        where, rest = words[2], words[3:]
        message = rest.index("-m") + 1 if "-m" in rest else len(rest)
        git(Path(where), *rest[:message], *([" ".join(rest[message:])] if "-m" in rest else []))
    done = console.run("reconcile")
    assert done.returncode == exits.OK, done.stdout + done.stderr
    tree = git(console.clone, "rev-parse", "HEAD^{tree}").strip()
    assert tree == git(console.clone, "rev-parse", f"{first.rpartition(':')[2]}^{{tree}}").strip()
    assert console.place.applied().endswith(git(console.clone, "rev-parse", "HEAD").strip())
    done = console.run("rollback", "HEAD", console.clone)
    assert (done.returncode, "in force already" in done.stderr) == (exits.ERROR, True)


def _every_condition_tells_its_generation(console: Console) -> None:
    store = console.place.world.store
    for kind in ("FleetSync", "NodePool", "Queue", "Workload", "NodeClaim"):
        objects = store.list(store.resource(kind))
        assert objects, kind
        for it in objects:
            observed = [one.get("observedGeneration", 0) for one in it["status"]["conditions"]]
            assert all(0 < one <= it["metadata"]["generation"] for one in observed), (kind, observed)


@pytest.fixture
def bare(tmp_path: Path) -> Any:
    """A cluster with the definitions and no agent."""
    with ApiServer(Store(VirtualClock())) as server:
        transport = KubeTransport(from_url(server.url))
        install_crds(transport)
        yield transport, server.kubeconfig(tmp_path / "kubeconfig")


def test_without_an_agent_it_says_so_and_what_was_written_stays(bare: tuple[KubeTransport, Path]) -> None:
    transport, kubeconfig = bare
    done = muster("suspend", "--kubeconfig", kubeconfig)
    assert (done.exit_code, "no agent has led here yet" in done.stderr) == (exits.ERROR, True)
    transport.apply(FLEET_SYNCS, "a", sync_object("a", "https://git.example.com/x.git", "main", ""), force=True)
    done = muster("suspend", "--timeout", 0, "--kubeconfig", kubeconfig)
    assert (done.exit_code, "is an agent leading?" in done.stderr) == (exits.ERROR, True)
    assert b'"suspend":true' in transport.read(FLEET_SYNCS, "a")
    done = muster("diff", "--kubeconfig", kubeconfig)
    assert (done.exit_code, "no revision is in force" in done.stderr) == (exits.ERROR, True)
    transport.apply(FLEET_SYNCS, "b", sync_object("b", "https://git.example.com/x.git", "main", ""), force=True)
    done = muster("history", "--kubeconfig", kubeconfig)
    assert (done.exit_code, "a, b; name one with --cluster" in done.stderr) == (exits.ERROR, True)
    assert muster("history", "--cluster", "b", "--kubeconfig", kubeconfig).stdout == "nothing to show\n"


def _suspended(transport: KubeTransport, reason: str, message: str) -> None:
    transport.apply(FLEET_SYNCS, "a", sync_object("a", "https://git.example.com/x.git", "main", ""), force=True)
    report = SyncReport("a", findings=(Finding("Suspended", True, reason, message),))
    transport.apply(FLEET_SYNCS, "a", sync_status(report, 3.0), "", "status", force=True)


def test_what_the_agent_says_of_an_earlier_reason_is_no_answer(bare: tuple[KubeTransport, Path]) -> None:
    transport, kubeconfig = bare
    _suspended(transport, "Suspended", "no revision comes into force: an audit; nothing is in force yet")
    done = muster("suspend", "--reason", "an audit", "--timeout", 0, "--kubeconfig", kubeconfig)
    assert (done.exit_code, "an audit" in done.stdout) == (exits.OK, True)
    for reason in ("a holiday", "an", ""):
        done = muster("suspend", "--reason", reason, "--timeout", 0, "--kubeconfig", kubeconfig)
        assert (done.exit_code, done.stdout) == (exits.ERROR, "")
        assert "the agent has heard it; it is written, and will hold" in done.stderr


def test_a_suspension_by_the_repository_is_not_one_by_hand(bare: tuple[KubeTransport, Path]) -> None:
    """Neither an answer to `suspend`, nor in the way of `resume`, which waits for the repository to be looked at."""
    transport, kubeconfig = bare
    _suspended(transport, "SuspendedInGit", "no revision comes into force; cluster virginia is suspended")
    done = muster("suspend", "--timeout", 0, "--kubeconfig", kubeconfig)
    assert (done.exit_code, done.stdout) == (exits.ERROR, "")
    done = muster("resume", "--timeout", 0, "--kubeconfig", kubeconfig)
    assert (done.exit_code, "the agent has looked at the repository" in done.stderr) == (exits.ERROR, True)


def test_the_history_fits_the_terminal(bare: tuple[KubeTransport, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe all of it is written, as before."""
    transport, kubeconfig = bare
    transport.apply(FLEET_SYNCS, "a", sync_object("a", "https://git.example.com/x.git", "main", ""), force=True)
    attempt = SyncAttempt("main@sha1:" + "a" * 40, "Applied", 2, 2, plan="p2", author="Ada <ada@example.com>")
    status = sync_status(SyncReport("a", applied=attempt.revision, history=(attempt,)), 3.0)
    transport.apply(FLEET_SYNCS, "a", status, "", "status", force=True)
    wide = muster("history", "--kubeconfig", kubeconfig).stdout
    monkeypatch.setattr("agent.cli.operate.table_width", lambda: 80)
    narrow = muster("history", "--kubeconfig", kubeconfig).stdout
    assert max(map(len, wide.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    assert narrow.splitlines()[1].startswith("*")
    assert "Applied" in narrow


def test_the_history_shows_who_approved_and_who_merged(bare: tuple[KubeTransport, Path]) -> None:
    transport, kubeconfig = bare
    transport.apply(FLEET_SYNCS, "a", sync_object("a", "https://git.example.com/x.git", "main", ""), force=True)
    attempts = (
        SyncAttempt("r2", "Applied", 2, 2, plan="p2", request=7, merged_by="grace", approved_by=("ada", "eve")),
        SyncAttempt("r1", "Applied", 1, 1, plan="p1"),
    )
    status = sync_status(SyncReport("a", applied="r2", history=attempts), 3.0)
    transport.apply(FLEET_SYNCS, "a", status, "", "status", force=True)
    head, newest, first = muster("history", "--kubeconfig", kubeconfig).stdout.splitlines()
    columns = {name: head.index(name) for name in ("APPROVED BY", "MERGED BY")}
    assert newest[columns["APPROVED BY"] :].startswith("ada, eve ")
    assert newest[columns["MERGED BY"] :].startswith("grace")
    assert first[columns["APPROVED BY"] :].split() == ["-", "-"]
    shown = json.loads(muster("history", "-o", "json", "--kubeconfig", kubeconfig).stdout)
    assert [(it["request"], it["merged by"], it["approved by"]) for it in shown] == [
        (7, "grace", ["ada", "eve"]),
        (None, "", []),
    ]
