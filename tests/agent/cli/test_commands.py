"""The commands as a user types them: what they print, and the exit codes scripts rely on."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from agent.cli import exits
from agent.cli.app import app, only
from agent.cli.plan import PlanRequest, run_plan
from agent.web.seen import explained_at_once
from model.plain_text import age
from providers.kube.errors import Forbidden
from providers.kube.objects import workload_status
from providers.kube.objects.explanations import EXPLAINED_BY, explanation_status
from providers.kube.objects.paths import WORKLOADS
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from tests.agent.scenes import Scene, doc, files, gpu_job, gpu_jobset, pool, queue, simple, team
from tests.providers.git.support import WorkTree

ROOT = Path(__file__).resolve().parents[3]
RAILS = doc("FleetPolicy", "p", guardRails={"maxPercentRemoved": 30})


def muster(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def written(folder: Path, fleet: Mapping[str, str]) -> Path:
    for name, text in fleet.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def typo() -> dict[str, str]:
    return {"fleet.yaml": simple()["fleet.yaml"].replace("instanceTypes", "instanceTyps")}


def test_of_a_pipe_that_nobody_reads_any_more_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BrokenPipeError):  # which click ends without a word
        exits.complain(BrokenPipeError())
    assert capsys.readouterr().err == ""


# -- validate ---------------------------------------------------------------------------------------------------------


def test_validate_a_valid_fleet(tmp_path: Path) -> None:
    done = muster("validate", written(tmp_path, simple()))
    assert (done.exit_code, done.stdout) == (exits.OK, "no problems\n1 file read: the fleet is valid for us-east-1.\n")


def test_validate_an_invalid_fleet_shows_where(tmp_path: Path) -> None:
    done = muster("validate", written(tmp_path, typo()))
    assert done.exit_code == exits.INVALID == 3
    assert "fleet.yaml:" in done.stdout
    assert "did you mean" in done.stdout.lower()
    assert "^" in done.stdout
    assert "the fleet is invalid" in done.stdout


def test_validate_knows_the_region_of_the_zones(tmp_path: Path) -> None:
    text = simple()["fleet.yaml"].replace("us-east-1", "eu-west-1").replace("p5.48xlarge", "g5.12xlarge")
    ireland = {"fleet.yaml": text}
    done = muster("validate", written(tmp_path, ireland))
    assert (done.exit_code, "valid for eu-west-1" in done.stdout) == (exits.OK, True)
    wrong = muster("validate", written(tmp_path, ireland), "--region", "us-east-1")
    assert wrong.exit_code == exits.INVALID
    assert "it is a zone of eu-west-1" in wrong.stdout
    nowhere = muster("validate", written(tmp_path, ireland), "--region", "xx-nowhere-1")
    assert "nothing is known of what is sold in xx-nowhere-1" in nowhere.stderr


def test_plan_refuses_machines_that_nobody_sells(work: WorkTree) -> None:
    first = commit(work, simple())
    work.write("fleet.yaml", simple()["fleet.yaml"].replace("p5.48xlarge", "p5.48xl"))
    done = muster("plan", work.path, "--from", first)
    assert done.exit_code == exits.INVALID
    assert "did you mean 'p5.48xlarge'?" in done.stdout


def test_validate_as_json(tmp_path: Path) -> None:
    done = muster("validate", written(tmp_path, typo()), "-o", "json")
    assert done.exit_code == exits.INVALID
    assert "instanceTyps" in json.dumps(json.loads(done.stdout))
    assert json.loads(muster("validate", written(tmp_path, simple()), "-o", "json").stdout) is not None


def test_validate_as_sarif(tmp_path: Path) -> None:
    done = muster("validate", written(tmp_path, typo()), "--output", "sarif")
    report = json.loads(done.stdout)
    assert report["version"] == "2.1.0"
    place = report["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("fleet.yaml")
    assert place["region"]["startLine"] > 1


def test_validate_as_github_annotations(tmp_path: Path) -> None:
    done = muster("validate", written(tmp_path, typo()), "--output", "github")
    assert done.stdout.startswith("::error file=")
    assert muster("validate", written(tmp_path, simple()), "--output", "github").stdout == ""


def test_validate_one_file_and_a_tree_of_them(tmp_path: Path) -> None:
    text = simple()["fleet.yaml"]
    first, _, rest = text.partition("---\n")
    written(tmp_path, {"a/one.yaml": first, "b/two.yml": rest, ".hidden/x.yaml": "kind: Nonsense", "c/readme.md": "#"})
    assert "2 files read" in muster("validate", tmp_path).stdout
    whole = tmp_path / "whole"
    whole.mkdir()
    assert muster("validate", written(whole, simple()) / "fleet.yaml").exit_code == exits.OK


@pytest.mark.parametrize("output", ["text", "json", "sarif", "github"])
def test_a_file_that_became_a_link_is_a_problem_and_not_a_wish_to_delete_its_pools(tmp_path: Path, output: str) -> None:
    folder = written(tmp_path, simple())
    (tmp_path / "elsewhere.txt").write_bytes((folder / "fleet.yaml").read_bytes())
    (folder / "fleet.yaml").unlink()
    (folder / "fleet.yaml").symlink_to("elsewhere.txt")
    done = muster("validate", folder, "--output", output)
    assert done.exit_code == exits.INVALID
    assert "fleet.yaml" in done.stdout
    assert "symbolic link" in done.stdout
    assert "Traceback" not in done.stderr
    (folder / ".musterignore").write_text("fleet.yaml\n")
    assert muster("validate", folder, "--output", output).exit_code == exits.ERROR, "nothing is left"


def test_what_is_ignored_is_not_validated(tmp_path: Path) -> None:
    folder = written(tmp_path, {**simple(), "charts/x.yaml": "kind: Nonsense"})
    assert muster("validate", folder).exit_code == exits.INVALID
    (folder / ".musterignore").write_text("charts/\n")
    assert muster("validate", folder).exit_code == exits.OK


def test_more_than_the_agent_would_read_is_an_error(tmp_path: Path) -> None:
    folder = written(tmp_path, simple())
    for number in range(5_000):
        (folder / f"{number}.yaml").write_bytes(b"")
    done = muster("validate", folder)
    assert done.exit_code == exits.ERROR
    assert "more than 5000 files" in done.stderr


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_validate_nothing_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    done = muster("validate", tmp_path / name)
    assert done.exit_code == exits.ERROR
    assert name in done.stderr


# -- plan -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> WorkTree:
    made = WorkTree(tmp_path / "repository")
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    return made


def commit(work: WorkTree, fleet: Mapping[str, str]) -> str:
    return work.commit("fleet.yaml", fleet["fleet.yaml"])


def test_plan_of_two_revisions(work: WorkTree) -> None:
    first = commit(work, simple())
    second = commit(work, files(pool(), pool("more"), team(), queue()))
    done = muster("plan", work.path, "--from", first, "--to", second)
    assert done.exit_code == exits.OK
    assert "+ nodepool/more" in done.stdout
    assert "Plan: 1 to add, 0 to change, 0 to destroy." in done.stdout
    back = muster("plan", work.path, "--from", second, "--to", first, "--no-merge")
    assert "- nodepool/more" in back.stdout
    assert "0 to add, 0 to change, 1 to destroy" in back.stdout
    assert "No changes." in muster("plan", work.path, "--from", second, "--to", first).stdout


def test_plan_of_a_branch_is_what_its_merge_does(work: WorkTree) -> None:
    """The base has gained a pool since: the change does not take it back."""
    work.write("pools.yaml", json.dumps(pool()))
    base = work.commit("fleet.yaml", files(team(), queue())["fleet.yaml"])
    work.git("checkout", "-qb", "topic")
    work.commit("pools.yaml", json.dumps(pool(weight=7)))
    work.git("checkout", "-q", "main")
    work.commit("more.yaml", json.dumps(pool("more")))
    done = muster("plan", work.path, "--from", "main", "--to", "topic")
    assert done.exit_code == exits.OK, done.output
    assert "# head: topic merged into main\n" in done.stdout
    assert "~   spec.weight: (unset) -> 7" in done.stdout
    assert "nodepool/more" not in done.stdout
    literal = muster("plan", work.path, "--from", "main", "--to", "topic", "--no-merge")
    assert "- nodepool/more" in literal.stdout
    assert "# head: topic\n" in literal.stdout
    descendant = muster("plan", work.path, "--from", base, "--to", "topic")
    assert "# head: topic\n" in descendant.stdout
    work.git("checkout", "-q", "topic")
    tree = muster("plan", work.path, "--from", "main")
    assert "the working tree does not contain main" in tree.stderr
    assert "does not contain" not in muster("plan", work.path, "--from", base).stderr
    work.git("checkout", "-q", "main")
    work.commit("pools.yaml", json.dumps(pool(weight=9)))
    conflict = muster("plan", work.path, "--from", "main", "--to", "topic")
    assert conflict.exit_code == exits.ERROR
    assert conflict.stderr == (
        "muster: topic does not merge into main: conflicts in pools.yaml. Rebase it on main, and plan again\n"
    )


def test_plan_takes_the_prices_of_the_region_of_its_zones(work: WorkTree) -> None:
    text = simple()["fleet.yaml"].replace("us-east-1", "eu-west-1").replace("p5.48xlarge", "g5.12xlarge")
    first = work.commit("fleet.yaml", text)
    done = muster("plan", work.path, "--from", first, "--to", "HEAD", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["region"]) == (exits.OK, "eu-west-1")
    named = muster("plan", work.path, "--from", first, "--region", "eu-central-1", "-o", "json")
    assert named.exit_code == exits.INVALID, "its zones are elsewhere"
    offered = json.loads(muster("offers", "--gpu", "a10g", "--fleet", work.path, "-o", "json").stdout)
    assert offered["region"] == "eu-west-1"
    assert offered["offers"]


def test_plan_of_the_working_tree(work: WorkTree) -> None:
    first = commit(work, simple())
    work.write("fleet.yaml", simple(weight=7)["fleet.yaml"])
    done = muster("plan", work.path, "--from", first)
    assert "~ nodepool/h100" in done.stdout
    assert "weight" in done.stdout


def test_plan_without_a_base_is_everything(work: WorkTree) -> None:
    commit(work, simple())
    assert "Plan: 5 to add" in muster("plan", work.path).stdout


def test_plan_exit_codes(work: WorkTree) -> None:
    first = commit(work, simple())
    assert muster("plan", work.path, "--from", first, "--detailed-exitcode").exit_code == exits.OK == 0
    work.write("fleet.yaml", simple(weight=7)["fleet.yaml"])
    assert muster("plan", work.path, "--from", first, "--detailed-exitcode").exit_code == exits.CHANGES == 2
    assert muster("plan", work.path, "--from", first).exit_code == exits.OK
    work.write("fleet.yaml", typo()["fleet.yaml"])
    assert muster("plan", work.path, "--from", first).exit_code == exits.INVALID == 3
    assert muster("plan", work.path, "--from", "nonsense").exit_code == exits.ERROR == 1
    assert muster("plan", work.path.parent / "nowhere", "--from", first).exit_code == exits.ERROR


def test_plan_refused_by_the_guard_rails(work: WorkTree) -> None:
    first = commit(work, files(pool(), team(), queue(), RAILS))
    second = commit(work, files(team(quotas={}), RAILS))
    done = muster("plan", work.path, "--from", first, "--to", second, "--detailed-exitcode")
    assert done.exit_code == exits.REFUSED == 5
    assert "Refused by the guard rails" in done.stdout
    assert "allowEmptyFleet" in done.stdout


def test_plan_as_json_has_a_stable_id(work: WorkTree) -> None:
    first = commit(work, simple())
    second = commit(work, files(pool(), pool("more"), team(), queue()))
    plans = [
        json.loads(muster("plan", work.path, "--from", first, "--to", to, "-o", "json").stdout)
        for to in (second, second)
    ]
    assert len({plan.pop("observed_at_s") for plan in plans}) == 2, "only the instant differs"
    assert plans[0] == plans[1]
    assert plans[0]["plan_id"]
    third = commit(work, simple(weight=9))
    other = json.loads(muster("plan", work.path, "--from", first, "--to", third, "-o", "json").stdout)
    assert other["plan_id"] != plans[0]["plan_id"]


def test_plan_for_gitlab_counts(work: WorkTree) -> None:
    first = commit(work, simple())
    commit(work, files(pool(), pool("more"), team(), queue()))
    done = muster("plan", work.path, "--from", first, "-o", "gitlab")
    assert json.loads(done.stdout) == {"create": 1, "update": 0, "delete": 0}


def test_plan_as_markdown(work: WorkTree) -> None:
    first = commit(work, simple())
    commit(work, files(pool(), pool("more"), team(), queue()))
    done = muster("plan", work.path, "--from", first, "-o", "markdown")
    assert done.exit_code == exits.OK
    assert done.stdout.startswith("### Plan: 1 to add, 0 to change, 0 to destroy.\n")
    assert "```diff\n+ nodepool/more\n```" in done.stdout


def test_an_invalid_fleet_is_told_of_in_the_comment_too(work: WorkTree) -> None:
    first = commit(work, simple())
    broken = typo()["fleet.yaml"]
    many = "---\n".join(broken.replace("name: h100", f"name: h{n}") for n in range(400))
    for text in (broken, many):
        work.write("fleet.yaml", text)
        done = muster("plan", work.path, "--from", first, "-o", "markdown")
        assert done.exit_code == exits.INVALID
        assert done.stdout.startswith("### The fleet is invalid: ")
        assert "fleet.yaml:" in done.stdout
        assert len(done.stdout) <= 65_000
    assert "left out" in done.stdout


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("", "")])
def test_colours_are_for_terminals(work: WorkTree, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    first = commit(work, simple())
    commit(work, files(pool(), pool("more"), team(), queue()))
    assert "\x1b" not in muster("plan", work.path, "--from", first).stdout, "it is piped"
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if variable:
        monkeypatch.setenv(variable, value)
    request = PlanRequest(work.path, first, "", "", world=False, kubeconfig=None, context=None, region="us-east-1")
    run_plan(request, "text", detailed_exitcode=False)
    assert ("\x1b[32m+ nodepool/more\x1b[0m" in terminal.getvalue()) is (not variable)


def test_plan_of_a_folder_inside_the_repository(work: WorkTree) -> None:
    work.write("other/bad.yaml", "kind: Nonsense")
    work.write("fleets/a/fleet.yaml", simple()["fleet.yaml"])
    first = work.commit_all()
    work.write("fleets/a/fleet.yaml", simple(weight=7)["fleet.yaml"])
    second = work.commit_all()
    for arguments in (("--to", second), ()):
        done = muster("plan", work.path, "--path", "fleets/a", "--from", first, *arguments)
        assert (done.exit_code, "nodepool/h100" in done.stdout) == (exits.OK, True), done.output


# -- against a cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Path]]:
    """A simulated fleet with one gang that runs and one that waits, behind a real API server."""
    scene = Scene(files(pool(limits={"nodes": 2}), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue()))
    scene.runs(gpu_jobset("train"))
    scene.sim.submit(gpu_job("later", gpus=8))
    scene.sim.advance(5)
    with ApiServer(scene.sim.store, clock=scene.sim.clock) as server:
        yield scene, server.kubeconfig(tmp_path_factory.mktemp("cluster") / "kubeconfig")
        server.drop_connections()


def test_explain_a_gang_that_waits(cluster: tuple[Scene, Path]) -> None:
    """The Workload says it in short, in a field that what decides leaves alone."""
    scene, kubeconfig = cluster
    gang, fleet = scene.sim.gang("later"), scene.sim.brain.sync.fleet
    assert gang is not None
    assert fleet is not None
    told = explained_at_once(fleet, scene.sim.brain.mirror.snapshot(scene.sim.now_s, frozenset()), gang)
    scene.sim.api.apply(
        WORKLOADS,
        gang.workload,
        explanation_status(gang, told),
        gang.namespace,
        "status",
        force=True,
        manager=EXPLAINED_BY,
    )
    body = workload_status(gang, scene.sim.now_s)
    scene.sim.api.apply(WORKLOADS, gang.workload, body, gang.namespace, "status", force=True)
    done = muster("explain", "workload", "later", "--kubeconfig", kubeconfig)
    assert done.exit_code == exits.OK
    for words in ("state:    Pending", "reason:", "position: 1 of 1 in queue t", "waits for: Quota", "held by t/train"):
        assert words in done.stdout, words
    as_json = json.loads(muster("explain", "workload", "later", "--kubeconfig", kubeconfig, "-o", "json").stdout)
    assert as_json["explanation"]["position"] == {"place": 1, "of": 1}


def test_explain_takes_no_more_than_to_read_workloads_in_one_namespace(
    cluster: tuple[Scene, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def listed(transport: KubeTransport, namespace: str) -> list[Any]:
        asked.append(namespace)
        if not namespace:
            raise Forbidden("workloads.muster.dev is forbidden at the cluster scope")
        return [raw for page in transport.list_pages(WORKLOADS, "t") for raw in page.items or ()]

    monkeypatch.setattr("agent.cli.explain._listed", listed)
    done = muster("explain", "workload", "train", "--kubeconfig", cluster[1])
    assert (done.exit_code, asked) == (exits.OK, ["", "default"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--gpus", "1"], "a what-if is the agent's to answer"),
        (["--agent", "http://muster.example"], "a token would cross the network in the clear"),
        (["--agent", "ftp://127.0.0.1"], "is no address"),
        (["--agent", "http://127.0.0.1:9"], "does not answer"),
    ],
)
def test_explain_says_how_to_ask(cluster: tuple[Scene, Path], words: list[str], told: str) -> None:
    done = muster("explain", "workload", "later", *words, "--kubeconfig", cluster[1])
    assert done.exit_code == exits.ERROR
    assert told in done.stderr


@pytest.mark.parametrize("name", [["train"], ["t/train"], ["train", "-n", "t"]], ids=" ".join)
def test_explain_a_gang_that_runs(cluster: tuple[Scene, Path], name: list[str]) -> None:
    done = muster("explain", "workload", *name, "--kubeconfig", cluster[1])
    assert "state:    Admitted" in done.stdout
    assert "machines: ip-" in done.stdout


@pytest.mark.parametrize("name", [["train", "-n", "other"], ["t/train", "-n", "t"]], ids=" ".join)
def test_explain_a_gang_of_another_namespace(cluster: tuple[Scene, Path], name: list[str]) -> None:
    assert muster("explain", "workload", *name, "--kubeconfig", cluster[1]).exit_code != exits.OK


def test_explain_a_gang_that_is_not_there(cluster: tuple[Scene, Path]) -> None:
    done = muster("explain", "workload", "nobody", "--kubeconfig", cluster[1])
    assert done.exit_code == exits.ERROR
    assert "t/later, t/train" in done.stderr


def test_a_plan_reads_what_the_commit_confirms(work: WorkTree) -> None:
    first = commit(work, files(pool(), pool("old", deletion="Confirm"), team(), queue()))
    second = commit(work, files(pool(), team(), queue()))
    done = muster("plan", work.path, "--from", first, "--to", second)
    assert (done.exit_code, "Muster-Confirm-Deletion: nodepool/old" in done.stdout) == (exits.REFUSED, True)
    work.git("commit", "-q", "--allow-empty", "-m", "drop", "-m", "Muster-Confirm-Deletion: nodepool/old")
    assert muster("plan", work.path, "--from", first, "--to", "HEAD").exit_code == exits.OK


def test_plan_against_the_world(cluster: tuple[Scene, Path], work: WorkTree) -> None:
    _, kubeconfig = cluster
    first = commit(work, files(pool(limits={"nodes": 2}), team(quotas={"h100": {"nvidia.com/gpu": 16}}), queue()))
    commit(work, files(pool("other"), team(quotas={"other": {"nvidia.com/gpu": 16}}), queue(flavors=("other",))))
    done = muster("plan", work.path, "--world", "--from", first, "--kubeconfig", kubeconfig)
    assert done.exit_code == exits.REFUSED, "it would take both machines"
    assert "Machines:" in done.stdout
    assert "p5.48xlarge" in done.stdout


def test_a_plan_in_the_world_counts_the_day_as_the_agent_does(
    work: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent has bought four machines within the hour; two more are too many, and both say so in the same words."""

    def fixed(replicas: int) -> dict[str, str]:
        rails = doc("FleetPolicy", "p", guardRails={"maxNodesAdded": 4, "perDay": {"maxNodesAdded": 5}})
        return files(pool(replicas=replicas), team(), queue(), rails)

    scene = Scene(fixed(4))
    scene.settle(600)
    first, second = commit(work, fixed(4)), commit(work, fixed(6))
    with ApiServer(scene.sim.store) as server:
        server.kubeconfig(tmp_path / "kubeconfig")
        done = muster(
            "plan", work.path, "--world", "--from", first, "--to", second, "--kubeconfig", tmp_path / "kubeconfig"
        )
    scene.sim.push(fixed(6))
    scene.sim.advance(60)
    told = scene.sim.sync()["history"][0]["outcome"], scene.sim.sync()["conditions"][0]["message"]
    assert told[0] == "Refused"
    assert (
        "with the revision of the last 24 hours it adds 6 machines, guardRails.perDay.maxNodesAdded allows 5" in told[1]
    )
    assert (done.exit_code, told[1] in done.stdout) == (exits.REFUSED, True)


