"""Problems as text, JSON, SARIF and workflow commands."""

import json
from dataclasses import replace

import pytest

from model import report
from model.problem import DESCRIPTIONS, Code, Problem

ERROR = Problem(
    file="pools/a b.yaml",
    line=2,
    column=3,
    path="spec.zones",
    message="must be a list",
    code=Code.INVALID_VALUE,
    hint="write [x]",
    excerpt="1 | spec:\n2 |   zones: x\n  |   ^",
)
WARNING = replace(ERROR, file="b.yaml", path="", severity="warning", code=Code.UNUSED, hint="", message="is unused")


def test_text() -> None:
    assert report.text([ERROR, WARNING]) == (
        "pools/a b.yaml:2:3: error: spec.zones: must be a list\n"
        "  1 | spec:\n  2 |   zones: x\n    |   ^\n  hint: write [x]\n\n"
        "b.yaml:2:3: warning: is unused\n"
        "  1 | spec:\n  2 |   zones: x\n    |   ^\n\n"
        "1 error, 1 warning in 2 files"
    )


def test_colour_is_optional_and_closed() -> None:
    plain, coloured = report.text([ERROR]), report.text([ERROR], colour=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31merror\x1b[0m" in coloured
    assert coloured.count("\x1b[0m") * 2 == coloured.count("\x1b[")


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        ([], "no problems"),
        ([ERROR, ERROR], "2 errors in 1 file"),
        ([WARNING], "1 warning in 1 file"),
        ([ERROR, WARNING, WARNING], "1 error, 2 warnings in 2 files"),
    ],
)
def test_totals(problems: list[Problem], expected: str) -> None:
    assert report.totals(problems) == expected


def test_json() -> None:
    first, second = json.loads(report.as_json([ERROR, WARNING]))
    assert first == {
        "file": "pools/a b.yaml",
        "line": 2,
        "column": 3,
        "path": "spec.zones",
        "severity": "error",
        "code": "invalid-value",
        "message": "must be a list",
        "hint": "write [x]",
    }
    assert second["severity"] == "warning"
    assert json.loads(report.as_json([])) == []


def test_sarif_has_the_required_structure() -> None:
    """Sections 3.13 to 3.30 of SARIF 2.1.0 and what GitHub's code scanning requires."""
    log = json.loads(report.sarif([ERROR, WARNING]))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "muster"
    assert [rule["id"] for rule in rules] == [code.value for code in Code]
    assert all(rule["shortDescription"]["text"] for rule in rules)
    for problem, result in zip([ERROR, WARNING], run["results"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == problem.code.value
        assert result["level"] == problem.severity
        assert problem.message in result["message"]["text"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert " " not in physical["artifactLocation"]["uri"]
        assert physical["region"] == {"startLine": 2, "startColumn": 3}
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "pools/a%20b.yaml"


def test_sarif_of_nothing_is_a_run_without_results() -> None:
    assert json.loads(report.sarif([]))["runs"][0]["results"] == []


def test_github() -> None:
    assert report.github([ERROR]) == (
        "::error file=pools/a b.yaml,line=2,col=3,title=Values have the right type and form::"
        "spec.zones: must be a list%0Awrite [x]"
    )


def test_a_file_cannot_smuggle_in_a_workflow_command() -> None:
    hostile = replace(ERROR, file="a,line=9::x\n::error::y", message="100%\r\n::set-output name=a::b")
    (line,) = report.github([hostile]).splitlines()
    assert line.startswith("::error file=a%2Cline=9%3A%3Ax\\n%3A%3Aerror%3A%3Ay,line=2,")
    assert line.count("::") - line.split("::", 2)[2].count("::") == 2
    assert "100%25\\r\\n" in line


def test_every_code_is_described() -> None:
    assert set(DESCRIPTIONS) == set(Code)


def test_formats() -> None:
    assert sorted(report.FORMATS) == ["github", "json", "sarif", "text"]
    assert all(render([ERROR]) for render in report.FORMATS.values())


def test_long_sentences_are_cut_in_the_middle() -> None:
    found = replace(
        ERROR, message=f"unknown kind {'x' * 30_000!r}; known are those", hint="a" * 2_000, path="k" * 9_999
    )
    assert [len(text) for text in (found.message, found.hint, found.path)] == [1_999, 2_000, 1_999]
    assert found.message.startswith("unknown kind 'xxx")
    assert " ... " in found.message
    assert found.message.endswith("xxx'; known are those")
