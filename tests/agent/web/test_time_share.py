"""The page's share of the process's time."""

import pytest

from agent.web.time_share import TimeShare
from tests.agent.web.stage import HandClock


@pytest.mark.parametrize(
    ("spent_s", "later_s", "waits_s"),
    [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (2.0, 0.0, 20.0), (2.0, 15.0, 5.0), (2.0, 20.0, 0.0), (2.0, 9999.0, 0.0)],
)
def test_who_has_taken_too_much_waits(spent_s: float, later_s: float, waits_s: float) -> None:
    clock = HandClock()
    pace = TimeShare(clock, share=0.05, at_once_s=1.0)
    pace.spend(spent_s)
    clock.now_s += later_s
    assert pace.wait_s() == pytest.approx(waits_s)


def test_no_more_is_saved_up_than_may_be_taken_at_once() -> None:
    clock = HandClock()
    pace = TimeShare(clock, share=0.05, at_once_s=1.0)
    clock.now_s += 1e6
    pace.spend(1.5)
    assert pace.wait_s() == pytest.approx(10.0)


def test_in_the_long_run_it_takes_its_share_and_no_more() -> None:
    clock = HandClock()
    pace, spent_s = TimeShare(clock, share=0.05, at_once_s=1.0), 0.0
    while clock.now_s < 10_000:
        clock.now_s += max(0.1, pace.wait_s())
        pace.spend(0.2)
        spent_s += 0.2
    assert spent_s / clock.now_s == pytest.approx(0.05, rel=0.01)
