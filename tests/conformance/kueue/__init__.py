"""Quota admission: what Kueue decides (kubernetes-sigs/kueue at ff69552e79ad)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Result, Runner, lines_of, run_case
from tests.conformance.kueue import decisions, runs, schedule, topology
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
        return []


def same(expected: Any, got: Any) -> bool:
    """Everything expected came, and nothing else."""
    return bool(expected == got)


SUITE = _Kueue()
