"""What a replay came to, and how it is told."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from fleet.replay.charts import to_html
from fleet.replay.outcome import SAMPLES, ReplayOutcome, percentile
from fleet.replay.render import to_json, to_markdown, to_table
from fleet.replay.virtual_run import replay
from tests.fleet.replay.test_virtual_run import DAY, HOUR_S, fleet, work
from tests.support.fleets import catalog

HOSTILE = "q</td><script>alert(1)</script>|x"


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ((), 0.5, 0.0),
        ((7.0,), 0.95, 7.0),
        ((1.0, 2.0), 0.5, 1.0),
        ((1.0, 2.0, 3.0), 0.5, 2.0),
        (tuple(map(float, range(1, 101))), 0.95, 95.0),
        (tuple(map(float, range(1, 101))), 0.5, 50.0),
    ],
)
def test_percentiles_are_values_that_occur(values: tuple[float, ...], part: float, expected: float) -> None:
    assert percentile(values, part) == expected


@pytest.fixture(scope="module")
def outcome() -> ReplayOutcome:
    jobs = [work("one", pods=2), work("two", 6 * HOUR_S), work("strange", queue=HOSTILE)]
    return replay("HEAD <b>", fleet(), catalog(), jobs, DAY)


def test_money_and_gpus_are_those_of_the_machines(outcome: ReplayOutcome) -> None:
    assert outcome.machines == 3
    assert outcome.usd == pytest.approx(outcome.bought_gpu_h / 8 * 98.0)
    assert outcome.total.gpu_h == pytest.approx(24.0)
    assert outcome.utilisation == pytest.approx(24.0 / outcome.bought_gpu_h)


def test_the_series_say_what_stood_and_ran_then(outcome: ReplayOutcome) -> None:
    series = outcome.series
    assert len(series.at_s) == len(series.used_gpus) == len(series.bought_gpus) == SAMPLES
    assert max(series.used_gpus) == 16
    assert all(used <= bought for used, bought in zip(series.used_gpus, series.bought_gpus, strict=True))
    assert series.waiting[HOSTILE] == (1,) * SAMPLES
    assert [it for it in series.wait_p50_s["q"] if it is not None] == [250.0, 251.0]


def test_the_table_names_every_queue_and_who_waits(outcome: ReplayOutcome) -> None:
    text = to_table([outcome])
    assert re.search(r"^q +HEAD <b> +2 +2 +2 +4m10s +4m11s", text, re.MULTILINE)
    assert "waiting at the end: QueueNotFound 1" in text


def test_names_break_no_markdown_and_no_page(outcome: ReplayOutcome) -> None:
    rows = [line for line in to_markdown([outcome]).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11, 13}
    page = to_html([outcome, outcome])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert not re.search(r"(src|href)=", page)
    for picture in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ET.fromstring(picture)
    assert page.count("<svg") == 5


def test_programs_get_the_numbers_and_the_series(outcome: ReplayOutcome) -> None:
    told = json.loads(json.dumps(to_json([outcome])))
    [found] = told["outcomes"]
    assert found["utilisation"] == outcome.utilisation
    assert found["queues"][0]["queue"] == "q"
    assert found["series"]["used_gpus"] == list(outcome.series.used_gpus)


def test_a_page_of_nothing_is_a_page() -> None:
    empty = replay("x", fleet(), catalog(), [], DAY)
    assert "<svg" in to_html([empty])
    assert to_table([empty]).startswith("fleet")
