"""Whole runs in virtual time: every admission and eviction instant of thousands of workloads."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.streams import StreamSpec
from fleet.replay.quota import History, Stream
from tests.conformance.cases import Result


def is_run(path: Path) -> bool:
    """Whether a file is the specification of a run."""
    return path.suffix == ".json" and json.loads(path.read_text()).get("kind") == "virtual_time_run"


def outcome(history: History) -> dict[str, Any]:
    """A history as the recorded outcomes write it."""
    found: dict[str, Any] = {"admitted_ms": history.admitted_ms, "finished_ms": history.finished_ms}
    return found | ({"evicted_ms": history.evicted_ms} if history.evicted_ms else {})


def run(path: Path) -> Iterator[Result]:
    """One result a workload of the run, compared with the outcome recorded beside it."""
    spec = StreamSpec.read(json.loads(path.read_text())["spec"])
    histories = Stream(spec.scheduler()).play(spec.arrivals())
    recorded = path.with_name(f"{path.stem}.outcome.jsonl.gz")
    with gzip.open(recorded, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            name = row["workload"]
            expected = {key: row[key] for key in ("admitted_ms", "evicted_ms", "finished_ms") if key in row}
            got = outcome(histories[name]) if name in histories else None
            yield Result(f"{path.stem}/{name}", passed=expected == got, expected=expected, got=got)
