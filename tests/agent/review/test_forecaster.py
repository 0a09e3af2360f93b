"""Forecasts are made by a process of their own: in time or told why not, and ended when nobody wants them any more."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.review.forecaster import ForecastBounds, Forecaster, Proposed
from model.fleet import Fleet
from model.loader import load
from tests.agent.review.forge import commit
from tests.agent.review.place import recorded
from tests.agent.scenes import files, pool, queue, simple, team
from tests.support.fleets import NOW

pytestmark = pytest.mark.slow
OF, NEXT = Proposed(commit(2), commit(1)), Proposed(commit(3), commit(1))
DAY_S = 86_400.0


def fleet(said: dict[str, str]) -> Fleet:
    return load({path: text.encode() for path, text in said.items()})


BEFORE = fleet(simple())
AFTER = fleet(files(pool(limits={"nodes": 1}), team(), queue()))


class Made:
    """A forecaster, and the wait for it."""

    def __init__(self, bounds: ForecastBounds) -> None:
        self.woken = threading.Semaphore(0)
        self.forecaster = Forecaster(bounds, self.woken.release)

    def text(self, request: int = 7, of: Proposed = OF) -> str:
        assert self.woken.acquire(timeout=60.0)
        return self.forecaster.made(request, of)


@pytest.fixture
def forecasts(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    made: list[Made] = []

    def begin(days: float = 7.0, within_s: float = 60.0, memory_mib: int = 2048, record: Path | None = None) -> Made:
        path = record or recorded(tmp_path / "record.jsonl")
        made.append(Made(ForecastBounds(path, "us-east-1", days, within_s, memory_mib * 2**20)))
        return made[-1]

    yield begin
    for each in made:
        each.forecaster.close()


def test_waits_and_money_of_the_last_days_before_and_after(forecasts: Callable[..., Made]) -> None:
    it = forecasts(days=2.0)
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    text = it.text()
    assert text.startswith(f"<!-- muster-forecast head={OF.head} base={OF.base} -->")
    assert "Forecast: the last 2 days again" in text
    row = next(line for line in text.splitlines() if line.startswith("| t |"))
    assert "| 12 |" in row, "the third day is left out"
    assert "->" in row, "one machine at most: all wait longer"


def test_one_that_takes_too_long_is_told_of_and_the_next_is_made(forecasts: Callable[..., Made]) -> None:
    it = forecasts(within_s=0.2)
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    it.forecaster.want(8, OF, BEFORE, AFTER, NOW)
    assert "Not finished within 0.2 s" in it.text(7)
    assert "Not finished within 0.2 s" in it.text(8)


def test_nothing_is_made_of_a_head_that_moved(forecasts: Callable[..., Made]) -> None:
    it = forecasts()
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    it.forecaster.keep({7: NEXT.head})
    it.forecaster.want(7, NEXT, BEFORE, AFTER, NOW)
    assert it.text(7, NEXT)
    assert it.forecaster.made(7, OF) == ""
    it.forecaster.said(7)
    assert it.forecaster.made(7, NEXT) == ""


def test_the_process_is_ended_with_the_wish_for_it(forecasts: Callable[..., Made], tmp_path: Path) -> None:
    it = forecasts(record=recorded(tmp_path / "long.jsonl", days=60), days=60.0)
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    deadline = time.monotonic() + 30.0
    while it.forecaster._running is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert it.forecaster._running is not None
    process = it.forecaster._running[1]
    began_s = time.monotonic()
    it.forecaster.close()
    assert process.returncode is not None
    assert time.monotonic() - began_s < 60.0
    assert not it.woken.acquire(blocking=False)
    it.forecaster.want(8, OF, BEFORE, AFTER, NOW)
    assert it.forecaster.made(8, OF) == ""


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ("", "nothing is recorded yet"),
        ("{}\n", "not a list of Kueue Workloads"),
        (json.dumps({"at_s": 1}) + "\n", "record.jsonl"),
    ],
)
def test_a_record_that_cannot_be_played_is_told_of(
    forecasts: Callable[..., Made], tmp_path: Path, record: str, words: str
) -> None:
    path = tmp_path / "other" / "record.jsonl"
    path.parent.mkdir()
    path.write_text(record)
    it = forecasts(record=path)
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    text = it.text()
    assert words in text.replace("\\", "")
    assert str(tmp_path) not in text


def test_work_of_a_queue_that_is_gone_is_told_of(forecasts: Callable[..., Made], tmp_path: Path) -> None:
    it = forecasts(record=recorded(tmp_path / "gone.jsonl", queue_name="gone"))
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    assert "neither fleet declares a queue" in it.text()


def test_one_that_takes_too_much_memory_is_told_of(forecasts: Callable[..., Made]) -> None:
    it = forecasts(memory_mib=64)
    it.forecaster.want(7, OF, BEFORE, AFTER, NOW)
    assert "Not made" in it.text()
