"""The suite `gangs`: the agent answers rows, what no declaration can say is declined by name, and the judges see."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.actions import EvictPod, ReleasePod
from fleet.plan.simulated_run import TimedAction
from tests.conformance import gangs
from tests.conformance.gangs import DECLINED, kai
from tests.conformance.gangs.cluster import snapshot_of
from tests.conformance.gangs.outcome import compare, is_economic
from tests.conformance.gangs.reading import play, round_of, thrown_out
from tests.conformance.gangs.safety import violations
from tests.conformance.gangs.scene import RowDecision, RowEviction, SceneRound, initial
from tests.support.shared import shared_path

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "gangs.json").read_text(encoding="utf-8"))[
    "cases"
]
BY_ID = {case["id"]: case for case in CASES}
DIFFERENT: Mapping[str, str] = {
    "kai-reclaim-reclaim-014": "upstream's one action leaves what its eviction freed beyond the need; here it is used",
    "volcano-actions-reclaim-reclaim-007": "nobody leaves for a gang that would not fit then either",
}
WORDLESS: Mapping[str, str] = {
    "kai-fairshare-000": "fairshare-case/v1: numbers of an engine, no cluster",
    "kai-can-reclaim-000": "can-reclaim-case/v1: numbers of an engine, no cluster",
    "kai-filter-victim-000": "filter-victim-case/v1: numbers of an engine, no cluster",
}
ANSWERED = [case for case in CASES if case["id"] not in WORDLESS]


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case["id"])
def test_the_agent_answers_as_upstream_but_for_the_rows_named(case: dict[str, Any]) -> None:
    result = gangs.run(case)
    assert result.passed is (case["id"] not in DIFFERENT), result.note
    assert result.got["scores"]["safety"], result.note
    assert result.got["scores"]["stability"], result.note


@pytest.mark.parametrize(("name", "reason"), WORDLESS.items())
def test_what_no_declaration_can_say_is_declined_by_name(name: str, reason: str) -> None:
    result = gangs.run(BY_ID[name])
    assert (result.passed, result.note) == (False, f"{DECLINED}{reason}")


@pytest.mark.parametrize("where", ["queues", "nodes", "podgroups", "pods"])
def test_an_unknown_word_is_declined_by_name(where: str) -> None:
    case = json.loads(json.dumps(BY_ID["kai-allocate-allocateGang-000"]))
    case[where][0]["spin"] = "up"
    assert gangs.run(case).note == f"{DECLINED}{where}.spin"


def test_a_row_that_breaks_the_agent_fails() -> None:
    result = gangs.run({**BY_ID["kai-allocate-allocateGang-000"], "podgroups": None})
    assert not result.passed
    assert result.note.startswith("TypeError")


def test_a_cluster_is_read_as_the_row_gives_it() -> None:
    """Nothing happens in a run without deciders: every pod is where it was."""
    case = BY_ID["kai-reclaim-reclaim-014"]
    row = kai.translate(case)
    run = play(row.fleet, snapshot_of(row))
    still = round_of(case, replace(run, end=run.begin, actions=[]))
    assert still.after == still.before


def test_what_a_run_starts_and_evicts_again_is_told() -> None:
    row = kai.translate(BY_ID["kai-allocate-allocateGang-000"])
    run = play(row.fleet, snapshot_of(row))
    assert thrown_out(run) == []
    released = [it.action.pod for it in run.actions if isinstance(it.action, ReleasePod)]
    gone = [TimedAction(run.end.now_s, EvictPod(pod, force_grace_s=30)) for pod in released]
    run.actions += gone
    assert len(thrown_out(run)) == len(released) > 0


def test_the_table_counts_declined_rows_apart() -> None:
    rows = [gangs.run(case) for case in CASES]
    lines = gangs.SUITE.summary(rows)
    assert f"   1 {DECLINED}can-reclaim-case/v1: numbers of an engine, no cluster" in lines
    judged, passed = len(ANSWERED), len(ANSWERED) - len(DIFFERENT)
    assert lines[-1].split()[:7] == ["all", "rows", str(len(CASES)), "judged", str(judged), "passed", str(passed)]


APART: Mapping[str, set[str]] = {"kai": {"gpu-fraction", "gpu-memory", "dra", "numeric"}, "volcano": set()}
"""Tags of rows that are other notes', or no cluster."""


