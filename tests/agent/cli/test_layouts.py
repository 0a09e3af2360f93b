"""`muster layouts advise`: a diff that git takes, replayed before and after, and the request that proposes it."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app
from agent.cli.layouts import ProposalPlace, propose_layouts
from agent.clouds import cloud_provider
from fleet.advice.layouts import advised, as_declared, asked_of, cut_kinds
from fleet.advice.layouts_text import JudgedLayouts
from model.loader import PoolLayouts, load
from tests.agent.review.forge import CommitsInMemory, ForgeInMemory, commit
from tests.providers.git.support import WorkTree
from tests.support.purchases import HIGHS

pytestmark = HIGHS
REFERENCE = Path(__file__).resolve().parents[3] / "examples" / "reference"


def muster(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["layouts", "advise", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def slices(tmp_path: Path) -> Path:
    path = tmp_path / "slices.json"
    path.write_text('{"1g.10gb": 32, "nvidia.com/mig-3g.40gb": 8}', encoding="utf-8")
    return path


def test_a_file_of_slices_becomes_a_change_that_git_applies(slices: Path, tmp_path: Path) -> None:
    shutil.copytree(REFERENCE, tmp_path / "fleet")
    WorkTree(tmp_path / "fleet").git("init", "-q", "-b", "main")
    code, out, err = muster(tmp_path / "fleet", "--demand", slices, "--pool", "a100-mig")
    assert (code, err) == (exits.OK, "")
    words, _, patch = out.partition("diff --git")
    assert "at once: 32 nvidia.com/mig-1g.10gb, 8 nvidia.com/mig-3g.40gb" in words
    assert "node pool a100-mig: 1 machines, 8 GPUs" in words
    assert "at most 0.0 % above the least" in words
    assert "with the layouts declared: 40,073 USD a month" in words
    subprocess.run(["git", "apply"], cwd=tmp_path / "fleet", input=f"diff --git{patch}".encode(), check=True)
    after = load({str(it): it.read_bytes() for it in (tmp_path / "fleet").rglob("*.yaml")})
    (name,) = after.node_pools["a100-mig"].spec.sharing.mig.layouts
    assert after.mig_layouts[name].spec.models["a100-80gb"][0].profiles == {"1g.10gb": 4, "3g.40gb": 1}
    code, out, _ = muster(tmp_path / "fleet", "--demand", slices, "--pool", "a100-mig")
    assert "diff" not in out
    assert "not worth a change: the layouts that are declared give the same" in out


def test_a_pool_that_has_too_few_machines_is_told_of(tmp_path: Path) -> None:
    many = tmp_path / "many.yaml"
    many.write_text("1g.10gb: 500\n", encoding="utf-8")
    _, out, _ = muster(REFERENCE, "--demand", many, "--pool", "a100-mig")
    assert "more than its limits.nodes (4), which stay as they are" in out


TRACE = "submit_s,queue,pods,gpus,run_s,resource"
QUOTA = "nvidia.com/mig-1g.10gb: 224"


def two_days() -> str:
    """Small slices, and now and then a large one: with the declared layouts each machine has one kind."""
    draw, at_s, lines = random.Random(5), 0.0, [TRACE]
    for _ in range(120):
        at_s += draw.expovariate(1 / 900)
        profile = draw.choice(("1g.10gb", "1g.10gb", "3g.40gb"))
        run_s = int(draw.lognormvariate(8.8, 0.6))
        lines.append(f"{int(at_s)},research-mig,1,1,{run_s},nvidia.com/mig-{profile}")
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_work_that_came_is_replayed_before_and_after(tmp_path: Path) -> None:
    trace = tmp_path / "work.csv"
    trace.write_text(two_days(), encoding="utf-8")
    code, out, err = muster(REFERENCE, "--trace", trace, "--pool", "a100-mig", "--window", "14d")
    assert (code, err) == (exits.OK, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith(("before ", "after "))}
    before, after = (float(rows[it][2].replace(",", "")) for it in ("before", "after"))
    assert after < before, "one machine that has both, where there were two"
    assert rows["after"][-3:] == ["120", "of", "120"]
    assert "not worth" not in out
    assert "diff --git" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pool", "h100-full"), "does not cut its GPUs"),
        (("--pool", "nowhere"), "does not cut its GPUs"),
        (("--region", "mars-1"), "no machine is known to be sold"),
    ],
)
def test_what_cannot_be_advised_on(slices: Path, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = muster(REFERENCE, "--demand", slices, *arguments)
    assert (code, out) == (exits.ERROR, "")
    assert words in err


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2]",
        "{1g.10gb: many}",
        "{1g.10gb: 1, 1g.10gb: 2}",
        "{1g.10gb: -1}",
        "{",
        "{1g.10gb: 3000000000}",
        "{5g.10gb: 1}",
        "{}",
    ],
)
def test_a_file_that_says_no_slices(tmp_path: Path, text: str) -> None:
    path = tmp_path / "slices.yaml"
    path.write_text(text, encoding="utf-8")
    code, out, err = muster(REFERENCE, "--demand", path)
    assert (code, out) == (exits.ERROR, "")
    assert err.startswith("muster: ")


def test_without_work_there_is_nothing_to_go_by(tmp_path: Path) -> None:
    code, _, err = muster(REFERENCE, "--config", tmp_path / "none.yaml")
    assert code == exits.ERROR
    assert "--config" in err


def test_a_request_for_what_is_no_better_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slices.yaml"
    path.write_text("3g.40gb: 16\n", encoding="utf-8")
    code, _, err = muster(REFERENCE, "--demand", path, "--pool", "a100-mig", "--pull-request")
    assert code == exits.REFUSED
    assert "the same for the same money" in err


# -- the request ------------------------------------------------------------------------------------------------------

FILES = {it.relative_to(REFERENCE).as_posix(): it.read_bytes() for it in REFERENCE.rglob("*.yaml")}


def judged_and_wanted() -> tuple[JudgedLayouts, PoolLayouts]:
    fleet = load(FILES)
    kinds = cut_kinds(fleet, cloud_provider().catalog("us-east-1"), "a100-mig")
    asked = asked_of(kinds, {"1g.10gb": 32, "3g.40gb": 8})
    advice = advised(fleet, kinds, asked)
    (cut,) = advice.cuts
    wanted = PoolLayouts("a100-mig", (cut.layout.name,), None, (cut.layout,))
    return JudgedLayouts(advice, as_declared(fleet, kinds, asked), None), wanted


def test_a_request_changes_one_file_and_the_same_advice_is_the_same_request() -> None:
    forge, place = (
        ForgeInMemory(),
        ProposalPlace(CommitsInMemory({"refs/heads/main": commit(1)}, {commit(1): FILES}), "main", "prod"),
    )
    judged, wanted = judged_and_wanted()
    told = propose_layouts(forge, place, wanted, judged)
    (change,) = forge.proposed
    (number,) = forge.requests
    assert told == f"pull request {number} proposes it"
    assert (change.path, change.base, change.base_commit) == ("pools/a100-mig.yaml", "main", commit(1))
    assert change.branch.startswith("muster/layouts/a100-mig/")
    assert load({**FILES, change.path: change.content}).node_pools["a100-mig"].spec.sharing.mig.layouts == wanted.names
    assert "USD a month" in change.words
    forge.close_request(number)
    assert propose_layouts(forge, place, wanted, judged) == f"pull request {number} proposes this already: Closed"
    assert len(forge.proposed) == 1


def test_what_the_branch_has_is_not_proposed() -> None:
    forge, (judged, wanted) = ForgeInMemory(), judged_and_wanted()
    place = ProposalPlace(CommitsInMemory({"refs/heads/main": commit(1)}, {commit(1): FILES}), "main", "prod")
    propose_layouts(forge, place, wanted, judged)
    (change,) = forge.proposed
    merged = {**FILES, change.path: change.content}
    merged_place = ProposalPlace(CommitsInMemory({"refs/heads/main": commit(2)}, {commit(2): merged}), "main", "prod")
    assert propose_layouts(ForgeInMemory(), merged_place, wanted, judged) == "the branch has these layouts already"
