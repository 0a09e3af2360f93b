"""What the measure of estimates says, on estimates whose outcome is known."""

import pytest

from bench.calibration import PARTS, JudgedEstimate, covered_pct, evenly, interval_pct


def windows_of(*met: list[bool]) -> list[list[JudgedEstimate]]:
    return [[JudgedEstimate({"p90": it}, 1.0) for it in window] for window in met]


def test_no_queue_is_in_both_parts_and_no_window_twice() -> None:
    queues = {part: {(it.trace, queue) for it in windows for queue in it.queues} for part, windows in PARTS.items()}
    assert not queues["tuning"] & queues["test"]
    days = [(it.trace, queue, it.day) for it in PARTS["test"] for queue in it.queues]
    assert len(set(days)) == len(days)
    assert all(abs(day - other) >= 7 for *of, day in days for *of_it, other in days if of == of_it and day != other)


def test_a_jam_counts_as_one_observation() -> None:
    """Half of a hundred estimates fail: within bounds when they do in every window, unknown when in one of two."""
    spread = windows_of(*[[True, False]] * 50)
    one_jam = windows_of([True] * 50, [False] * 50)
    assert covered_pct(spread, "p90") == covered_pct(one_jam, "p90") == 50.0
    assert interval_pct(spread, "p90") == (50.0, 50.0)
    assert interval_pct(one_jam, "p90") == (0.0, 100.0)


@pytest.mark.parametrize(("many", "few"), [(0, ()), (1, ("0",)), (4, ("0", "1", "2", "3")), (8, ("1", "3", "5", "7"))])
def test_few_of_a_forecast_are_judged_evenly(many: int, few: tuple[str, ...]) -> None:
    assert evenly([str(number) for number in range(many)], 4) == set(few)
