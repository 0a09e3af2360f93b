"""`muster schema` prints what editors need, from a checkout and from the wheel, and files may name what it wrote."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agent.cli import exits
from agent.cli.app import app

ROOT = Path(__file__).resolve().parents[3]
NAMES = sorted(path.name for path in (ROOT / "schemas").glob("*.json"))
EXAMPLES = [path for path in sorted((ROOT / "examples").rglob("*.yaml")) if path.name != "patches.yaml"]
jsonschema = pytest.importorskip("jsonschema")


def muster(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["schema", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_one_kind_whatever_its_case() -> None:
    for name in ("NodePool", "nodepool"):
        code, out, _ = muster(name)
        assert code == exits.OK
        assert json.loads(out)["title"] == "NodePool"


def test_without_a_kind_it_is_that_of_any_document() -> None:
    code, out, _ = muster()
    assert code == exits.OK
    assert out == (ROOT / "schemas" / "fleet.json").read_text("utf-8")


def test_an_unknown_kind_gets_a_hint() -> None:
    code, out, told = muster("NodePol")
    assert (code, out) == (exits.ERROR, "")
    assert "did you mean 'nodepool'?" in told


def test_all_files_into_a_folder(tmp_path: Path) -> None:
    assert muster("--output-dir", str(tmp_path / "new" / "folder"))[0] == exits.OK
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == NAMES
    assert muster("Team", "--output-dir", str(tmp_path / "one"))[0] == exits.OK
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["team.json"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, told = muster("--output-dir", str(tmp_path / "file"))
    assert code == exits.ERROR
    assert "file" in told


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_modeline_of_an_example_leads_to_a_schema_that_it_satisfies(path: Path, tmp_path: Path) -> None:
    """As an editor does it: the first line, relative to the file."""
    text = path.read_text("utf-8")
    said = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    schema = json.loads((path.parent / said).resolve().read_text("utf-8"))
    assert muster("--output-dir", str(tmp_path))[0] == exits.OK
    assert schema == json.loads((tmp_path / Path(said).name).read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    for document in yaml.safe_load_all(text):
        validator.validate(document)


@pytest.mark.slow
def test_the_wheel_carries_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert sorted(Path(name).name for name in packed.namelist() if name.startswith("model/schemas/")) == NAMES
        packed.extractall(tmp_path / "installed")
    found = subprocess.run(
        [sys.executable, "-m", "agent", "schema", "Team"],
        cwd=tmp_path / "installed",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout == (ROOT / "schemas" / "team.json").read_text("utf-8")
