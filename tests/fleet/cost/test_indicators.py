"""The numbers of a month: each from records that a reader can add up by hand."""

import json
from typing import Any

import pytest

from fleet.cost.indicators import Indicators, indicators, percentile
from fleet.cost.machine_use import IDLE, NOT_READY, UNOBSERVED
from fleet.cost.records import LedgerRecord
from fleet.cost.report_text import report_html, report_json, report_table
from fleet.cost.statement import Month, statement
from fleet.cost.sums import used_hours
from fleet.reasons import Reason
from tests.providers.store.contract import H0, start
from tests.providers.store.contract import record as made

GPU_H = 3600.0


def record(machine: str, subject: str, gpus: float, **more: Any) -> LedgerRecord:
    return made(machine, more.pop("hour", 0), subject, **{"gpu_s": gpus * GPU_H, "cost_micro_usd": 10**6, **more})


def of(*records: LedgerRecord) -> Indicators:
    return indicators(used_hours(sorted(records, key=lambda it: (it.cluster, it.hour_s, it.machine))), [])


def test_utilisation_is_of_healthy_gpus_by_model() -> None:
    it = of(
        record("i-0", "g", 6), record("i-0", IDLE, 1), record("i-0", NOT_READY, 1),
        record("i-1", "h", 2, gpu="a100"), record("i-1", UNOBSERVED, 6, gpu="a100"),
        record("i-2", "web", 0, gpu=""),
    )  # fmt: skip
    assert {name: time.utilisation for name, time in it.by_model.items()} == {
        "h100": pytest.approx(6 / 7),
        "a100": pytest.approx(2 / 8),
    }
    assert it.gpus.utilisation == pytest.approx(8 / 15)


def test_idle_gpus_beside_work_are_fragments() -> None:
    it = of(record("i-0", "g", 6), record("i-0", IDLE, 2), record("i-1", IDLE, 8))
    assert it.fragmentation == pytest.approx(0.2)


def test_lost_work_counts_the_gpus_it_had() -> None:
    it = of(record("i-0", "g", 4, lost_s=1800.0, lost_micro_usd=5), record("i-1", "g", 4), record("i-2", "h", 8))
    assert (it.evictions, it.lost_gpu_s / GPU_H, it.lost_cost) == (1, 2.0, 5)
    assert it.usd_per_useful_gpu_h == pytest.approx(3 / 14)


def test_a_gang_on_several_machines_is_evicted_once() -> None:
    lost = {"lost_s": 1800.0, "lost_micro_usd": 5}
    it = of(record("i-0", "g", 4, **lost), record("i-1", "g", 4, **lost), record("i-1", "h", 4, **lost))
    assert (it.evictions, it.lost_cost) == (2, 15)


def test_a_useful_hour_of_nothing_costs_nothing_to_tell() -> None:
    assert of(record("i-0", IDLE, 8)).usd_per_useful_gpu_h is None
    assert of().gpus.utilisation == of().fragmentation == of().spot_share == of().interruptions_a_month == 0.0


def test_spot_and_how_often_it_is_taken_back() -> None:
    ended = str(Reason.INTERRUPTED)
    spot = {"capacity_type": "spot"}
    it = of(
        record("i-0", "g", 8), record("i-1", "g", 6, ended=ended, **spot), record("i-1", IDLE, 2, ended=ended, **spot),
        record("i-2", "g", 8, hour=1, ended="Empty", **spot), record("i-3", "g", 8, hour=2, **spot),
    )  # fmt: skip
    assert it.spot_share == pytest.approx(24 / 32)
    assert (it.interruptions, it.interruptions_a_month) == (1, pytest.approx(730 / 3))


def test_waits_by_queue_and_cause_of_first_starts() -> None:
    starts = [
        start(f"u{n}", 1, submitted_s=H0, reserved_s=H0 + 60 * n, admitted_s=H0 + 100 * n, running_s=H0 + 110 * n)
        for n in range(1, 101)
    ]
    found = indicators([], [*starts, start("again", 1, again=True), start("other", 1, queue="p")]).waits
    assert list(found) == ["p", "q"]
    waits = found["q"]
    assert len(waits.total) == 100
    assert [percentile(waits.total, percent) for percent in (50, 95, 99)] == [5500.0, 10450.0, 10890.0]
    assert [percentile(it, 50) for it in (waits.quota, waits.machines, waits.pods)] == [3000.0, 2000.0, 500.0]
    parts = zip(waits.quota, waits.machines, waits.pods, strict=True)
    assert [sum(it) for it in parts] == pytest.approx(waits.total)


@pytest.mark.parametrize(
    ("values", "percent", "found"), [([], 50, 0.0), ([7.0], 99, 7.0), ([1.0, 2.0, 3.0], 50, 2.0), ([2.0, 1.0], 50, 1.0)]
)
def test_percentiles_by_nearest_rank(values: list[float], percent: int, found: float) -> None:
    assert percentile(values, percent) == found


def test_the_report_in_every_form() -> None:
    evil = "<img src=x>"
    records = [record("i-0", "g", 6, team=evil), record("i-0", IDLE, 2)]
    numbers = indicators(used_hours(records), [start("u", 1, queue=evil)])
    month = Month.of(H0)
    teams, days = (statement(records, month, [by], month.end_s) for by in ("team", "day"))
    text, told, page = (show(numbers, teams, days) for show in (report_table, report_json, report_html))
    assert "utilisation of h100" in text
    assert json.loads(told)["utilisation"] == 0.75
    assert json.loads(told)["usdByTeam"] == {evil: 1.0, IDLE: 1.0}
    assert evil not in page
    assert page.count("<svg") == 3
    assert "http" not in page
