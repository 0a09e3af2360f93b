"""What `muster explain workload` says of a gang that runs, and of a job in no queue."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from agent.explanation import explanation_lines
from agent.gang_answer import in_no_queue, in_no_queue_lines
from agent.web.seen import explained_at_once
from fleet.explain.gang_notes import fence_words
from fleet.snapshot import Gang, GangState, HardFence, Pin, Snapshot
from model.plain_text import instant
from tests.support.fleets import GPU, NOW, FleetBuilder, foreign_pod, gang, job_of, pod_set
from tests.support.world import World


def told(it: Gang, asked: int) -> list[str]:
    world = World(FleetBuilder().pool().team().queue().build())
    world.waits(it)
    world.jobs[it.uid] = job_of(replace(it, pod_sets=tuple(replace(p, count=asked) for p in it.pod_sets)))
    return list(explanation_lines(explained_at_once(world.fleet, world.snapshot(), it)))


@pytest.mark.parametrize(
    ("core", "count", "asked", "leaving", "expected"),
    [
        (None, 3, 3, 0, None),
        (None, 3, 4, 0, "  pods:     3 of 4; starts with 3"),
        (2, 3, 3, 0, "  pods:     3 of 3; starts with 2"),
        (2, 3, 5, 1, "  pods:     3 of 5, 1 of them leaving; starts with 2"),
    ],
)
def test_how_many_pods_it_has(core: int | None, count: int, asked: int, leaving: int, expected: str | None) -> None:
    pods = replace(pod_set(count=count), core=core)
    pins = (Pin("main", "m0", "", count),)
    gone = (Pin("main", "m0", "", leaving),) if leaving else ()
    found = told(gang("g", pods, state=GangState.ADMITTED, pins=pins, leaving=gone, admitted_at_s=NOW), asked)
    assert [line for line in found if line.startswith("  pods:")] == ([expected] if expected else [])


def test_how_long_it_has_run_of_the_time_it_has() -> None:
    limits: dict[str, Any] = {"max_run_s": 6 * 3600.0, "ran_before_s": 3600.0}
    it = gang("g", state=GangState.ADMITTED, admitted_at_s=NOW - 1800, **limits)
    assert f"  ran:      since {instant(NOW - 1800)}, and 60m before, 6h at most" in told(it, 1)
    waits = replace(it, state=GangState.PENDING)
    assert "  ran:      60m in all, 6h at most" in told(waits, 1)


def test_a_job_that_is_left_to_itself() -> None:
    head, takes, remedy = in_no_queue_lines(in_no_queue(job_of(gang("g", count=3, gpu=4)), Snapshot(NOW), "t"))
    assert head.endswith("g  (Job, no queue)")
    assert "asks for 3 cpu, 3Gi memory, 12 nvidia.com/gpu and counts in no quota" in takes
    assert "muster.dev/queue" in remedy
    _, takes, _ = in_no_queue_lines(in_no_queue(job_of(gang("g", gpu=1)), Snapshot(NOW), "t", "all"))
    assert "1 nvidia.com/gpu and its pods count in queue all: it is left" in takes


def test_what_the_pods_of_a_job_that_is_left_hold() -> None:
    """Also where the job has made another, whose pods they are."""
    left = job_of(gang("g", count=2, gpu=4))
    below = replace(left, ref=replace(left.ref, uid="below"), owner_uid=left.ref.uid)
    mine, other = (foreign_pod(uid, "n0", {GPU: 4}, owner_job=uid) for uid in ("below", "somebody"))
    seen = Snapshot(NOW, jobs={it.ref.uid: it for it in (left, below)}, ordinary_pods={"n0": (mine, mine, other)})
    assert "  holds:    8 nvidia.com/gpu, on n0 (2), which team t pays for" in [
        *in_no_queue_lines(in_no_queue(left, seen, "t"))
    ]


@pytest.mark.parametrize(
    ("fence", "told"),
    [
        (None, []),
        (HardFence("ns"), []),
        (
            HardFence("ns", hard={"nvidia.com/gpu": 32, "cpu": 1500}, ours=True),
            [
                (
                    "fence: all pods of ns together request at most 1500m cpu, 32 nvidia.com/gpu "
                    "(ResourceQuota muster-hard-fence)"
                )
            ],
        ),
    ],
)
def test_the_fence_of_its_namespace(fence: HardFence | None, told: list[str]) -> None:
    known = {"ns": fence} if fence else {}
    assert list(fence_words(Snapshot(NOW, hard_fences=known), "ns")) == told


def test_it_takes_a_moment() -> None:
    """It reads JSON and text: with the engine and the codecs of all objects a call took 1.5 s of CPU."""
    heavy = {"fleet", "pydantic", "kubernetes", "providers.kube.objects"}
    script = f"import agent.cli.explain, sys; print(*{heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
