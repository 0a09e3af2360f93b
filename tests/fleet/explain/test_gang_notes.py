"""What else is said of a gang."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.explain.gang_notes import gang_notes, isolation
from fleet.snapshot.constraints import UnsupportedConstraint
from model.kinds.node_pool import Sharing
from tests.support.fleets import GPU, FleetBuilder, gang
from tests.support.world import World


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        ({}, ""),
        ({"mig": {"layouts": ["a", "b"]}}, "cut by MIG (a, b): memory and compute of each slice are its own"),
        ({"timeSlicing": {"replicas": 4}}, "4 pods take turns on each GPU: nothing keeps one from the memory of all"),
        (
            {"mps": {"replicas": 2}},
            "2 pods at once on each GPU (MPS): 1/2 of memory and threads each, faults are shared",
        ),
    ],
)
def test_what_keeps_those_apart_who_share_a_gpu(sharing: dict[str, Any], words: str) -> None:
    assert isolation(Sharing.model_validate(sharing)) == words


@pytest.mark.parametrize(
    ("sharing", "requests", "notes"),
    [
        ({}, {}, []),
        (
            {"timeSlicing": {"replicas": 4}},
            {},
            ["4 pods take turns on each GPU: nothing keeps one from the memory of all"],
        ),
        ({"timeSlicing": {"replicas": 4}}, {GPU: 0}, []),
    ],
)
def test_with_whom_a_gang_shares_its_gpus(sharing: dict[str, Any], requests: dict[str, int], notes: list[str]) -> None:
    builder = FleetBuilder().pool(sharing=sharing).team("a", {"h100": {GPU: 32}}, namespaces=["a"]).queue("qa", "a")
    made = World(builder.build())
    made.machine("m0")
    made.runs(gang("g", gpu=requests.get(GPU, 2), queue="qa", namespace="a"), ("m0", 1))
    (found,) = made.snapshot().gangs.values()
    told = [note for note in gang_notes(made.snapshot(), found, made.fleet) if note.startswith("shares: ")]
    assert told == [f"shares: {note}" for note in notes]


STAYS = (
    "stays: non-preemptible (priority class p): never evicted for others, moved or consolidated; "
    "takes no more than its team is guaranteed"
)


@pytest.mark.parametrize(("preemptible", "notes"), [(True, []), (False, [STAYS])])
def test_work_that_nobody_may_stop_says_so(preemptible: bool, notes: list[str]) -> None:
    made = World(FleetBuilder().pool().team().queue().priority("p", 7, preemptible=preemptible).build())
    work = gang("g", priority_class="p")
    assert [it for it in gang_notes(made.snapshot(), work, made.fleet) if it.startswith("stays")] == notes


def test_what_cannot_be_read_of_a_job_that_runs_is_told() -> None:
    made = World(FleetBuilder().pool().team().queue().build())
    made.machine("m0")
    made.runs(gang("g", gpu=2), ("m0", 1))
    scrawl = UnsupportedConstraint("metadata.annotations[muster.dev/max-run-time]", "'2 hours' is not a duration")
    made.jobs = {uid: replace(it, unread=(scrawl,)) for uid, it in made.jobs.items()}
    words = "metadata.annotations[muster.dev/max-run-time]: '2 hours' is not a duration; it counts as not given"
    assert next(gang_notes(made.snapshot(), made.gang("g"))) == f"unread: {words}"
