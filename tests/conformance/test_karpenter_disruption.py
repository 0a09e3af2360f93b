"""Karpenter's cases about disruption: each holds, or is declined with a reason in the design notes."""

import re
from pathlib import Path

import pytest

from tests.conformance.cases import Case, Result, run_case
from tests.conformance.karpenter import ADAPTERS, cases_of
from tests.conformance.karpenter.compare import same
from tests.support.shared import SHARED

NOTE = Path(__file__).parents[2] / "docs/design/0009-declined-capacity-rows.md"
SUITES = (
    "balanced",
    "budgets",
    "candidate_eligibility",
    "consolidation",
    "drift",
    "interruption",
    "node_repair",
    "queue",
)
FILES = [path for suite in SUITES if (path := SHARED / f"conformance/karpenter/{suite}.json").exists()]
CASES = {f"{path.stem}/{case['id']}": case for path in FILES for case in cases_of(path)}
DECLINED = set(re.findall(r"^\| `(\w+/[\w-]+)` \|", NOTE.read_text(encoding="utf-8"), re.MULTILINE))

with_cases = pytest.mark.skipif(
    not CASES, reason="the conformance cases are not beside this checkout: shared/conformance/karpenter"
)


def ran(case: Case) -> Result:
    return run_case(case, ADAPTERS, same)


@with_cases
@pytest.mark.parametrize("name", CASES)
def test_as_karpenter_decides_or_declined(name: str) -> None:
    result = ran(CASES[name])
    assert result.passed != (name in DECLINED), (result.expected, result.got, result.note)


@with_cases
def test_only_rows_that_exist_are_declined() -> None:
    assert CASES.keys() >= DECLINED
    assert len(DECLINED) <= len(CASES) * 0.02
