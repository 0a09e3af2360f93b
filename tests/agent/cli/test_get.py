"""`muster get`: every table as people and programs read it, held to what the cluster has."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app
from agent.cli.get import TABLES
from agent.cli.standing_pods import PodSeen, claimed_gpus
from agent.cli.tables import TextTable, render
from agent.demo.jobs import job
from providers.kube.errors import Forbidden
from providers.kube.resources import PODS, RESOURCE_SLICES, ResourcePath
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import P4DE, Scene, files, gpu_job, gpu_jobset, layout, pool, queue, team
from tests.agent.test_simulation_dra import claiming, devices, dra, exactly, template
from tests.agent.test_simulation_ordinary_pods import plain

ROOT = Path(__file__).resolve().parents[3]
SLICE = "nvidia.com/mig-1g.10gb"


def _asks(gpus: int) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "2"}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Path]]:
    """A simulated fleet behind an API server: two gangs run, one of them on slices, and one waits."""
    scene = Scene(
        files(
            pool(limits={"nodes": 2}),
            pool("mig", (P4DE,), zones=["us-east-1b", "us-east-1c"], sharing={"mig": {"layouts": ["thin"]}}),
            layout("thin", **{"1g_10gb": 7}),
            team(quotas={"h100": {"nvidia.com/gpu": 16}}),
            queue(),
            team("m", {"mig": {SLICE: 112, "memory": "1Ti"}}),
            queue("m", ("mig",)),
            queue("spare", ("mig",), team="m"),
        )
    )
    scene.runs(gpu_jobset("train"))
    scene.runs(job("thin", "m", "normal", pods=1, requests={SLICE: "1"}))
    scene.sim.submit(gpu_job("later", gpus=8))
    scene.sim.advance(5)
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield scene, server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig")
        server.drop_connections()


def get(cluster: tuple[Scene, Path], *arguments: str) -> Result:
    command = ["get", *arguments, "--kubeconfig", str(cluster[1])]
    return CliRunner().invoke(app, command, catch_exceptions=False)


def rows(cluster: tuple[Scene, Path], *arguments: str) -> list[dict[str, Any]]:
    done = get(cluster, *arguments, "-o", "json")
    assert done.exit_code == exits.OK, done.output
    told = unaged(json.loads(done.stdout))
    assert unaged(yaml.safe_load(get(cluster, *arguments, "-o", "yaml").stdout)) == told
    return told


def unaged(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ages are those of the clock of this machine."""
    for row in told:
        assert row.pop("age_s", 0) >= 0
    return told


