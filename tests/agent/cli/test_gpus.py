"""`muster gpus advise`: exporters asked for a while, files, and what is wrong with them."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from agent.cli.gpus import UseRequest, advise_gpus
from agent.clouds import cloud_provider
from agent.gang_answer import GpusAnswer
from agent.web.api import API
from agent.web.pages import Pages
from agent.web.seen import Scope
from fleet.snapshot import IdleGpus
from fleet.snapshot.gpus import GpuReading, MeasuredUse
from providers.clock import VirtualClock
from providers.store.sqlite import SqliteLedger
from tests.agent.web.test_server import PageSite
from tests.providers.test_dcgm import exporter, line
from tests.support.fleets import NOW
from tests.support.purchases import HIGHS

REFERENCE = Path(__file__).resolve().parents[3] / "examples" / "reference"

ACTIVE, USED = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
HELD = {"namespace": "ml", "pod": "notebook-0", "GPU_I_PROFILE": "3g.20gb", "GPU_I_ID": "1"}
TEXT = (line(ACTIVE, 0.0, **HELD) + line(USED, 700, **HELD)).encode()


def request(*urls: str, lasts_s: float = 3600.0) -> UseRequest:
    return UseRequest(urls, (), lasts_s, 60.0, 1800.0, "us-east-1")


def test_an_exporter_is_asked_for_an_hour(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    with exporter(content=TEXT) as url:
        assert advise_gpus(request(url), clock, clock.advance) == exits.OK
    out = capsys.readouterr().out
    assert (
        "ml/notebook-0  holds 3g.20gb of NVIDIA A100-SXM4-40GB on node-a: 0 % active, 700 MiB at most, 61 readings"
        in out
    )
    assert "advice: ml/notebook-0: a slice 1g.5gb would be enough: " in out
    assert "idle: ml/notebook-0 has done nothing with 3g.20gb of NVIDIA A100-SXM4-40GB for 60m" in out


class AgentOfGpus:
    """An agent's page in whose world red's gang makes little of a slice, and an unknown pod's readings have ended."""

    def __init__(self) -> None:
        self.site = PageSite()
        self.url = f"http://127.0.0.1:{self.site.listener.port}"
        world = self.site.world
        world.catalog = cloud_provider().catalog("us-east-1")
        last = GpuReading("node-m0", "GPU-1", "1", "3g.40gb", "NVIDIA A100-SXM4-80GB", "red", "p", 0.1, 2000.0, 38000.0)
        use = MeasuredUse(last, 100, NOW - 3000, NOW - 5, 0.1, 2000.0, 0.05)
        gone = replace(use, last=replace(last, pod="gone", gpu="GPU-9"), until_s=NOW - 600)
        world.gpu_uses = {"red/red-0-node-m0-0": (replace(use, last=replace(last, pod="red-0-node-m0-0")),)}
        world.gpu_uses |= {"red/gone": (gone,)}
        world.gangs["uid-red-0"] = replace(world.gang("red-0"), idle=IdleGpus(NOW - 4000, 1, 1, 3600.0))
        self.site.turn()


@pytest.fixture
def agent() -> Iterator[AgentOfGpus]:
    made = AgentOfGpus()
    yield made
    made.site.listener.stop()


def test_the_agent_tells_what_it_has_kept(agent: AgentOfGpus) -> None:
    status, headers, body = agent.site.ask("/api/gpus")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    answer = msgspec.json.decode(body, type=GpusAnswer)
    [gang] = answer.gangs
    assert (gang.name, gang.queue, gang.team, gang.use.devices) == ("red/red-0", "q-red", "red", 1)
    assert gang.idle == "it has done nothing with its GPU or slice for 1h or longer"
    assert sorted(it.last.pod for it in answer.uses) == ["gone", "red-0-node-m0-0"]
    done = CliRunner().invoke(app, ["gpus", "advise", "--agent", agent.url], catch_exceptions=False)
    assert done.exit_code == exits.OK
    assert "advice: red/red-0-node-m0-0: a slice 1g.10gb would be enough: " in done.stdout
    assert "gone" not in done.stdout, "it holds nothing any more"


def test_who_sees_some_namespaces_is_told_of_these() -> None:
    side = AgentOfGpus()
    try:
        [question] = [it for it in API if it.address == "/api/gpus"]
        body = Pages(side.site.watcher).answer(question, (), {}, Scope(frozenset({"blue"})))
        told = msgspec.json.decode(body, type=GpusAnswer)
        assert (told.gangs, told.uses) == ((), ())
    finally:
        side.site.listener.stop()


def test_there_is_no_other_api(agent: AgentOfGpus) -> None:
    status, headers, body = agent.site.ask("/api/nothing")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    assert "/api/gpus" in json.loads(body)["error"]


