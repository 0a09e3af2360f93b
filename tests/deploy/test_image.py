"""What the image does to the wheel: it takes the simulated world away, and what runs on a cluster does not miss it."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.reachability import PACKAGES, imports, modules

ROOT = Path(__file__).resolve().parents[2]
REMOVED = tuple(re.findall(r"&& rm -r (.+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)[0].split())
SIMULATED = tuple(path.replace("/", ".") for path in REMOVED)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked, without what the image leaves out."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "deploy/components").mkdir(parents=True)
    for name in (*PACKAGES, "schemas", "deploy/components/admission-policy", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(site)]
    subprocess.run(build, cwd=source, capture_output=True, timeout=120, check=True)
    (wheel,) = site.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    wheel.unlink()
    assert {path.name for path in site.iterdir()} == {*PACKAGES, "muster-0.1.0.dist-info"}
    for path in REMOVED:
        shutil.rmtree(site / path)
    return site


def run(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder of its own, with what is installed here but for the packages of the image."""
    environment = {**os.environ, "PYTHONPATH": str(image)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=image, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_only_the_command_line_knows_the_simulated_world() -> None:
    inside = {module for module in modules() if module.startswith(SIMULATED)}
    assert {module for module in modules() if module not in inside and imports(module) & inside} == {"agent.cli.app"}


def test_the_image_is_all_there(image: Path) -> None:
    rest = [module for module in modules() if not module.startswith(SIMULATED) and not module.endswith("__main__")]
    done = run(
        image,
        "-c",
        f"import importlib; [importlib.import_module(name) for name in {rest!r}]; import agent; print(agent.__file__)",
    )
    assert done.stderr == ""
    assert done.stdout.strip() == str(image / "agent" / "__init__.py")


def test_it_validates_a_fleet(image: Path) -> None:
    done = run(image, "-m", "agent", "validate", str(ROOT / "examples" / "reference"))
    assert "the fleet is" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["sandbox", "demo"])
def test_it_says_what_it_lacks(image: Path, command: str) -> None:
    done = run(image, "-m", "agent", command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "muster: this needs the extra 'sandbox'; install it with: pip install 'muster[sandbox]'\n"
