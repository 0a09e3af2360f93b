"""Capacity: what Karpenter decides (kubernetes-sigs/karpenter at 2266468104f3, AWS provider at 1d927085dd81).

A file is an envelope `{suite, kind, cases}`. Rows about pods and machines are played on the agent's deciders until all
is at rest, and judged by what is left (`agent`); the other kinds ask one question of the engine. Adapters translate a
case's `given` and what comes of it into words of the case; the rules are all in `fleet/`, `model/` and `providers/`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, Result, Runner, run_case
from tests.conformance.karpenter import (
    budgets,
    candidates,
    drifting,
    filters,
    formulas,
    interruptions,
    launches,
    overlays,
    queues,
    repairs,
    requirements,
    reservations,
    scores,
)
from tests.conformance.karpenter.agent import UNPRICED, is_played, result
from tests.conformance.karpenter.compare import same

ADAPTERS: Mapping[str, Runner] = {
    "budget": budgets.run,
    "disruption-candidate": candidates.run,
    "disruption-queue": queues.run,
    "disruption-scoring": scores.run,
    "drift": drifting.run,
    "instance-capacity": formulas.run,
    "interruption": interruptions.run,
    "launch": launches.run,
    "launch-filter": filters.run,
    "node-repair": repairs.run,
    "price-overlay": overlays.run,
    "requirement": requirements.run,
    "reservations": reservations.run,
}
"""Kind -> what answers its rows that ask one question. A kind that is not here, and is not played, fails."""


class _Karpenter:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            for case in cases_of(path):
                yield result(case) if is_played(case) else run_case(case, ADAPTERS, same)

    def summary(self, results: Sequence[Result]) -> list[str]:
        """A line a kind: rows, those that hold, those whose price nobody knows, those the translation does not know."""
        counts: dict[str, Counter[str]] = {}
        for it in results:
            mine = counts.setdefault(it.case["kind"] if it.case else "", Counter())
            declined = "declined" in it.note.lower()
            mine.update({"rows": 1, "hold": it.passed, "unpriced": it.note == UNPRICED, "declined": declined})
        columns = ("rows", "hold", "unpriced", "declined")
        counts["all"] = sum(counts.values(), Counter())
        lines = (f"{kind:<22}" + "".join(f"{own[name]:>10}" for name in columns) for kind, own in counts.items())
        return [f"{'kind':<22}" + "".join(f"{name:>10}" for name in columns), *lines]


def cases_of(path: Path) -> Iterator[Case]:
    """The cases of an envelope, each with its kind and the folder it is in, where catalogues lie; none elsewhere."""
    if path.suffix != ".json":
        return
    envelope: Any = json.loads(path.read_text("utf-8"))
    if not isinstance(envelope, dict) or "cases" not in envelope:
        return
    for case in envelope["cases"]:
        yield {"kind": envelope.get("kind", ""), "folder": path.parent, **case}


SUITE = _Karpenter()
