"""docs/reasons.md documents every code, and no other."""

import re
from pathlib import Path

import pytest

from agent.cli.get_rows import GANG_STATES
from fleet.explain.gang_notes import REMEDIES
from fleet.reasons import Reason
from fleet.snapshot import ClaimState, GangState
from providers.kube.objects.crds import definitions

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
OF_TILES = ("Leaving", "Recutting", "Unclaimed")
"""States of machines on the page and in metrics (`machine_tiles`)."""
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\|$", re.MULTILINE)
ROWS = {code: (meaning, remedy) for code, meaning, remedy in _ROW.findall(PAGE)}


def states(of: str) -> list[str]:
    """The states of a table of the page, in its order."""
    table = PAGE.partition(f"| state of a {of} | meaning |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def enum(plural: str) -> list[str]:
    """The states that a definition allows its objects."""
    [version] = next(it for it in definitions() if it["spec"]["names"]["plural"] == plural)["spec"]["versions"]
    found: list[str] = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["state"]["enum"]
    return found


def test_a_state_has_one_name_everywhere() -> None:
    """Types, definitions, the command line and the page say the same words; machines have three that no claim is in."""
    gangs, machines = states("gang"), states("machine")
    assert gangs == list(GangState) == enum("workloads") == list(GANG_STATES)
    assert [state for state in machines if state not in OF_TILES] == list(ClaimState) == enum("nodeclaims")
    assert set(machines) >= set(OF_TILES)
    css = (ROOT / "agent" / "web" / "static" / "page.css").read_text(encoding="utf-8")
    coloured = set(re.findall(r"\.by-state \.s-(\w+)", css))
    assert coloured == set(machines)


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
