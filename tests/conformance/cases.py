"""What the suites share: reading case files, running each case by its kind, comparing."""

import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Case = Mapping[str, Any]
"""A case as it stands in its file."""

Runner = Callable[[Case], Any]
"""Runs one case through the engine; what it returns has the shape of the case's `expect`."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case. `note` says why it failed where the values alone do not."""

    id: str
    passed: bool
    expected: Any
    got: Any
    note: str = ""
    case: Case | None = None


class Suite(Protocol):
    """One family of cases."""

    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        """Every case of the files, in order."""

    def summary(self, results: Sequence[Result]) -> list[str]:
        """Lines to print before the closing one."""


def files_below(paths: Iterable[Path]) -> list[Path]:
    """The files named, and all files below the folders named, in name order."""
    found: list[Path] = []
    for path in paths:
        found += sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else [path]
    return found


def lines_of(path: Path) -> Iterator[Case]:
    """The cases of a `.jsonl` file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def run_case(case: Case, runners: Mapping[str, Runner], compare: Callable[[Any, Any], bool]) -> Result:
    """One case by its `kind`. A kind nobody handles, or an exception, is a failure, never a skip."""
    kind, name, expected = case.get("kind", ""), case.get("id", "?"), case.get("expect")
    runner = runners.get(kind)
    if runner is None:
        return Result(name, passed=False, expected=expected, got=None, note=f"no runner for kind {kind!r}", case=case)
    try:
        got = runner(case)
    except Exception as error:  # noqa: BLE001 -- whatever a case does to the engine is that case's failure
        where = traceback.extract_tb(error.__traceback__)[-1]
        note = f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"
        return Result(name, passed=False, expected=expected, got=None, note=note, case=case)
    return Result(name, passed=compare(expected, got), expected=expected, got=got, case=case)
