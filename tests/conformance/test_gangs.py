"""The runner of the `gangs` suite: a few rows of each kind, and that its checks find what is wrong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import gangs
from tests.conformance.gangs.outcome import compare, is_economic
from tests.conformance.gangs.safety import violations
from tests.conformance.gangs.scene import Pods, SceneRound, initial, settle
from tests.reference.session.values import Decision, SessionEviction, SessionPlacement
from tests.support.shared import shared_path

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "gangs.json").read_text(encoding="utf-8"))[
    "cases"
]
BY_ID = {case["id"]: case for case in CASES}
REFUSED = {"volcano-actions-reclaim-reclaim-007"}
"""Upstream evicts there for a gang of which one pod of two could ever be placed."""


@pytest.mark.parametrize("case", [case for case in CASES if case["id"] not in REFUSED], ids=lambda case: case["id"])
def test_rows_pass(case: dict[str, Any]) -> None:
    result = gangs.run(case)
    assert result.passed, result.note


def test_nobody_is_evicted_for_a_gang_that_will_not_start() -> None:
    result = gangs.run(BY_ID["volcano-actions-reclaim-reclaim-007"])
    assert result.got["scores"]["safety"]
    assert result.got["evicted"] == []
    assert not result.passed


def test_a_row_that_breaks_the_engine_fails() -> None:
    broken = {**BY_ID["kai-allocate-allocateGang-000"], "podgroups": None}
    result = gangs.run(broken)
    assert not result.passed
    assert result.note.startswith("TypeError")


def test_the_four_scores_come_last() -> None:
    rows = [gangs.run(case) for case in CASES]
    lines = gangs.SUITE.summary(rows)
    assert [line.split()[0] for line in lines[-4:]] == ["safety", "outcome", "economy", "stability"]
    assert lines[-4] == "safety 100.0"
    assert lines[-3] == f"outcome {100 * (len(rows) - 1) / len(rows):.1f}"


# -- the checker of safety -------------------------------------------------------------------------------------------

SCENE: Mapping[str, Any] = {
    "id": "scene",
    "semantics": "kai",
    "run": {"mode": "single-pass", "actions": ["allocate"]},
    "queues": [{"name": "q"}],
    "nodes": [{"name": "n1", "gpus": 2, "cpu": 8_000, "memory": "64G"}],
    "podgroups": [
        {"name": "old", "queue": "q", "priority": 50, "preemptible": True, "creation_order": 0, "min_member": 1},
        {"name": "new", "queue": "q", "priority": 50, "preemptible": True, "creation_order": 1, "min_member": 2},
    ],
    "pods": [
        {"name": "old-0", "podgroup": "old", "state": "Running", "node": "n1", "requests": {"cpu": 1, "gpu": 1}},
        {"name": "new-0", "podgroup": "new", "state": "Pending", "requests": {"cpu": 1, "gpu": 1}},
        {"name": "new-1", "podgroup": "new", "state": "Pending", "requests": {"cpu": 1, "gpu": 1}},
    ],
    "expect": {"podgroups": {"new": {"status": "Pending"}}, "derived": {"evicted_pods": []}},
}
NOTHING = Decision({}, {}, {}, (), (), ())
HERE = SessionPlacement("n1")
WORDS: Mapping[str, str] = {"bound": "Binding", "nominated": "Pipelined", "moved": "Pipelined"}


def played(decision: Decision) -> SceneRound:
    """The round that would follow."""
    before = initial(SCENE)
    after = dict(before)
    for kind, word in WORDS.items():
        for name, where in getattr(decision, kind).items():
            after[name] = replace(after[name], state=word, node=where.node)
    after.update({entry.pod: replace(after[entry.pod], state="Releasing") for entry in decision.evicted})
    return SceneRound(before, after, decision)


@pytest.mark.parametrize(
    ("decision", "wrong"),
    [
        pytest.param(NOTHING, False, id="nothing is safe"),
        pytest.param(replace(NOTHING, bound={"new-0": HERE}), True, id="half a gang"),
        pytest.param(replace(NOTHING, bound={"new-0": HERE, "new-1": HERE}), True, id="three GPUs of two"),
        pytest.param(
            replace(NOTHING, evicted=(SessionEviction("old-0", "old", "reclaim", "new"),)),
            True,
            id="evicted for nothing",
        ),
        pytest.param(
            replace(
                NOTHING,
                nominated={"new-0": HERE, "new-1": HERE},
                evicted=(SessionEviction("old-0", "old", "reclaim", "new"),),
            ),
            False,
            id="evicted for a gang that gets the room",
        ),
        pytest.param(
            replace(
                NOTHING,
                bound={"new-0": HERE, "new-1": HERE},
                evicted=(SessionEviction("old-0", "old", "reclaim", "new"),),
            ),
            True,
            id="bound before the room is free",
        ),
        pytest.param(
            replace(NOTHING, bound={"new-0": SessionPlacement("nowhere"), "new-1": HERE}),
            True,
            id="on no known machine",
        ),
    ],
)
def test_the_checker_finds_what_is_unsafe(decision: Decision, wrong: bool) -> None:
    assert bool(violations(SCENE, played(decision))) is wrong


def test_the_outcome_is_compared_by_what_runs() -> None:
    both = replace(NOTHING, nominated={"new-0": HERE, "new-1": HERE})
    assert compare(SCENE, played(NOTHING).after, [], {}).same
    found = compare(SCENE, played(both).after, [], {})
    assert not found.same
    assert "0 running expected" in found.why


def test_evicting_more_than_upstream_is_not_economic() -> None:
    assert is_economic(SCENE, [])
    assert not is_economic(SCENE, ["old-0"])


def test_between_rounds_what_was_placed_runs_and_what_left_waits() -> None:
    both = replace(
        NOTHING, nominated={"new-0": HERE, "new-1": HERE}, evicted=(SessionEviction("old-0", "old", "reclaim", "new"),)
    )
    after: Pods = settle(played(both).after, frozenset())
    assert {name: pod.state for name, pod in after.items()} == {
        "old-0": "Pending",
        "new-0": "Running",
        "new-1": "Running",
    }


@pytest.mark.parametrize("name", ["kai-reclaim-reclaim.jsonl", "volcano-actions-reclaim-reclaim.jsonl"])
def test_two_whole_files(name: str) -> None:
    rows = list(gangs.SUITE.run([shared_path(f"conformance/gangs/{name}")]))
    for key in ("safety", "stability"):
        assert all(row.got["scores"][key] for row in rows)
    assert {row.id for row in rows if not row.passed} <= REFUSED
