"""Every case of kind `topology` that lies beside the checkout: a table of what Kueue decides."""

import pytest

from tests.conformance.cases import Case, lines_of, run_case
from tests.conformance.kueue import RUNNERS, same
from tests.support.shared import SHARED

_FILES = [SHARED / "conformance/kueue" / group / "topology.jsonl" for group in ("topology", "optional")]
CASES = [case for path in _FILES if path.exists() for case in lines_of(path)]


@pytest.mark.skipif(not CASES, reason="the conformance cases are not beside this checkout: shared/conformance/kueue")
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_as_kueue_decides(case: Case) -> None:
    result = run_case(case, RUNNERS, same)
    assert result.passed, (result.expected, result.got, result.note)
