"""Rules of the house that no linter knows: what is shipped, what is pinned, what may not leak in."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("agent", "model", "providers", "fleet")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
_SKIPPED = {".git", ".venv", "__pycache__", "build", "dist", "node_modules"}


def files(*suffixes: str) -> Iterator[Path]:
    """Every file of the repository, caches aside; with `suffixes` only those."""
    for folder, names, found in os.walk(ROOT):
        here = Path(folder)
        names[:] = sorted(n for n in names if n not in _SKIPPED and not n.endswith("_cache") and n != ".hypothesis")
        yield from (here / name for name in sorted(set(found) - _SKIPPED) if not suffixes or name.endswith(suffixes))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_owns_our_names(package: str) -> None:
    """Short top-level names are fine as long as nothing we depend on uses them too."""
    owners = set(importlib.metadata.packages_distributions().get(package, ()))
    assert owners <= {"muster"}


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_shipped(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_exactly_four_packages_are_shipped() -> None:
    assert set(PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
    assert set(PYPROJECT["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)
    assert set(PYPROJECT["tool"]["mypy"]["packages"]) == {*PACKAGES, "tools"}


# -- size -------------------------------------------------------------------------------------------------------------


def test_no_file_outgrows_its_noun() -> None:
    """A file beyond this asks for a new noun, not for more lines."""
    most = {**dict.fromkeys((*PACKAGES, "tools"), 450), "tests": 900}
    long = {
        relative(path): lines
        for path in files(".py")
        if (limit := most.get(relative(path).split(os.sep, 1)[0])) is not None
        and (lines := path.read_text("utf-8").count("\n")) > limit
    }
    assert not long


# -- leaks ------------------------------------------------------------------------------------------------------------

_HOSTS = ("pypi.org", "pythonhosted.org", "ghcr.io", "docker.io", "quay.io", "gcr.io", "nvcr.io", "public.ecr.aws")
_LEAKS = re.compile(
    "|".join(
        (
            r"(?<![\w.<}~-])/(?:work|root|home|Users|private|opt/pypi)/\w",
            r"(?<![\w.-])(?:registry|artifactory|nexus|index)\.(?!example)[\w-]+\.(?:com|io|net|org|dev)\b",
            r"\.dkr\.ecr\.",
            r"--(?:extra-)?index-url",
            *(rf"(?<![\w.-])(?:[\w-]+\.)*{re.escape(host)}\b" for host in _HOSTS),
        )
    )
)
# Paths inside a container or on a node that an upstream project documents.
_MEANT = re.compile(r"registry\.k8s\.io/pause")


@pytest.mark.parametrize(
    "parts", [("/wo", "rk/main"), ("/ro", "ot/x"), ("pyp", "i.org/simple"), ("x.ghc", "r.io/y"), ("--index", "-url")]
)
def test_the_search_for_leaks_finds_them(parts: tuple[str, str]) -> None:
    assert _LEAKS.search(f"see {''.join(parts)}")


def test_no_machine_paths_and_no_registries() -> None:
    """What works only where it was written does not belong into the repository."""
    found = []
    for path in files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if (leak := _LEAKS.search(line)) and not _MEANT.search(line):
                found.append(f"{relative(path)}:{number}: {leak.group()}")
    assert not found


# -- locks ------------------------------------------------------------------------------------------------------------

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?==(?P<version>[^ ;\\]+)")


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Canonical name -> (version, number of hashes)."""
    found: dict[str, tuple[str, int]] = {}
    current = ""
    for line in (ROOT / name).read_text("utf-8").splitlines():
        if match := _PIN.match(line):
            current = canonicalize_name(match["name"])
            found[current] = (match["version"], 0)
        elif line.lstrip().startswith("--hash=sha256:"):
            version, hashes = found[current]
            found[current] = (version, hashes + 1)
        else:
            assert line.lstrip().startswith("#") or not line.strip(), line
    return found


