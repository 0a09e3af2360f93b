"""The conformance suites: the few cases that come with the repository, all of them where they lie beside it, and the
command line that runs them."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import Result, files_below, lines_of, run_case
from tests.conformance.kueue import RUNNERS, SUITE, same
from tests.support.shared import shared_path

ROOT = Path(__file__).resolve().parents[2]
ABOUT_MACHINES = {"topology"}
COPIED = Path(__file__).parent / "data" / "kueue" / "core.jsonl"


def failures(results: Iterator[Result]) -> list[str]:
    return [
        f"{result.id}: expected {result.expected}, got {result.got} {result.note}"
        for result in results
        if not result.passed
    ]


# -- what comes with the repository -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in lines_of(COPIED)])
def test_copied(case: dict[str, object]) -> None:
    result = run_case(case, RUNNERS, same)
    assert result.passed, f"expected {result.expected}, got {result.got} {result.note}"


def test_the_copied_cases_are_of_every_kind_and_each_is_there_once() -> None:
    cases = list(lines_of(COPIED))
    assert {case["kind"] for case in cases} == RUNNERS.keys() - ABOUT_MACHINES
    assert [name for name, count in Counter(case["id"] for case in cases).items() if count > 1] == []


# -- what lies beside it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["core", "replay", "runs/baseline.json"])
def test_kueue(part: str) -> None:
    path = shared_path(f"conformance/kueue/{part}")
    assert failures(SUITE.run(files_below([path]))) == []


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """Two cases that hold."""
    path = tmp_path / "cases" / "some.jsonl"
    path.parent.mkdir()
    path.write_text("".join(COPIED.read_text("utf-8").splitlines(keepends=True)[:2]), "utf-8")
    return path


def broken(path: Path, **change: object) -> Path:
    """The same with the first case changed."""
    first, *rest = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | change), *rest]) + "\n", "utf-8")
    return path


def test_all_hold(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kueue", str(some)]) == 0
    by_kind, by_agent, closing = capsys.readouterr().out.splitlines()
    assert by_kind.split() == ["available", "2", "of", "2,", "with", "the", "agent's", "switches", "2"]
    assert (by_agent, closing) == ("with the agent's switches 2 of 2 rows hold", "2 passed, 0 failed")


def test_a_folder_is_searched(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (some.parent / "README.md").write_text("no cases")
    assert main(["kueue", str(some.parent), str(some)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 passed, 0 failed"


def test_one_fails(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kueue", str(broken(some, expect={"available": {}, "nothing": 1}))]) == 1
    said, *_, closing = capsys.readouterr().out.splitlines()
    assert said.startswith("core/available/002: expected ")
    assert closing == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("change", "why"),
    [({"kind": "unheard-of"}, "no runner for kind 'unheard-of'"), ({"cluster_queues": None}, "KeyError: ")],
    ids=["nobody runs it", "it breaks the engine"],
)
def test_what_cannot_be_run_fails_and_says_why(
    some: Path, change: dict[str, object], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kueue", str(broken(some, **change))]) == 1
    said, *_, closing = capsys.readouterr().out.splitlines()
    assert why in said
    assert closing == "1 passed, 1 failed"


def test_emit_writes_a_line_a_case(some: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = tmp_path / "got.jsonl"
    assert main(["kueue", str(broken(some, kind="unheard-of")), "--emit", str(sink)]) == 1
    capsys.readouterr()
    first, second = (json.loads(line) for line in sink.read_text("utf-8").splitlines())
    assert first == {"id": "core/available/002", "got": None}
    expected = json.loads(some.read_text("utf-8").splitlines()[1])
    assert second == {"id": expected["id"], "got": expected["expect"]}


def test_a_suite_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["nomad", "x"])
    assert stopped.value.code == 2
    capsys.readouterr()


def test_as_a_program(some: Path) -> None:
    command = [sys.executable, "-m", "tests.conformance", "kueue", str(broken(some, kind="unheard-of"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "1 passed, 1 failed")
