"""Whole runs in virtual time: every admission and eviction instant of thousands of workloads."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fleet.admission.quota.declared import (
    FlavorResource,
    FlavorSpec,
    Policy,
    Preemption,
    QueueSpec,
    Quota,
    ResourceGroup,
)
from fleet.admission.quota.scheduler import Scheduler
from fleet.admission.quota.tree import QuotaTree
from fleet.admission.quota.workload import Books, Workload
from fleet.replay.quota import Arrival, History, Stream
from fleet.snapshot import PodSet
from tests.conformance.cases import Case, Result

CPU = FlavorResource("default", "cpu")


def is_run(path: Path) -> bool:
    """Whether a file is the specification of a run."""
    return path.suffix == ".json" and json.loads(path.read_text()).get("kind") == "virtual_time_run"


def scheduler_of(spec: Case) -> Scheduler:
    """The queues of a run."""
    queues = [
        QueueSpec(
            f"cq-{cohort:02d}-{index:03d}",
            f"cohort-{cohort:02d}",
            (ResourceGroup(("cpu",), ("default",)),),
            {CPU: Quota(spec["nominal_cpu"] * 1000, spec["borrowing_limit_cpu"] * 1000)},
            strict=spec["strategy"] == "StrictFIFO",
            preemption=Preemption(Policy.LOWER, Policy.ANY),
        )
        for cohort in range(spec["cohorts"])
        for index in range(spec["cluster_queues_per_cohort"])
    ]
    books = Books(QuotaTree([], queues))
    return Scheduler(books, {queue.name: queue for queue in queues}, {"default": FlavorSpec("default")})


def arrivals_of(spec: Case) -> Iterator[Arrival]:
    """All workloads of a run: the n-th of a set arrives at (n + 1) x interval."""
    sets = spec["sets"]
    for cohort in range(spec["cohorts"]):
        for index in range(spec["cluster_queues_per_cohort"]):
            queue = f"cq-{cohort:02d}-{index:03d}"
            position = cohort * spec["cluster_queues_per_cohort"] + index
            for kind in sets:
                pods = (PodSet("main", 1, {"cpu": kind["cpu"] * 1000}),)
                for number in range(kind["count"]):
                    name = f"{queue}-{kind['class']}-{number:04d}"
                    at_ms = (number + 1) * kind["interval_ms"]
                    created_s = at_ms / 1000 + position * 1e-6
                    asks = Workload(name, name, queue, kind["priority"], created_s, pods)
                    yield Arrival(asks, at_ms, kind["runtime_ms"])


def outcome(history: History) -> dict[str, Any]:
    """A history as the recorded outcomes write it."""
    found: dict[str, Any] = {"admitted_ms": history.admitted_ms, "finished_ms": history.finished_ms}
    return found | ({"evicted_ms": history.evicted_ms} if history.evicted_ms else {})


def run(path: Path) -> Iterator[Result]:
    """One result a workload of the run, compared with the outcome recorded beside it."""
    spec = json.loads(path.read_text())["spec"]
    histories = Stream(scheduler_of(spec)).play(arrivals_of(spec))
    recorded = path.with_name(f"{path.stem}.outcome.jsonl.gz")
    with gzip.open(recorded, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            name = row["workload"]
            expected = {key: row[key] for key in ("admitted_ms", "evicted_ms", "finished_ms") if key in row}
            got = outcome(histories[name]) if name in histories else None
            yield Result(f"{path.stem}/{name}", passed=expected == got, expected=expected, got=got)
