"""CONTRIBUTING names only files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PATH = re.compile(r"`((?:agent|bench|deploy|docs|fleet|model|providers|tests|tools)/[\w./-]+)`")


def test_every_file_it_names_is_there() -> None:
    named = set(_PATH.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
    assert len(named) > 40
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
