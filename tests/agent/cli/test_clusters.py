"""Several clusters of one repository, on the command line."""

import json
import shutil
from pathlib import Path

import pytest

from agent.cli import exits
from agent.cli.run import install_crds
from agent.sandbox.repository import git
from providers.clock import VirtualClock
from providers.kube.config import from_url
from providers.kube.objects import SyncReport, sync_object, sync_status
from providers.kube.objects.paths import FLEET_SYNCS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.agent.cli.test_commands import muster

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "clusters"


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example in a repository, where the user stands."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com"), ("commit.gpgsign", "false")):
        git(folder, "config", name, value)
    for path in EXAMPLE.rglob("*.yaml"):
        place = folder / path.relative_to(EXAMPLE)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The fleet")
    monkeypatch.chdir(folder)
    return folder


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def test_validate_checks_each_cluster_for_its_own_region(clone: Path) -> None:
    done = muster("validate")
    assert done.exit_code == exits.OK, done.stdout
    assert done.stdout.splitlines()[-1] == (
        "8 files read: cluster frankfurt is valid for eu-central-1, cluster virginia is valid for us-east-1."
    )
    changed(clone / "clusters/virginia/patches.yaml", "us-east-1a", "eu-central-1a")
    done = muster("validate")
    assert done.exit_code == exits.INVALID
    assert done.stdout.startswith("clusters/virginia/patches.yaml:7:11: error: spec.zones[0]:")
    assert muster("validate", "--cluster", "frankfurt").exit_code == exits.OK


def test_validate_tells_once_what_is_wrong_in_a_base_of_both(clone: Path) -> None:
    changed(clone / "base/policy.yaml", "freezeWindows", "freezeWindow")
    done = muster("validate", "--output", "github")
    assert done.exit_code == exits.INVALID
    assert done.stdout.count("unknown key 'freezeWindow'") == 1


def test_validate_warns_of_files_that_no_cluster_reads(clone: Path) -> None:
    (clone / "old.yaml").write_text("# nobody\n", encoding="utf-8")
    done = muster("validate")
    assert done.exit_code == exits.OK
    assert "old.yaml:1:1: warning: no cluster reads this file" in done.stdout
    assert "old.yaml" not in muster("validate", "--cluster", "virginia").stdout


def test_validate_of_a_cluster_that_is_not_there(clone: Path) -> None:
    done = muster("validate", "--cluster", "virgina")
    assert done.exit_code == exits.INVALID
    assert "did you mean 'virginia'?" in done.stdout
    assert muster("validate", "base", "--cluster", "virginia").exit_code == exits.ERROR


@pytest.mark.parametrize("folder", ["clusters/virginia", "clusters/virginia/"])
def test_the_folder_of_a_cluster_stands_for_all_it_is_made_of(clone: Path, folder: str) -> None:
    done = muster("validate", folder)
    assert done.exit_code == exits.OK, done.stdout
    assert "5 files read: cluster virginia is valid" in done.stdout
    offered = muster("offers", "--gpu", "h100", "--fleet", folder)
    assert offered.exit_code == exits.OK
    assert "us-east-1b" in offered.stdout
    assert muster("offers", "--gpu", "h100").exit_code == exits.INVALID, "of which of them?"


def test_offers_of_one_cluster_are_of_its_own_region(clone: Path) -> None:
    """From the root, for both of them; each has offers of its own zones alone."""

    def region(*arguments: object) -> str:
        done = muster("offers", "--gpu", "a10g", *arguments, "--output", "json")
        assert done.exit_code == exits.OK, done.stderr
        return str(json.loads(done.stdout)["region"])

    assert region("--cluster", "frankfurt") == "eu-central-1"
    assert region("--fleet", ".", "--cluster", "virginia") == "us-east-1"
    assert region("--fleet", "clusters/frankfurt", "--cluster", "frankfurt") == "eu-central-1"
    assert region("--cluster", "frankfurt", "--region", "us-east-1") == "us-east-1"
    assert region("--cluster", "frankfurt", "--agent", "http://127.0.0.1:9") == "eu-central-1", "no agent has others"


