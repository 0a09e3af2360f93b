"""What the real control plane answered: the rows that come with the repository, and all where they lie beside it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import Case, Result, lines_of
from tests.conformance.kubernetes import SUITE, ran, scheduler
from tests.support.shared import shared_path

COPIED = Path(__file__).parent / "data" / "kubernetes" / "scheduler.jsonl"
ROWS = list(lines_of(COPIED))
FAMILIES = {
    *("sel", "tol", "res", "port", "aff", "affb", "anti", "antib", "spread", "gate", "mix", "mixb", "seq", "vol"),
    *("bspread", "baffb", "bantib"),
}


def wrong(result: Result) -> list[str]:
    """What is not as recorded: the answer, the message, the reasons."""
    case: Case = result.case or {}
    found = [] if result.passed else [f"{result.id}: expected {result.expected}, got {result.got} {result.note}"]
    if result.got and "refused" not in result.got:
        if case.get("message") and not scheduler.says_the_same(case, result.got):
            found.append(f"{result.id}: {result.got['message']!r} instead of {case['message']!r}")
        if not scheduler.knows_why(case, result.got):
            found.append(f"{result.id}: {result.got['why']} instead of {case['why']}")
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in ROWS])
def test_copied(case: dict[str, Any]) -> None:
    assert wrong(ran("scheduler", case)) == []


def test_the_copied_rows_are_of_every_family_and_each_is_there_once() -> None:
    assert {row["id"].partition("-")[0] for row in ROWS} == FAMILIES
    assert [name for name, count in Counter(row["id"] for row in ROWS).items() if count > 1] == []


def test_every_row_of_the_scheduler() -> None:
    """Both the simulated scheduler and the agent's placement."""
    results = list(SUITE.run([shared_path("conformance/kubernetes/scheduler.jsonl")]))
    simulated = [result for result in results if (result.case or {})["kind"] == "scheduler"]
    assert [text for result in simulated for text in wrong(result)] == []
    assert [f"{it.id}: {it.got} {it.note}" for it in results if not it.passed] == []


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in ROWS])
def test_copied_by_the_agents_placement(case: dict[str, Any]) -> None:
    result = ran("placement", case)
    assert result.passed, f"{result.got} {result.note}"


@pytest.mark.parametrize("change", [{"feasible": []}, {"why": {"x": "because"}}, {"refused": {"status": 422}}])
def test_a_row_that_the_placement_answers_otherwise_fails(change: dict[str, Any]) -> None:
    assert ran("placement", row("tol")).passed
    assert not ran("placement", {**row("tol"), **change}).passed


# -- the comparison finds what is wrong -------------------------------------------------------------------------------


def row(name: str) -> dict[str, Any]:
    """A copied row of a family that has feasible nodes and others."""
    return dict(next(r for r in ROWS if r["id"].startswith(name) and r.get("feasible") and r["why"]))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"feasible": []}, id="no node is feasible"),
        pytest.param({"bound": None}, id="it is bound nowhere"),
        pytest.param({"reason": "Unschedulable"}, id="it stays pending"),
        pytest.param({"selectedOnly": True}, id="it waits for a volume"),
        pytest.param({"refused": {"status": 422, "message": "no"}}, id="it is refused"),
    ],
)
def test_a_row_with_another_answer_fails(change: dict[str, Any]) -> None:
    assert ran("scheduler", row("tol")).passed
    assert not ran("scheduler", {**row("tol"), **change}).passed


def test_messages_and_reasons_are_counted_apart() -> None:
    good, changed = row("tol"), row("tol")
    changed["why"] = dict.fromkeys(changed["why"], "because")
    pending = dict(next(r for r in ROWS if r.get("message") and r["id"].startswith("sel")))
    pending["message"] = "something else"
    lines = scheduler.table([ran("scheduler", each) for each in (good, changed, pending)])
    assert lines[0].split() == ["family", "passed", "failed", "declined", "messages", "reasons"]
    assert [line.split() for line in lines[1:]] == [
        ["tol", "2", "0", "0", "0/0", "1/2"],
        ["sel", "1", "0", "0", "0/1", "1/1"],
        ["all", "3", "0", "0", "0/1", "2/3"],
    ]


def test_a_file_without_an_adapter_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unheard-of.jsonl").write_text(json.dumps({"id": "some-001"}) + "\n", "utf-8")
    assert main(["kubernetes", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "no runner for kind 'unheard-of'" in said[0]
    assert said[-1] == "0 passed, 1 failed"


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubernetes", str(COPIED)]) == 0
    said = capsys.readouterr().out.splitlines()
    table = ["family", *dict.fromkeys(r["id"].split("-")[0] for r in ROWS), "all"]
    assert [line.split()[0] for line in said[:-1]] == ["scheduler:", *table, "placement:", *table]
    assert said[-1] == f"{2 * len(ROWS)} passed, 0 failed"
