"""`muster replay` on the example trace: two fleets side by side, scenarios, and what is wrong with what it is given."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from tests.providers.git.support import WorkTree

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TRACE = EXAMPLES / "replay" / "two-days.csv"
FEW = "submit_s,queue,pods,gpus,run_s\n0,ml,1,1,600\n60,ml,2,1,600\n"


def muster(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["replay", *map(str, arguments), "--jobs", "1"])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def few(tmp_path: Path) -> Path:
    path = tmp_path / "few.csv"
    path.write_text(FEW, encoding="utf-8")
    return path


@pytest.fixture
def smaller(tmp_path: Path) -> Path:
    """The minimal fleet with one GPU of quota, so that the second gang never starts."""
    folder = tmp_path / "less"
    shutil.copytree(EXAMPLES / "minimal", folder)
    file = folder / "fleet.yaml"
    file.write_text(file.read_text("utf-8").replace("{nvidia.com/gpu: 4}", "{nvidia.com/gpu: 1}"), encoding="utf-8")
    return folder


def test_two_fleets_side_by_side(few: Path, smaller: Path) -> None:
    code, out, _ = muster("--trace", few, "--from", smaller, "--to", EXAMPLES / "minimal", "-o", "json")
    assert code == exits.OK
    before, after = json.loads(out)["outcomes"]
    assert (before["total"]["started"], after["total"]["started"]) == (1, 2)
    assert before["usd"] < after["usd"]
    assert before["lasts_s"] == after["lasts_s"]


@pytest.mark.slow
def test_a_revision_beside_the_working_tree_in_two_processes(few: Path, tmp_path: Path) -> None:
    work = WorkTree(tmp_path / "fleet")
    work.path.mkdir()
    work.git("init", "-q", "-b", "main")
    text = (EXAMPLES / "minimal" / "fleet.yaml").read_text("utf-8")
    work.commit("fleet.yaml", text)
    work.write("fleet.yaml", text.replace("{nvidia.com/gpu: 4}", "{nvidia.com/gpu: 1}"))
    arguments = [work.path, "--trace", few, "--from", "HEAD", "--jobs", "2", "-o", "json"]
    done = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert done.exit_code == exits.OK, done.output
    found = {it["name"]: it["total"]["started"] for it in json.loads(done.stdout)["outcomes"]}
    assert found == {"HEAD": 2, "working tree": 1}


@pytest.mark.parametrize(("output", "begins"), [("table", "fleet "), ("markdown", "### Replay"), ("html", "<!doctype")])
def test_every_output(few: Path, output: str, begins: str) -> None:
    code, out, _ = muster(EXAMPLES / "minimal", "--trace", few, "-o", output)
    assert code == exits.OK
    assert out.startswith(begins)


def test_scenarios_are_played_in_every_combination(few: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "prices: [{name: as now}, {name: dear, prices: [{factor: 2.0}]}]\n"
        "capacity: [{name: plenty}, {name: none, shortages: [{after: 0s, lasts: 30m, instanceType: g6.xlarge}]}]\n",
        encoding="utf-8",
    )
    code, out, _ = muster(EXAMPLES / "minimal", "--trace", few, "--scenarios", grid, "-o", "json")
    assert code == exits.OK
    found = {it["name"].partition(" / ")[2]: it["usd"] for it in json.loads(out)["outcomes"]}
    assert list(found) == ["as now, plenty", "as now, none", "dear, plenty", "dear, none"]
    assert found["dear, plenty"] == pytest.approx(2 * found["as now, plenty"])
    assert found["as now, none"] > found["as now, plenty"]


def test_a_window_ends_where_it_says(few: Path) -> None:
    code, out, _ = muster(EXAMPLES / "minimal", "--trace", few, "--window", "1d12h", "-o", "json")
    assert code == exits.OK
    assert json.loads(out)["outcomes"][0]["lasts_s"] == 36 * 3600


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        (FEW.replace("ml", "nobody"), (), "queue nobody is declared in none of the fleets; --queue NAME"),
        (FEW + "x,ml,1,1,1\n", (), "few.csv:4: submit_s is 'x'"),
        (FEW, ("--region", "nowhere-1"), "no machine is known to be sold in region 'nowhere-1'"),
        (FEW, ("--from", "/no/such/place"), "/no/such/place"),
        (FEW, ("--scenarios", "/no/such/grid"), "/no/such/grid"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_played(
    few: Path, text: str, arguments: tuple[str, ...], words: str
) -> None:
    few.write_text(text, encoding="utf-8")
    code, out, told = muster(EXAMPLES / "minimal", "--trace", few, *arguments)
    assert (code, out) == (exits.ERROR, "")
    assert words in told


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("a: [{name: x, colour: red}]", "a.0.colour: Extra inputs are not permitted"),
        ("a: [{name: x, prices: [{factor: 0}]}]", "a.0.prices.0.factor: Input should be greater than 0"),
        ("a: [", "not YAML"),
        ("a: [{name: x, quotas: [{team: nobody, factor: 2}]}]", "x: team nobody is not declared"),
        ("a: [{name: x, prices: [{factor: 2, zone: moon-1a}]}]", "x: its price is of moon-1a: not on sale"),
        (
            "a: [{name: x, shortages: [{after: 0s, lasts: 1h, instanceType: p9.huge, capacityType: spot}]}]",
            "x: its shortage is of p9.huge spot: not on sale",
        ),
        ("a: [{name: x}, {name: y}, {name: x}]", "a: two variants are named 'x'"),
        ("a: [{name: x}]\na: [{name: y}]", "grid.yaml:2:1: the key 'a' is already given in line 1"),
        (
            "".join(f"a{axis}: [{', '.join(f'{{name: x{each}}}' for each in range(10))}]\n" for axis in range(30)),
            "1,000,000,000,000,000,000,000,000,000,000 combinations of its axes, of at most 10,000",
        ),
    ],
)
def test_scenarios_that_mean_nothing_are_refused(few: Path, tmp_path: Path, grid: str, words: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(grid, encoding="utf-8")
    code, _, told = muster(EXAMPLES / "minimal", "--trace", few, "--scenarios", path)
    assert code == exits.ERROR
    assert words in told


def test_work_has_to_be_named_once() -> None:
    assert muster(EXAMPLES / "minimal")[0] == 2
    assert muster(EXAMPLES / "minimal", "--trace", TRACE, "--recorded", TRACE)[0] == 2
    assert muster(EXAMPLES / "minimal", "--trace", TRACE, "--window", "a while")[0] == 2


@pytest.mark.slow
def test_the_example_trace_in_the_reference_fleet() -> None:
    code, out, _ = muster(EXAMPLES / "reference", "--trace", TRACE, "-o", "json")
    assert code == exits.OK
    [outcome] = json.loads(out)["outcomes"]
    assert {it["queue"] for it in outcome["queues"]} == {"batch", "prod", "research"}
    assert outcome["undecided"] == []
    assert outcome["total"]["finished"] > 80
