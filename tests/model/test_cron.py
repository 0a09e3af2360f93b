"""Five-field cron: robfig/cron's rules, and budget windows."""

from datetime import UTC, datetime, timedelta
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.cron import Cron, InvalidCron, window_active, window_end


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NEXT = [
    # after robfig/cron v3 spec_test.go (TestNext) without its seconds, times in UTC
    ("2012-07-09T14:45", "0/15 * * * *", "2012-07-09T15:00"),
    ("2012-07-09T14:59", "0/15 * * * *", "2012-07-09T15:00"),
    ("2012-07-09T14:59:59", "0/15 * * * *", "2012-07-09T15:00"),
    ("2012-07-09T15:45", "20-35/15 * * * *", "2012-07-09T16:20"),
    ("2012-07-09T23:46", "*/15 * * * *", "2012-07-10T00:00"),
    ("2012-07-09T23:45", "20-35/15 * * * *", "2012-07-10T00:20"),
    ("2012-07-09T23:35", "20-35/15 1/2 * * *", "2012-07-10T01:20"),
    ("2012-07-09T23:35", "20-35/15 10-12 * * *", "2012-07-10T10:20"),
    ("2012-07-09T23:35", "0 0 9 Apr-Oct ?", "2012-08-09T00:00"),
    ("2012-07-09T23:35", "0 0 */5 Apr,Aug,Oct Mon", "2012-08-01T00:00"),
    ("2012-07-09T23:35", "0 0 */5 Oct Mon", "2012-10-01T00:00"),
    ("2012-07-09T23:35", "0 0 * Feb Mon", "2013-02-04T00:00"),
    ("2012-07-09T23:35", "0 0 * Feb Mon/2", "2013-02-01T00:00"),
    ("2012-07-09T23:35", "0 0 29 2 *", "2016-02-29T00:00"),
    ("2097-01-01T00:00", "0 0 29 2 *", "2104-02-29T00:00"),
    # macros, names, both day fields
    ("2026-11-20T09:30", "@hourly", "2026-11-20T10:00"),
    ("2026-11-20T09:30", "@daily", "2026-11-21T00:00"),
    ("2026-11-20T09:30", "@midnight", "2026-11-21T00:00"),
    ("2026-11-20T09:30", "@weekly", "2026-11-22T00:00"),
    ("2026-11-20T09:30", "@monthly", "2026-12-01T00:00"),
    ("2026-11-20T09:30", "@yearly", "2027-01-01T00:00"),
    ("2026-11-20T09:30", "@annually", "2027-01-01T00:00"),
    ("2026-11-20T09:30", "0 9 * * MON-FRI", "2026-11-23T09:00"),
    ("2026-11-20T09:30", "0 0 13 * 5", "2026-11-27T00:00"),  # either day
    ("2026-11-20T09:30", "30 9 * * *", "2026-11-21T09:30"),  # strictly after
    ("2026-12-31T23:59", "* * * * *", "2027-01-01T00:00"),
    ("1969-12-31T23:59", "0 0 * * *", "1970-01-01T00:00"),
]


@pytest.mark.parametrize(("after", "schedule", "expected"), NEXT)
def test_next_after(after: str, schedule: str, expected: str) -> None:
    found = Cron.parse(schedule).next_after(at(after))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat() == f"{expected}:00+00:00"


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_dates_that_never_come(schedule: str) -> None:
    assert Cron.parse(schedule).next_after(at("2026-01-01T00:00")) is None


