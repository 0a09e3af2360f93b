"""Recorded runs as streams of jobs: what a specification says is honoured, or refused by name."""

from typing import Any

import pytest

from bench.streams import StreamSpec
from fleet.quota.specs import PreemptionStrategy
from fleet.replay.quota import Stream

JOBS = {"class": "small", "count": 30, "interval_ms": 100, "runtime_ms": 2000, "priority": 50, "cpu": 8}
MORE = {"class": "large", "count": 20, "interval_ms": 130, "runtime_ms": 3000, "priority": 50, "cpu": 20}
RUN: dict[str, Any] = {
    "cohorts": 1,
    "cluster_queues_per_cohort": 3,
    "nominal_cpu": 20,
    "borrowing_limit_cpu": 100,
    "strategy": "BestEffortFIFO",
    "sets": [JOBS, MORE],
}


@pytest.mark.parametrize(
    ("said", "fair"),
    [
        (None, ()),
        (False, ()),
        (True, tuple(PreemptionStrategy)),
        ({}, tuple(PreemptionStrategy)),
        ({"strategies": ["LessThanInitialShare"]}, (PreemptionStrategy("LessThanInitialShare"),)),
    ],
)
def test_fair_sharing_is_read(said: Any, fair: tuple[PreemptionStrategy, ...]) -> None:
    assert StreamSpec.read({**RUN, "fair_sharing": said}).fair == fair


def test_fair_sharing_decides_who_is_admitted_when() -> None:
    def admitted(**said: Any) -> dict[str, Any]:
        spec = StreamSpec.read({**RUN, **said})
        return {name: it.admitted_ms for name, it in Stream(spec.scheduler()).play(spec.arrivals()).items()}

    assert admitted(fair_sharing={}) != admitted() == admitted(fair_sharing=None)


def test_a_field_without_behaviour_is_refused() -> None:
    with pytest.raises(ValueError, match="lending_limit_cpu"):
        StreamSpec.read({**RUN, "lending_limit_cpu": 5})
