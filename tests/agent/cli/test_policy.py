"""`muster policy test` says which cases do not hold."""

from pathlib import Path

import pytest

from agent.cli import exits
from agent.cli.policy import run_policy_test
from tests.agent.scenes import doc, files, pool, queue, team


def written(folder: Path, *tests: dict[str, object], expression: str = "plan.n < 2") -> Path:
    check = {"name": "few", "expression": expression, "message": "too many", "tests": list(tests)}
    for path, text in files(pool(), team(), queue(), doc("FleetPolicy", "p", checks=[check])).items():
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def test_cases_that_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = ({"plan": {"n": 1}, "passes": True}, {"plan": {"n": 2}, "passes": False})
    assert run_policy_test(written(tmp_path, *cases)) == exits.OK
    assert capsys.readouterr().out == "ok    few #1\nok    few #2\n2 cases, 0 failed.\n"


def test_cases_that_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = ({"plan": {"n": 1}, "passes": False}, {"plan": {}, "passes": True})
    assert run_policy_test(written(tmp_path, *cases)) == exits.INVALID
    out = capsys.readouterr().out
    assert "FAIL  few #1: it holds, and should not" in out
    assert "FAIL  few #2: no such member" in out
    assert out.endswith("2 cases, 2 failed.\n")


def test_a_check_without_a_case_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_policy_test(written(tmp_path)) == exits.OK
    assert "without a case: few" in capsys.readouterr().out


def test_what_cannot_be_read_is_said_at_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_policy_test(written(tmp_path, expression="plan.")) == exits.INVALID
    assert "it is not CEL" in capsys.readouterr().out
    assert run_policy_test(tmp_path / "nowhere") == exits.ERROR
