"""Machines that go because nothing runs on them: what is proposed, and why others stay."""

from typing import Any

import pytest

from fleet.disruption.outcomes import Obstacle
from fleet.snapshot import GangState, NodeDisruption
from model.kinds import NEVER
from tests.support.disruption import (
    GOES,
    KEEPS,
    NOTHING,
    WAITS,
    Change,
    Row,
    busy,
    changed,
    check,
    gone,
    gone_pool,
    idle,
    of_claim,
    quiet,
    said,
    spared,
    world_of,
)
from tests.support.fleets import NOW, foreign_pod, gang

ROWS: list[Row] = [
    ("idle", world_of, {"m0": 0}, GOES, NOTHING, "nothing has run on it for 7000 s"),
    ("just idle", lambda: changed(world_of(**quiet(600)), emptied_at_s=NOW - 60), {}, WAITS, Obstacle.QUIET_TIME,
     "come or gone for 600 s"),
    ("not noticed yet", lambda: changed(world_of(), emptied_at_s=0.0), {}, WAITS, Obstacle.QUIET_TIME, ""),
    ("never idle enough", lambda: world_of(disruption={"consolidateAfter": "Never"}), {}, KEEPS, Obstacle.QUIET_TIME,
     "Never"),
    ("no budget", lambda: world_of(disruption={"budgets": [{"nodes": 0}]}), {}, WAITS, Obstacle.BUDGET,
     "the budgets of h100 let no more machines go as Empty now"),
    ("occupied", busy, {}, KEEPS, Obstacle.OCCUPIED, "ns/g on it"),
    ("fixed pool", lambda: world_of(replicas=1), {}, KEEPS, Obstacle.FIXED_POOL, "keeps 1 machine"),
    ("no pool any more", gone_pool, {}, KEEPS, Obstacle.NO_POOL, "not declared"),
    ("spared and idle", lambda: spared(world_of()), {}, WAITS, Obstacle.PODS, "its node says do-not-disrupt"),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_it_proposes_and_why_not(row: Row) -> None:
    check("emptiness", row)


def test_an_ordinary_pod_is_told_once() -> None:
    world = world_of()
    world.stands(foreign_pod("p", "node-m0"))
    assert said(world)["emptiness"].message == "1 pod of no gang on it"


@pytest.mark.parametrize(
    ("since_s", "change", "goes"),
    [
        pytest.param(59, lambda w: None, False, id="not quiet for long enough"),
        pytest.param(60, lambda w: None, True, id="quiet"),
        pytest.param(99, of_claim(emptied_at_s=0.0), False, id="not known to be idle"),
        pytest.param(99, lambda w: w.runs(gang("g"), ("m0", 1)), False, id="a gang is on it"),
        pytest.param(
            99,
            lambda w: w.runs(gang("g"), ("m0", 1), pods=False, state=GangState.RESERVED),
            False,
            id="a gang waits for it",
        ),
        pytest.param(
            99, lambda w: w.runs(gang("g"), ("m0", 1), state=GangState.EVICTING), False, id="a gang still ends on it"
        ),
        pytest.param(99, lambda w: w.stands(foreign_pod("p", "node-m0")), False, id="another pod is on it"),
        pytest.param(99, lambda w: w.stands(foreign_pod("p", "node-m0", daemon=True)), True, id="only DaemonSets"),
        pytest.param(99, of_claim(ready_at_s=0.0), False, id="not ready"),
        pytest.param(99, of_claim(deleting=True), False, id="goes already"),
        pytest.param(99, of_claim(disruption=NodeDisruption("Drifted", "x", NOW, NEVER)), False, id="told already"),
        pytest.param(99, of_claim(recut_at_s=NOW), False, id="being cut"),
        pytest.param(99, lambda w: setattr(w, "busy", frozenset({"claim/m0"})), False, id="busy"),
        pytest.param(99, of_claim(replaces=("m0",), ready_at_s=NOW - 99), False, id="waits to take over"),
    ],
)
def test_emptiness(since_s: float, change: Change, goes: bool) -> None:
    world = idle(since_s=since_s)
    change(world)
    assert gone(world) == ({"m0": "Empty"} if goes else {})


@pytest.mark.parametrize(
    ("pool", "goes"),
    [
        ({"disruption": {"consolidateAfter": "2m"}}, 0),
        ({"disruption": {"consolidateAfter": "Never"}}, 0),
        ({"disruption": {"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": 9}]}}, 4),
        ({"disruption": {"budgets": [{"nodes": 1}]}}, 1),
        ({"disruption": {"budgets": [{"nodes": "50%"}]}}, 2),
        ({"disruption": {"budgets": [{"nodes": 0, "reasons": ["Drifted"]}]}}, 4),
        ({"disruption": {"budgets": [{"nodes": 0, "reasons": ["Empty"]}]}}, 0),
        ({"replicas": 4}, 0),
    ],
)
def test_emptiness_by_pool(pool: dict[str, Any], goes: int) -> None:
    assert len(gone(idle(4, **pool))) == goes


def test_budgets_count_what_leaves_already() -> None:
    world = idle(4, disruption={"budgets": [{"nodes": 2}]})
    of_claim(deleting=True)(world)
    assert list(gone(world)) == ["m1"]