@pytest.mark.parametrize("what", TABLES)
def test_every_table_fits_and_grows(cluster: tuple[Scene, Path], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told, counts = rows(cluster, what), set()
    for columns in (60, 80, 200):
        monkeypatch.setattr("agent.cli.get.table_width", lambda width=columns: width)
        done = get(cluster, what)
        lines = done.stdout.splitlines()
        assert done.exit_code == exits.OK
        assert max(map(len, lines)) <= columns
        assert len(lines) == len(told) + bool(told) or lines == ["nothing to show"]
        counts.add(len(re.split(r" {3,}", lines[0].strip())))
    wide = get(cluster, what, "-o", "wide").stdout.splitlines()[0]
    if told:
        assert len(re.split(r" {3,}", wide.strip())) >= max(counts)
    for alias in TABLES[what].aliases:
        assert rows(cluster, alias) == told


def test_workloads(cluster: tuple[Scene, Path]) -> None:
    told = {row["name"]: row for row in rows(cluster, "workloads")}
    assert list(told) == ["t/later", "t/train", "m/thin"], "who waits comes first"
    assert (
        told["t/later"].items() >= {"state": "Pending", "reason": "WaitingForQuota", "pods": 1, "machines": 0}.items()
    )
    assert told["t/train"]["gpus"] == {"nvidia.com/gpu": 16}
    assert (told["t/train"]["state"], told["t/train"]["machines"], told["t/train"]["wait_s"]) == ("Admitted", 2, None)
    assert "asks 8, 0 available" in told["t/later"]["message"]
    assert [row["name"] for row in rows(cluster, "workload", "train", "-n", "t")] == ["t/train"]
    assert rows(cluster, "workloads", "-n", "other") == []
    missing = get(cluster, "workloads", "t/train", "nobody")
    assert (missing.exit_code, "no workload 'nobody'" in missing.stderr) == (exits.ERROR, True)
    assert "t/train" in missing.stdout


def test_machines(cluster: tuple[Scene, Path]) -> None:
    claims, nodes = rows(cluster, "claims"), rows(cluster, "nodes")
    assert {row["instance"] for row in claims} == {machine.id for machine in cluster[0].sim.machines()}
    assert {row["state"] for row in claims} == {"Ready"}
    assert {row["name"] for row in nodes} == {row["node"] for row in claims}
    whole = [row for row in nodes if row["pool"] == "h100"]
    assert [row["gpus"] for row in whole] == 2 * [{"nvidia.com/gpu": {"used": 8, "total": 8}}]
    assert {tuple(row["gangs"]) for row in whole} == {("t/train",)}
    assert all(row["usd_h"] > 50 for row in whole)
    [thin] = [row for row in nodes if row["pool"] == "mig"]
    assert thin["gpus"] == {SLICE: {"used": 1, "total": 56}}
    assert "1/56 mig-1g.10gb" in get(cluster, "nodes").stdout


def test_gpus_of_pods_that_are_in_no_gang_are_in_use(tmp_path: Path) -> None:
    """They were free in this table and taken on the page."""
    scene = Scene(files(pool(serves=["Gangs", "Pods"], limits={"nodes": 1}), team(), queue()))
    scene.runs(gpu_job("train", gpus=4))
    scene.sim.submit(plain("notebook", gpus=2))
    scene.sim.advance(120)
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        place = scene, server.kubeconfig(tmp_path / "kubeconfig")
        [node] = rows(place, "nodes")
        server.drop_connections()
    assert node["gpus"] == {"nvidia.com/gpu": {"used": 6, "total": 8}}
    assert (node["gangs"], node["other_pods"]) == (["t/train"], ["t/notebook"])


def test_devices_that_pods_of_no_gang_claim_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(dra(serves=["Gangs", "Pods"], limits={"nodes": 1}))
    for each in (template("one", exactly("gpu")), template("two", exactly("gpus", count=2))):
        scene.sim.submit(each)
    scene.runs(claiming("train", "one"))
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    for name in ("notebook", "other"):
        scene.sim.submit(plain(name, gpus=0, resourceClaims=claims))
    scene.sim.submit(plain("idle", gpus=0))
    scene.sim.advance(120)
    assert [len(held) for held in devices(scene).values()] == [2, 2, 1]
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        place = scene, server.kubeconfig(tmp_path / "kubeconfig")
        [node] = rows(place, "nodes")
        refuse(monkeypatch, RESOURCE_SLICES)
        less = get(place, "nodes", "-o", "wide")
        server.drop_connections()
    assert node["gpus"] == {"nvidia.com/gpu": {"used": 5, "total": 8}}
    assert (node["gangs"], node["other_pods"]) == (["t/train"], ["t/notebook", "t/other"])
    assert "IN USE lacks devices that pods of no gang claim: " in less.stderr
    assert "1/8 gpu" in less.stdout


def test_devices_are_counted_as_what_they_are() -> None:
    """A part counts as a device, and who may only look at one has none."""
    named = {"gpu-0": ("gpu", ""), "gpu-1-mig": ("mig", "1g.10gb+me"), "other": ("vfio", "")}
    listed = [
        {"name": name, "attributes": {"type": {"string": kind}, "profile": {"string": profile}}}
        for name, (kind, profile) in named.items()
    ]
    slices = [
        {"spec": {"driver": driver, "pool": {"name": "n"}, "devices": listed}} for driver in ("gpu.nvidia.com", "x")
    ]

    def claim(name: str, *results: dict[str, Any]) -> bytes:
        found = [{"driver": "gpu.nvidia.com", "pool": "n", **it} for it in results]
        allocation = {"devices": {"results": found}} if results else None
        status = {"allocation": allocation} if results else {}
        return json.dumps({"metadata": {"name": name, "namespace": "t"}, "status": status}).encode()

    claims = [
        claim("a", {"device": "gpu-0"}, {"device": "gpu-1-mig"}, {"device": "other"}, {"device": "gone"}),
        claim("b", {"device": "gpu-0", "shareID": "s1"}, {"device": "gpu-0", "shareID": "s2"}),
        claim("c", {"device": "gpu-0", "adminAccess": True}),
        claim("d", {"device": "gpu-0", "driver": "x"}),
        claim("e"),
    ]
    found = claimed_gpus([json.dumps(it).encode() for it in slices], claims)
    assert {name: dict(held) for name, held in found.items() if held} == {
        "t/a": {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb.me": 1},
        "t/b": {"nvidia.com/gpu": 2},
    }


def refuse(monkeypatch: pytest.MonkeyPatch, what: ResourcePath) -> None:
    """The API server lets nobody list these objects."""
    listed = KubeTransport.list_pages

    def refused(self: KubeTransport, resource: ResourcePath, *given: Any, **named: Any) -> Any:
        if resource == what:
            raise Forbidden(f"{what} is forbidden", code=403)
        return listed(self, resource, *given, **named)

    monkeypatch.setattr(KubeTransport, "list_pages", refused)


def test_who_may_not_list_pods_is_told_what_is_missing(
    cluster: tuple[Scene, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, PODS)
    done = get(cluster, "nodes")
    assert done.exit_code == exits.OK
    assert "IN USE is what gangs hold alone: " in done.stderr
    assert "1/56 mig-1g.10gb" in done.stdout


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"containers": [_asks(2), _asks(1)]}, {"nvidia.com/gpu": 3}),
        ({"containers": [_asks(1)], "initContainers": [_asks(4)]}, {"nvidia.com/gpu": 4}),
        (
            {"containers": [_asks(1)], "initContainers": [{**_asks(1), "restartPolicy": "Always"}]},
            {"nvidia.com/gpu": 2},
        ),
        ({"containers": [{"name": "c"}]}, {}),
        (
            {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": 1, "cpu": "1"}}}]},
            {"nvidia.com/gpu": 1},
        ),
    ],
)
def test_gpus_of_a_pod(spec: dict[str, Any], gpus: dict[str, int]) -> None:
    assert msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, PodSeen).gpus == gpus