@pytest.mark.parametrize(
    "command", [("offers", "--gpu", "h100"), ("explain", "pool", "h100"), ("explain", "node", "n")]
)
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--cluster", "virgina"), exits.INVALID, "did you mean 'virginia'?"),
        (("--fleet", "clusters/virginia", "--cluster", "frankfurt"), exits.ERROR, "is the folder of cluster virginia"),
        (("--fleet", "base", "--cluster", "virginia"), exits.ERROR, "so there is none named 'virginia'"),
    ],
)
def test_who_asks_of_another_cluster_than_there_is_is_told(
    clone: Path, command: tuple[str, ...], arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = muster(*command, *arguments)
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr


def test_plan_is_of_one_cluster(clone: Path) -> None:
    changed(clone / "clusters/virginia/patches.yaml", "nodes: 16", "nodes: 20")
    done = muster("plan", "--from", "HEAD", "--cluster", "virginia")
    assert done.exit_code == exits.OK, done.stdout
    assert "spec.limits.nodes: 16 -> 20" in done.stdout
    assert "No changes" in muster("plan", "--from", "HEAD", "--cluster", "frankfurt").stdout


def test_plan_of_a_cluster_that_is_new(clone: Path) -> None:
    folder = clone / "clusters" / "oregon"
    folder.mkdir()
    text = (clone / "clusters/virginia/cluster.yaml").read_text(encoding="utf-8")
    text = text.replace("virginia", "oregon").replace("  patches: [patches.yaml]\n", "")
    (folder / "cluster.yaml").write_text(text, encoding="utf-8")
    done = muster("plan", "--from", "HEAD", "--cluster", "oregon")
    assert done.exit_code == exits.OK, done.stdout
    assert "+ nodepool/h100" in done.stdout
    assert muster("plan", "--from", "HEAD", "--cluster", "nowhere").exit_code == exits.INVALID


def test_plan_in_a_repository_without_clusters(clone: Path) -> None:
    git(clone, "rm", "--quiet", "-r", "clusters")
    assert muster("plan", "--from", "HEAD~0", "--cluster", "virginia").exit_code == exits.ERROR


def test_a_plan_covers_every_cluster_that_a_change_touches(clone: Path) -> None:
    changed(clone / "base/pools.yaml", "[spot, on-demand]", "[on-demand]")
    text = muster("plan", "--from", "HEAD").stdout
    first, second = text.split("=== cluster virginia ===")
    assert first.startswith("=== cluster frankfurt ===\n")
    assert "# region: eu-central-1" in first
    assert "# region: us-east-1" in second
    assert all("~   spec.capacityTypes:" in half for half in (first, second))
    told = json.loads(muster("plan", "--from", "HEAD", "--output", "json").stdout)
    assert list(told["clusters"]) == ["frankfurt", "virginia"]
    counts = json.loads(muster("plan", "--from", "HEAD", "--output", "gitlab").stdout)
    assert counts == {"create": 0, "update": 2, "delete": 0}
    markdown = muster("plan", "--from", "HEAD", "--output", "markdown").stdout
    assert [line for line in markdown.splitlines() if line.startswith("## ")] == ["## frankfurt", "## virginia"]
    one = muster("plan", "--from", "HEAD", "--cluster", "virginia").stdout
    assert one.splitlines()[4:] == second.strip().splitlines()[4:]


def test_a_plan_leaves_out_the_clusters_that_a_change_does_not_touch(clone: Path) -> None:
    changed(clone / "clusters/frankfurt/quiet.yaml", "value: 5", "value: 6")
    text = muster("plan", "--from", "HEAD").stdout
    assert "=== cluster frankfurt ===" in text
    assert "virginia" not in text
    git(clone, "checkout", "--quiet", "--", ".")
    done = muster("plan", "--from", "HEAD", "--detailed-exitcode")
    assert (done.stdout, done.exit_code) == ("No file that a cluster reads is changed.\n", exits.OK)
    assert json.loads(muster("plan", "--from", "HEAD", "--output", "json").stdout) == {"clusters": {}}


def test_a_plan_from_outside_the_repository_covers_what_it_covers_inside(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are told by where the user stands, and are the same files at the base and at the head."""
    changed(clone / "clusters/frankfurt/quiet.yaml", "value: 5", "value: 6")
    monkeypatch.chdir(clone.parent)
    text = muster("plan", clone.name, "--from", "HEAD").stdout
    assert "=== cluster frankfurt ===" in text
    assert "virginia" not in text
    git(clone, "commit", "--all", "--quiet", "--message", "Later")
    text = muster("plan", clone.name, "--from", "HEAD~1", "--to", "HEAD").stdout
    assert ("=== cluster frankfurt ===" in text, "virginia" in text) == (True, False)
    changed(clone / "clusters/frankfurt/quiet.yaml", "value: 6", "value: six")
    git(clone, "commit", "--all", "--quiet", "--message", "Wrong")
    done = muster("plan", clone.name, "--from", "HEAD~1", "--to", "HEAD")
    assert done.stdout.startswith("fleet/clusters/frankfurt/quiet.yaml:8:10: error: spec.value:")


@pytest.mark.parametrize(
    "arguments", [("clusters/virginia",), (".", "--path", "clusters/virginia"), ("clusters/virginia", "--to", "HEAD~0")]
)
def test_plan_of_the_folder_of_a_cluster(clone: Path, arguments: tuple[str, ...]) -> None:
    changed(clone / "base/pools.yaml", "[spot, on-demand]", "[on-demand]")
    git(clone, "commit", "--all", "--quiet", "--message", "Later")
    done = muster("plan", *arguments, "--from", "HEAD~1")
    assert done.exit_code == exits.OK, done.stdout
    assert "~   spec.capacityTypes:" in done.stdout
    assert "# region: us-east-1" in done.stdout
    done = muster("plan", *arguments, "--from", "HEAD~1", "--cluster", "frankfurt")
    assert (done.exit_code, "is the folder of cluster virginia" in done.stderr) == (exits.ERROR, True)


def test_a_cluster_is_not_planned_in_the_world_of_another(clone: Path, tmp_path: Path) -> None:
    with ApiServer(Store(VirtualClock())) as server:
        transport = KubeTransport(from_url(server.url))
        install_crds(transport)
        sync = sync_object("frankfurt", "https://git.example.com/x.git", "main", "")
        transport.apply(FLEET_SYNCS, "frankfurt", sync, force=True)
        status = sync_status(SyncReport("frankfurt", applied="HEAD"), 3.0)
        transport.apply(FLEET_SYNCS, "frankfurt", status, "", "status", force=True)
        asked = ("plan", "--world", "--kubeconfig", server.kubeconfig(tmp_path / "kubeconfig"))
        assert "# region: eu-central-1" in muster(*asked).stdout
        done = muster(*asked, "--cluster", "virginia")
        assert (done.exit_code, done.stdout) == (exits.ERROR, "")
        assert "the cluster that is asked is frankfurt: virginia cannot be planned in its world" in done.stderr


WORK = "submit_s,queue,pods,gpus,run_s\n0,research,1,8,3600\n"


def test_replay_of_one_cluster_at_two_revisions(clone: Path, tmp_path: Path) -> None:
    """Frankfurt has no machines of eight GPUs, and so the work of Virginia waits there for ever."""
    work = tmp_path / "work.csv"
    work.write_text(WORK, encoding="utf-8")
    changed(clone / "clusters/virginia/patches.yaml", "nodes: 16", "nodes: 0")

    def started(*arguments: str) -> dict[str, int]:
        done = muster("replay", "--trace", work, "--window", "1h", *arguments, "--output", "json")
        assert done.exit_code == exits.OK, done.stderr
        return {it["name"]: it["total"]["started"] for it in json.loads(done.stdout)["outcomes"]}

    assert started("--from", "HEAD", "--cluster", "virginia") == {"HEAD": 1, "working tree": 0}
    assert started("clusters/virginia", "--from", "HEAD") == {"HEAD": 1, "working tree": 0}
    assert started("--to", "HEAD", "--cluster", "frankfurt") == {"HEAD": 0}
    assert muster("replay", "--trace", work, "--to", "HEAD").exit_code == exits.INVALID, "of which of them?"
    assert muster("replay", "--trace", work, "--cluster", "nowhere").exit_code == exits.INVALID
    done = muster("replay", "base", "--trace", work, "--cluster", "virginia")
    assert (done.exit_code, "so there is none named 'virginia'" in done.stderr) == (exits.ERROR, True)


def test_replay_of_a_cluster_that_is_new_begins_with_nothing(clone: Path, tmp_path: Path) -> None:
    work = tmp_path / "work.csv"
    work.write_text(WORK, encoding="utf-8")
    shutil.move(clone / "clusters/virginia", tmp_path)
    git(clone, "commit", "--all", "--quiet", "--message", "One cluster")
    shutil.move(tmp_path / "virginia", clone / "clusters")
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "m:\n  - {name: as now}\n  - {name: dear, prices: [{zone: us-east-1a, factor: 2}]}\n", encoding="utf-8"
    )
    asked = ("replay", "--trace", work, "--window", "1h", "--from", "HEAD")
    for arguments in (("--cluster", "virginia"), ("clusters/virginia",)):
        done = muster(*asked, *arguments, "--scenarios", grid, "--jobs", "1")
        assert done.exit_code == exits.OK, done.stderr
        assert "HEAD (without virginia) / dear: waiting at the end: QueueNotFound 1" in done.stdout
        assert "working tree / dear: waiting" not in done.stdout
    assert muster(*asked, "--to", "HEAD", "--cluster", "virginia").exit_code == exits.INVALID, "it has to be there now"
    assert muster(*asked, "--cluster", "nowhere").exit_code == exits.INVALID
