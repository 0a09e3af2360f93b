"""The rows behind switches that are off by default: each holds, or is declined with a reason in the design notes."""

import re
from pathlib import Path

import pytest

from tests.conformance.cases import Case, lines_of, run_case
from tests.conformance.kueue import RUNNERS, same
from tests.support.shared import SHARED

NOTE = Path(__file__).parents[3] / "docs/design/0004-optional-quota-rows.md"
FOLDER = SHARED / "conformance/kueue/optional"
CASES = [case for path in sorted(FOLDER.glob("*.jsonl")) for case in lines_of(path)]
DECLINED = set(re.findall(r"^\| `(optional/[\w/]+)` \|", NOTE.read_text(encoding="utf-8"), re.MULTILINE))

with_cases = pytest.mark.skipif(
    not CASES, reason="the conformance cases are not beside this checkout: shared/conformance/kueue"
)


@with_cases
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_as_kueue_decides_or_declined(case: Case) -> None:
    result = run_case(case, RUNNERS, same)
    assert result.passed != (case["id"] in DECLINED), (result.expected, result.got, result.note)


@with_cases
def test_only_rows_that_exist_are_declined() -> None:
    assert {case["id"] for case in CASES} >= DECLINED