def test_queues_and_teams(cluster: tuple[Scene, Path]) -> None:
    queues = {row["name"]: row for row in rows(cluster, "queues")}
    assert (queues["t"]["pending"], queues["t"]["admitted"], queues["t"]["active"]) == (1, 1, True)
    whole = {"flavor": "h100", "resource": "nvidia.com/gpu", "used": 16, "quota": 16, "borrowed": 0}
    assert whole in queues["t"]["usage"]
    teams = {(row["flavor"], row["resource"]): row for row in rows(cluster, "teams")}
    assert teams["h100", "nvidia.com/gpu"].items() >= {"name": "t", "used": 16, "guaranteed": 16}.items()
    assert teams["mig", SLICE].items() >= {"name": "m", "used": 1, "guaranteed": 112, "queues": ["m", "spare"]}.items()
    assert (teams["mig", "memory"]["guaranteed"], teams["mig", "memory"]["used"]) == ("1Ti", "8Gi")


def test_pools_layouts_and_the_sync(cluster: tuple[Scene, Path]) -> None:
    pools = {row["name"]: row for row in rows(cluster, "pools")}
    assert pools["h100"].items() >= {"nodes": 2, "ready": 2, "limit": 2, "gpus": 16, "healthy": True}.items()
    assert (pools["h100"]["slices"], pools["mig"]["slices"]) == ("", "56 mig-1g.10gb")
    assert (pools["mig"]["limit"], "-" in get(cluster, "pools", "mig").stdout) == (None, True)
    [thin] = rows(cluster, "layouts")
    assert thin.items() >= {"name": "thin", "pools": ["mig"], "machines": 1, "ready": 1, "gpus": {SLICE: 56}}.items()
    [sync] = rows(cluster, "syncs")
    assert (sync["ready"], sync["suspended"], sync["revision"].startswith("main@sha1:")) == (True, False, True)


def test_shortages(tmp_path: Path) -> None:
    scene = Scene(files(pool(), team(), queue()))
    scene.short()
    scene.sim.submit(gpu_job("one", gpus=8))
    scene.sim.advance(30)
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        told = rows((scene, server.kubeconfig(tmp_path / "kubeconfig")), "shortages")
        server.drop_connections()
    assert {(row["name"], row["type"], row["zone"]) for row in told} >= {("h100", "p5.48xlarge", "us-east-1a")}


def test_what_there_is_no_table_of(cluster: tuple[Scene, Path]) -> None:
    done = get(cluster, "quues")
    assert done.exit_code == 2
    assert "did you mean 'queues'?" in " ".join(done.stderr.split())