@pytest.mark.parametrize("command", [("get", "nodes"), ("explain", "workload", "x")])
def test_without_a_cluster_it_says_so(command: tuple[str, ...], tmp_path: Path) -> None:
    done = muster(*command, "--kubeconfig", tmp_path / "none")
    assert done.exit_code == exits.ERROR
    assert done.stderr.startswith("muster: ")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    with ApiServer(Scene().sim.store) as server:
        server.kubeconfig(config)
    done = muster("get", "nodes", "--kubeconfig", config)
    assert done.exit_code == exits.ERROR
    assert "muster: " in done.stderr


# -- the program ------------------------------------------------------------------------------------------------------


def run(*arguments: str, script: str = "") -> subprocess.CompletedProcess[str]:
    command = ["-c", script, *arguments] if script else ["-m", "agent", *arguments]
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_version() -> None:
    done = run("version")
    assert done.returncode == 0
    assert done.stdout.startswith("muster 0.")


def test_no_arguments_show_help() -> None:
    assert "validate" in run().stdout + run().stderr


HEAVY = (
    "boto3",
    "botocore",
    "kubernetes",
    "pygit2",
    "moto",
    "aiohttp",
    "apscheduler",
    "prometheus_client",
    "cryptography",
)
OF_FILES = (
    *HEAVY,
    "urllib3",
    "msgspec",
    "tomllib",
    "model.upstream.manifests",
    "fleet.snapshot",
)
DECIDERS = ("fleet.deciders", "fleet.replay", "fleet.gangs.lifecycle", "model.upstream.cluster_queue")
REFERENCE = "examples/reference"
LIGHT = {
    "help": (["--help"], (*HEAVY, "pydantic", "msgspec", "yaml")),
    "validate": (["validate", REFERENCE], OF_FILES),
    "policy test": (["policy", "test", REFERENCE], (*OF_FILES, "fleet.offerings", "providers.aws")),
    "start queue": (["start", "queue", "research", "--fleet", REFERENCE], (*OF_FILES, "fleet", "providers.kube")),
    "offers": (["offers", "--gpu", "h100", "--fleet", REFERENCE], (*HEAVY, *DECIDERS, "urllib3", "fleet.explain.node")),
    "plan": (["plan", REFERENCE], (*HEAVY, *DECIDERS, "urllib3", "fleet.plan.simulated_run")),
}


