"""Karpenter's cases: the few that come with the repository, and the suites that lie beside it."""

import json
import re
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.cases import files_below
from tests.conformance.karpenter import ADAPTERS, SUITE, cases_of
from tests.conformance.karpenter.agent import PLAYED
from tests.conformance.karpenter.compare import same
from tests.support.shared import shared_path

COPIED = Path(__file__).parent / "data" / "karpenter"
NOTE = Path(__file__).parents[2] / "docs/design/0009-declined-capacity-rows.md"
SUITES = (
    "balanced",
    "budgets",
    "candidate_eligibility",
    "capacity",
    "consolidation",
    "drift",
    "instance_filters",
    "instance_selection",
    "interruption",
    "launch_and_ice",
    "node_repair",
    "price_overlay",
    "queue",
    "requirements_algebra",
    "reservation_manager",
    "topology",
)
OTHERWISE = frozenset(re.findall(r"^\| `(\w+/[\w.-]+)` \|", NOTE.read_text(encoding="utf-8"), re.MULTILINE))
"""Rows that the agent does not answer as upstream does, each with the reason in the design note."""


def failures(path: Path) -> dict[str, str]:
    found = (each for each in SUITE.run([path]) if not each.passed)
    return {f"{path.stem}/{each.id}": f"{each.expected}, got {each.got} {each.note}" for each in found}


@pytest.mark.parametrize("path", [p for p in files_below([COPIED]) if p.suffix == ".json"], ids=lambda path: path.stem)
def test_copied(path: Path) -> None:
    found = failures(path)
    assert found.keys() <= OTHERWISE, found


def test_the_copied_cases_are_of_every_kind() -> None:
    assert {case["kind"] for path in files_below([COPIED]) for case in cases_of(path)} <= ADAPTERS.keys() | PLAYED


@pytest.mark.parametrize("suite", SUITES)
def test_whole_suite(suite: str) -> None:
    found = failures(shared_path(f"conformance/karpenter/{suite}.json"))
    assert found.keys() == {row for row in OTHERWISE if row.startswith(f"{suite}/")}, found


def test_the_rows_that_are_not_answered_as_upstream_are_few() -> None:
    assert len(OTHERWISE) <= 16


def test_an_unknown_kind_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    envelope = json.loads((COPIED / "price_overlay.json").read_text("utf-8")) | {"kind": "unheard-of"}
    (tmp_path / "some.json").write_text(json.dumps(envelope), "utf-8")
    (tmp_path / "catalogs.json").write_text("{}", "utf-8")
    assert main(["karpenter", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "no runner for kind 'unheard-of'" in said[0]
    assert said[-1] == "0 passed, 2 failed"


@pytest.mark.parametrize(
    ("expected", "got", "holds"),
    [
        ({"nodes": 1}, {"nodes": 1, "more": 2}, True),
        ({"nodes": 1}, {}, False),
        ({"price": 0.3}, {"price": 0.1 + 0.2}, True),
        ({"pods_per_domain_unordered": [1, 2]}, {"pods_per_domain_unordered": [2, 1]}, True),
        ({"launched": 1}, {"launched": ["m"]}, True),
        ({"launched": ["n"]}, {"launched": ["m"]}, False),
        ({"min_instance_types_per_launch": 2}, {"min_instance_types_per_launch": 1}, False),
        ({"message_contains": "two"}, {"message_contains": "one two three"}, True),
    ],
)
def test_what_is_the_same(expected: dict[str, object], got: dict[str, object], holds: bool) -> None:
    assert same(expected, got) is holds
