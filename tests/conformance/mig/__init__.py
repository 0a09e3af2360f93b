"""What NVIDIA's own programs answered about GPU partitioning (mig-parted, k8s-device-plugin, mig-manager).

A file's name says what its rows ask; an adapter translates them to what the geometry, the reader of mig-parted files
and the simulated controllers take, and decides nothing. Rows that are `order_sensitive` are left out of the score: the
driver's start order decides them, which no configuration can say.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, Result, lines_of, run_case
from tests.conformance.mig import geometry, parted, protocol, sharing

RUNNERS: Mapping[str, Callable[[Case], Any]] = {
    "mig-geometry": geometry.run,
    "mig-parted-config-files": parted.run,
    "device-plugin-sharing": sharing.run,
    "mig-manager-protocol": protocol.run,
}
"""Kind of rows -> what answers them: the stem of their file's name. A file that is not here fails, row by row."""
EXPECTED: Mapping[str, Callable[[Case], Any]] = {
    "mig-geometry": lambda case: case["valid"],
    "mig-parted-config-files": lambda case: case["valid"],
    "device-plugin-sharing": sharing.expected,
    "mig-manager-protocol": protocol.expected,
}
"""The part of a row that is its answer."""


class _Mig:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            for case in _rows(path):
                yield ran(path.stem, case)

    def summary(self, results: Sequence[Result]) -> list[str]:
        compared = [it for it in results if not (it.case or {}).get("order_sensitive")]
        of = Counter(map(_kind, compared))
        held = Counter(_kind(it) for it in compared if it.passed)
        lines = [f"{kind:<24} {held[kind]} of {count}" for kind, count in sorted(of.items())]
        if left := len(results) - len(compared):
            lines.append(f"{left} rows depend on the driver's start order: they are answered and not compared")
        return lines


def _rows(path: Path) -> Iterator[Case]:
    if path.suffix == ".jsonl":
        yield from lines_of(path)
    elif path.suffix == ".json":
        yield from protocol.rows(path.stem, json.loads(path.read_text("utf-8")))


def _kind(result: Result) -> str:
    return str((result.case or {}).get("suite", "?"))


def ran(kind: str, case: Case) -> Result:
    """One row; one that depends on the driver's order holds as long as it is answered at all."""
    if kind not in RUNNERS:
        return run_case({**case, "suite": kind, "kind": kind}, {}, lambda _, __: False)
    asked = {**case, "suite": kind, "kind": kind, "asked": case.get("kind"), "expect": EXPECTED[kind](case)}
    left_out = bool(case.get("order_sensitive"))
    return run_case(asked, RUNNERS, lambda expected, got: left_out or expected == got)


SUITE = _Mig()
