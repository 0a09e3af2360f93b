"""Which of Kueue's recorded decisions the agent makes otherwise by its own switches: those that the note lists."""

import re
from pathlib import Path

from tests.conformance.cases import files_below
from tests.conformance.kueue import SUITE, by_agent_different
from tests.support.shared import shared_path

NOTE = Path(__file__).parents[2] / "docs" / "design" / "0002-admission.md"
TABLE = re.compile(r"^\| Because of.*?\n\n", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"`((?:core|optional|replay|topology)/[\w/-]+)`")


def test_the_note_lists_every_row_that_differs_and_no_other() -> None:
    folders = [shared_path(f"conformance/kueue/{name}") for name in ("core", "optional", "replay", "topology")]
    rows = list(SUITE.run([path for path in files_below(folders) if path.suffix == ".jsonl"]))
    failing = {row.id for row in rows if not row.passed}
    differ = {case["id"] for case in by_agent_different(rows)}
    table = TABLE.search(NOTE.read_text(encoding="utf-8"))
    assert table is not None
    assert differ - failing == set(ROW.findall(table[0]))
