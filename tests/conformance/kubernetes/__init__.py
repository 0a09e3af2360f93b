"""What a real control plane answered (kube-apiserver, kube-controller-manager and kube-scheduler 1.36.2).

A file's name says what its rows ask: `scheduler.jsonl` goes to the adapter named `scheduler`. An adapter puts a row's
world into the embedded API server, lets the simulated controllers act, and reads what they did; it decides nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tests.conformance.cases import Case, Result, lines_of, run_case
from tests.conformance.kubernetes import apiserver, job_controller, kubectl, placement, scheduler


class Adapter(Protocol):
    """What answers the rows of one file: a module of this package."""

    @property
    def ANSWERS(self) -> frozenset[str]:
        """The fields of a row that are answers."""
        ...

    @property
    def DECLINED(self) -> Mapping[str, str]:
        """Ids that we answer otherwise on purpose, each with the reason."""
        ...

    def run(self, case: Case) -> object:
        """What the embedded control plane answers."""
        ...

    def same(self, case: Case, got: object) -> bool:
        """Whether that is what the real one answered."""
        ...

    def table(self, results: Sequence[Result]) -> list[str]:
        """Passed, failed and declined by family of ids."""
        ...


class SteppedAdapter(Protocol):
    """What answers rows that are sequences: each step is a result of its own."""

    def played(self, case: Case) -> Iterator[Result]:
        """The steps of a row in order."""
        ...

    def table(self, results: Sequence[Result]) -> list[str]:
        """Passed, failed and declined by family of ids."""
        ...


STEPPED: Mapping[str, SteppedAdapter] = {"apiserver": apiserver}
"""As `ADAPTERS`, for rows of steps."""
ADAPTERS: Mapping[str, Adapter] = {
    "scheduler": scheduler,
    "placement": placement,
    "kubectl": kubectl,
    "job_controller": job_controller,
}
"""Kind of rows -> what runs them: the stem of their file's name. A file that is not here fails, row by row."""
ALSO: Mapping[str, str] = {"scheduler": "placement"}
"""Rows of a file -> who answers them as well: what the simulated scheduler finds, the agent's placement finds too."""


class _Kubernetes:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            if path.suffix == ".jsonl":
                for case in lines_of(path):
                    stepped = STEPPED.get(path.stem)
                    if stepped is not None:
                        yield from stepped.played(case)
                    else:
                        yield ran(path.stem, case)
                        if path.stem in ALSO:
                            yield ran(ALSO[path.stem], case)

    def summary(self, results: Sequence[Result]) -> list[str]:
        lines = []
        for kind, adapter in [*ADAPTERS.items(), *STEPPED.items()]:
            mine = [result for result in results if (result.case or {}).get("kind") == kind]
            lines += [f"{kind}:"] * (bool(mine) and kind in {*ALSO, *ALSO.values()})
            lines += adapter.table(mine) if mine else []
        return lines


def ran(kind: str, case: Case) -> Result:
    """One row; a declined one holds as long as it is answered at all."""
    adapter = ADAPTERS.get(kind)
    if adapter is None:
        return run_case({**case, "kind": kind}, {}, lambda _, __: False)
    asked = {**case, "kind": kind, "expect": {key: case[key] for key in case if key in adapter.ANSWERS}}
    declined = case["id"] in adapter.DECLINED
    return run_case(asked, {kind: adapter.run}, lambda _, got: declined or adapter.same(case, got))


SUITE = _Kubernetes()
