"""What the real Job controller, pod GC, taint manager and TTL did.

The rows that come with the repository are played, and all of them where they lie beside it.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import Result, lines_of
from tests.conformance.kubernetes import SUITE, job_controller, ran
from tests.conformance.kubernetes.timelines import differences
from tests.support.shared import shared_path

COPIED = Path(__file__).parent / "data" / "kubernetes" / "job_controller.jsonl"
ROWS = {row["id"]: row for row in lines_of(COPIED)}


def wrong(result: Result) -> list[str]:
    """Where the timeline is not the recorded one."""
    if result.case is None or not isinstance(result.got, dict):
        return [f"{result.id}: {result.note}"]
    return [f"{result.id}: {text}" for text in differences(result.case["timeline"], result.got["timeline"])]


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in ROWS.items()])
def test_copied(case: dict[str, Any]) -> None:
    result = ran("job_controller", case)
    assert wrong(result) == []
    assert result.passed


def test_the_copied_rows_are_each_there_once() -> None:
    assert [name for name, count in Counter(row["id"] for row in lines_of(COPIED)).items() if count > 1] == []


def test_every_row_of_the_job_controller() -> None:
    results = list(SUITE.run([shared_path("conformance/kubernetes/job_controller.jsonl")]))
    assert [text for result in results for text in wrong(result) if result.id not in job_controller.DECLINED] == []


# -- the comparison finds what is wrong -------------------------------------------------------------------------------


def changed(name: str, where: int, **fields: Any) -> dict[str, Any]:
    """A copied row with one event changed."""
    timeline = list(ROWS[name]["timeline"])
    timeline[where] = {**timeline[where], **fields}
    return {**ROWS[name], "timeline": timeline}


def at(name: str, **fields: Any) -> int:
    """Where the last event with these fields stands."""
    return max(place for place, event in enumerate(ROWS[name]["timeline"]) if fields.items() <= event.items())


STATUS = ROWS["evict-none"]["timeline"][at("evict-none", on="job")]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(changed("evict-none", at("evict-none", on="job"), t=16.0), id="a status comes late"),
        pytest.param(
            changed("evict-none", at("evict-none", on="job"), status={**STATUS["status"], "failed": 2}),
            id="another failure is counted",
        ),
        pytest.param(changed("evict-none", at("evict-none", ev="DELETED"), grace=20), id="a pod ends otherwise"),
        pytest.param(changed("evict-none", at("evict-none", ev="ADDED", pod="p4"), pod="p5"), id="another pod appears"),
        pytest.param(changed("elastic-indexed", at("elastic-indexed", code=422), code=200), id="a request is taken"),
        pytest.param(changed("node-silent", at("node-silent", on="node"), taints=[]), id="a node is not tainted"),
        pytest.param(
            {**ROWS["evict-none"], "timeline": [e for e in ROWS["evict-none"]["timeline"] if e.get("pod") != "p3"]},
            id="a pod too many",
        ),
    ],
)
def test_a_row_with_another_answer_fails(row: dict[str, Any]) -> None:
    assert not ran("job_controller", row).passed


def test_two_events_that_two_watches_saw_may_change_places() -> None:
    timeline = list(ROWS["fail-limit1"]["timeline"])
    place = next(p for p, event in enumerate(timeline) if event["on"] == "pod")
    timeline[place], timeline[place + 1] = timeline[place + 1], timeline[place]
    assert timeline[place]["on"] == "job"
    assert ran("job_controller", {**ROWS["fail-limit1"], "timeline": timeline}).passed


def test_a_script_that_is_not_understood_fails() -> None:
    result = ran("job_controller", changed("fail-limit1", at("fail-limit1", on="do"), what="pray"))
    assert not result.passed
    assert "pray" in result.note


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kubernetes", str(COPIED)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["family", "passed", "failed", "declined"]
    assert said[-2].split() == ["all", str(len(ROWS)), "0", "0"]
    assert said[-1] == f"{len(ROWS)} passed, 0 failed"