@pytest.mark.parametrize(("family", "judged", "all_rows"), [("kai", 95.0, 92.5), ("volcano", 93.0, 92.0)])
def test_all_rows(family: str, judged: float, all_rows: float) -> None:
    """Safety holds in all rows; outcomes are bounded from below, by themselves and with what is declined."""
    folder = shared_path("conformance/gangs")
    found = list(gangs.SUITE.run(sorted(folder.glob(f"{family}-*.jsonl"))))
    rows = [row for row in found if row.got]
    assert [row.id for row in rows if not row.got["scores"]["safety"]] == []
    alike = sum(row.got["scores"]["outcome"] for row in rows)
    assert 100 * alike / len(rows) >= judged
    ours = [row for row in found if row.case and APART[family].isdisjoint(row.case["tags"])]
    assert (
        100 * sum((row.got or {"scores": {"outcome": False}})["scores"]["outcome"] for row in ours) / len(ours)
        >= all_rows
    )


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
NOTHING = RowDecision({}, {}, {}, ())
HERE = "n1"
WORDS: Mapping[str, str] = {"bound": "Binding", "nominated": "Pipelined", "moved": "Pipelined"}


def played(decision: RowDecision) -> SceneRound:
    """The round that would follow."""
    before = initial(SCENE)
    after = dict(before)
    for kind, word in WORDS.items():
        for name, where in getattr(decision, kind).items():
            after[name] = replace(after[name], state=word, node=where)
    after.update({entry.pod: replace(after[entry.pod], state="Releasing") for entry in decision.evicted})
    return SceneRound(before, after, decision)


@pytest.mark.parametrize(
    ("decision", "wrong"),
    [
        pytest.param(NOTHING, False, id="nothing is safe"),
        pytest.param(replace(NOTHING, bound={"new-0": HERE}), True, id="half a gang"),
        pytest.param(replace(NOTHING, bound={"new-0": HERE, "new-1": HERE}), True, id="three GPUs of two"),
        pytest.param(
            replace(NOTHING, evicted=(RowEviction("old-0", "old", "reclaim", "new"),)),
            True,
            id="evicted for nothing",
        ),
        pytest.param(
            replace(
                NOTHING,
                nominated={"new-0": HERE, "new-1": HERE},
                evicted=(RowEviction("old-0", "old", "reclaim", "new"),),
            ),
            False,
            id="evicted for a gang that gets the room",
        ),
        pytest.param(
            replace(
                NOTHING,
                bound={"new-0": HERE, "new-1": HERE},
                evicted=(RowEviction("old-0", "old", "reclaim", "new"),),
            ),
            True,
            id="bound before the room is free",
        ),
        pytest.param(
            replace(NOTHING, bound={"new-0": "nowhere", "new-1": HERE}),
            True,
            id="on no known machine",
        ),
    ],
)
def test_the_checker_finds_what_is_unsafe(decision: RowDecision, wrong: bool) -> None:
    assert bool(violations(SCENE, played(decision))) is wrong


def test_the_outcome_is_compared_by_what_runs() -> None:
    both = replace(NOTHING, nominated={"new-0": HERE, "new-1": HERE})
    assert compare(SCENE, played(NOTHING).after, played(NOTHING)).same
    found = compare(SCENE, played(both).after, played(both))
    assert not found.same
    assert "0 running expected" in found.why


def test_evicting_more_than_upstream_is_not_economic() -> None:
    assert is_economic(SCENE, [])
    assert not is_economic(SCENE, ["old-0"])
