"""The metrics of how the fleet stands: their values, their names, and that each stands in the table of the docs."""

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.inbox import Done
from agent.metrics import Metrics
from agent.mirror import Mirror
from agent.standing import NOT_DECLARED
from agent.sync import SyncState
from fleet.actions import SaveClaim, SaveGang
from fleet.cost.uses import CostTerms
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import GangState
from tests.agent.web import stage
from tests.support.fleets import NOW, gang

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "metrics.md"


def scraped(metrics: Metrics | None = None) -> str:
    made = metrics or Metrics()
    world = stage.world()
    made.turned(world.fleet, world.snapshot())
    made.lead(lambda: SyncState(applied="main@sha1:1", outcome="Refused", stalled=True), CostTerms(payer_of))
    return made.exposition().decode()


@pytest.mark.parametrize(
    "line",
    [
        'muster_gangs{queue="q-red",state="Admitted"} 3.0',
        'muster_pending_gangs{queue="q-blue",reason="Queued"} 1.0',
        'muster_oldest_wait_seconds{queue="q-blue"} 600.0',
        'muster_quota_used{flavor="h100",queue="q-red",resource="nvidia.com/gpu"} 24.0',
        'muster_team_quota_guaranteed{flavor="h100",resource="nvidia.com/gpu",team="red"} 16.0',
        'muster_team_quota_limit{flavor="h100",resource="nvidia.com/gpu",team="red"} 32.0',
        'muster_team_quota_used{flavor="h100",resource="nvidia.com/gpu",team="red"} 24.0',
        'muster_team_quota_borrowed{flavor="h100",resource="nvidia.com/gpu",team="red"} 8.0',
        'muster_team_quota_lent{flavor="h100",resource="nvidia.com/gpu",team="blue"} 8.0',
        'muster_gpus{model="h100",node_pool="h100",resource="nvidia.com/gpu",state="Used"} 24.0',
        'muster_gpus{model="h100",node_pool="h100",resource="nvidia.com/gpu",state="Idle"} 0.0',
        'muster_gpus{model="h100",node_pool="h100",resource="nvidia.com/gpu",state="Leaving"} 8.0',
        'muster_gpus{model="unknown",node_pool="",resource="nvidia.com/gpu",state="Unclaimed"} 4.0',
        'muster_machines{node_pool="h100",state="Ready"} 4.0',
        'muster_capacity_machines{capacity_type="on-demand"} 4.0',
        'muster_capacity_usd_per_hour{capacity_type="on-demand"} 392.0',
        'muster_shortages{capacity_type="on-demand",instance_type="p5.48xlarge"} 1.0',
        'muster_team_usd_per_hour{team="red"} 294.0',
        'muster_budget_usd_month{team="red"} 5000.0',
        'muster_budget_left_usd{team="red"} 1000.0',
        'muster_revision_info{outcome="Refused",revision="main@sha1:1"} 1.0',
        "muster_sync_stalled 1.0",
        "muster_sync_source_failed 0.0",
        "muster_sync_left 0.0",
    ],
)
def test_a_metric_tells(line: str) -> None:
    found = [re.sub(r"\d+\.\d{3,}", lambda it: str(round(float(it[0]), 1)), it) for it in scraped().splitlines()]
    assert line in found


@pytest.mark.parametrize(
    ("broken", "part", "gone"),
    [
        ("quota_rows", "quota", "muster_team_quota_used"),
        ("machine_tiles", "machines", "muster_gpus"),
        ("sync_standing", "sync", "muster_sync_stalled"),
    ],
)
def test_a_part_that_cannot_be_worked_out_costs_no_other(
    broken: str, part: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(f"agent.{'metrics' if broken == 'sync_standing' else 'standing'}.{broken}", fails)
    metrics = Metrics()
    scraped(metrics)  # counted in this one, and told by the next at the latest
    text = metrics.exposition().decode()
    samples = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert gone not in samples
    told = {"muster_gangs", "muster_sync_left", "muster_team_quota_used", "muster_machines", "muster_team_usd_per_hour"}
    assert told - samples <= BELONGS[part]
    assert re.search(rf'muster_scrape_failures_total\{{part="{part}"\}} [12]\.0', text)


BELONGS = {
    "quota": {"muster_team_quota_used"},
    "machines": {"muster_machines"},
    "sync": {"muster_sync_left"},
}
"""Of the metrics that are looked for, those of a part."""


def test_lost_work_is_counted_once_the_gang_leaves() -> None:
    world, metrics = stage.world(), Metrics()
    gang = next(it for it in world.gangs.values() if it.job.name == "red-0")
    mirror = Mirror("c")
    mirror.gangs.assume(f"{gang.namespace}/{gang.workload}", gang, NOW)
    leaving = SaveGang(gang.moved(GangState.EVICTING, "Preempted", "", NOW))
    metrics.acting(leaving, mirror, NOW)
    assert "lost_device_seconds_total{" not in metrics.exposition().decode()
    metrics.ended(Done(leaving), NOW)
    assert 'muster_lost_device_seconds_total{queue="q-red",reason="Preempted"} 4000.0' in metrics.exposition().decode()


def test_a_launch_is_timed_once_the_machine_is_ready() -> None:
    world, metrics = stage.world(), Metrics()
    ready = replace(world.claims["m0"], created_at_s=NOW - 200, ready_at_s=NOW - 100)
    mirror = Mirror("c")
    mirror.claims.assume("m0", replace(ready, ready_at_s=0.0), NOW)
    saved = SaveClaim(ready)
    metrics.acting(saved, mirror, NOW)
    metrics.ended(Done(saved), NOW)
    text = metrics.exposition().decode()
    assert 'muster_launch_duration_seconds_sum{node_pool="h100"} 100.0' in text
    assert 'muster_launch_duration_seconds_count{node_pool="h100"} 1.0' in text


def test_requests_to_the_api_are_counted() -> None:
    metrics = Metrics()
    metrics.asked_api("GET", 200, 0.01)
    metrics.asked_api("GET", 0, 5.0)
    text = metrics.exposition().decode()
    assert 'muster_api_requests_total{code="0",method="GET"} 1.0' in text
    assert 'muster_api_request_duration_seconds_count{method="GET"} 2.0' in text


def families() -> set[str]:
    return set(re.findall(r"^# TYPE (muster_\w+) ", scraped(), re.MULTILINE)) - {""}


def test_every_metric_stands_in_the_table() -> None:
    told = {name.partition("{")[0] for name in re.findall(r"^\| `(muster_\w+)", GUIDE.read_text("utf-8"), re.MULTILINE)}
    found = {name for name in families() if not name.endswith("_created")}
    assert told == found


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        missing = "there is no promtool here (Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def test_prometheus_finds_nothing_wrong_with_the_names() -> None:
    command = [promtool(), "check", "metrics"]
    done = subprocess.run(command, input=scraped(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_names_that_jobs_make_up_are_one_label() -> None:
    made = stage.world()
    for number in range(50):
        made.waits(gang(f"made-up-{number}", queue=f"nobodys-{number}", namespace="red"))
    metrics = Metrics()
    metrics.turned(made.fleet, made.snapshot())
    found = [it for it in metrics.exposition().decode().splitlines() if NOT_DECLARED in it or "nobodys" in it]
    assert [it.rpartition(" ")[0] for it in found] == [
        'muster_gangs{queue="(not declared)",state="Pending"}',
        'muster_pending_gangs{queue="(not declared)",reason="Queued"}',
        'muster_oldest_wait_seconds{queue="(not declared)"}',
    ]
    assert found[0].endswith(" 50.0")
