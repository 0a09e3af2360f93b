"""What shells and kubectl ask of the command line: completion, the plugin, the short options."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.app import app
from agent.cli.get import TABLES

ROOT = Path(__file__).resolve().parents[3]
COMMAND = f"#!{sys.executable}\nfrom agent.cli import main\nmain()\n"
SCRIPTS = ("muster", "kubectl-muster", "kubectl_complete-muster")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The commands as an installation puts them on the PATH."""
    folder = tmp_path_factory.mktemp("bin")
    for name in SCRIPTS:
        (folder / name).write_text(COMMAND)
        (folder / name).chmod(0o755)
    path = os.pathsep.join((str(folder), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder)}


def said(environment: Mapping[str, str], *command: str, code: int = 0) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


ASK: Mapping[str, str] = {
    "bash": """
        source <(muster completion bash)
        COMP_WORDS=(muster {words}) COMP_CWORD={index}
        _muster_completion muster
        printf '%s\\n' "${{COMPREPLY[@]}}"
        """,
    "zsh": """
        compdef() {{ }}
        source <(muster completion zsh)
        _arguments() {{ print -r -- "$@" }}
        words=(muster {words}) CURRENT=$(({index} + 1))
        _muster_completion
        """,
    "fish": """
        muster completion fish | source
        complete --do-complete 'muster {line}'
        """,
}


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ge", {"get"}),
        ("get q", {"queues"}),
        ("get work", {"workloads"}),
        ("get workloads --names", {"--namespace"}),
        ("get workloads -o ", {"text", "wide", "json", "yaml"}),
        ("explain wo", {"workload"}),
        ("completion ", {"bash", "zsh", "fish"}),
    ],
)
def test_words_are_completed(environment: Mapping[str, str], shell: str, words: str, expected: set[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    listed = [*words.split(), *([""] if words.endswith(" ") else [])]
    shown = " ".join(word or "''" for word in listed)
    script = ASK[shell].format(words=shown, index=len(listed), line=words)
    found = said(environment, shell, "-c", script)
    assert set(re.findall(r"[a-z-]+", found)) >= expected
    if shell == "bash":
        assert set(found.split()) == expected


@pytest.mark.parametrize("arguments", [["get", "q"], ["get", ""], ["--vers"]])
def test_kubectl_asks_for_words(environment: Mapping[str, str], arguments: list[str]) -> None:
    """Its protocol: a word a line, then what to do with them; 4 is to propose no files."""
    *words, directive = said(environment, "kubectl_complete-muster", *arguments).split()
    assert directive == ":4"
    expected = {"q": ["queues"], "": list(TABLES), "--vers": ["--version"]}[arguments[-1]]
    assert words == expected


def test_kubectl_runs_the_plugin(environment: Mapping[str, str]) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    assert said(environment, "kubectl", "muster", "--version").startswith("muster ")
    assert said(environment, "kubectl", "muster", "get", "-h").startswith("Usage: kubectl muster get ")
    assert "kubectl-muster" in said(environment, "kubectl", "plugin", "list")
    assert "workloads" in said(environment, "kubectl", "__complete", "muster", "get", "work")


def test_the_scripts_are_those_of_the_package() -> None:
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert declared == dict.fromkeys(SCRIPTS, "agent.cli:main")


@pytest.mark.parametrize("command", [[], ["get"], ["explain"], ["explain", "workload"], ["plan"]], ids=" ".join)
def test_help_has_a_short_option_everywhere(command: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*command, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)


def test_the_version() -> None:
    option, command = (CliRunner().invoke(app, [word]) for word in ("--version", "version"))
    assert (option.exit_code, command.exit_code) == (0, 0)
    assert option.stdout == command.stdout == f"muster {_version()}\n"


def _version() -> str:
    from importlib.metadata import version

    return version("muster")
