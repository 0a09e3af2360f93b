"""The record of submitted work: written once it is so in the cluster, bounded, and read back whatever a kill left."""

import json
from dataclasses import replace
from pathlib import Path

from agent import explanations
from agent.inbox import Done, Failed
from agent.record import EARLIER, Record
from fleet.actions import CloseGang, OpenGang, SaveGang
from fleet.snapshot import Gang, GangState
from providers.traces import read_trace
from tests.support.fleets import GPU, NOW, gang, pod_set

GANG = replace(gang("train"), pod_sets=(pod_set(count=2, gpu=8),), created_at_s=NOW, priority_class="high")
RUNS = replace(GANG, state=GangState.ADMITTED, admitted_at_s=NOW + 60)
ENDED = replace(RUNS, state=GangState.FINISHED, ran_before_s=3600.0)


def recorded(path: Path, *events: tuple[object, float], most: int = 1 << 20) -> Path:
    record = Record(path, most)
    for event, at_s in events:
        record.ended(event, at_s)  # type: ignore[arg-type]
    record.close()
    return path


def test_a_gang_that_ended_is_read_back_as_it_came(tmp_path: Path) -> None:
    path = recorded(
        tmp_path / "deep" / "record.jsonl",
        (Done(OpenGang(GANG)), NOW + 1),
        (Done(SaveGang(RUNS)), NOW + 60),
        (Done(SaveGang(ENDED)), NOW + 3660),
    )
    [work] = read_trace(path).work
    assert (work.namespace, work.queue, work.priority_class) == (GANG.namespace, GANG.queue, "high")
    assert (work.submitted_s, work.run_s, work.gpus) == (NOW, 3600.0, 16)
    assert [(it.count, it.requests[GPU]) for it in work.shapes] == [(2, 8)]


def test_one_that_runs_still_runs_to_the_end_of_the_record(tmp_path: Path) -> None:
    other = replace(ENDED, uid="other-uid", job=replace(GANG.job, name="other"))
    path = recorded(tmp_path / "r", (Done(OpenGang(GANG)), NOW), (Done(SaveGang(other)), NOW + 5000))
    read = read_trace(path)
    assert {it.run_s for it in read.work} == {5000.0, 4940.0}
    assert len(read.notes) == 1
    assert {it.split("-")[0] for it in read.unended} == {f"{GANG.namespace}/train"}
    assert {it.run_s for it in read_trace(path, NOW + 9000).work} == {9000.0, 4940.0}


def test_estimates_learn_nothing_of_one_that_still_runs(tmp_path: Path) -> None:
    other = replace(ENDED, uid="other-uid", job=replace(GANG.job, name="other"), ran_before_s=1800.0)
    path = recorded(tmp_path / "r", (Done(OpenGang(GANG)), NOW), (Done(SaveGang(other)), NOW + 5000))
    assert [it.ran_s for it in explanations._recorded(path)] == [4940.0]


def test_a_job_that_was_deleted_has_run_until_then(tmp_path: Path) -> None:
    [work] = read_trace(recorded(tmp_path / "r", (Done(CloseGang(RUNS)), NOW + 160))).work
    assert work.run_s == 100.0


def test_what_failed_or_only_moved_on_leaves_no_line(tmp_path: Path) -> None:
    path = recorded(
        tmp_path / "r",
        (Failed(OpenGang(GANG), "no"), NOW),
        (Done(SaveGang(RUNS)), NOW),
        (Done(CloseGang(ENDED)), NOW),
    )
    assert path.read_text("utf-8") == ""


def test_with_checkpoints_all_runs_count_and_without_the_last(tmp_path: Path) -> None:
    evicted = replace(ENDED, ran_before_s=9000.0)
    saves = replace(evicted, uid="uid-saves", checkpoint_interval_s=600.0)
    path = recorded(tmp_path / "r", (Done(SaveGang(evicted)), NOW + 3660), (Done(SaveGang(saves)), NOW + 3660))
    assert {it.checkpoint_interval_s: it.run_s for it in read_trace(path).work} == {None: 3600.0, 600.0: 9000.0}


def test_a_kill_in_the_midst_of_a_line_costs_that_line(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r", (Done(SaveGang(ENDED)), NOW + 3660))
    with path.open("a") as file:
        file.write('{"at_s": 18000')
    assert len(read_trace(path).work) == 1
    recorded(path, (Done(SaveGang(replace(ENDED, uid="uid-later"))), NOW + 3700))
    lines = path.read_text("utf-8").splitlines()
    assert [json.loads(line)["uid"] for line in lines] == [GANG.uid, "uid-later"]
    assert len(read_trace(path).work) == 2


def test_it_stays_within_its_bound_and_keeps_the_newest(tmp_path: Path) -> None:
    def many(number: int) -> Gang:
        return replace(ENDED, uid=f"{number:08d}-uid", created_at_s=NOW + number)

    path = recorded(tmp_path / "r", *((Done(SaveGang(many(number))), NOW + 9000) for number in range(200)), most=8192)
    earlier = path.with_name(path.name + EARLIER)
    assert path.stat().st_size + earlier.stat().st_size < 8192 + 1024
    work = read_trace(path).work
    assert 10 < len(work) < 60
    assert work[-1].submitted_s == NOW + 199


def test_one_whose_second_half_is_still_empty_is_read(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r", (Done(SaveGang(ENDED)), NOW + 3660), most=2)
    assert path.read_text("utf-8") == "", "the halves have just changed places"
    assert len(read_trace(path).work) == 1