def declared(lock: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    wanted = list(project["dependencies"])
    if lock == "requirements-dev.lock":
        wanted += [*project["optional-dependencies"]["sandbox"], *PYPROJECT["dependency-groups"]["dev"]]
    return [Requirement(text) for text in wanted]


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_everything_declared_is_pinned_with_a_hash(lock: str) -> None:
    pins = locked(lock)
    for requirement in declared(lock):
        version, _ = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is locked at {version}"
    assert not [name for name, (_, hashes) in pins.items() if not hashes]


COMPANIONS = {
    "botocore": "boto3",
    "httpx": "githubkit",
    "markupsafe": "jinja2",
    "mypy-boto3-ec2": "boto3-stubs",
    "mypy-boto3-pricing": "boto3-stubs",
    "mypy-boto3-sqs": "boto3-stubs",
    "pydantic-core": "pydantic",
    "pyjwt": "githubkit",
    "requests": "python-gitlab",
    "urllib3": "kubernetes",
    "werkzeug": "moto",
    "yarl": "aiohttp",
}
"""What is imported and not declared -> what is, and decides on its version: its own API hands out the other's types."""


def test_what_is_imported_is_declared() -> None:
    owners = importlib.metadata.packages_distributions()
    known = {canonicalize_name(it.name) for it in declared("requirements-dev.lock")} | COMPANIONS.keys()
    optional = PYPROJECT["project"]["optional-dependencies"]
    known |= {canonicalize_name(Requirement(it).name) for extra in optional.values() for it in extra}
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                named = [it.name for it in node.names] if isinstance(node, ast.Import) else named
                found |= {name.partition(".")[0] for name in named}
    foreign = found - sys.stdlib_module_names - set(PACKAGES)
    assert {it for it in foreign if not {canonicalize_name(name) for name in owners.get(it, [it])} & known} == set()


@pytest.mark.parametrize("name", ["cel-python", "lark"])
def test_whose_insides_are_used_has_an_upper_bound(name: str) -> None:
    """The evaluator of CEL mends the grammar of cel-python and walks the trees that lark makes of it."""
    (found,) = (it for it in declared("requirements.lock") if canonicalize_name(it.name) == name)
    assert any(it.operator in ("<", "==", "~=") for it in found.specifier)


def test_the_two_locks_agree() -> None:
    production, development = locked("requirements.lock"), locked("requirements-dev.lock")
    assert {name: version for name, (version, _) in production.items()} == {
        name: version for name, (version, _) in development.items() if name in production
    }


def test_the_image_can_build_itself_from_the_lock() -> None:
    """The Dockerfile takes the build back-end and all it needs out of the lock by name."""
    taken = re.search(r"\^\(([a-z|-]+)\)==", (ROOT / "Dockerfile").read_text("utf-8"))
    assert taken
    names = set(taken.group(1).split("|"))
    assert names <= locked("requirements-dev.lock").keys()
    needed = {"hatchling"}
    for text in importlib.metadata.requires("hatchling") or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"python_version": "3.11"}):
            needed.add(canonicalize_name(requirement.name))
    assert names == needed


# -- start-up ---------------------------------------------------------------------------------------------------------


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    spec = importlib.util.find_spec("agent.cli")
    if spec is None or spec.origin is None:
        pytest.skip("there is no agent.cli")
    heavy = ("boto3", "botocore", "kubernetes", "pygit2", "moto", "aiohttp", "apscheduler", "highspy")
    script = f"import agent.cli.app, sys; print(*sorted(set({heavy!r}) & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_the_hooks_run_what_ci_runs() -> None:
    """`.pre-commit-config.yaml` names only targets of the Makefile."""
    import yaml

    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for repository in config["repos"]:
        assert repository["repo"] == "local"
        for hook in repository["hooks"]:
            target = re.search(r"make (?:--\S+ )*([a-z]+)", hook["entry"])
            assert target, hook["entry"]
            assert re.search(rf"^{target.group(1)}:", makefile, re.MULTILINE), hook["entry"]