def test_a_cluster_without_muster_and_one_that_is_not_there(tmp_path: Path) -> None:
    from providers.clock import VirtualClock
    from providers.sim.store import Store

    with ApiServer(Store(VirtualClock())) as server:
        bare = CliRunner().invoke(
            app, ["get", "workloads", "--kubeconfig", str(server.kubeconfig(tmp_path / "kubeconfig"))]
        )
    assert (bare.exit_code, "Muster is not installed" in bare.stderr) == (exits.ERROR, True)
    nobody = CliRunner().invoke(app, ["get", "workloads", "--kubeconfig", str(tmp_path / "none")])
    assert (nobody.exit_code, nobody.stderr.startswith("muster: kubeconfig")) == (exits.ERROR, True)


# -- tables -----------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=60)
COLUMNS = ("name", "kind", "why", "where")


def _is_cut_of(shown: str, name: str) -> bool:
    start, _, end = shown.partition("…")
    return shown == name or (name.startswith(start) and name.endswith(end) and len(shown) < len(name))


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(COLUMNS, TEXTS)), min_size=1), st.integers(20, 400))
def test_a_table_gives_up_columns_before_names(told: list[dict[str, str]], width: int) -> None:
    table = TextTable(COLUMNS, told, cut=("why", "where"), dropped=("where", "kind", "why"))
    lines = render(table, width).splitlines()
    shown = [line.split()[0] for line in lines[1:]]
    if max(len(row["name"]) for row in told) <= width:
        assert shown == [row["name"] for row in told]
    assert all(_is_cut_of(name, row["name"]) for name, row in zip(shown, told, strict=True))
    assert max(map(len, lines)) <= width
    full = render(table).splitlines()
    if max(map(len, full)) <= width:
        assert lines == full


NAMES = {"name", "queue", "reason", "pool", "gangs", "in use", "team", "usage", "flavor", "resource", "cut into"}
NAMES |= {"type", "slices", "pools", "zone", "until", "revision", "state"}
"""Columns that may be long; the others are counts, ages and amounts of money."""
LONG = "a-name-that-has-sixty-signs-as-a-workload-may-have-it-or-more"


@pytest.mark.parametrize("what", TABLES)
def test_long_names_fit_a_terminal_of_eighty_columns(what: str) -> None:
    """Names alike still differ at their ends."""
    table = TABLES[what]
    told = [{it: f"{LONG}-{number}" if it in NAMES else "9,999.99" for it in table.columns} for number in range(3)]
    lines = render(TextTable(table.columns, told, table.cut, table.dropped), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len({line.split()[0] for line in lines}) == 4


def test_nothing_is_cut_or_left_out_of_a_pipe(cluster: tuple[Scene, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = get(cluster, "claims").stdout.splitlines()
    assert lines[0].split() == ["NAME", "POOL", "TYPE", "CAPACITY", "STATE", "USD/H", "AGE"]
    assert "…" not in "".join(lines)


# -- how quick it is --------------------------------------------------------------------------------------------------

HEAVY = (
    "kubernetes",
    "boto3",
    "botocore",
    "pygit2",
    "numpy",
    "highspy",
    "structlog",
    "aiohttp",
    "fleet",
    "model.kinds",
)


@pytest.mark.parametrize(
    "command", [["--version"], ["-h"], ["get", "-h"], ["get", "workloads"], ["get", "nodes"], ["history"]]
)
def test_what_takes_long_to_import_is_left_alone(cluster: tuple[Scene, Path], command: list[str]) -> None:
    """`bench/cli.py` has the times; these are what they are made of."""
    where = ["--kubeconfig", str(cluster[1])] if command[-1][0] != "-" else []
    code = (
        "import sys\n"
        "from agent.cli import main\n"
        f"sys.argv = {['muster', *command, *where]!r}\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end\n"
        f"sys.stderr.write(' '.join(it for it in {HEAVY!r} if it in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout
    assert done.stderr == ""


def test_a_terminal_gets_what_fits_it(cluster: tuple[Scene, Path]) -> None:
    """The whole program on a terminal of its own."""
    command = [sys.executable, "-c", "from agent.cli import main; main()", "get", "claims"]
    command += ["--kubeconfig", str(cluster[1])]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, cwd=ROOT, stdout=theirs, env=env) as program:
        assert program.wait(60) == 0
    os.close(theirs)
    lines = os.read(ours, 65_536).decode().splitlines()
    os.close(ours)
    assert lines[0].startswith("NAME")
    assert max(map(len, lines)) <= 60
