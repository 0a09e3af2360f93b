"""Traces and the record, as they are read: what is understood, what is left out, and errors with file and line."""

import json
import os
from pathlib import Path

import pytest

from providers.traces import EPOCH_S, TraceError, read_trace
from tests.support.fleets import GPU

SHARED = Path(os.environ.get("MUSTER_TRACES") or "no such folder")
"""The public traces of Philly and openb, by folder, where they are."""
HEADER = "submit_s,queue,pods,gpus,run_s"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8")
    return path


def test_our_csv(tmp_path: Path) -> None:
    header = f"{HEADER},name,namespace,priority_class,cpu,memory,selector,checkpoint_s,expected_run_s"
    rows = "60,q,2,8,3600,train,ns,high,4,16Gi,gpu=h100; zone=a,600,4000\n0,q,1,1,60,,,,,,,,"
    first, second = read_trace(written(tmp_path, f"{header}\n{rows}\n")).work
    assert (first.name, first.submitted_s, first.gpus, first.checkpoint_interval_s) == ("gang-000002", EPOCH_S, 1, None)
    [shape] = second.shapes
    assert (second.uid, second.queue, second.priority_class, second.submitted_s) == (
        "ns/train",
        "q",
        "high",
        EPOCH_S + 60,
    )
    assert (shape.count, dict(shape.requests)) == (2, {GPU: 8, "cpu": 4000, "memory": 16 << 30})
    assert dict(shape.selector) == {"gpu": "h100", "zone": "a"}
    assert (second.checkpoint_interval_s, second.expected_run_s, second.run_s) == (600.0, 4000.0, 3600.0)


def test_instants_since_1970_stay_as_they_are(tmp_path: Path) -> None:
    [gang] = read_trace(written(tmp_path, f"{HEADER}\n1800000000,q,1,1,60\n")).work
    assert gang.submitted_s == 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submit_s,queue,pods,gpus\n", r"trace:1: column run_s is missing"),
        (f"{HEADER},colour\n", r"trace:1: column 'colour' is not known"),
        (f"{HEADER}\n0,q,1,1,60\n1,q,1,1\n", r"trace:3: 5 values"),
        (f"{HEADER}\n0,q,1,1,60,9\n", r"trace:2: 5 values"),
        (f"{HEADER}\nsoon,q,1,1,60\n", r"trace:2: submit_s is 'soon'"),
        (f"{HEADER}\n0,q,1,1,-1\n", r"trace:2: run_s is -1"),
        (f"{HEADER}\n0,q,1,1,inf\n", r"trace:2: run_s is inf"),
        (f"{HEADER}\n0,q,0,1,60\n", r"trace:2: pods is 0"),
        (f"{HEADER}\n0,q,1.5,1,60\n", r"trace:2: pods is 1.5"),
        (f"{HEADER}\n0,q,1,many,60\n", r"trace:2: .*many"),
        (f"{HEADER}\n0,,1,1,60\n", r"trace:2: queue is empty"),
        (f"{HEADER},selector\n0,q,1,1,60,h100\n", r"trace:2: selector 'h100' is not label=value"),
        (f"{HEADER},name\n0,q,1,1,60,x\n0,q,1,1,60,x\n", r"trace: x is in it twice"),
        (f"{HEADER}\n", r"trace: no gang in it"),
        ('{"items": 3}', r"trace: not a list of Kueue Workloads"),
        ('{"items": [', r"trace:1: not JSON"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", r"trace:1: the pods have no creation_time"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read_trace(written(tmp_path, text))


@pytest.mark.parametrize(
    ("gpus", "pods", "each"), [(1, 1, 1), (8, 1, 8), (16, 2, 8), (12, 2, 6), (7, 1, 7), (11, 11, 1)]
)
def test_philly_knows_gpus_alone(tmp_path: Path, gpus: int, pods: int, each: int) -> None:
    rows = f"timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,{gpus},66.0,11cb48\n"
    [gang] = read_trace(written(tmp_path, rows)).work
    [shape] = gang.shapes
    assert (gang.queue, gang.run_s, shape.count, shape.requests[GPU]) == ("11cb48", 66.0, pods, each)


def test_openb_has_pods_that_share_a_gpu_and_pods_without(tmp_path: Path) -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = "a,12000,16384,1,460,,LS,Running,10,110,20\nb,1,1,0,0,,LS,Running,0,9,1\nc,1,1,1,1000,,LS,Pending,0,9,\n"
    read = read_trace(written(tmp_path, f"{header}\n{rows}"))
    [gang] = read.work
    assert (gang.queue, gang.submitted_s, gang.run_s) == ("LS", EPOCH_S + 10, 90.0)
    assert dict(gang.shapes[0].requests) == {"cpu": 12000, "memory": 16384 << 20, GPU: 1}
    assert [note.split()[0] for note in read.notes] == ["2", "of"]


def test_workloads_of_kueue_that_have_finished(tmp_path: Path) -> None:
    def workload(name: str, *conditions: str) -> dict[str, object]:
        times = {"Admitted": "2026-01-01T00:01:00Z", "Finished": "2026-01-01T01:01:00Z"}
        containers = [{"resources": {"limits": {GPU: "8"}, "requests": {"cpu": "500m"}}}]
        return {
            "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"queueName": "q", "podSets": [{"count": 2, "template": {"spec": {"containers": containers}}}]},
            "status": {
                "conditions": [{"type": it, "status": "True", "lastTransitionTime": times[it]} for it in conditions]
            },
        }

    text = json.dumps({"items": [workload("done", "Admitted", "Finished"), workload("runs", "Admitted")]})
    read = read_trace(written(tmp_path, text))
    [gang] = read.work
    assert (gang.uid, gang.queue, gang.run_s, gang.gpus) == ("ns/done", "q", 3600.0, 16)
    assert read.notes == ("1 Workload left out: not finished",)


@pytest.mark.skipif(not SHARED.exists(), reason="MUSTER_TRACES names no folder with them")
@pytest.mark.parametrize(
    ("name", "most"), [("philly/philly_jobs.csv", 90_000), ("openb/openb_pod_list_default.csv", 8_152)]
)
def test_the_public_traces_are_read(name: str, most: int) -> None:
    assert most * 0.7 < len(read_trace(SHARED / name).work) <= most
