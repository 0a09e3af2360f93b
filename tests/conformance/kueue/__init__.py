"""Quota admission: what Kueue decides (kubernetes-sigs/kueue at ff69552e79ad)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, Result, Runner, lines_of, run_case
from tests.conformance.kueue import decisions, runs, schedule, topology
from tests.conformance.kueue.world import BY_AGENT
from tests.conformance.kueue.written import completed

RUNNERS: dict[str, Runner] = {
    kind: completed(run) for kind, run in {**topology.RUNNERS, **decisions.RUNNERS, **schedule.RUNNERS}.items()
}


class _Kueue:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            if path.suffix == ".jsonl":
                for case in lines_of(path):
                    yield run_case(case, RUNNERS, same)
            elif runs.is_run(path):
                yield from runs.run(path)

    def summary(self, results: Sequence[Result]) -> list[str]:
        """How many rows hold with upstream's defects switched on, and with the agent's own switches, by kind."""
        rows = [row for row in results if row.case is not None and row.case.get("kind") in RUNNERS]
        kinds = sorted({row.case["kind"] for row in rows if row.case is not None})
        differ = Counter(case["kind"] for case in by_agent_different(rows))
        lines = [_line(kind, [row for row in rows if row.case and row.case["kind"] == kind], differ) for kind in kinds]
        return [*lines, f"with the agent's switches {len(rows) - differ.total()} of {len(rows)} rows hold"]


def _line(kind: str, rows: Sequence[Result], differ: Mapping[str, int]) -> str:
    passed = sum(row.passed for row in rows)
    return f"{kind:36s} {passed:5d} of {len(rows):5d}, with the agent's switches {len(rows) - differ.get(kind, 0):5d}"


def by_agent_different(rows: Iterable[Result]) -> Iterator[Case]:
    """Yields the cases that do not hold with the agent's switches instead of upstream's defects."""
    for row in rows:
        case = row.case
        if case is not None and case.get("kind") in RUNNERS:
            switched = {**case, "config": {**(case.get("config") or {}), BY_AGENT: True}}
            if not run_case(switched, RUNNERS, same).passed:
                yield case


def same(expected: Any, got: Any) -> bool:
    """Everything expected came, and nothing else."""
    return bool(expected == got)


SUITE = _Kueue()
