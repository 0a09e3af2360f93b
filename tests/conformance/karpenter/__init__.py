"""Capacity: what Karpenter decides (kubernetes-sigs/karpenter at 2266468104f3, AWS provider at 1d927085dd81).

A file is an envelope `{suite, kind, cases}`. Each kind has an adapter, which translates a case's `given` into calls of
the engine, and what comes of them into words of the case; the rules are all in `fleet/`, `model/` and `providers/`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.cases import Case, Result, Runner, run_case
from tests.conformance.karpenter import (
    budgets,
    candidates,
    consolidations,
    drifts,
    filters,
    formulas,
    interruptions,
    launches,
    overlays,
    provisioning,
    queues,
    repairs,
    requirements,
    reservations,
    scores,
    topologies,
)
from tests.conformance.karpenter.compare import same

ADAPTERS: Mapping[str, Runner] = {
    "budget": budgets.run,
    "consolidation": consolidations.run,
    "disruption-candidate": candidates.run,
    "disruption-queue": queues.run,
    "disruption-scoring": scores.run,
    "drift": drifts.run,
    "instance-capacity": formulas.run,
    "interruption": interruptions.run,
    "launch": launches.run,
    "launch-filter": filters.run,
    "node-repair": repairs.run,
    "price-overlay": overlays.run,
    "provision": provisioning.run,
    "requirement": requirements.run,
    "reservations": reservations.run,
    "topology": topologies.run,
}
"""Kind -> what runs its cases. A kind that is not here fails."""


class _Karpenter:
    def run(self, files: Iterable[Path]) -> Iterator[Result]:
        for path in files:
            for case in cases_of(path):
                yield run_case(case, ADAPTERS, same)

    def summary(self, results: Sequence[Result]) -> list[str]:
        return []


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
