"""The exact bytes on the wire, for people to read and reviewers to see change.

`MUSTER_GOLDEN=write` writes the files anew.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.actions import StartJob, StopJob
from model.kinds import Toleration
from providers.kube.objects import (
    EventSeries,
    claim_object,
    claim_status,
    event_object,
    forget_patch,
    node_patch,
    node_pool_status,
    queue_status,
    release_patch,
    start_patch,
    stop_patch,
    sync_object,
    sync_status,
    workload_object,
    workload_status,
)
from tests.providers.kube.objects import samples
from tests.providers.kube.objects.values import NOW_S

GOLDEN = Path(__file__).parent / "golden"
RAW_NODE = {
    "metadata": {"name": "ip-10-0-0-1", "resourceVersion": "9", "labels": {"kubernetes.io/hostname": "ip-10-0-0-1"}},
    "spec": {
        "taints": [{"key": "muster.dev/unregistered", "effect": "NoExecute"}, {"key": "x", "effect": "NoSchedule"}]
    },
}
RAW_JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "research", "uid": "6c1f", "resourceVersion": "9"},
    "spec": {"suspend": True, "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}},
}
GPU = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
WRITERS: dict[str, Callable[[], Any]] = {
    "workload": lambda: workload_object(samples.PENDING),
    "workload-topology": lambda: workload_object(samples.LAYERED),
    "workload-status-pending": lambda: workload_status(samples.PENDING, NOW_S),
    "workload-status-admitted": lambda: workload_status(samples.ADMITTED, NOW_S),
    "workload-status-backing-off": lambda: workload_status(samples.BACKING_OFF, NOW_S),
    "claim": lambda: claim_object(samples.BORN),
    "claim-status-pending": lambda: claim_status(samples.BORN, NOW_S),
    "claim-status-leaving": lambda: claim_status(samples.LEAVING, NOW_S),
    "claim-forget-patch": lambda: forget_patch(
        {"metadata": {"uid": "c1", "finalizers": ["example.com/backup", "muster.dev/termination"]}}
    ),
    "queue-status": lambda: queue_status(samples.QUEUE, NOW_S),
    "node-pool-status": lambda: node_pool_status(samples.POOL, NOW_S),
    "fleet-sync": lambda: sync_object("fleet", "https://git.example.com/fleet.git", "main", "clusters/prod"),
    "fleet-sync-status": lambda: sync_status(samples.SYNC, NOW_S),
    "event": lambda: event_object(samples.ANNOUNCE, NOW_S, EventSeries(NOW_S - 60, 3), "muster-0"),
    "start-patch": lambda: start_patch(StartJob(samples.JOB, "9", "6c1f", "job-train", {"main": (GPU,)}), RAW_JOB),
    "stop-patch": lambda: stop_patch(
        StopJob(samples.JOB, "6c1f"),
        {**RAW_JOB, "spec": {**RAW_JOB["spec"], "suspend": False}},  # type: ignore[dict-item]
    ),
    "node-patch": lambda: node_patch(samples.PATCH_NODE, RAW_NODE),
    "release-patch": lambda: release_patch(samples.RELEASE),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_golden(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    written = json.dumps(WRITERS[name](), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("MUSTER_GOLDEN") == "write":
        path.write_text(written, "utf-8")
    assert path.read_text("utf-8") == written


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(WRITERS)