@pytest.mark.parametrize("output", ["table", "json", "html"])
def test_a_report_says_what_is_made_of_gpus(agent: AgentOfGpus, tmp_path: Path, output: str) -> None:
    ledger = tmp_path / "ledger.db"
    SqliteLedger(ledger, 16).close()
    arguments = ["report", "--ledger", str(ledger), "--month", "2026-10", "-o", output, "--agent", agent.url]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == exits.OK, done.stderr
    assert "red/red-0" in done.stdout
    assert ("a slice 1g.10gb would be enough" if output != "json" else '"advice": "a slice 1g.10gb"') in done.stdout
    if output == "json":
        assert json.loads(done.stdout)["gpuUse"][0]["use"]["devices"] == 1


class _Busy(BaseHTTPRequestHandler):
    """A page that has used up its share of time as often as it says, and then answers."""

    after_s, times = "1", 1

    def do_GET(self) -> None:
        kind = type(self)
        busy, kind.times = kind.times > 0, kind.times - 1
        body = b'{"error": "come again"}' if busy else b"nothing is wasted"
        self.send_response(503 if busy else 200)
        self.send_header("Content-Type", "application/json" if busy else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if busy:
            self.send_header("Retry-After", self.after_s)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize(
    ("after_s", "times", "answered", "waited"),
    [("1", 1, True, [1]), ("1", 2, False, [1]), ("60", 1, False, []), ("soon", 1, False, [])],
)
def test_an_agent_that_is_busy_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch, after_s: str, times: int, waited: list[int], *, answered: bool
) -> None:
    kind = type("_ThisBusy", (_Busy,), {"after_s": after_s, "times": times})
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            done = CliRunner().invoke(app, ["gpus", "advise", "--agent", address])
        finally:
            server.shutdown()
            thread.join()
    assert (done.exit_code == exits.OK, slept) == (answered, waited)
    assert ("nothing is wasted" if answered else "come again") in done.output + done.stderr


def test_an_agent_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["gpus", "advise", "--agent", "http://127.0.0.1:1"])
    assert (done.exit_code, "does not answer" in done.stderr) == (exits.ERROR, True)
    ledger = tmp_path / "ledger.db"
    SqliteLedger(ledger, 16).close()
    done = CliRunner().invoke(app, ["report", "--ledger", str(ledger), "--agent", "http://127.0.0.1:1"])
    assert (done.exit_code, "does not answer" in done.stderr) == (exits.ERROR, True)


@HIGHS
def test_what_is_enough_is_a_change_of_the_layouts(agent: AgentOfGpus, tmp_path: Path) -> None:
    """Two machines of large slices are held, of which small ones would do."""
    uses = agent.site.world.gpu_uses
    ((use,), _) = uses.values()
    for n in range(24):
        reading = replace(use.last, pod=f"red-{n}", gpu=f"GPU-{n}")
        uses[f"red/red-{n}"] = (replace(use, last=reading),)
    agent.site.turn()
    command = ["gpus", "advise", "--agent", agent.url, "--fleet", str(REFERENCE), "--pool", "a100-mig"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == exits.OK
    assert "at once: 25 nvidia.com/mig-1g.10gb" in done.stdout
    assert "not worth" not in done.stdout
    assert "diff --git" in done.stdout
    no_forge = CliRunner().invoke(app, [*command, "--pull-request", "--config", str(tmp_path / "none.yaml")])
    assert no_forge.exit_code == exits.ERROR


def test_without_slices_in_use_there_is_nothing_to_cut(agent: AgentOfGpus) -> None:
    agent.site.world.gpu_uses.clear()
    agent.site.turn()
    done = CliRunner().invoke(app, ["gpus", "advise", "--agent", agent.url, "--fleet", str(REFERENCE)])
    assert (done.exit_code, "nothing to cut" in done.stderr) == (exits.REFUSED, True)


def test_an_exporter_that_fails_now_and_then_is_asked_on_and_one_that_never_answers_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = VirtualClock()
    assert advise_gpus(request("http://127.0.0.1:1/metrics"), clock, clock.advance) == exits.ERROR
    assert capsys.readouterr().err.count("does not answer") == 11


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scrape.prom"
    path.write_bytes(TEXT)
    done = CliRunner().invoke(app, ["gpus", "advise", "--scrape", str(path)])
    assert done.exit_code == exits.OK
    assert "of 1 there are fewer than 10 readings" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--agent", "http://127.0.0.1:1", "--pull-request"], 2),
        (["--agent", "http://127.0.0.1:1", "--pool", "p"], 2),
        (["--scrape", "nowhere"], exits.ERROR),
        (["--exporter", "http://127.0.0.1:1/metrics"], exits.ERROR),
        (["--exporter", "http://127.0.0.1:1/metrics", "--for", "ever"], 2),
    ],
)
def test_what_cannot_be_asked(arguments: list[str], code: int) -> None:
    assert CliRunner().invoke(app, ["gpus", "advise", *arguments]).exit_code == code
