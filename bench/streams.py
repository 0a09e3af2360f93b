"""Streams of small, medium and large jobs through cohorts of queues: Kueue's own performance tests, in virtual time.

The sizes are those of `test/performance/scheduler` (configs baseline and large-scale); what arrives when is fixed:
there is no seed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fleet.quota.ledger import QuotaLedger
from fleet.quota.scheduler import AdmissionScheduler
from fleet.quota.specs import (
    AdmissionRules,
    CandidatePolicy,
    CellQuota,
    FlavorResource,
    PreemptionStrategy,
    QueuePreemption,
    QuotaFlavorSpec,
    QuotaQueueSpec,
    QuotaResourceGroup,
)
from fleet.quota.tree import QuotaTree
from fleet.quota.workload import Workload
from fleet.replay.quota import Arrival
from fleet.snapshot import PodSet

CPU = FlavorResource("default", "cpu")


@dataclass(frozen=True, slots=True)
class JobStream:
    """`count` equal jobs of every queue, one each interval."""

    name: str
    count: int
    cpu: int
    priority: int
    interval_ms: int
    runtime_ms: int


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """Equal queues in equal cohorts, and what arrives at each of them."""

    cohorts: int
    queues: int
    """Of one cohort."""
    sets: Sequence[JobStream]
    nominal_cpu: int = 20
    borrowing_limit_cpu: int = 100
    strict: bool = False
    fair: tuple[PreemptionStrategy, ...] = ()
    """How queues share fairly; empty = they do not."""

    @classmethod
    def read(cls, recorded: Mapping[str, Any]) -> "StreamSpec":
        """A specification as the recorded runs have it. ValueError for a field that is not honoured."""
        if unknown := sorted(set(recorded) - _RECORDED):
            raise ValueError(f"{unknown[0]} of a recorded run is not honoured")
        return cls(
            recorded["cohorts"],
            recorded["cluster_queues_per_cohort"],
            [
                JobStream(s["class"], s["count"], s["cpu"], s["priority"], s["interval_ms"], s["runtime_ms"])
                for s in recorded["sets"]
            ],
            recorded["nominal_cpu"],
            recorded["borrowing_limit_cpu"],
            recorded["strategy"] == "StrictFIFO",
            _strategies(recorded.get("fair_sharing")),
        )

    def scheduler(self, rules: AdmissionRules | None = None) -> AdmissionScheduler:
        """Its queues, empty; they share as it says."""
        rules = replace(rules or AdmissionRules(), fair=self.fair)
        quota = CellQuota(self.nominal_cpu * 1000, self.borrowing_limit_cpu * 1000)
        queues = [
            QuotaQueueSpec(
                name,
                cohort,
                (QuotaResourceGroup(("cpu",), ("default",)),),
                {CPU: quota},
                strict=self.strict,
                preemption=QueuePreemption(CandidatePolicy.LOWER, CandidatePolicy.ANY),
            )
            for cohort, name in self._queues()
        ]
        ledger = QuotaLedger(QuotaTree([], queues))
        flavors = {"default": QuotaFlavorSpec("default")}
        return AdmissionScheduler(ledger, {queue.name: queue for queue in queues}, flavors, rules)

    def arrivals(self) -> Iterator[Arrival]:
        """All jobs: the n-th of a set arrives at (n + 1) x interval."""
        for position, (_, queue) in enumerate(self._queues()):
            for kind in self.sets:
                pods = (PodSet("main", 1, {"cpu": kind.cpu * 1000}),)
                for number in range(kind.count):
                    name = f"{queue}-{kind.name}-{number:04d}"
                    at_ms = (number + 1) * kind.interval_ms
                    created_s = at_ms / 1000 + position * 1e-6
                    yield Arrival(Workload(name, name, queue, kind.priority, created_s, pods), at_ms, kind.runtime_ms)

    def _queues(self) -> Iterator[tuple[str, str]]:
        """(cohort, queue)."""
        for cohort in range(self.cohorts):
            for index in range(self.queues):
                yield f"cohort-{cohort:02d}", f"cq-{cohort:02d}-{index:03d}"


_RECORDED = frozenset(
    {
        "cohorts", "cluster_queues_per_cohort", "nominal_cpu", "borrowing_limit_cpu", "strategy", "sets",
        "fair_sharing",
    }
)  # fmt: skip


def _strategies(said: Any) -> tuple[PreemptionStrategy, ...]:
    """How queues share fairly: not at all where nothing is said; as Kueue does by default where no way is named."""
    if said is None or said is False:
        return ()
    named = said.get("strategies") if isinstance(said, Mapping) else None
    return tuple(PreemptionStrategy(name) for name in named or PreemptionStrategy)


BASELINE = StreamSpec(
    5,
    6,
    (
        JobStream("small", 350, 1, 50, 100, 200),
        JobStream("medium", 100, 5, 100, 500, 500),
        JobStream("large", 50, 20, 200, 1200, 1000),
    ),
)
LARGE_SCALE = StreamSpec(
    10,
    100,
    (
        JobStream("small", 35, 1, 50, 60, 150),
        JobStream("medium", 11, 5, 100, 300, 350),
        JobStream("large", 4, 20, 200, 700, 700),
    ),
)