@pytest.mark.parametrize("name", LIGHT)
def test_what_a_quick_command_does_not_import(name: str) -> None:
    arguments, heavy = LIGHT[name]
    script = (
        "import sys\n"
        "from agent.cli import main\n"
        f"sys.argv = ['muster', *{arguments!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('HEAVY', sorted(set({heavy!r}) & sys.modules.keys()))"
    )
    done = run(script=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_no_validator_is_built_before_a_file_is_read() -> None:
    """Constants and defaults of the code need none: each takes as long as to read a file."""
    script = (
        "import agent.cli.validate, agent.clouds.aws, agent.config, fleet.offerings.declared, fleet.policy.checks\n"
        "from pydantic import BaseModel\n"
        "def below(model): return {model}.union(*map(below, model.__subclasses__()))\n"
        "ours = (it for it in below(BaseModel) if it.__module__.partition('.')[0] in ('agent', 'model'))\n"
        "print('BUILT', sorted(it.__name__ for it in ours if it.__pydantic_complete__))"
    )
    done = run(script=script)
    assert done.stdout.splitlines() == ["BUILT []"], done.stderr


def test_no_garbage_is_looked_for_at_the_end() -> None:
    script = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print('KEPT', gc.get_freeze_count() > 10_000, gc.get_threshold()[0]))\n"
        "from agent.cli import main\n"
        "sys.argv = ['muster', 'validate', 'examples/minimal']\n"
        "main()"
    )
    assert run(script=script).stdout.splitlines()[-1] == "KEPT True 250000"


def _commands(program: typer.Typer) -> set[str]:
    built = get_command(program)
    assert isinstance(built, TyperGroup)
    return set(built.commands)


def test_a_command_alone_is_the_same_as_among_all() -> None:
    names = _commands(app)
    assert {"validate", "get", "explain", "stop", "policy", "history"} <= names
    for name in names:
        alone, among = only(app, name), CliRunner().invoke(app, [name, "--help"])
        assert CliRunner().invoke(alone, [name, "--help"]).stdout == among.stdout
        assert name in _commands(alone) < names
    assert only(app, "validat") is app
    assert only(app, "") is app


def test_run_without_a_usable_configuration(tmp_path: Path) -> None:
    done = run("run", "--config", str(tmp_path / "none.yaml"))
    assert done.returncode == exits.ERROR
    assert "none.yaml" in done.stderr


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (42, "42s"), (119, "119s"), (600, "10m"), (4 * 3600, "4h"), (3 * 86400, "3d")]
)
def test_ages(seconds: float, shown: str) -> None:
    assert age(seconds) == shown
