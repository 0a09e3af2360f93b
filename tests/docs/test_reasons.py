"""docs/reasons.md documents every code, and no other."""

import re
from pathlib import Path

import pytest

from fleet.explain.gang_notes import REMEDIES
from fleet.reasons import Reason

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reasons.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
ROWS = {code: (meaning, remedy) for code, meaning, remedy in _ROW.findall(PAGE)}


@pytest.mark.parametrize("reason", Reason)
def test_every_code_has_its_row(reason: Reason) -> None:
    meaning, _ = ROWS[reason]
    assert len(meaning.split()) >= 3


def test_there_are_no_other_codes_and_none_twice() -> None:
    codes = [code for code, _, _ in _ROW.findall(PAGE)]
    assert sorted(codes) == sorted(Reason)


@pytest.mark.parametrize("code", sorted(REMEDIES))
def test_what_explain_can_advise_the_page_advises_too(code: str) -> None:
    _, remedy = ROWS[code]
    assert remedy


def test_every_code_that_nothing_writes_is_called_so() -> None:
    """A code in the vocabulary that no decider uses is documented as such, and only such a one."""
    root = Path(__file__).resolve().parents[2]
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted((root / "fleet").rglob("*.py"))
        if path != root / "fleet" / "reasons.py"
    ]
    unused = {reason for reason in Reason if not any(re.search(rf"\bReason\.{reason.name}\b", s) for s in sources)}
    assert {code for code, (meaning, _) in ROWS.items() if "not written at present" in meaning} == unused