@pytest.mark.parametrize("instant_s", [-1e15, 1e15, 253402300799.0])
def test_beyond_the_calendar(instant_s: float) -> None:
    assert Cron.parse("@daily").next_after(instant_s) is None


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("60 * * * *", "minute: 60 is not within 0 and 59"),
        ("* 24 * * *", "hour: 24"),
        ("* * 0 * *", "day of month: 0"),
        ("* * 32 * *", "day of month: 32"),
        ("* * * 13 *", "month: 13"),
        ("* * * 0 *", "month: 0"),
        ("* * * * 7", "Sunday is 0"),
        ("* * * foo *", "'foo' is not a number"),
        ("5-1 * * * *", "runs backwards"),
        ("*/0 * * * *", "step must be positive"),
        ("1,,2 * * * *", "'' is not a number"),
        ("-1 * * * *", "'' is not a number"),
        ("١ * * * *", "is not a number"),
        ("99999 * * * *", "is not a number"),
        ("@every 1h", "unknown schedule"),
        ("@noon", "unknown schedule"),
        ("TZ=UTC 0 0 * * *", "no time zone stands in a schedule"),
        ("CRON_TZ=Europe/Berlin 0 0 * * *", "no time zone stands in a schedule"),
    ],
)
def test_refused(schedule: str, reason: str) -> None:
    with pytest.raises(InvalidCron, match=reason):
        Cron.parse(schedule)


@pytest.mark.parametrize(
    ("now", "active"),
    [
        ("2026-11-20T08:59:59", False),
        ("2026-11-20T09:00:00", True),
        ("2026-11-20T12:00:00", True),
        ("2026-11-20T16:59:59", True),
        ("2026-11-20T17:00:00", False),  # next(now - 8h) is tomorrow: strictly after 09:00
        ("2026-11-20T17:00:01", False),
        ("2026-11-21T10:00:00", False),  # Saturday
    ],
)
def test_window(now: str, active: bool) -> None:
    assert window_active(Cron.parse("0 9 * * mon-fri"), 8 * 3600, at(now)) is active


def test_a_window_longer_than_its_period_never_closes() -> None:
    assert all(
        window_active(Cron.parse("@hourly"), 7200, at("2026-01-01T00:00") + minute * 60) for minute in range(300)
    )


def test_a_window_without_end_or_opening() -> None:
    assert window_active(Cron.parse("@daily"), float("inf"), 0.0)
    assert not window_active(Cron.parse("0 0 30 2 *"), 3600, at("2026-03-01T00:00"))


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "7,30", "10-20", "*/25", "5/20"]),
    st.sampled_from(["*", "0", "6-9", "*/7", "23"]),
    st.sampled_from(["*", "?", "1", "29", "31", "1-7", "*/10"]),
    st.sampled_from(["*", "2", "jan-mar", "*/5", "12"]),
    st.sampled_from(["*", "?", "0", "mon-fri", "sat,sun", "*/2"]),
)


@settings(max_examples=60)
@given(FIELDS, st.integers(0, 5 * 366 * 1440))
def test_agrees_with_stepping_minute_by_minute(fields: tuple[str, ...], minutes: int) -> None:
    cron = Cron.parse(" ".join(fields))
    minute = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    found = cron.next_after(minute.timestamp())
    for _ in range(3 * 1440):
        minute += timedelta(minutes=1)
        if _matches(cron, minute):
            assert found == minute.timestamp()
            return
    assert found is None or found > minute.timestamp()


def _matches(cron: Cron, moment: datetime) -> bool:
    days = (moment.day in cron.days_of_month, moment.isoweekday() % 7 in cron.days_of_week)
    return (
        moment.hour * 60 + moment.minute in cron.minutes_of_day
        and moment.month in cron.months
        and (all(days) if cron.both_days else any(days))
    )


NOON = 1_800_014_400.0
"""12:00 UTC of a Friday."""


@pytest.mark.parametrize(
    ("schedule", "duration_s", "end_s"),
    [
        ("0 11 * * *", 7200.0, NOON + 3600),
        ("0 12 * * *", 60.0, NOON + 60),
        ("0 11 * * *", 3600.0, NOON),
        ("0 10 * * *", 3600.0, NOON),
        ("0 * * * *", 3600.0, inf),
        ("0,30 11 * * *", 3600.0, NOON + 1800),
        ("* * * * *", 3600.0, inf),
        ("0 0 29 2 *", inf, inf),
    ],
)
def test_when_a_window_ends(schedule: str, duration_s: float, end_s: float) -> None:
    """It ends where no opening is within its duration any more; outside of one it is over now."""
    cron = Cron.parse(schedule)
    assert window_end(cron, duration_s, NOON) == end_s
    if NOON < end_s < inf:
        assert window_active(cron, duration_s, end_s - 1)
        assert not window_active(cron, duration_s, end_s)
