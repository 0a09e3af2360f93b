"""What programs ask of the page: machines, pools, pods, buffers and offers, and the command line that asks for them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.answers.node import node_lines
from agent.answers.pool import pool_lines
from agent.cli import exits
from agent.cli.app import app
from agent.clouds import cloud_provider
from agent.web.access import KubeGate
from tests.agent.web.test_access import api
from tests.agent.web.test_server import PageSite

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def site() -> Iterator[PageSite]:
    made = PageSite()
    made.world.catalog = cloud_provider().catalog("us-east-1")
    made.turn()
    yield made
    made.listener.stop()


def text(site: PageSite, path: str) -> list[str]:
    status, headers, body = site.ask(path, Accept="text/plain")
    assert (status, headers["Content-Type"]) == (200, "text/plain")
    return body.decode().splitlines()


def test_a_node_and_a_pool_are_told_of_by_the_fleet_in_force(site: PageSite) -> None:
    fleet, snapshot = site.world.fleet, site.world.snapshot()
    told = text(site, "/api/nodes/node-m0")
    assert told == list(node_lines(fleet, snapshot, "node-m0"))
    assert any(line.startswith("  consolidation: ") for line in told), "every method says what it makes of it"
    pool = text(site, "/api/pools/h100")
    prices = next(line for line in pool if line.startswith("  prices:")).split(maxsplit=1)[1]
    assert pool == list(pool_lines(fleet, snapshot, "h100", prices))


def test_a_claim_goes_by_its_own_name_as_well(site: PageSite) -> None:
    assert text(site, "/api/nodes/m0") == text(site, "/api/nodes/node-m0")


def test_offers_are_typed_values(site: PageSite) -> None:
    status, headers, body = site.ask("/api/offers?gpu=h100&count=8&pool=h100")
    told = json.loads(body)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert {offer["pool"] for offer in told["offers"]} == {"h100"}
    assert any(offer["obstacle"] == "Short" for offer in told["offers"]), "the agent knows what is short"
    assert (told["cluster_asked"], told["count"]) == (True, 8)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/nodes/m9", 404, "no node or claim 'm9'; there are: node-m0"),
        ("/api/pools/h10", 404, "did you mean 'h100'?"),
        ("/api/pods/nobody", 404, "no pod 'nobody'"),
        ("/api/pods/red/nobody", 404, "no pod 'red/nobody'"),
        ("/api/buffers/red/none", 404, "no CapacityBuffer 'red/none'"),
        ("/api/offers", 400, "gpu says which"),
        ("/api/offers?gpu=h10", 400, "did you mean 'h100'?"),
        ("/api/offers?gpu=h100&count=-1", 400, "count is a whole number"),
        ("/api/gpus?idleAfterS=x", 200, "uses"),
        ("/api/pods/a/b/c", 404, "there is /api/gangs/NAMESPACE/NAME, /api/gpus"),
    ],
)
def test_what_there_is_not_is_said(site: PageSite, path: str, status: int, words: str) -> None:
    found, headers, body = site.ask(path)
    assert (found, headers["Content-Type"]) == (status, "application/json")
    assert words in body.decode()


def test_who_sees_some_namespaces_is_told_of_offers_alone() -> None:
    made = PageSite(KubeGate(api(ann=["red"]), lambda: 0.0))
    made.world.catalog = cloud_provider().catalog("us-east-1")
    made.turn()
    try:
        asked = ("nodes/node-m0", "pools/h100", "pods/red/red-0", "buffers/red/b", "offers?gpu=h100")
        found = {path: made.ask(f"/api/{path}", Authorization="Bearer token-of-ann")[::2] for path in asked}
    finally:
        made.listener.stop()
    assert [status for status, _ in found.values()] == [403, 403, 403, 403, 200]
    assert b"for who may list the Workloads of all namespaces" in found["nodes/node-m0"][1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("explain", "node", "node-m0"), "node-m0  (claim m0, pool h100)"),
        (("explain", "pool", "h100"), "h100  (4 Ready, "),
        (("offers", "--gpu", "h100", "--count", "8"), "POOL"),
        (("gpus", "advise"), "0 pods hold 0 GPUs"),
    ],
)
def test_the_command_line_asks_the_agent_and_loads_no_deciders(
    site: PageSite, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_AGENT", f"http://127.0.0.1:{site.listener.port}")
    monkeypatch.setitem(sys.modules, "agent.cli.here", None)
    monkeypatch.setitem(sys.modules, "agent.cli.gpus", None)
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert (done.exit_code, done.stdout.startswith(words)) == (exits.OK, True), done.stdout


@pytest.mark.parametrize("asked", [("explain", "node", "node-m0"), ("offers", "--gpu", "h100"), ("gpus", "advise")])
def test_a_command_that_asks_imports_neither_fleet_nor_kinds(site: PageSite, asked: tuple[str, ...]) -> None:
    """`bench/cli.py` has the times; these are what they are made of."""
    words = ["muster", *asked, "--agent", f"http://127.0.0.1:{site.listener.port}"]
    code = (
        "import sys\n"
        "from agent.cli import main\n"
        f"sys.argv = {words!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end\n"
        "sys.stderr.write(' '.join(it for it in ('fleet', 'model.kinds') if it in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout


def test_what_the_agent_does_not_know_is_an_error_of_the_command(site: PageSite) -> None:
    done = CliRunner().invoke(
        app, ["explain", "pool", "h10", "--agent", f"http://127.0.0.1:{site.listener.port}"], catch_exceptions=False
    )
    assert done.exit_code == exits.ERROR
    assert "did you mean 'h100'?" in done.stderr
